//! Decides whether Petiole itself runs where it is needed. Pure.
use super::super::finding::{Cause, Finding, sentence};
use crate::inspect::{
    nodes::{describe, is_lost, lost},
    pods::{DAEMON_SETS, inspection, is_ready, phase, state_of},
    snapshot::Snapshot,
};
use petiole_model::model::waiting::WaitsFor;

/// Returns what is wrong with the agent of a node.
pub(super) fn agent_trouble(snapshot: &Snapshot, node: &str) -> Option<Finding> {
    if is_lost(snapshot, node) {
        let text = format!(
            "Node {node} {}, so nothing is known of its devices.",
            lost(snapshot, node)
        );
        let finding = Finding::new(Cause::NodeNotReady, text);
        return Some(finding.then(describe(snapshot, node)));
    }
    let Some((key, pod)) = snapshot.agent_on(node) else {
        if snapshot.hidden.pods {
            return None;
        }
        let text = format!("No agent runs on node {node}, so the node offers no device.");
        return Some(Finding::new(Cause::AgentMissing, text).then(DAEMON_SETS));
    };
    if is_ready(pod) {
        return None;
    }
    let state = state_of(pod);
    let why = if WaitsFor::from_reason(state) == WaitsFor::Image {
        "check the image of the chart (image.repository, image.tag), and whether the node may pull it."
    } else if phase(pod) == "Pending" {
        "its Events say what it waits for."
    } else {
        "its log says what it waits for."
    };
    let text = format!("The agent of node {node} is not ready (Pod {key}: {state}): {why}");
    Some(Finding::new(Cause::AgentNotReady, text).then(inspection(key, pod)))
}

/// Returns what is wrong with the controller.
pub(super) fn controller_trouble(snapshot: &Snapshot) -> Option<Finding> {
    let mut controllers = snapshot.own_pods("controller");
    if controllers.any(|(_, pod)| is_ready(pod)) || snapshot.hidden.pods {
        return None;
    }
    let text = "No controller is ready: nobody writes the status of Configurations, and nobody creates brokers and the Instances of new devices.";
    let next = "kubectl get pods -A -l app.kubernetes.io/component=controller";
    Some(Finding::new(Cause::ControllerMissing, sentence(text)).then(next))
}
