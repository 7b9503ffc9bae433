//! Decides whether Petiole itself runs where it is needed. Pure.
use super::super::finding::{Cause, Finding, sentence};
use crate::inspect::{
    pods::{containers, is_ready, phase},
    snapshot::Snapshot,
};

/// Returns what is wrong with the agent of a node.
pub(super) fn agent_trouble(snapshot: &Snapshot, node: &str) -> Option<Finding> {
    let Some((key, pod)) = snapshot.agent_on(node) else {
        if snapshot.hidden.pods {
            return None;
        }
        let text = format!("No agent runs on node {node}, so the node offers no device.");
        let next = "kubectl get daemonsets -A -l app.kubernetes.io/component=agent";
        return Some(Finding::new(Cause::AgentMissing, text).then(next));
    };
    if is_ready(pod) {
        return None;
    }
    let waiting = containers(pod).find_map(|container| {
        let waiting = container.state.as_ref()?.waiting.as_ref()?;
        Some(waiting.reason.clone().unwrap_or_default())
    });
    let state = waiting.unwrap_or_else(|| phase(pod).to_owned());
    let text = format!(
        "The agent of node {node} is not ready (Pod {key}: {state}): its log says what it waits for."
    );
    let next = format!("kubectl -n {} logs {}", key.namespace, key.name);
    Some(Finding::new(Cause::AgentNotReady, text).then(next))
}

/// Returns what is wrong with the controller.
pub(super) fn controller_trouble(snapshot: &Snapshot) -> Option<Finding> {
    let mut controllers = snapshot.own_pods("controller");
    if controllers.any(|(_, pod)| is_ready(pod)) || snapshot.hidden.pods {
        return None;
    }
    let text = "No controller is ready: nobody writes the status of Configurations, and nobody creates brokers and the Instances of shared devices.";
    let next = "kubectl get pods -A -l app.kubernetes.io/component=controller";
    Some(Finding::new(Cause::ControllerMissing, sentence(text)).then(next))
}
