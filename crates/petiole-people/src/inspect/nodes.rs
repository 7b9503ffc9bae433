//! Reads how Nodes are. Pure.
use super::snapshot::Snapshot;
use k8s_openapi::api::core::v1::Node;

pub(crate) fn is_node_ready(node: &Node) -> bool {
    let conditions = node
        .status
        .iter()
        .flat_map(|s| s.conditions.iter().flatten());
    let mut ready = conditions.filter(|condition| condition.type_ == "Ready");
    ready.any(|condition| condition.status == "True")
}

/// Returns whether a node is not ready or does not exist. A node that cannot be read is not lost.
pub(crate) fn is_lost(snapshot: &Snapshot, node: &str) -> bool {
    match snapshot.nodes.get(node) {
        Some(node) => !is_node_ready(node),
        None => !snapshot.hidden.nodes,
    }
}

/// Returns the command that says that a node is shut down.
pub(crate) fn shut_down(node: &str) -> String {
    format!("kubectl taint node {node} node.kubernetes.io/out-of-service=nodeshutdown:NoExecute")
}
