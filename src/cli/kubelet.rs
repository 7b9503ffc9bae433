//! Flags of `petiole kubelet`.
use super::{duration::duration, signals::until_told_to_stop};
use crate::kubelet;
use clap::Args;
use std::{path::PathBuf, time::Duration};

#[derive(Debug, Args)]
pub struct Flags {
    /// The kubelet's own folder: sockets, checkpoint, logs
    #[arg(long, env = "PETIOLE_ROOT_DIR", value_name = "DIR")]
    root_dir: PathBuf,
    /// Folder of static Pod manifests, read again at each change
    #[arg(long, env = "PETIOLE_MANIFESTS", value_name = "DIR")]
    manifests: PathBuf,
    /// The name of this node
    #[arg(long, env = "PETIOLE_NODE_NAME")]
    node_name: String,
    /// How long the resources of a plugin that is gone stay in capacity
    #[arg(long, env = "PETIOLE_ENDPOINT_GRACE", value_parser = duration, default_value = "5m")]
    endpoint_grace: Duration,
    /// The wait before a container's first restart; it doubles up to 5 min
    #[arg(long, env = "PETIOLE_FIRST_RESTART", value_parser = duration, default_value = "1s")]
    first_restart: Duration,
}

pub(super) async fn run(flags: Flags) -> anyhow::Result<()> {
    let settings = kubelet::Settings {
        node_name: flags.node_name,
        root_dir: flags.root_dir,
        manifests: flags.manifests,
        endpoint_grace: flags.endpoint_grace,
        first_restart: flags.first_restart,
    };
    until_told_to_stop(|shutdown| kubelet::run(settings, shutdown)).await
}
