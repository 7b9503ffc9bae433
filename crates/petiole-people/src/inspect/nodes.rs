//! Reads how Nodes are. Pure.
use super::snapshot::Snapshot;
use k8s_openapi::{
    api::core::v1::{Node, NodeCondition},
    apimachinery::pkg::apis::meta::v1::Time,
    jiff::Timestamp,
};
use petiole_model::api::names;

fn ready_of(node: &Node) -> Option<&NodeCondition> {
    let conditions = node.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|its| its.type_ == "Ready")
}

pub(crate) fn is_node_ready(node: &Node) -> bool {
    ready_of(node).is_some_and(|ready| ready.status == "True")
}

/// Returns whether a node counts where the controller asks whether most are away: one that has never said anything does not, nor one of
/// which the operator has said that it is shut down.
pub(crate) fn is_counted(node: &Node) -> bool {
    let taints = node.spec.iter().flat_map(|spec| &spec.taints);
    let is_off = (taints.flatten()).any(|taint| taint.key == names::OUT_OF_SERVICE);
    is_node_ready(node) || ready_of(node).is_some() && !is_off
}

/// Returns since when a node is as it is, ready or not.
pub(crate) fn since(snapshot: &Snapshot, node: &str) -> Option<Timestamp> {
    let ready = ready_of(snapshot.nodes.get(node)?)?;
    ready.last_transition_time.as_ref().map(|Time(at)| *at)
}

/// Returns what a node is that is lost: a node that is not there cannot be described.
pub(crate) fn lost(snapshot: &Snapshot, node: &str) -> &'static str {
    if snapshot.nodes.contains_key(node) {
        "is not ready"
    } else {
        "does not exist"
    }
}

/// Returns the command that shows why a node is lost.
pub(crate) fn describe(snapshot: &Snapshot, node: &str) -> String {
    if snapshot.nodes.contains_key(node) {
        format!("kubectl describe node {node}")
    } else {
        "kubectl get nodes".to_owned()
    }
}

/// Returns whether a node is not ready or does not exist. A node that cannot be read is not lost.
pub(crate) fn is_lost(snapshot: &Snapshot, node: &str) -> bool {
    match snapshot.nodes.get(node) {
        Some(node) => !is_node_ready(node),
        None => !snapshot.hidden.nodes,
    }
}

/// Returns the command that says that a node is shut down, if it exists.
pub(crate) fn shut_down(snapshot: &Snapshot, node: &str) -> Option<String> {
    let taint = "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute";
    let exists = snapshot.nodes.contains_key(node);
    exists.then(|| format!("kubectl taint node {node} {taint}"))
}
