//! Defines the flags that name the folders of a node without a cluster.
use clap::Args;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(super) struct NodeFolders {
    /// Root folder of the running `petiole kubelet` of a node without a cluster
    #[arg(
        long,
        env = "PETIOLE_ROOT_DIR",
        value_name = "DIR",
        default_value = "/var/lib/petiole/kubelet"
    )]
    pub(super) root_dir: PathBuf,
    /// State folder of its agent
    #[arg(
        long,
        env = "PETIOLE_STATE",
        value_name = "DIR",
        default_value = "/var/lib/akri"
    )]
    pub(super) state: PathBuf,
}
