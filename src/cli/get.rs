//! Runs `petiole get`, which reads a running `petiole kubelet` and prints its objects as kubectl does.
use super::node_folders::NodeFolders;
use crate::{
    api::{
        condition::{Condition, ConditionType},
        configuration::Configuration,
        instance::Instance,
        names,
    },
    model::age,
    node_view::ASKED,
    store::folder,
};
use anyhow::Context as _;
use clap::{Args, ValueEnum};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    List,
    api::core::v1::{ContainerStatus, Node, Pod},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
use petiole_cli::table::{Columns, Output, print, print_error, render, row};
use petiole_kubelet::client::{Client, PluginState, PluginView};
use serde::Serialize;
use std::{iter, time::Duration};

#[derive(Debug, Args)]
pub struct Flags {
    kind: Kind,
    #[command(flatten)]
    folders: NodeFolders,
    /// Output format
    #[arg(short, long, value_enum, default_value = "table")]
    output: Output,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// Pods, with the devices of their containers and the devices' health
    #[value(alias = "pod", alias = "po")]
    Pods,
    /// Device plugins and drivers: registered, stopped and rejected ones
    #[value(alias = "plugin")]
    Plugins,
    /// Resources of the node
    #[value(alias = "nodes", alias = "no")]
    Node,
    /// Devices that an agent found
    #[value(alias = "instance", alias = "akrii")]
    Instances,
    /// Configurations that an agent uses, and what is wrong with them
    #[value(alias = "configuration", alias = "akric")]
    Configurations,
}

pub(super) async fn run(flags: Flags) -> anyhow::Result<()> {
    let Flags {
        kind,
        folders,
        output,
    } = flags;
    let (client, state) = (Client::new(&folders.root_dir()), folders.state);
    let now = Timestamp::now();
    let text = match kind {
        Kind::Pods => {
            let pods = client.pods().await.context(ASKED)?;
            let metadata = pods.items.iter().map(|pod| &pod.metadata);
            let names = || names_of("pod", metadata);
            render(output, &pods, || pod_columns(&pods, now), names)
        }
        Kind::Plugins => {
            let plugins = client.plugins().await.context(ASKED)?;
            let names = || plugins.iter().map(|plugin| plugin.name.clone()).collect();
            render(
                output,
                &plugins,
                || columns(6, PLUGINS, &plugins, plugin_row),
                names,
            )
        }
        Kind::Node => {
            let node = client.node().await.context(ASKED)?;
            let names = || names_of("node", [&node.metadata]);
            render(output, &node, || node_columns(&node), names)
        }
        Kind::Instances => instances(folder::instances(&state)?, output),
        Kind::Configurations => {
            let list = ObjectList::new("ConfigurationList", folder::configurations(&state)?);
            // A manifest that cannot be read has no row.
            print_error(&folder::errors(&state)?);
            let columns = || columns(6, CONFIGURATIONS, &list.items, configuration_row);
            let metadata = list.items.iter().map(|object| &object.metadata);
            render(output, &list, columns, || {
                names_of("configuration.akri.sh", metadata)
            })
        }
    }?;
    print(&text)
}

/// Returns the text of Instances.
pub(super) fn instances(instances: Vec<Instance>, output: Output) -> anyhow::Result<String> {
    let list = ObjectList::new("InstanceList", instances);
    let columns = || instance_columns(&list.items, Timestamp::now());
    let metadata = list.items.iter().map(|instance| &instance.metadata);
    render(output, &list, columns, || {
        names_of("instance.akri.sh", metadata)
    })
}

/// Returns each object as `<kind>/<name>`.
fn names_of<'a>(kind: &str, objects: impl IntoIterator<Item = &'a ObjectMeta>) -> Vec<String> {
    let names = objects
        .into_iter()
        .filter_map(|object| object.name.as_ref());
    names.map(|name| format!("{kind}/{name}")).collect()
}

/// A list of objects in the API server's form.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ObjectList<T> {
    api_version: &'static str,
    kind: &'static str,
    items: Vec<T>,
}

