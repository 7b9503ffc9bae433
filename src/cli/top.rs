//! Defines the flags of `petiole top`.
use super::{
    connection::{ConnectionFlags, NamespaceFlags},
    signals::until_signal,
};
use crate::{
    inspect::follow::Scope,
    top::{self, Source},
};
use anyhow::bail;
use clap::Args;
use std::io::{IsTerminal as _, stdout};
#[cfg(feature = "kubelet")]
use std::path::PathBuf;

/// Shows the devices live: where they are, who uses their slots, whether they are there, and what changes.
#[derive(Debug, Args)]
pub struct Flags {
    #[command(flatten)]
    namespace: NamespaceFlags,
    /// Instances with these labels only, such as `node.akri.sh/node-1`: those that node-1 sees
    #[arg(short = 'l', long, value_name = "LABELS")]
    selector: Option<String>,
    #[command(flatten)]
    connection: ConnectionFlags,
    /// Show this node, which has a standalone agent, and not a cluster
    #[cfg(feature = "kubelet")]
    #[arg(long, conflicts_with_all = ["namespace", "all_namespaces", "selector", "kubeconfig", "context"])]
    standalone: bool,
    /// Root folder of the running `petiole kubelet`, with --standalone
    #[cfg(feature = "kubelet")]
    #[arg(
        long,
        env = "PETIOLE_ROOT_DIR",
        value_name = "DIR",
        default_value = "/var/lib/petiole/kubelet"
    )]
    root_dir: PathBuf,
    /// State folder of the agent, with --standalone
    #[cfg(feature = "kubelet")]
    #[arg(
        long,
        env = "PETIOLE_STATE",
        value_name = "DIR",
        default_value = "/var/lib/akri"
    )]
    state: PathBuf,
}

impl Flags {
    async fn source(self) -> anyhow::Result<Source> {
        #[cfg(feature = "kubelet")]
        if self.standalone {
            return Ok(Source::Node {
                root_dir: self.root_dir,
                state: self.state,
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

pub(super) async fn run(flags: Flags) -> anyhow::Result<()> {
    if !stdout().is_terminal() {
        bail!(
            "`petiole top` draws on a terminal, and stdout is none: `petiole devices --watch` prints lines"
        );
    }
    let source = flags.source().await?;
    until_signal(|stop| Box::pin(top::run(source, stop))).await
}
