//! Reads what is shown: a cluster by its API server, or one node as its caller looks at it.
pub use crate::inspect::follow::Look;
use crate::inspect::{
    follow::{self, Scope},
    snapshot::Snapshot,
};
use futures::future::BoxFuture;
use kube::Client;
use std::{path::PathBuf, sync::Arc, time::Duration};
use tokio::{sync::watch, time::sleep};
use tokio_util::sync::CancellationToken;

/// The interval of looks at a node. Its folder and its socket cost little.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// A look at a node.
pub type Looking = BoxFuture<'static, anyhow::Result<Snapshot>>;

/// The place whose devices are shown.
pub enum Source {
    Cluster {
        client: Client,
        scope: Scope,
    },
    Node {
        /// The state folder of the agent.
        state: PathBuf,
        /// Looks at the node: what its agent and its kubelet have is their own.
        look: Arc<dyn Fn() -> Looking + Send + Sync>,
    },
}

impl Source {
    /// Returns the name of the place, for the title.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Cluster { scope, .. } => match &scope.namespace {
                Some(namespace) => format!("namespace {namespace}"),
                None => "all namespaces".to_owned(),
            },
            Self::Node { state, .. } => format!("this node ({})", state.display()),
        }
    }

    /// Returns the client of the cluster, of which more can be asked.
    pub(super) fn client(&self) -> Option<Client> {
        match self {
            Self::Cluster { client, .. } => Some(client.clone()),
            Self::Node { .. } => None,
        }
    }

    /// Returns where to look next if there are no devices.
    pub fn hint(&self) -> String {
        match self {
            Self::Cluster { .. } => {
                "`petiole why configuration/NAME` says why a Configuration has none.".to_owned()
            }
            Self::Node { state, .. } => format!(
                "`petiole get configurations --state {}` says what is wrong with a Configuration.",
                state.display()
            ),
        }
    }

    /// Looks at the place once.
    pub async fn look(&self) -> anyhow::Result<Snapshot> {
        match self {
            Self::Cluster { client, scope } => follow::look(client, scope).await,
            Self::Node { look, .. } => look().await,
        }
    }
}

/// Publishes looks until `stop`.
pub(super) async fn run(
    source: Source,
    looks: watch::Sender<Option<Look>>,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    match source {
        Source::Cluster { client, scope } => follow::run(client, scope, looks, stop).await,
        Source::Node { .. } => {
            let looking = async {
                loop {
                    looks.send_replace(Some(Arc::new(source.look().await)));
                    sleep(LOOK_INTERVAL).await;
                }
            };
            stop.run_until_cancelled(looking).await;
            Ok(())
        }
    }
}
