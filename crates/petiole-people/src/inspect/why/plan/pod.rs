//! Decides what a Pod waits for. Pure.
use super::{
    super::finding::{Cause, Finding, sentence},
    nodes::Request,
    resource, unscheduled,
};
use crate::inspect::{
    nodes::{is_lost, shut_down},
    pods::{containers, extended_requests, is_finished, is_ready, label, node_of, phase},
    snapshot::Snapshot,
};
use k8s_openapi::{
    api::core::v1::{ContainerStatus, Pod},
    jiff::Timestamp,
};
use petiole_model::{
    api::names::{INSTANCE_LABEL, PLACEHOLDER},
    model::{
        names::ObjectKey,
        resource_name::ResourceName,
        waiting::{NO_IMAGE, STARTING},
    },
};
use std::collections::BTreeMap;

/// The kubelet's reason for a Pod that a device plugin refused.
const REFUSED: &str = "UnexpectedAdmissionError";
/// The kubelet's reason for a container that a device plugin refused to start.
const START_REFUSED: &str = "PreStartHookError";

/// Returns the state of a Pod in a sentence.
pub(super) fn subject(key: &ObjectKey, pod: &Pod) -> String {
    let state = match phase(pod) {
        "Running" if !is_ready(pod) => "Running and not ready",
        phase => phase,
    };
    match node_of(pod) {
        Some(node) => format!("Pod {key} is {state} on node {node}."),
        None => format!("Pod {key} is {state}, and no node is chosen for it."),
    }
}

pub(super) fn explain(
    snapshot: &Snapshot,
    key: &ObjectKey,
    pod: &Pod,
    now: Timestamp,
) -> Vec<Finding> {
    if pod.metadata.deletion_timestamp.is_some() {
        return vec![ending(snapshot, key, pod)];
    }
    if let Some(node) = node_of(pod)
        && !is_finished(pod)
        && is_lost(snapshot, node)
    {
        let text = format!("Node {node} is not ready, so its containers may or may not run.");
        let finding = Finding::new(Cause::NodeNotReady, text);
        return vec![finding.then(format!("kubectl describe node {node}"))];
    }
    let asked = asked_of_us(snapshot, pod);
    let mut findings: Vec<Finding> = match phase(pod) {
        "Failed" => vec![failed(key, pod)],
        "Succeeded" => vec![Finding::new(Cause::Fine, "It has ended without an error.")],
        _ if node_of(pod).is_some() => containers(pod)
            .find_map(|c| waiting(key, c))
            .into_iter()
            .collect(),
        _ => without_node(snapshot, key, pod, &asked, now),
    };
    if asked.is_empty()
        && findings
            .iter()
            .all(|finding| finding.cause == Cause::OtherReason)
    {
        findings.insert(0, asks_for_nothing(snapshot, key, pod));
    }
    match findings.is_empty() {
        true => vec![settled(snapshot, key, pod, &asked)],
        false => findings,
    }
}

/// Returns whether a Pod asks for no resource of Petiole, and is not being deleted.
pub(super) fn lacks_request(snapshot: &Snapshot, pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_none() && asked_of_us(snapshot, pod).is_empty()
}

fn asked_of_us(snapshot: &Snapshot, pod: &Pod) -> BTreeMap<ResourceName, u64> {
    let mut asked = extended_requests(pod);
    asked.retain(|resource, _| is_asked_of_us(snapshot, resource));
    asked
}

/// A resource with a foreign prefix is ours if only its prefix is wrong.
fn is_asked_of_us(snapshot: &Snapshot, resource: &ResourceName) -> bool {
    if snapshot.is_ours(resource) {
        return true;
    }
    let mut nodes = snapshot.nodes.values();
    let is_offered = nodes.any(|node| {
        let capacity = node.status.as_ref().and_then(|s| s.capacity.as_ref());
        capacity.is_some_and(|capacity| capacity.contains_key(resource.as_str()))
    });
    !is_offered
        && !snapshot.hidden.nodes
        && snapshot
            .resources()
            .keys()
            .any(|known| known.last_segment() == resource.last_segment())
}

