//! Defines the flags that name the place whose devices are shown live: a cluster, or this node without one.
use super::connection::{ConnectionFlags, NamespaceFlags};
use super::node_folders::NodeFolders;
use crate::store::folder;
use clap::Args;
use petiole_people::{inspect::follow::Scope, live::Source};

#[derive(Debug, Args)]
pub(super) struct SourceFlags {
    #[command(flatten)]
    namespace: NamespaceFlags,
    /// Instances with these labels only, such as `node.akri.sh/node-1`: those that node-1 sees
    #[arg(short = 'l', long, value_name = "LABELS")]
    selector: Option<String>,
    #[command(flatten)]
    connection: ConnectionFlags,
    /// Show this node, which has a standalone agent, and not a cluster
    #[arg(long, conflicts_with_all = ["namespace", "all_namespaces", "selector", "kubeconfig", "context"])]
    standalone: bool,
    #[command(flatten)]
    folders: NodeFolders,
}

impl SourceFlags {
    pub(super) async fn source(self) -> anyhow::Result<Source> {
        if self.standalone {
            return Ok(Source::Node {
                root_dir: self.folders.root_dir,
                state: self.folders.state,
                read: folder::objects,
            });
        }
        let client = self.connection.client().await?;
        let scope = Scope {
            namespace: self.namespace.namespace(&client),
            selector: self.selector,
        };
        Ok(Source::Cluster { client, scope })
    }
}
