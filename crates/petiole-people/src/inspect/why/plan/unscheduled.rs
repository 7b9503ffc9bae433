//! Decides what to say of a Pod without a node whose devices are free. The scheduler's words are shown, and not read. Pure.
use super::super::finding::{Cause, Finding, sentence};
use crate::inspect::{claims, pods::condition, snapshot::Snapshot, words::listed};
use k8s_openapi::api::core::v1::Pod;
use petiole_model::model::{names::ObjectKey, resource_name::ResourceName};
use std::collections::BTreeMap;

/// Returns why a Pod has no node although the devices that it asks for are free.
pub(super) fn explain(
    snapshot: &Snapshot,
    key: &ObjectKey,
    pod: &Pod,
    asked: &BTreeMap<ResourceName, u64>,
) -> Finding {
    let ObjectKey { namespace, name } = key;
    let scheduled = condition(pod, "PodScheduled");
    let says = match scheduled.and_then(|scheduled| scheduled.message.as_deref()) {
        Some(message) => format!("The scheduler says: {}", sentence(message)),
        None => "The scheduler has not said anything about it yet.".to_owned(),
    };
    let waiting = snapshot.claims_of(pod).filter(|c| !claims::is_allocated(c));
    let waiting: Vec<String> = waiting.map(|claim| claims::key(claim).name).collect();
    if let Some(first) = waiting.first() {
        let text = format!(
            "The scheduler has given it no device by {} yet. {says}",
            listed(&waiting)
        );
        let next = format!("kubectl -n {namespace} describe resourceclaim {first}");
        return Finding::new(Cause::NotAllocated, text).then(next);
    }
    let what = if asked.is_empty() {
        ""
    } else {
        "Devices that it asks for are free, so the reason is another one. "
    };
    let next = format!("kubectl -n {namespace} describe pod {name}");
    Finding::new(Cause::OtherReason, format!("{what}{says}")).then(next)
}