impl<T> ObjectList<T> {
    fn new(kind: &'static str, items: Vec<T>) -> Self {
        Self {
            api_version: names::API_VERSION,
            kind,
            items,
        }
    }
}

// As `kubectl get` has them.
const CONFIGURATIONS: &str = "NAME HANDLER CAPACITY INSTANCES READY REASON MESSAGE";
const INSTANCES: &str = "NAME CONFIG SHARED NODES AGE AVAILABLE DEVICE";
const PODS: &str = "NAMESPACE NAME READY STATUS RESTARTS AGE DEVICES MESSAGE";
const PLUGINS: &str = "NAME TYPE STATE HEALTHY UNHEALTHY ALLOCATED ENDPOINT REASON";
const NODES: &str = "NODE RESOURCE CAPACITY ALLOCATABLE";

/// Returns the table of objects, of whose columns the first ones are shown unless the output is wide.
fn columns<T>(
    narrow: usize,
    names: &str,
    objects: impl IntoIterator<Item = T>,
    row: impl Fn(T) -> Vec<String>,
) -> Columns {
    let head = names.split(' ').map(str::to_owned).collect();
    let rows = iter::once(head).chain(objects.into_iter().map(row));
    Columns {
        narrow,
        rows: rows.collect(),
    }
}

fn configuration_row(configuration: &Configuration) -> Vec<String> {
    let instances = configuration.status.as_ref().map(|its| its.instances);
    let ready = configuration.condition(ConditionType::Ready);
    let of_ready = |field: fn(&Condition) -> &String| ready.map(field).cloned();
    vec![
        configuration.metadata.name.clone().unwrap_or_default(),
        configuration.spec.discovery_handler.name.clone(),
        configuration.spec.capacity.to_string(),
        instances.unwrap_or_default().to_string(),
        of_ready(|ready| &ready.status).unwrap_or_default(),
        of_ready(|ready| &ready.reason).unwrap_or_default(),
        of_ready(|ready| &ready.message).unwrap_or_default(),
    ]
}

fn instance_columns(instances: &[Instance], now: Timestamp) -> Columns {
    let row = |instance| instance_row(instance, now);
    columns(5, INSTANCES, instances, row)
}

fn instance_row(instance: &Instance, now: Timestamp) -> Vec<String> {
    let (metadata, spec) = (&instance.metadata, &instance.spec);
    let created = metadata.creation_timestamp.as_ref();
    vec![
        metadata.name.clone().unwrap_or_default(),
        spec.configuration_name.to_string(),
        spec.shared.to_string(),
        format!("[{}]", spec.nodes.join(",")),
        created.map_or_else(String::new, |Time(at)| age(now.duration_since(*at))),
        instance.unavailable().is_none().to_string(),
        instance.device_id().cloned().unwrap_or_default(),
    ]
}

fn pod_columns(pods: &List<Pod>, now: Timestamp) -> Columns {
    columns(6, PODS, &pods.items, |pod| pod_row(pod, now))
}

fn pod_row(pod: &Pod, now: Timestamp) -> Vec<String> {
    let status = pod.status.clone().unwrap_or_default();
    let containers = status.container_statuses.unwrap_or_default();
    let inits = status.init_container_statuses.unwrap_or_default();
    let ready = containers
        .iter()
        .filter(|container| container.ready)
        .count();
    let all = || inits.iter().chain(&containers);
    let restarts: i32 = all().map(|container| container.restart_count).sum();
    let waiting = all().filter_map(waiting);
    let (reasons, messages): (Vec<_>, Vec<_>) = waiting.unzip();
    let shown = status.reason.or(reasons.into_iter().next());
    let phase = status.phase.unwrap_or_default();
    let message = status.message.or(messages.into_iter().next());
    vec![
        pod.metadata.namespace.clone().unwrap_or_default(),
        pod.metadata.name.clone().unwrap_or_default(),
        format!("{ready}/{}", containers.len()),
        shown.unwrap_or(phase),
        restarts.to_string(),
        status
            .start_time
            .map_or_else(String::new, |Time(at)| age(now.duration_since(at))),
        devices(&containers),
        message.unwrap_or_default(),
    ]
}

