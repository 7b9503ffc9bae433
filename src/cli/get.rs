//! `petiole get`: the objects of a running standalone node, as kubectl would print them.
use crate::{api::instance::Instance, kubelet::client::KubeletClient};
use anyhow::Context as _;
use clap::{Args, ValueEnum};
use k8s_openapi::{
    api::core::v1::{Node, Pod},
    jiff::Timestamp,
};
use serde::Serialize;
use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
};
use tabwriter::TabWriter;

#[derive(Debug, Args)]
pub struct Flags {
    /// What to print
    #[arg(value_enum)]
    kind: Kind,
    /// The root folder of the running `petiole kubelet`
    #[arg(long, env = "PETIOLE_ROOT_DIR", value_name = "DIR", required_if_eq_any([("kind", "pods"), ("kind", "plugins"), ("kind", "node")]))]
    root_dir: Option<PathBuf>,
    /// The state folder of the agent, for Instances
    #[arg(
        long,
        env = "PETIOLE_STATE",
        value_name = "DIR",
        default_value = "/var/lib/akri"
    )]
    state: PathBuf,
    /// How to print
    #[arg(short, long, value_enum, default_value = "table")]
    output: Output,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    Pods,
    Instances,
    Plugins,
    Node,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    Table,
    /// The table with more columns
    Wide,
    Json,
    Yaml,
}

pub(super) async fn run(flags: Flags) -> anyhow::Result<()> {
    let client = || {
        let root_dir = flags
            .root_dir
            .as_deref()
            .context("--root-dir is needed for this")?;
        anyhow::Ok(KubeletClient::new(root_dir))
    };
    let is_wide = flags.output == Output::Wide;
    let text = match flags.kind {
        Kind::Pods => {
            let pods = client()?.pods().await?;
            printed(flags.output, &pods, || pod_rows(&pods.items, is_wide))?
        }
        Kind::Node => {
            let node = client()?.node().await?;
            printed(flags.output, &node, || node_rows(&node))?
        }
        Kind::Plugins => {
            let plugins = client()?.plugins().await?;
            let rows = || {
                let mut rows =
                    vec!["RESOURCE\tCONNECTED\tCAPACITY\tALLOCATABLE\tSOCKET".to_owned()];
                rows.extend(plugins.iter().map(|p| {
                    let socket = p.socket.as_deref().unwrap_or("<none>");
                    format!(
                        "{}\t{}\t{}\t{}\t{socket}",
                        p.resource, p.is_connected, p.capacity, p.allocatable
                    )
                }));
                rows
            };
            printed(flags.output, &plugins, rows)?
        }
        Kind::Instances => {
            let instances = k8s_openapi_list(instances(&flags.state)?);
            printed(flags.output, &instances, || {
                instance_rows(&instances.items, is_wide)
            })?
        }
    };
    // A reader such as `head` may have had enough.
    std::io::stdout().write_all(text.as_bytes()).ok();
    Ok(())
}

/// A list of Instances, as the API server would send it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct InstanceList {
    api_version: &'static str,
    kind: &'static str,
    items: Vec<Instance>,
}

fn k8s_openapi_list(items: Vec<Instance>) -> InstanceList {
    InstanceList {
        api_version: crate::api::names::API_VERSION,
        kind: "InstanceList",
        items,
    }
}

fn printed(
    output: Output,
    object: &impl Serialize,
    rows: impl FnOnce() -> Vec<String>,
) -> anyhow::Result<String> {
    Ok(match output {
        Output::Json => serde_json::to_string_pretty(object)? + "\n",
        Output::Yaml => serde_saphyr::to_string(object)?,
        Output::Table | Output::Wide => {
            let mut table = TabWriter::new(vec![]).padding(3);
            for row in rows() {
                writeln!(table, "{row}")?;
            }
            String::from_utf8(table.into_inner().map_err(|e| anyhow::anyhow!("{e}"))?)?
        }
    })
}

