//! Defines the flags of `petiole kubelet`.
use super::node_folders::ROOT_DIR;
use clap::Args;
use petiole_cli::{duration::duration, signals::until_signal};
use std::{path::PathBuf, time::Duration};

/// Device plugins register with it as with any kubelet. Its Pods are the manifests in a folder. There is no isolation:
/// containers are plain processes of this user, images are ignored, and the mounts, device nodes and CDI names of
/// plugins are recorded in annotations of the Pod, not applied.
#[derive(Debug, Args)]
pub struct Flags {
    /// Folder for sockets, checkpoint and logs
    #[arg(
        long,
        env = "PETIOLE_ROOT_DIR",
        value_name = "DIR",
        default_value = ROOT_DIR
    )]
    root_dir: PathBuf,
    /// Folder of static Pod manifests, which is read again at each change [default: ROOT_DIR/manifests]
    #[arg(long, env = "PETIOLE_MANIFESTS", value_name = "DIR")]
    manifests: Option<PathBuf>,
    /// Name of this node; the names of Pods end with it
    #[arg(long, env = "PETIOLE_NODE_NAME")]
    node_name: String,
    /// Time that the devices of a disconnected plugin still count as capacity (`5m`, `5s`, `500ms`)
    #[arg(long, env = "PETIOLE_ENDPOINT_GRACE", value_name = "TIME", default_value = "5m", value_parser = duration)]
    endpoint_grace: Duration,
    /// First wait before a container starts again; it doubles each time, up to 5m
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
    let settings = petiole_kubelet::Settings {
        endpoint_grace,
        restart_backoff,
        ..petiole_kubelet::Settings::new(root_dir, manifests, node_name)
    };
    until_signal(|shutdown| petiole_kubelet::run(settings, shutdown)).await
}
