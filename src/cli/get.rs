//! Runs `petiole get`, which reads a running `petiole kubelet` and prints its objects as kubectl does.
use crate::{
    api::{condition::Condition, instance::Instance, names},
    kubelet::client::{Client, PluginState, PluginView},
    model::{age, printable::printable},
    store::folder,
};
use anyhow::Context as _;
use clap::{Args, ValueEnum};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    List,
    api::core::v1::{ContainerStatus, Node, Pod},
    apimachinery::pkg::apis::meta::v1::Time,
};
use serde::Serialize;
use std::{
    io::{Write as _, stdout},
    path::PathBuf,
    time::Duration,
};
use tabwriter::TabWriter;

#[derive(Debug, Args)]
pub struct Flags {
    kind: Kind,
    /// Root folder of the running kubelet
    #[arg(
        long,
        env = "PETIOLE_ROOT_DIR",
        value_name = "DIR",
        default_value = "/var/lib/petiole/kubelet"
    )]
    root_dir: PathBuf,
    /// State folder of the agent, for instances
    #[arg(
        long,
        env = "PETIOLE_STATE",
        value_name = "DIR",
        default_value = "/var/lib/akri"
    )]
    state: PathBuf,
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
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    Table,
    Wide,
    Json,
    Yaml,
}

/// The rows of a table. The first one contains the names of the columns.
type Rows = Vec<Vec<String>>;

pub(super) async fn run(flags: Flags) -> anyhow::Result<()> {
    let Flags {
        kind,
        root_dir,
        state,
        output,
    } = flags;
    let client = Client::new(&root_dir);
    let is_wide = output == Output::Wide;
    let now = Timestamp::now();
    let text = match kind {
        Kind::Pods => {
            let pods = client.pods().await?;
            render(output, &pods, || pod_rows(&pods, is_wide, now))
        }
        Kind::Plugins => {
            let plugins = client.plugins().await?;
            render(output, &plugins, || plugin_rows(&plugins, is_wide))
        }
        Kind::Node => {
            let node = client.node().await?;
            render(output, &node, || node_rows(&node))
        }
        Kind::Instances => {
            let instances = InstanceList {
                api_version: names::API_VERSION,
                kind: "InstanceList",
                items: folder::instances(&state)?,
            };
            render(output, &instances, || {
                instance_rows(&instances.items, is_wide, now)
            })
        }
    }?;
    // A reader such as `head` may have closed its end.
    match stdout().lock().write_all(text.as_bytes()) {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => Err(e.into()),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// A list of Instances in the API server's form.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct InstanceList {
    api_version: &'static str,
    kind: &'static str,
    items: Vec<Instance>,
}

fn instance_rows(instances: &[Instance], is_wide: bool, now: Timestamp) -> Rows {
    let mut head = row(["NAME", "CONFIG", "SHARED", "NODES", "AGE"]);
    if is_wide {
        head.extend(row(["AVAILABLE", "DEVICE"]));
    }
    let mut rows = vec![head];
    rows.extend(
        instances
            .iter()
            .map(|instance| instance_row(instance, is_wide, now)),
    );
    rows
}

fn instance_row(instance: &Instance, is_wide: bool, now: Timestamp) -> Vec<String> {
    let (metadata, spec) = (&instance.metadata, &instance.spec);
    let mut cells = vec![
        metadata.name.clone().unwrap_or_default(),
        spec.configuration_name.clone(),
        spec.shared.to_string(),
        format!("[{}]", spec.nodes.join(",")),
        metadata
            .creation_timestamp
            .as_ref()
            .map(|Time(at)| age(now.duration_since(*at)))
            .unwrap_or_default(),
    ];
    if is_wide {
        let conditions = instance.status.iter().flat_map(|status| &status.conditions);
        let is_available = conditions
            .filter(|c| c.type_ == "Available")
            .any(Condition::is_true);
        let device = metadata
            .annotations
            .as_ref()
            .and_then(|a| a.get(names::DEVICE_ID));
        cells.extend([
            is_available.to_string(),
            device.cloned().unwrap_or_default(),
        ]);
    }
    cells
}

fn render<T: Serialize>(
    output: Output,
    object: &T,
    rows: impl FnOnce() -> Rows,
) -> anyhow::Result<String> {
    match output {
        Output::Table | Output::Wide => table(&rows()),
        Output::Json => Ok(serde_json::to_string_pretty(object)? + "\n"),
        Output::Yaml => serde_saphyr::to_string(object).context("cannot print as YAML"),
    }
}

fn table(rows: &Rows) -> anyhow::Result<String> {
    let mut writer = TabWriter::new(Vec::new()).padding(3);
    for row in rows {
        let cells: Vec<String> = row.iter().map(|cell| printable(cell)).collect();
        writeln!(writer, "{}", cells.join("\t"))?;
    }
    Ok(String::from_utf8(writer.into_inner()?)?)
}

fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(str::to_owned).into()
}

