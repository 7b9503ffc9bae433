//! Flags of `petiole agent`.
use super::{prefixes::PrefixFlags, signals::until_told_to_stop};
use crate::{
    agent,
    discovery::{handlers, session::Handlers},
    store::folder::{self, FolderStore},
};
use anyhow::bail;
use clap::Args;
use std::{path::PathBuf, sync::Arc, time::Duration};
use tracing::info;

/// A kubelet that restarts lists no containers until it has looked at all of them.
const KUBELET_SETTLES: Duration = Duration::from_secs(60);

#[derive(Debug, Args)]
pub struct Flags {
    /// Work without a cluster: Configurations and Instances are manifests in folders
    #[arg(long, env = "PETIOLE_STANDALONE", required = true)]
    standalone: bool,
    /// The name of this node, as its kubelet has it
    #[arg(long, env = "PETIOLE_NODE_NAME")]
    node_name: String,
    /// Folder of Configuration manifests, read again at each change
    #[arg(
        long,
        env = "PETIOLE_CONFIGURATIONS",
        value_name = "DIR",
        default_value = "/etc/petiole/configurations"
    )]
    configurations: PathBuf,
    /// Folder for what the agent knows: Instances, the status of Configurations, and errors
    #[arg(
        long,
        env = "PETIOLE_STATE",
        value_name = "DIR",
        default_value = "/var/lib/akri"
    )]
    state: PathBuf,
    /// The kubelet's root folder; its `device-plugins` and `pod-resources` are used
    #[arg(
        long,
        env = "PETIOLE_KUBELET_DIR",
        value_name = "DIR",
        default_value = "/var/lib/kubelet"
    )]
    kubelet_dir: PathBuf,
    /// The kubelet's folder for device plugins, where it is not in its root folder
    #[arg(long, env = "PETIOLE_DEVICE_PLUGIN_DIR", value_name = "DIR")]
    device_plugin_dir: Option<PathBuf>,
    /// Folder of static Pods that the kubelet reads: the agent writes a broker there for each Instance
    #[arg(long, env = "PETIOLE_RENDER_BROKERS", value_name = "DIR")]
    render_brokers: Option<PathBuf>,
    #[command(flatten)]
    prefixes: PrefixFlags,
    /// The most Instances of all Configurations together; more devices are left out
    #[arg(
        long,
        env = "PETIOLE_MAX_INSTANCES",
        value_name = "N",
        default_value_t = 5000
    )]
    max_instances: usize,
}

impl Flags {
    fn settings(&self) -> agent::Settings {
        agent::Settings {
            node_name: self.node_name.clone(),
            resource_prefix: self.prefixes.resource_prefixes[0].clone(),
            resource_prefixes: self.prefixes.resource_prefixes.clone(),
            nodes: None,
            plugin_folder: (self.device_plugin_dir.clone())
                .unwrap_or_else(|| self.kubelet_dir.join("device-plugins")),
            pod_resources_socket: self.kubelet_dir.join("pod-resources/kubelet.sock"),
            kubelet_settles: KUBELET_SETTLES,
            between_looks: agent::BETWEEN_LOOKS,
            max_instances: self.max_instances,
            render_brokers: self.render_brokers.clone(),
        }
    }
}

pub(super) async fn run(flags: Flags) -> anyhow::Result<()> {
    if !flags.standalone {
        bail!(
            "PETIOLE_STANDALONE is false, and this version works without a cluster only: set it to true"
        );
    }
    let settings = flags.settings();
    info!(
        node = %settings.node_name,
        configurations = %flags.configurations.display(),
        plugins = %settings.plugin_folder.display(),
        "agent starting"
    );
    let store = FolderStore::open(folder::Settings {
        node_name: settings.node_name.clone(),
        configurations: flags.configurations,
        state: flags.state,
    })?;
    let handlers = Handlers::new(handlers::builtin());
    until_told_to_stop(|shutdown| agent::run(settings, Arc::new(store), handlers, shutdown)).await
}