/// Returns the reason and the message of a waiting container.
fn waiting(container: &ContainerStatus) -> Option<(String, String)> {
    let waiting = container.state.as_ref()?.waiting.as_ref()?;
    let reason = waiting.reason.clone()?;
    Some((reason, waiting.message.clone().unwrap_or_default()))
}

/// Returns the id of each device, with its health if that is not Healthy.
fn devices(containers: &[ContainerStatus]) -> String {
    let resources = containers
        .iter()
        .flat_map(|container| container.allocated_resources_status.iter().flatten());
    let devices = resources.flat_map(|resource| resource.resources.iter().flatten());
    let shown = devices.map(|device| match device.health.as_deref() {
        None | Some("Healthy") => device.resource_id.clone(),
        Some(health) => format!("{} ({health})", device.resource_id),
    });
    shown.collect::<Vec<_>>().join(", ")
}

fn plugin_row(plugin: &PluginView) -> Vec<String> {
    let state = match plugin.state {
        PluginState::Connected => "Connected",
        PluginState::Registered => "Registered",
        PluginState::Stopped => "Stopped",
        PluginState::Refused => "Refused",
    };
    let mut cells = row([&plugin.name, &plugin.kind, state]);
    // Only device plugins have devices.
    let has_devices = matches!(plugin.state, PluginState::Connected | PluginState::Stopped);
    let counts = [plugin.healthy, plugin.unhealthy, plugin.allocated];
    cells.extend(counts.map(|count| {
        if has_devices {
            count.to_string()
        } else {
            "-".to_owned()
        }
    }));
    cells.push(plugin.endpoint.clone());
    let csi = plugin.csi.as_ref().map(|csi| match &csi.node_id {
        Some(node) => format!("CSI {}, node {node}", csi.version),
        None => format!("CSI {}", csi.version),
    });
    cells.push(plugin.reason.clone().or(csi).unwrap_or_default());
    cells
}

fn node_columns(node: &Node) -> Columns {
    let name = node.metadata.name.clone().unwrap_or_default();
    let status = node.status.clone().unwrap_or_default();
    let allocatable = status.allocatable.unwrap_or_default();
    let capacity = status.capacity.unwrap_or_default();
    columns(4, NODES, capacity, |(resource, capacity)| {
        let allocatable = allocatable.get(&resource).map(|q| q.0.clone());
        let allocatable = allocatable.unwrap_or_default();
        vec![name.clone(), resource, capacity.0, allocatable]
    })
}

fn age(duration: SignedDuration) -> String {
    // A clock that was set back makes it zero, not negative.
    age::short(Duration::try_from(duration).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_begins_after_now_is_new() {
        assert_eq!(age(SignedDuration::from_secs(-5)), "0s");
    }

    #[test]
    fn an_init_container_that_waits_says_why() {
        let waiting = serde_json::json!({
            "name": "i", "ready": false, "restartCount": 3, "image": "", "imageID": "",
            "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "it ended with exit code 1"}},
        });
        let status =
            serde_json::json!({"status": {"phase": "Pending", "initContainerStatuses": [waiting]}});
        let row = pod_row(
            &serde_json::from_value(status).unwrap(),
            Timestamp::UNIX_EPOCH,
        );
        assert_eq!((&*row[3], &*row[4]), ("CrashLoopBackOff", "3"));
        assert_eq!(row[7], "it ended with exit code 1");
    }

    #[test]
    fn pods_without_a_status_are_shown_too() {
        let pods = List {
            items: vec![Pod::default()],
            ..List::default()
        };
        let text = |output| pod_columns(&pods, Timestamp::UNIX_EPOCH).text(output);
        let wide = text(Output::Wide).unwrap();
        assert_eq!(wide.lines().count(), 2);
        assert!(wide.contains("0/0") && wide.contains("MESSAGE"), "{wide}");
        assert!(!text(Output::Table).unwrap().contains("DEVICES"));
    }
}
