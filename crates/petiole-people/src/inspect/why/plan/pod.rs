//! Decides what a Pod waits for. Pure.
use super::{
    super::finding::{Cause, Finding, with},
    evictions,
    given::what_it_has,
    kubelet::{failed, not_prepared, waiting},
    nodes::{Request, spec_of},
    problems::problem,
    resource,
    slots::{Taken, amiss, taken},
    twice,
    unhealthy::Unhealthy,
    unscheduled,
};
use crate::inspect::{
    nodes::{self, describe, is_lost, lost, shut_down},
    object::{Kind, Object},
    pods::{containers, extended_requests, given, is_finished, is_ready, label, node_of, phase},
    snapshot::Snapshot,
    words::listed,
};
use k8s_openapi::{api::core::v1::Pod, jiff::Timestamp};
use petiole_model::{
    api::names::{INSTANCE_LABEL, PLACEHOLDER},
    model::{names::ObjectKey, resource_name::ResourceName, slot::SlotOwner},
};
use std::collections::{BTreeMap, BTreeSet};

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
        return vec![ending(snapshot, key, pod, now)];
    }
    if let Some(node) = node_of(pod)
        && !is_finished(pod)
        && is_lost(snapshot, node)
    {
        let text = format!(
            "Node {node} {}, so its containers may or may not run.",
            lost(snapshot, node)
        );
        let finding = Finding::new(Cause::NodeNotReady, text);
        return vec![finding.then(describe(snapshot, node))];
    }
    let asked = asked_of_us(snapshot, pod);
    let mut findings: Vec<Finding> = match phase(pod) {
        "Failed" => vec![failed(snapshot, key, pod)],
        "Succeeded" => vec![Finding::new(Cause::Fine, "It has ended without an error.")],
        _ if node_of(pod).is_some() => with_node(snapshot, key, pod, now),
        _ => without_node(snapshot, key, pod, &asked, now),
    };
    if asked.is_empty()
        && findings
            .iter()
            .all(|finding| finding.cause == Cause::OtherReason)
    {
        findings.insert(0, asks_for_nothing(snapshot, key, pod));
    }
    if findings.is_empty() {
        vec![settled(snapshot, key, pod, &asked)]
    } else {
        findings
    }
}

/// Returns whether a Pod asks for no resource of Petiole, and is not being deleted.
pub(super) fn lacks_request(snapshot: &Snapshot, pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_none() && asked_of_us(snapshot, pod).is_empty()
}

/// Returns what a Pod asks of us, by resources or by claims.
fn asked_of_us(snapshot: &Snapshot, pod: &Pod) -> BTreeMap<ResourceName, u64> {
    let mut asked = extended_requests(pod);
    asked.retain(|resource, _| {
        is_asked_of_us(snapshot, resource) || is_held(snapshot, pod, resource)
    });
    for (resource, amount) in snapshot.claimed(pod) {
        *asked.entry(resource).or_default() += amount;
    }
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

/// Returns whether a Pod has a slot by a resource: it was ours, if it is called otherwise now.
fn is_held(snapshot: &Snapshot, pod: &Pod, resource: &ResourceName) -> bool {
    let ids: Vec<&str> = given(pod, resource).map(|(id, _)| id).collect();
    let is_its = |(slot, usage): (&String, &String)| match SlotOwner::from_usage(usage) {
        Ok(Some(SlotOwner::Node(_))) => ids.contains(&slot.as_str()),
        Ok(Some(SlotOwner::Configuration { slot, .. })) => ids.contains(&slot.as_str()),
        Ok(Some(SlotOwner::Claim { .. }) | None) | Err(_) => false,
    };
    let mut instances = snapshot.instances.values();
    !ids.is_empty() && instances.any(|its| its.spec.device_usage.iter().any(is_its))
}

/// Returns what is amiss with the devices of a Pod that has a node, and else what its containers wait for.
fn with_node(snapshot: &Snapshot, key: &ObjectKey, pod: &Pod, now: Timestamp) -> Vec<Finding> {
    let waiting = containers(pod).find_map(|container| waiting(key, container));
    if let Some(refused) = waiting.as_ref()
        && matches!(refused.cause, Cause::StartRefused | Cause::AgentReplaced)
    {
        return vec![refused.clone()];
    }
    if let Some(finding) = not_prepared(snapshot, key, pod) {
        return vec![finding];
    }
    let its = slots_of(snapshot, key, pod);
    let mut findings: Vec<Finding> = (its.iter())
        .filter_map(|taken| amiss(snapshot, taken, now))
        .chain(twice::of_pod(snapshot, key))
        .collect();
    if findings.is_empty() {
        let asked = asked_of_us(snapshot, pod);
        let unhealthy = Unhealthy::of(snapshot, key, pod, asked.keys());
        findings.extend(unhealthy.map(|device| device.explain(&its)));
    }
    findings.into_iter().chain(waiting).collect()
}

/// Returns the slots that a Pod has or may have.
fn slots_of<'a>(snapshot: &'a Snapshot, key: &ObjectKey, pod: &Pod) -> Vec<Taken<'a>> {
    let asked = asked_of_us(snapshot, pod);
    let ids = asked.keys().flat_map(|resource| given(pod, resource));
    let ids: BTreeSet<&str> = ids.map(|(id, _)| id).collect();
    let may_be_its = |(slot, usage): (&String, &String)| match SlotOwner::from_usage(usage) {
        Ok(Some(owner)) if node_of(pod) == Some(owner.node().as_str()) => {
            let id = match &owner {
                SlotOwner::Node(_) => slot,
                SlotOwner::Configuration { slot, .. } => slot,
                SlotOwner::Claim { .. } => return true,
            };
            ids.is_empty() || ids.contains(id.as_str())
        }
        Ok(_) | Err(_) => false,
    };
    let instances = snapshot.instances.iter();
    let its = instances.filter(|(_, its)| its.spec.device_usage.iter().any(may_be_its));
    let name = key.to_string();
    let mut slots = taken(snapshot, its);
    slots.retain(|taken| taken.slot.pods.contains(&name));
    slots
}

