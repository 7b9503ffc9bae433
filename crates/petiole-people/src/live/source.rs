//! Reads what is shown: a cluster by its API server, or one node by the folder of its agent and the socket of its kubelet.
pub use crate::inspect::follow::Look;
use crate::inspect::{
    follow::{self, Scope},
    snapshot::Snapshot,
};
use kube::Client;
use petiole_cluster::{configuration_key, instance_key, key_of};
use petiole_kubelet::client::Client as Kubelet;
use petiole_model::api::{configuration::Configuration, instance::Instance};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tokio::{sync::watch, time::sleep};
use tokio_util::sync::CancellationToken;

/// The interval of looks at a node. Its folder and its socket cost little.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// Returns the Configurations and the Instances of a state folder.
pub type ReadFolder = fn(&Path) -> anyhow::Result<(Vec<Configuration>, Vec<Instance>)>;

/// The place whose devices are shown.
pub enum Source {
    Cluster {
        client: Client,
        scope: Scope,
    },
    Node {
        /// The root folder of the kubelet.
        root_dir: PathBuf,
        /// The state folder of the agent.
        state: PathBuf,
        /// Reads that folder, whose files are the agent's own.
        read: ReadFolder,
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
            Self::Node {
                root_dir,
                state,
                read,
            } => {
                let (configurations, instances) = read(state)?;
                Ok(node(&Kubelet::new(root_dir), configurations, instances).await)
            }
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

/// Returns the objects of a node. Without an answer of the kubelet the users of the devices are missing.
async fn node(
    kubelet: &Kubelet,
    configurations: Vec<Configuration>,
    instances: Vec<Instance>,
) -> Snapshot {
    let mut snapshot = Snapshot::default();
    let configurations = configurations
        .into_iter()
        .map(|object| (configuration_key(&object.metadata), object));
    snapshot.configurations = configurations.collect();
    let instances = instances
        .into_iter()
        .map(|object| (instance_key(&object.metadata), object));
    snapshot.instances = instances.collect();
    match kubelet.node().await {
        Ok(node) => {
            let name = node.metadata.name.clone().unwrap_or_default();
            snapshot.nodes.insert(name, node);
        }
        // The request for Pods fails for the same reason, and says it.
        Err(_) => snapshot.hidden.nodes = true,
    }
    match kubelet.pods().await {
        Ok(pods) => {
            let pods = pods.items.into_iter();
            snapshot.pods = pods.map(|pod| (key_of(&pod.metadata), pod)).collect();
        }
        Err(e) => {
            snapshot.hidden.pods = true;
            snapshot.unread.push(format!("{e:#}"));
        }
    }
    snapshot
}
