//! Flags of `petiole kubelet`.
use super::{duration::duration, signals::until_told_to_stop};
use crate::kubelet;
use clap::Args;
use std::{path::PathBuf, time::Duration};

/// Device plugins register with it as with the real one. Its Pods are the manifests of a folder. There is no
/// isolation: containers are plain processes of this user, images are ignored, and the mounts, device nodes and CDI
/// names that plugins give are recorded in annotations of the Pod, not applied.
#[derive(Debug, Args)]
pub struct Flags {
    /// Folder for sockets, checkpoint and logs
    #[arg(
        long,
        env = "PETIOLE_ROOT_DIR",
        value_name = "DIR",
        default_value = "/var/lib/petiole/kubelet"
    )]
    root_dir: PathBuf,
    /// Folder of static Pod manifests, read again at each change [default: ROOT_DIR/manifests]
    #[arg(long, env = "PETIOLE_MANIFESTS", value_name = "DIR")]
    manifests: Option<PathBuf>,
    /// The name of this node; Pods' names end with it
    #[arg(long, env = "PETIOLE_NODE_NAME")]
    node_name: String,
    /// How long devices of a plugin that went away still count as capacity (`5m`, `5s`, `500ms`)
    #[arg(long, env = "PETIOLE_ENDPOINT_GRACE", value_name = "TIME", default_value = "5m", value_parser = duration)]
    endpoint_grace: Duration,
    /// The first wait before a container is started again; doubled each time, up to 5m
    #[arg(long, env = "PETIOLE_RESTART_BACKOFF", value_name = "TIME", default_value = "1s", value_parser = duration)]
    restart_backoff: Duration,
}

pub(super) async fn run(flags: Flags) -> anyhow::Result<()> {
    let Flags {
        root_dir,
        manifests,
        node_name,
        endpoint_grace,
        restart_backoff,
    } = flags;
    let manifests = manifests.unwrap_or_else(|| root_dir.join("manifests"));
    let settings = kubelet::Settings {
        endpoint_grace,
        restart_backoff,
        ..kubelet::Settings::new(root_dir, manifests, node_name)
    };
    until_told_to_stop(|shutdown| kubelet::run(settings, shutdown)).await
}