fn ending(snapshot: &Snapshot, key: &ObjectKey, pod: &Pod, now: Timestamp) -> Finding {
    if let Some(node) = node_of(pod).filter(|node| is_lost(snapshot, node)) {
        let slots = if slots_of(snapshot, key, pod).is_empty() {
            "its slots were released"
        } else {
            "its slots stay in use until then, or until spec.slotReleaseSeconds of its Configuration is over"
        };
        let ObjectKey { namespace, name } = key;
        let (remedy, next) = match shut_down(snapshot, node) {
            Some(next) => ("If the machine is off, say so.", next),
            None => (
                "Delete it without waiting for the node.",
                format!("kubectl -n {namespace} delete pod {name} --force"),
            ),
        };
        let text = format!(
            "It is being deleted, and node {node}, which {}, cannot confirm its end; {slots}. {remedy}",
            nodes::lost(snapshot, node),
        );
        return Finding::new(Cause::Ending, text).then(next);
    }
    let given_out = snapshot.configurations_claimed(pod);
    let mut problems = given_out.filter_map(|(key, its)| problem(snapshot, key, its));
    // Claims of a Configuration that is refused for another reason end as usual.
    let refused = problems.find(|finding| finding.text.contains("dra.enabled"));
    if let Some(finding) = refused.filter(|_| node_of(pod).is_some()) {
        let text = format!(
            "It is being deleted, and cannot end before its node's agent unprepares its claim. {}",
            finding.text
        );
        return Finding { text, ..finding };
    }
    let next = format!("kubectl -n {} get pod {} -w", key.namespace, key.name);
    let text = "It is being deleted, and its slots are free 3 to 15 s after its end.";
    let its = Object::new(Kind::Pod, key.clone());
    let text = with(text.to_owned(), evictions::of(snapshot, &its, now));
    Finding::new(Cause::Ending, text).then(next)
}

fn without_node(
    snapshot: &Snapshot,
    key: &ObjectKey,
    pod: &Pod,
    asked: &BTreeMap<ResourceName, u64>,
    now: Timestamp,
) -> Vec<Finding> {
    let spec = &spec_of(pod);
    let findings = asked.iter().flat_map(|(resource, &amount)| {
        let request = Request {
            pod,
            spec,
            resource,
            amount,
        };
        resource::explain(snapshot, request, now)
    });
    let findings: Vec<Finding> = findings.collect();
    if !findings.is_empty() {
        return findings;
    }
    vec![unscheduled::explain(snapshot, key, pod, asked)]
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
        None => by_no_claim(snapshot, key, pod).unwrap_or_else(|| {
            Finding::new(
                Cause::NoResourceRequested,
                "No container of it asks for a resource of Petiole in its limits, so it gets no device.",
            )
        }),
    }
}

/// Returns what is said of a Pod that names claims, of which none is for devices of a Configuration.
fn by_no_claim(snapshot: &Snapshot, key: &ObjectKey, pod: &Pod) -> Option<Finding> {
    let claims = pod.spec.as_ref()?.resource_claims.as_ref()?;
    let names = claims.iter().filter_map(|claim| {
        let template = claim.resource_claim_template_name.as_ref();
        let template = template.map(|name| format!("template {name}"));
        template.or_else(|| claim.resource_claim_name.clone())
    });
    let names: Vec<String> = names.collect();
    let why = if snapshot.claims_of(pod).next().is_some() {
        "none of them is of a DeviceClass akri.NAMESPACE.NAME of a Configuration with allocation: DRA."
    } else {
        "none is known to be for devices of Petiole. If a claim or its template is missing, the Events of the Pod say so."
    };
    let text = format!(
        "It asks for devices by ResourceClaims ({}): {why}",
        listed(&names)
    );
    let next = format!("kubectl -n {} describe pod {}", key.namespace, key.name);
    (!names.is_empty()).then(|| Finding::new(Cause::NoResourceRequested, text).then(next))
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
    let resources = asked.keys();
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
    let slots = slots_of(snapshot, key, pod);
    let has = resources.map(|resource| what_it_has(snapshot, pod, resource, &slots));
    let text = format!(
        "It has what it asks for: {}. Nothing is missing.",
        Vec::from_iter(has).join(", ")
    );
    Finding::new(Cause::Fine, text)
}
