//! Reads what is shown: a cluster by its API server, or one node by the folder of its agent and the socket of its kubelet.
pub use crate::inspect::follow::Look;
use crate::{
    cluster::{configuration_key, instance_key, key_of},
    inspect::{
        follow::{self, Scope},
        snapshot::Snapshot,
    },
    store::folder,
};
use kube::Client;
use petiole_kubelet::client::Client as Kubelet;
use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tokio::{sync::watch, time::sleep};
use tokio_util::sync::CancellationToken;

/// The interval of looks at a node. Its folder and its socket cost little.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

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

    /// Returns where to look next if there are no devices.
    pub(super) fn hint(&self) -> String {
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
}

/// Publishes looks until `stop`.
pub(super) async fn run(
    source: Source,
    looks: watch::Sender<Option<Look>>,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    match source {
        Source::Cluster { client, scope } => follow::run(client, scope, looks, stop).await,
        Source::Node { root_dir, state } => {
            let kubelet = Kubelet::new(&root_dir);
            let looking = async {
                loop {
                    let snapshot = node(&kubelet, &state).await;
                    looks.send_replace(Some(Arc::new(snapshot)));
                    sleep(LOOK_INTERVAL).await;
                }
            };
            stop.run_until_cancelled(looking).await;
            Ok(())
        }
    }
}

/// Returns the objects of a node. Without an answer of the kubelet the users of the devices are missing.
async fn node(kubelet: &Kubelet, state: &Path) -> anyhow::Result<Snapshot> {
    let mut snapshot = Snapshot::default();
    let configurations = folder::configurations(state)?.into_iter();
    let configurations = configurations.map(|object| (configuration_key(&object.metadata), object));
    snapshot.configurations = configurations.collect();
    let instances = folder::instances(state)?.into_iter();
    let instances = instances.map(|object| (instance_key(&object.metadata), object));
    snapshot.instances = instances.collect();
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
    Ok(snapshot)
}
