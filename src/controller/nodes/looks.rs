//! Asks the API server about nodes that look deleted: whether they are, and whether Pods of theirs are left.
use super::absent_node::Pods;
use crate::{
    cluster::{
        SIDE_BY_SIDE,
        parts::{NodePart, PodPart},
        watch::apis,
    },
    controller::shared::Shared,
    model::typed_names::NodeName,
};
use futures::{StreamExt as _, stream};
use kube::{Api, api::ListParams};
use std::collections::BTreeSet;
use tracing::{debug, warn};

/// Returns the suspects that may exist. The watch of the Nodes can be behind that of the Instances: the slots of a node
/// that has just been added must not be given to others.
pub(super) async fn not_gone(shared: &Shared, suspects: BTreeSet<NodeName>) -> BTreeSet<NodeName> {
    let nodes: Api<NodePart> = Api::all(shared.client.clone());
    let looks = suspects.into_iter().map(|name| {
        let nodes = &nodes;
        async move {
            match nodes.get_metadata_opt(&name).await {
                Ok(None) => None,
                Ok(Some(_)) => Some(name),
                Err(e) => {
                    debug!(node = %name, "not known whether it is gone: {e}");
                    Some(name)
                }
            }
        }
    });
    let found = stream::iter(looks).buffer_unordered(SIDE_BY_SIDE);
    found.filter_map(async |name| name).collect().await
}

/// Returns whether a deleted node has Pods, as far as this controller may see. A container of a node ends with its Pod or
/// with the machine; a kubelet that runs on can register its node again, and its Pods live.
pub(in crate::controller) async fn pods_of(shared: &Shared, node: &NodeName) -> Pods {
    match has_pods(shared, node).await {
        Ok(true) => Pods::Remain,
        Ok(false) => Pods::Deleted,
        Err(e) => {
            warn!(
                %node,
                "it is not known whether Pods of this deleted node are left: {e}"
            );
            Pods::Unknown
        }
    }
}

/// Selects the Pods of a node that have not ended.
pub(in crate::controller) fn that_may_run(node: &NodeName) -> ListParams {
    let of_node = format!("spec.nodeName={node},status.phase!=Succeeded,status.phase!=Failed");
    ListParams::default().fields(&of_node)
}

async fn has_pods(shared: &Shared, node: &NodeName) -> kube::Result<bool> {
    let one = that_may_run(node).limit(1);
    for pods in apis::<PodPart>(&shared.client, &shared.settings.watch_namespaces) {
        if !pods.list_metadata(&one).await?.items.is_empty() {
            return Ok(true);
        }
    }
    Ok(false)
}
