//! Decides what to say of a Pod without a node whose devices are free. The scheduler's words are shown, and not read. Pure.
use super::{
    super::finding::{Cause, Finding, sentence},
    slots::taken,
};
use crate::inspect::{claims, pods::condition, slots, snapshot::Snapshot, words::listed};
use k8s_openapi::api::core::v1::Pod;
use petiole_model::model::{
    dra, names::ObjectKey, resource_name::ResourceName, typed_names::ConfigurationKey,
};
use std::collections::{BTreeMap, BTreeSet};

/// The most devices that are named.
const NAMED_MAX: usize = 3;

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
        let devices = snapshot.configurations_claimed(pod).map(|(of, _)| of);
        let devices: BTreeSet<String> = devices.map(|of| of_class(snapshot, of)).collect();
        let text = format!(
            "The scheduler has given it no device by {} yet. {}{says}",
            listed(&waiting),
            String::from_iter(devices)
        );
        let next = format!("kubectl -n {namespace} get resourceclaim {first} -o yaml");
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

/// Returns which devices of a class are free: the scheduler does not say which ones the selectors of a claim leave out.
fn of_class(snapshot: &Snapshot, of: &ConfigurationKey) -> String {
    let instances = snapshot.instances_of(of);
    let instances = instances.filter(|(_, its)| its.unavailable().is_none());
    let (free, used): (Vec<_>, Vec<_>) = instances.partition(|(_, its)| slots::free(its) > 0);
    let holders = taken(snapshot, used).into_iter();
    let holders = holders.map(|taken| format!("{}, by {}", taken.key.name, taken.slot.holder()));
    let holders: Vec<String> = holders.take(NAMED_MAX).collect();
    let in_use = match holders.as_slice() {
        [] => String::new(),
        some => format!("; in use: {}", some.join("; ")),
    };
    let free: Vec<&str> = (free.iter().take(NAMED_MAX))
        .map(|(key, _)| key.name.as_str())
        .collect();
    format!(
        "Of class {} is free: {}{in_use}. If one that is free would do, the selectors of the claim leave it out, or the Pod may not run on its nodes. ",
        dra::class_name(of),
        listed(&free)
    )
}