fn ending(snapshot: &Snapshot, key: &ObjectKey, pod: &Pod) -> Finding {
    let lost = node_of(pod).filter(|node| is_lost(snapshot, node));
    let text = match lost {
        Some(node) => format!(
            "It is being deleted, and node {node} is not ready and cannot confirm its end; its slots stay in use until then, or until spec.slotReleaseSeconds of its Configuration is over. If the node is shut down, say so."
        ),
        None => "It is being deleted, and its slots are free 3 to 15 s after its end.".to_owned(),
    };
    if let Some(node) = lost {
        return Finding::new(Cause::Ending, text).then(shut_down(node));
    }
    let next = format!("kubectl -n {} get pod {} -w", key.namespace, key.name);
    Finding::new(Cause::Ending, text).then(next)
}

fn failed(key: &ObjectKey, pod: &Pod) -> Finding {
    let status = pod.status.clone().unwrap_or_default();
    let message = status.message.unwrap_or_default();
    let ObjectKey { namespace, name } = key;
    if status.reason.as_deref() == Some(REFUSED) {
        let has_owner = pod
            .metadata
            .owner_references
            .iter()
            .flatten()
            .next()
            .is_some();
        let successor = match has_owner {
            true => {
                "Its owner creates another Pod, which waits until a slot is free; this one stays in the list until it is deleted."
            }
            false => "It is not started again: delete it, and create it once more.",
        };
        let text = format!(
            "The kubelet refused it, because the device was taken or lost after the Pod was scheduled: {} {successor}",
            sentence(&message)
        );
        let next = format!("kubectl -n {namespace} delete pod {name}");
        return Finding::new(Cause::AdmissionRefused, text).then(next);
    }
    let ended = containers(pod)
        .find_map(|container| exit(container.state.as_ref()?.terminated.as_ref()?.exit_code));
    let why = ended
        .or(status.reason)
        .unwrap_or_else(|| "it failed".to_owned());
    let text = format!("It has ended: {why}. {}", message.trim());
    let next = format!("kubectl -n {namespace} logs {name} --all-containers");
    Finding::new(Cause::Crash, text.trim_end()).then(next)
}

fn exit(code: i32) -> Option<String> {
    (code != 0).then(|| format!("a container ended with exit code {code}"))
}

fn crash(key: &ObjectKey, container: &ContainerStatus, exit: &str) -> Finding {
    let text = format!(
        "Container {} was started, and its program ends ({exit}, {} restarts). Its log says why.",
        container.name, container.restart_count
    );
    let previous = match container.restart_count {
        0 => "",
        _ => " --previous",
    };
    let next = format!(
        "kubectl -n {} logs {} -c {}{previous}",
        key.namespace, key.name, container.name
    );
    Finding::new(Cause::Crash, text).then(next)
}

/// Returns what a container of a Pod with a node waits for.
fn waiting(key: &ObjectKey, container: &ContainerStatus) -> Option<Finding> {
    let state = container.state.as_ref()?;
    if let Some(terminated) = &state.terminated {
        return exit(terminated.exit_code).map(|exit| crash(key, container, &exit));
    }
    let waiting = state.waiting.as_ref()?;
    let reason = waiting.reason.as_deref().unwrap_or_default();
    let message = waiting.message.as_deref().map(sentence).unwrap_or_default();
    let ObjectKey { namespace, name } = key;
    let container_name = &container.name;
    if NO_IMAGE.contains(&reason) {
        let text = format!(
            "Container {container_name} has no image ({reason}): {message} Check that the name of the image is right and that the node may pull it. The device is not the reason."
        );
        let next = format!("kubectl -n {namespace} describe pod {name}");
        return Some(Finding::new(Cause::Image, text).then(next));
    }
    if reason == "CrashLoopBackOff" {
        let last = container
            .last_state
            .as_ref()
            .and_then(|s| s.terminated.as_ref());
        let exit = last.and_then(|last| exit(last.exit_code));
        let exit = exit.unwrap_or_else(|| "it ended".to_owned());
        return Some(crash(key, container, &exit));
    }
    if reason == START_REFUSED {
        let text = format!("Container {container_name} is not started again: {message}");
        let next = format!("kubectl -n {namespace} delete pod {name}");
        return Some(Finding::new(Cause::StartRefused, text).then(next));
    }
    let text = match STARTING.contains(&reason) {
        true => format!(
            "Container {container_name} is being created. If that takes long, its Events say why; the device is not the reason."
        ),
        false => format!("Container {container_name} waits ({reason}): {message}"),
    };
    let next = format!("kubectl -n {namespace} describe pod {name}");
    Some(Finding::new(Cause::OtherReason, text.trim_end()).then(next))
}

