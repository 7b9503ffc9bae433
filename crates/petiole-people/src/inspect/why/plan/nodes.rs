//! Decides what keeps a Pod from a node that has its device. Pure.
use super::{
    super::finding::{Cause, Finding, first_of},
    agents::agent_trouble,
    device::seen_by,
};
use crate::inspect::{
    nodes::is_node_ready,
    pods::{extended_requests, is_finished, node_of},
    slots::free,
    snapshot::{Owner, Snapshot},
    words::listed,
};
use k8s_openapi::api::core::v1::{Node, Pod, Taint};
use petiole_base::quantity::count;
use petiole_model::{
    api::{instance::Instance, names::UNSCHEDULABLE},
    model::{
        resource_name::ResourceName,
        scheduling::{self, has_affinity, is_tolerated, missing_label},
    },
};
use serde_json::Value;

/// The most nodes whose troubles are reported.
const TROUBLES_MAX: usize = 3;
/// The name of nodes whose troubles are not reported.
const NODES: &str = "nodes that have the device and cannot take the Pod";

/// The request of a Pod for a resource.
#[derive(Debug, Clone, Copy)]
pub(super) struct Request<'a> {
    pub(super) pod: &'a Pod,
    /// Its spec, by [`spec_of`].
    pub(super) spec: &'a Value,
    pub(super) resource: &'a ResourceName,
    pub(super) amount: u64,
}

/// Returns what keeps the Pod from all of these nodes; nothing if one of them can take it.
pub(super) fn on_nodes(
    snapshot: &Snapshot,
    request: Request<'_>,
    nodes: impl IntoIterator<Item: AsRef<str>>,
) -> Vec<Finding> {
    let mut findings = vec![];
    for node in nodes {
        match blocker(snapshot, node.as_ref(), request) {
            Some(finding) => findings.push(finding),
            None => return vec![],
        }
    }
    first_of(findings, TROUBLES_MAX, NODES)
}

/// Returns what keeps the Pod from a node that sees a device with a free slot.
fn blocker(snapshot: &Snapshot, name: &str, request: Request<'_>) -> Option<Finding> {
    let Some(node) = snapshot.nodes.get(name) else {
        if snapshot.hidden.nodes {
            return agent_trouble(snapshot, name);
        }
        let text = format!("Node {name}, which has the device, does not exist any more.");
        return Some(Finding::new(Cause::NodeNotReady, text).then("kubectl get nodes"));
    };
    if !is_node_ready(node) {
        let text = format!("Node {name}, which has the device, is not ready.");
        let finding = Finding::new(Cause::NodeNotReady, text);
        return Some(finding.then(format!("kubectl describe node {name}")));
    }
    let spec = node.spec.clone().unwrap_or_default();
    let is_cordoned = spec.unschedulable == Some(true);
    let mut taints = spec.taints.unwrap_or_default();
    if is_cordoned {
        taints.insert(0, cordon());
    }
    if let Some(taint) = untolerated(request.spec, &taints) {
        if is_cordoned && taint.key == UNSCHEDULABLE {
            let text =
                format!("Node {name}, which has the device, is cordoned: no new Pod is put on it.");
            let finding = Finding::new(Cause::NodeCordoned, text);
            return Some(finding.then(format!("kubectl uncordon {name}")));
        }
        let value = taint.value.as_ref().map(|value| format!("={value}"));
        let taint = format!(
            "{}{}:{}",
            taint.key,
            value.unwrap_or_default(),
            taint.effect
        );
        let text = format!(
            "Node {name}, which has the device, has the taint {taint}, and the Pod does not tolerate it. Give the Pod a toleration, or remove the taint."
        );
        let finding = Finding::new(Cause::NodeTainted, text);
        return Some(finding.then(format!("kubectl taint node {name} {taint}-")));
    }
    let is_told_by_node = !snapshot.is_given_out(request.resource);
    let trouble = || resource_trouble(snapshot, name, node, request);
    agent_trouble(snapshot, name).or_else(|| is_told_by_node.then(trouble).flatten())
}

