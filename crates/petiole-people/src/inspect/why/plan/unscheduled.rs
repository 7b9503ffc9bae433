//! Decides what a Pod lacks on its nodes besides devices, from the words of the scheduler. Pure.
use super::{
    super::finding::{Cause, Finding, sentence},
    nodes::allows,
};
use crate::inspect::{
    claims,
    pods::{condition, label},
    snapshot::Snapshot,
    words::listed,
};
use k8s_openapi::api::core::v1::Pod;
use petiole_model::{
    api::names::{CONFIGURATION_LABEL, INSTANCE_LABEL},
    model::{names::ObjectKey, resource_name::ResourceName},
};
use std::collections::{BTreeMap, BTreeSet};

/// Returns why a Pod has no node although the devices that it asks for are free.
pub(super) fn explain(
    snapshot: &Snapshot,
    key: &ObjectKey,
    pod: &Pod,
    asked: &BTreeMap<ResourceName, u64>,
) -> Vec<Finding> {
    let scheduled = condition(pod, "PodScheduled");
    let message = scheduled.and_then(|scheduled| scheduled.message.as_deref());
    let message = message.map(without_preemption);
    let lacking: BTreeSet<&str> = lacking(message.unwrap_or_default())
        .filter(|lacking| !asked.keys().any(|resource| resource.as_str() == *lacking))
        .collect();
    let lacking = Vec::from_iter(lacking).join(" and ");
    let says = match message {
        Some(message) => format!("The scheduler says: {}", sentence(message)),
        None => "The scheduler has not said anything about it yet.".to_owned(),
    };
    let claims: Vec<String> = snapshot
        .claims_of(pod)
        .map(|c| claims::key(c).name)
        .collect();
    if let Some(first) = claims.first()
        && message.is_some_and(|message| message.contains("claim"))
    {
        let text = format!(
            "The scheduler gives it no device by {}: all that the selectors, the amounts and the constraints of its requests leave are taken or out of its reach. {says}",
            listed(&claims)
        );
        let finding = Finding::new(Cause::NotAllocated, text);
        let next = format!(
            "kubectl -n {} describe resourceclaim {first}",
            key.namespace
        );
        return vec![finding.then(next)];
    }
    if lacking.is_empty() {
        let what = if asked.is_empty() {
            ""
        } else {
            "Devices that it asks for are free, so the reason is another one. "
        };
        let finding = Finding::new(Cause::OtherReason, format!("{what}{says}"));
        return vec![finding.then(describe(key))];
    }
    let nodes = snapshot.nodes.iter().filter(|(_, node)| allows(pod, node));
    let nodes: Vec<&String> = nodes.map(|(name, _)| name).collect();
    let place = match nodes.as_slice() {
        [only] => format!("node {only}, the only one that it may run on, has"),
        _ => "nodes that it may run on have".to_owned(),
    };
    let what = if asked.is_empty() {
        format!("It is not about devices: {place} too little {lacking}.")
    } else {
        format!("Its devices are free, and {place} too little {lacking}.")
    };
    let finding = Finding::new(Cause::OtherReason, format!("{what} {says}"));
    vec![finding, advice(key, pod, &lacking)]
}

/// Returns what to do about too little of a resource of nodes.
fn advice(key: &ObjectKey, pod: &Pod, lacking: &str) -> Finding {
    let configuration = label(pod, INSTANCE_LABEL).and(label(pod, CONFIGURATION_LABEL));
    let (of, next) = match configuration {
        Some(name) => (
            format!("in the brokerSpec of Configuration {name}"),
            format!("kubectl -n {} edit configuration {name}", key.namespace),
        ),
        None => ("of the Pod".to_owned(), describe(key)),
    };
    let text = format!("Lower the requests for {lacking} {of}, or end other Pods on such a node.");
    Finding::new(Cause::OtherReason, text).then(next)
}

fn describe(ObjectKey { namespace, name }: &ObjectKey) -> String {
    format!("kubectl -n {namespace} describe pod {name}")
}

/// Returns the scheduler's message without the parts that say that no other Pod can be evicted.
fn without_preemption(message: &str) -> &str {
    let ends = [" no new claims to deallocate", " preemption:"];
    let end = ends.into_iter().filter_map(|end| message.find(end)).min();
    &message[..end.unwrap_or(message.len())]
}

/// Returns the resources of which the scheduler finds too little.
fn lacking(message: &str) -> impl Iterator<Item = &str> {
    let after = message.split("Insufficient ").skip(1);
    let names = after.filter_map(|rest| rest.split_whitespace().next());
    names.map(|name| name.trim_end_matches([',', '.', ';']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scheduler_s_words_name_what_is_lacking() {
        for (message, expected) in [
            ("", &[][..]),
            (
                "0/2 nodes are available: 1 Insufficient cpu, 1 Insufficient memory.",
                &["cpu", "memory"],
            ),
            (
                "0/1 nodes are available: 1 Insufficient akri.sh/cam. preemption: 0/1",
                &["akri.sh/cam"],
            ),
            ("0/2 nodes are available: 2 Insufficient", &[]),
        ] {
            assert_eq!(lacking(message).collect::<Vec<_>>(), expected, "{message}");
        }
    }

    #[test]
    fn what_is_said_of_preemption_is_left_out() {
        let message = "0/2 nodes: 1 Insufficient cpu. no new claims to deallocate, preemption: 0/2";
        assert_eq!(
            without_preemption(message),
            "0/2 nodes: 1 Insufficient cpu."
        );
        assert_eq!(
            without_preemption("0/2 nodes. preemption: 0/2"),
            "0/2 nodes."
        );
        assert_eq!(without_preemption("0/2 nodes."), "0/2 nodes.");
    }
}
