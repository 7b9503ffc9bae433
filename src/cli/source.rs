//! Defines the flags that name the place whose devices are shown live: a cluster, or this node without one.
use super::node_folders::NodeFolders;
use crate::node_view;
use clap::Args;
use petiole_people::{
    cli::{ClusterFlags, SourceFlags},
    live::Source,
};

#[derive(Debug, Args)]
pub struct PlaceFlags {
    #[command(flatten)]
    cluster: ClusterFlags,
    /// Show this node, which has a standalone agent, and not a cluster
    #[arg(long, conflicts_with_all = ["namespace", "all_namespaces", "selector", "kubeconfig", "context"])]
    standalone: bool,
    #[command(flatten)]
    folders: NodeFolders,
}

impl SourceFlags for PlaceFlags {
    async fn source(self) -> anyhow::Result<Source> {
        if self.standalone {
            let root_dir = self.folders.root_dir();
            return Ok(node_view::source(root_dir, self.folders.state));
        }
        self.cluster.source().await
    }
}
