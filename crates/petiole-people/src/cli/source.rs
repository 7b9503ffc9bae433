//! Defines the flags that name the place whose devices are shown live.
use crate::{inspect::follow::Scope, live::Source};
use clap::Args;
use petiole_cli::connection::{ConnectionFlags, NamespaceFlags};

/// Flags that name a place. A program that knows others than clusters has its own.
pub trait SourceFlags: Args {
    fn source(self) -> impl Future<Output = anyhow::Result<Source>>;
}

/// A cluster.
#[derive(Debug, Args)]
pub struct ClusterFlags {
    #[command(flatten)]
    namespace: NamespaceFlags,
    /// Instances with these labels only, such as `node.akri.sh/node-1`: those that node-1 sees
    #[arg(short = 'l', long, value_name = "LABELS")]
    selector: Option<String>,
    #[command(flatten)]
    connection: ConnectionFlags,
}

impl SourceFlags for ClusterFlags {
    async fn source(self) -> anyhow::Result<Source> {
        let client = self.connection.client().await?;
        let scope = Scope {
            namespace: self.namespace.namespace(&client),
            selector: self.selector,
        };
        Ok(Source::Cluster { client, scope })
    }
}