fn without_node(
    snapshot: &Snapshot,
    key: &ObjectKey,
    pod: &Pod,
    asked: &BTreeMap<ResourceName, u64>,
    now: Timestamp,
) -> Vec<Finding> {
    let findings = asked.iter().flat_map(|(resource, amount)| {
        let request = nodes_request(pod, resource, *amount);
        resource::explain(snapshot, request, now)
    });
    let findings: Vec<Finding> = findings.collect();
    if !findings.is_empty() {
        return findings;
    }
    unscheduled::explain(snapshot, key, pod, asked)
}

fn nodes_request<'a>(pod: &'a Pod, resource: &'a ResourceName, amount: u64) -> Request<'a> {
    Request {
        pod,
        resource,
        amount,
    }
}

fn asks_for_nothing(snapshot: &Snapshot, key: &ObjectKey, pod: &Pod) -> Finding {
    let edit = |name: &str| format!("kubectl -n {} edit configuration {name}", key.namespace);
    let configuration = label(pod, petiole_model::api::names::CONFIGURATION_LABEL);
    match label(pod, INSTANCE_LABEL).and(configuration) {
        Some(configuration) => Finding::new(
            Cause::NoResourceRequested,
            format!("It is a broker of Configuration {configuration}, and none of its containers asks for the device: the limits in brokerPodSpec lack \"{PLACEHOLDER}\": \"1\"."),
        )
        .then(edit(configuration)),
        // A Configuration of another namespace can give its resource any name.
        None if snapshot.hidden.objects && !extended_requests(pod).is_empty() => Finding::new(
            Cause::NoResourceRequested,
            "The limits of its containers name no resource of a Configuration that you may read; one of another namespace may offer what they name.",
        ),
        None => Finding::new(
            Cause::NoResourceRequested,
            "No container of it asks for a resource of Petiole in its limits, so it gets no device.",
        ),
    }
}

/// Returns what is said of a Pod that waits for nothing.
fn settled(
    snapshot: &Snapshot,
    key: &ObjectKey,
    pod: &Pod,
    asked: &BTreeMap<ResourceName, u64>,
) -> Finding {
    if !is_ready(pod) {
        let next = format!("kubectl -n {} describe pod {}", key.namespace, key.name);
        let text = match containers(pod).next() {
            // The kubelet reports containers from admission on, and admission is where the device plugin is asked.
            None => {
                "The kubelet of its node has not admitted it yet; its containers get their devices at admission."
            }
            Some(_) => {
                "Its containers were given what they ask for, and are not ready; the device is not the reason."
            }
        };
        return Finding::new(Cause::OtherReason, text).then(next);
    }
    let ownerless = asked
        .keys()
        .filter(|resource| snapshot.owner_of(resource).is_none());
    let ownerless: Vec<&str> = ownerless.map(ResourceName::as_str).collect();
    let asked: Vec<&str> = asked.keys().map(ResourceName::as_str).collect();
    if !ownerless.is_empty() && snapshot.hidden.objects {
        let text = format!(
            "It has what it asks for: {}. No Configuration or Instance that you may read offers {}: one of another namespace may.",
            asked.join(", "),
            ownerless.join(", ")
        );
        return Finding::new(Cause::Fine, text);
    }
    if !ownerless.is_empty() {
        let text = format!(
            "It has what it asks for: {}. No Configuration or Instance offers {} any more: the Pod keeps its device until it ends, and the next one would wait.",
            asked.join(", "),
            ownerless.join(", ")
        );
        let next = format!("kubectl -n {} get configurations,instances", key.namespace);
        return Finding::new(Cause::UnknownResource, text).then(next);
    }
    let text = format!(
        "It has what it asks for: {}. Nothing is missing.",
        asked.join(", ")
    );
    Finding::new(Cause::Fine, text)
}
