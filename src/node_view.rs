//! Shows a node without a cluster in the live view: by the folder of its agent, and the socket of its kubelet.
use crate::{
    cluster::{configuration_key, instance_key, key_of},
    store::folder,
};
use anyhow::Context as _;
use petiole_kubelet::client::Client as Kubelet;
use petiole_people::{
    inspect::snapshot::Snapshot,
    live::{Looking, Source},
};
use std::{path::PathBuf, sync::Arc};

/// What to look at when the kubelet does not answer.
pub(crate) const ASKED: &str = "is petiole kubelet running, and is --root-dir its folder? The kubelet of a cluster does not say who uses devices";

/// Returns the node whose kubelet has the folder `root_dir`, and whose agent has the folder `state`.
pub(crate) fn source(root_dir: PathBuf, state: PathBuf) -> Source {
    let folder = state.clone();
    let look = move || -> Looking {
        let (root_dir, folder) = (root_dir.clone(), folder.clone());
        Box::pin(async move {
            let (configurations, instances) = folder::objects(&folder)?;
            let configurations = configurations.into_iter();
            let instances = instances.into_iter();
            let mut snapshot = Snapshot {
                configurations: configurations
                    .map(|object| (configuration_key(&object.metadata), object))
                    .collect(),
                instances: instances
                    .map(|object| (instance_key(&object.metadata), object))
                    .collect(),
                ..Snapshot::default()
            };
            ask(&Kubelet::new(&root_dir), &mut snapshot).await;
            Ok(snapshot)
        })
    };
    let look = Arc::new(look);
    Source::Node { state, look }
}

/// Adds what the kubelet has. Without its answer the users of the devices are missing.
async fn ask(kubelet: &Kubelet, snapshot: &mut Snapshot) {
    match kubelet.node().await {
        Ok(node) => {
            let name = node.metadata.name.clone().unwrap_or_default();
            snapshot.nodes.insert(name, node);
        }
        // The request for Pods fails for the same reason, and says it.
        Err(_) => snapshot.hidden.nodes = true,
    }
    match kubelet.pods().await.context(ASKED) {
        Ok(pods) => {
            let pods = pods.items.into_iter();
            snapshot.pods = pods.map(|pod| (key_of(&pod.metadata), pod)).collect();
        }
        Err(e) => {
            snapshot.hidden.pods = true;
            snapshot.unread.push(format!("{e:#}"));
        }
    }
}