/// Compares what the node has with what its Pods ask for.
fn resource_trouble(
    snapshot: &Snapshot,
    name: &str,
    node: &Node,
    Request {
        resource, amount, ..
    }: Request<'_>,
) -> Option<Finding> {
    let allocatable = node.status.as_ref().and_then(|s| s.allocatable.as_ref());
    let allocatable = allocatable.and_then(|all| count(&all.get(resource.as_str())?.0));
    let log = snapshot
        .agent_on(name)
        .map(|(agent, _)| format!("kubectl -n {} logs {}", agent.namespace, agent.name));
    let log = log.unwrap_or_default();
    let Some(allocatable) = allocatable else {
        let text = format!(
            "Node {name} sees the device and does not list {resource}: the device plugin of its agent is not registered with the kubelet. After a restart of the kubelet this takes some seconds."
        );
        return Some(Finding::new(Cause::NotRegistered, text).then(log));
    };
    let here = most_here(snapshot, name, resource, allocatable);
    if here < amount {
        let held = match listed_asking(snapshot, name, resource) {
            (_, 0) => String::new(),
            (pods, asked) => format!(", and the Pods {pods} have asked for {asked}"),
        };
        let text = format!(
            "The Pod asks for {amount} of {resource} on one node, and node {name} has {here} that can be had{held}."
        );
        let next = format!("kubectl describe node {name}");
        return Some(Finding::new(Cause::TooManyRequested, text).then(next));
    }
    if allocatable < amount {
        let text = format!(
            "Node {name} sees the device with a free slot and lists {resource}: {allocatable}. The agent and the kubelet bring this up to date within half a minute; if it stays, read the log of the agent."
        );
        return Some(Finding::new(Cause::CapacityStale, text).then(log));
    }
    let (pods, asked) = listed_asking(snapshot, name, resource);
    if asked + amount <= allocatable {
        return None;
    }
    let text = format!(
        "Node {name} has {allocatable} of {resource}, and the Pods {pods} have asked for {asked}."
    );
    Some(Finding::new(Cause::NodeFull, text).then(format!("kubectl describe node {name}")))
}

/// Returns the Pods of a node that ask for a resource, and how many they have asked for.
fn listed_asking(snapshot: &Snapshot, node: &str, resource: &ResourceName) -> (String, u64) {
    let here = snapshot.pods.iter();
    let here = here.filter(|(_, pod)| node_of(pod) == Some(node) && !is_finished(pod));
    let asking = here.filter_map(|(key, pod)| {
        let amount = extended_requests(pod).remove(resource)?;
        Some((key.to_string(), amount))
    });
    let (pods, asked): (Vec<String>, Vec<u64>) = asking.unzip();
    (listed(&pods), asked.iter().sum())
}

/// Returns how many of a resource a node can give to a Pod, by the devices that it sees. Of devices without Instances it lists all.
fn most_here(snapshot: &Snapshot, node: &str, resource: &ResourceName, allocatable: u64) -> u64 {
    let Some(Owner::Configuration(key)) = snapshot.owner_of(resource) else {
        return u64::MAX;
    };
    let mut instances = snapshot.instances_of(&key).peekable();
    if instances.peek().is_none() {
        return allocatable;
    }
    let is_here = |instance: &Instance| seen_by(instance).iter().any(|seen| seen == node);
    let here = instances.filter(|(_, instance)| is_here(instance) && free(instance) > 0);
    here.count() as u64
}

/// Returns the taint of a cordoned node. The scheduler treats `spec.unschedulable` like it, also where the taint is missing.
fn cordon() -> Taint {
    Taint {
        key: UNSCHEDULABLE.to_owned(),
        effect: "NoSchedule".to_owned(),
        ..Taint::default()
    }
}

fn untolerated<'a>(spec: &Value, taints: &'a [Taint]) -> Option<&'a Taint> {
    let keeps_away = |taint: &&Taint| taint.effect == "NoSchedule" || taint.effect == "NoExecute";
    let mut taints = taints.iter().filter(keeps_away);
    taints.find(|taint| {
        let taint = scheduling::Taint {
            key: &taint.key,
            value: taint.value.as_deref().unwrap_or_default(),
            effect: &taint.effect,
        };
        !is_tolerated(spec, taint)
    })
}

/// Returns whether the node selector and the required affinity of a Pod's spec match a Node.
pub(super) fn allows(spec: &Value, node: &Node) -> bool {
    let labels = node.metadata.labels.clone().unwrap_or_default();
    let name = node.metadata.name.as_deref().unwrap_or_default();
    missing_label(spec, &labels).is_none() && has_affinity(spec, name, &labels)
}

/// Returns the spec of a Pod in the form that the rules of scheduling read. It is made once for all Nodes.
pub(super) fn spec_of(pod: &Pod) -> Value {
    serde_json::to_value(&pod.spec).unwrap_or_default()
}