fn pod_rows(pods: &List<Pod>, is_wide: bool, now: Timestamp) -> Rows {
    let mut head = row(["NAMESPACE", "NAME", "READY", "STATUS", "RESTARTS", "AGE"]);
    if is_wide {
        head.extend(row(["DEVICES", "MESSAGE"]));
    }
    let mut rows = vec![head];
    rows.extend(pods.items.iter().map(|pod| pod_row(pod, is_wide, now)));
    rows
}

fn pod_row(pod: &Pod, is_wide: bool, now: Timestamp) -> Vec<String> {
    let status = pod.status.clone().unwrap_or_default();
    let containers = status.container_statuses.unwrap_or_default();
    let ready = containers
        .iter()
        .filter(|container| container.ready)
        .count();
    let restarts: i32 = containers
        .iter()
        .map(|container| container.restart_count)
        .sum();
    let waiting = containers.iter().filter_map(waiting);
    let (reasons, messages): (Vec<_>, Vec<_>) = waiting.unzip();
    let shown = status.reason.or(reasons.into_iter().next());
    let phase = status.phase.unwrap_or_default();
    let mut cells = vec![
        pod.metadata.namespace.clone().unwrap_or_default(),
        pod.metadata.name.clone().unwrap_or_default(),
        format!("{ready}/{}", containers.len()),
        shown.unwrap_or(phase),
        restarts.to_string(),
        status
            .start_time
            .map_or_else(String::new, |Time(at)| age(now.duration_since(at))),
    ];
    if is_wide {
        cells.push(devices(&containers));
        let message = status.message.or(messages.into_iter().next());
        cells.push(message.unwrap_or_default());
    }
    cells
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

fn plugin_rows(plugins: &[PluginView], is_wide: bool) -> Rows {
    let mut head = row(["NAME", "TYPE", "STATE", "HEALTHY", "UNHEALTHY", "ALLOCATED"]);
    if is_wide {
        head.extend(row(["ENDPOINT", "REASON"]));
    }
    let mut rows = vec![head];
    rows.extend(plugins.iter().map(|plugin| plugin_row(plugin, is_wide)));
    rows
}

fn plugin_row(plugin: &PluginView, is_wide: bool) -> Vec<String> {
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
    cells.extend(counts.map(|count| match has_devices {
        true => count.to_string(),
        false => "-".to_owned(),
    }));
    if is_wide {
        cells.push(plugin.endpoint.clone());
        let csi = plugin.csi.as_ref().map(|csi| match &csi.node_id {
            Some(node) => format!("CSI {}, node {node}", csi.version),
            None => format!("CSI {}", csi.version),
        });
        cells.push(plugin.reason.clone().or(csi).unwrap_or_default());
    }
    cells
}

fn node_rows(node: &Node) -> Rows {
    let mut rows = vec![row(["NODE", "RESOURCE", "CAPACITY", "ALLOCATABLE"])];
    let name = node.metadata.name.clone().unwrap_or_default();
    let status = node.status.clone().unwrap_or_default();
    let allocatable = status.allocatable.unwrap_or_default();
    rows.extend(
        status
            .capacity
            .unwrap_or_default()
            .into_iter()
            .map(|(resource, capacity)| {
                let allocatable = allocatable.get(&resource).map(|q| q.0.clone());
                vec![
                    name.clone(),
                    resource,
                    capacity.0,
                    allocatable.unwrap_or_default(),
                ]
            }),
    );
    rows
}

/// Formats an age. A clock that was set back makes it zero, not negative.
fn age(duration: SignedDuration) -> String {
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
    fn a_cell_cannot_steer_the_terminal_or_make_a_row() {
        let text = table(&vec![row(["DEVICE", "AGE"]), row(["a\x1b[2J\nb\tc", "1s"])]).unwrap();
        assert_eq!(text.lines().count(), 2);
        assert!(text.contains("a\\u{1b}[2J\\nb\\tc   1s"), "{text}");
    }

    #[test]
    fn pods_without_a_status_are_shown_too() {
        let pods = List {
            items: vec![Pod::default()],
            ..List::default()
        };
        let text = table(&pod_rows(&pods, true, Timestamp::UNIX_EPOCH)).unwrap();
        assert_eq!(text.lines().count(), 2);
        assert!(text.contains("0/0"));
    }
}
