//! Checks the agent of each node. Pure.
use super::{
    super::{
        nodes::is_node_ready,
        pods::{DAEMON_SETS, inspection, is_ready},
        snapshot::Snapshot,
        words::listed,
    },
    line::{Check, Level, check},
};
use std::collections::BTreeMap;

/// Returns a line for each state of nodes: their agents, and what these report. A node whose agent or report cannot be read is
/// left out.
pub(super) fn nodes(snapshot: &Snapshot) -> Vec<Check> {
    let mut by_state: BTreeMap<NodeState, Vec<(&str, String)>> = BTreeMap::new();
    for node in snapshot.nodes.keys() {
        if let Some((state, next)) = node_state(snapshot, node) {
            by_state.entry(state).or_default().push((node, next));
        }
    }
    let lines = by_state.into_iter().map(|(state, nodes)| {
        let names: Vec<&str> = nodes.iter().map(|(node, _)| *node).collect();
        let noun = if names.len() == 1 { "node" } else { "nodes" };
        let (level, text) = match state {
            NodeState::Lost => (Level::Fail, "not ready, so its devices cannot be used: "),
            NodeState::AgentNotReady => (Level::Fail, "its agent is not ready: "),
            NodeState::Silent => (Level::Fail, "its agent runs and has written no NodeDevices: "),
            NodeState::NoAgent => (Level::Warn, "no agent, so it offers no device: see nodeSelector, affinity and tolerations of the agents, and "),
            NodeState::Cordoned => (Level::Ok, "agent ready; cordoned, so no new Pod gets its devices until "),
            NodeState::Well => (Level::Ok, "agent ready"),
        };
        let next = match state {
            NodeState::Well => "",
            NodeState::Lost | NodeState::AgentNotReady | NodeState::Silent | NodeState::NoAgent | NodeState::Cordoned => &nodes[0].1,
        };
        check(level, format!("{noun} {}: {text}{next}", listed(&names)))
    });
    lines.collect()
}

/// The states of a node, the worst first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum NodeState {
    Lost,
    AgentNotReady,
    Silent,
    NoAgent,
    Cordoned,
    Well,
}

/// Returns the state of a node, and the command that shows why it is so, or that ends it.
fn node_state(snapshot: &Snapshot, node: &str) -> Option<(NodeState, String)> {
    let object = snapshot.nodes.get(node)?;
    if !is_node_ready(object) {
        return Some((NodeState::Lost, format!("kubectl describe node {node}")));
    }
    let Some((key, agent)) = snapshot.agent_on(node) else {
        let missing = (NodeState::NoAgent, DAEMON_SETS.to_owned());
        return Some(missing).filter(|_| !snapshot.hidden.pods);
    };
    if !is_ready(agent) {
        return Some((NodeState::AgentNotReady, inspection(key, agent)));
    }
    if !snapshot.node_devices.contains_key(node) {
        if snapshot.hidden.node_devices {
            return None;
        }
        // An agent writes this object when it has a Configuration to report about.
        let labels = object.metadata.labels.clone().unwrap_or_default();
        let mut looks = snapshot.configurations.iter();
        if looks.any(|(key, its)| snapshot.is_watched(&key.namespace) && its.selects(&labels)) {
            let next = format!("kubectl -n {} logs {}", key.namespace, key.name);
            return Some((NodeState::Silent, next));
        }
    }
    let spec = object.spec.as_ref();
    if spec.is_some_and(|spec| spec.unschedulable == Some(true)) {
        return Some((NodeState::Cordoned, format!("kubectl uncordon {node}")));
    }
    Some((NodeState::Well, String::new()))
}