fn pod_rows(pods: &[Pod], is_wide: bool) -> Vec<String> {
    let mut rows = vec![
        "NAMESPACE\tNAME\tREADY\tSTATUS\tRESTARTS\tAGE".to_owned()
            + if is_wide { "\tMESSAGE" } else { "" },
    ];
    for pod in pods {
        let status = pod.status.clone().unwrap_or_default();
        let containers = status.container_statuses.unwrap_or_default();
        let ready = containers.iter().filter(|c| c.ready).count();
        let restarts: i32 = containers.iter().map(|c| c.restart_count).sum();
        let waiting = containers
            .iter()
            .find_map(|c| c.state.as_ref()?.waiting.clone());
        let reason = waiting
            .as_ref()
            .and_then(|w| w.reason.clone())
            .or(status.reason)
            .or(status.phase);
        let message = waiting
            .and_then(|w| w.message)
            .or(status.message)
            .unwrap_or_default();
        let mut row = format!(
            "{}\t{}\t{ready}/{}\t{}\t{restarts}\t{}",
            pod.metadata.namespace.as_deref().unwrap_or_default(),
            pod.metadata.name.as_deref().unwrap_or_default(),
            containers.len(),
            reason.unwrap_or_default(),
            age(pod.metadata.creation_timestamp.as_ref().map(|time| time.0)),
        );
        if is_wide {
            row = row + "\t" + &message;
        }
        rows.push(row);
    }
    rows
}

fn node_rows(node: &Node) -> Vec<String> {
    let status = node.status.clone().unwrap_or_default();
    let allocatable = status.allocatable.unwrap_or_default();
    let mut rows = vec!["RESOURCE\tCAPACITY\tALLOCATABLE".to_owned()];
    for (resource, capacity) in status.capacity.unwrap_or_default() {
        let left = allocatable
            .get(&resource)
            .map_or("0", |quantity| &quantity.0);
        rows.push(format!("{resource}\t{}\t{left}", capacity.0));
    }
    rows
}

fn instance_rows(instances: &[Instance], is_wide: bool) -> Vec<String> {
    let mut rows = vec![
        "NAME\tCONFIG\tSHARED\tNODES\tAGE".to_owned()
            + if is_wide { "\tAVAILABLE\tDEVICE" } else { "" },
    ];
    for instance in instances {
        let spec = &instance.spec;
        let mut row = format!(
            "{}\t{}\t{}\t[{}]\t{}",
            instance.metadata.name.as_deref().unwrap_or_default(),
            spec.configuration_name,
            spec.shared,
            spec.nodes.join(","),
            age(instance
                .metadata
                .creation_timestamp
                .as_ref()
                .map(|time| time.0)),
        );
        if is_wide {
            let status = instance.status.as_ref();
            let is_available = status.is_some_and(|s| {
                s.conditions
                    .iter()
                    .any(|c| c.type_ == "Available" && c.is_true())
            });
            let annotations = instance.metadata.annotations.as_ref();
            let device = annotations
                .and_then(|a| a.get(crate::api::names::DEVICE_ID))
                .map_or("", String::as_str);
            row = format!("{row}\t{is_available}\t{device}");
        }
        rows.push(row);
    }
    rows
}

fn instances(state: &Path) -> anyhow::Result<Vec<Instance>> {
    let folder = state.join("instances");
    let mut instances = vec![];
    for entry in fs::read_dir(&folder)
        .with_context(|| format!("{}: is that an agent's --state folder?", folder.display()))?
    {
        let path = entry?.path();
        let is_manifest = path.extension().is_some_and(|end| end == "yaml");
        let is_hidden = path
            .file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with('.'));
        if is_manifest && !is_hidden {
            let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
            instances
                .push(serde_saphyr::from_str(&text).with_context(|| path.display().to_string())?);
        }
    }
    instances.sort_by_key(|instance: &Instance| instance.metadata.name.clone());
    Ok(instances)
}

/// An age as kubectl prints it.
fn age(since: Option<Timestamp>) -> String {
    let seconds = since.map_or(0, |since| {
        Timestamp::now().duration_since(since).as_secs().max(0)
    });
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7200 => format!("{}m", seconds / 60),
        7200..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}
