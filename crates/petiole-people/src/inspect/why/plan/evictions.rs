//! Says which Pods the controller has evicted because their devices are gone (`whenGone: Evict`), or could not evict. Pure.
use super::super::finding::{Cause, Explanation, Finding, sentence};
use crate::inspect::{
    events::{last, last_seen},
    object::{Kind, Object},
    snapshot::Snapshot,
};
use k8s_openapi::{api::core::v1::Event, apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
use petiole_model::{
    api::{configuration::WhenGone, instance::Instance, reason::Reason},
    model::{age, instance_name::InstanceKey, names::ObjectKey},
};
use std::time::Duration;

/// Returns what is said of a Pod that is gone because it was evicted.
pub(super) fn of_former_pod(
    snapshot: &Snapshot,
    pod: &Object,
    now: Timestamp,
) -> Option<Explanation> {
    let text = of(snapshot, pod, now)?;
    let next = format!("kubectl -n {} get pods -o wide", pod.key.namespace);
    let text = format!("{text} If it had an owner, another Pod took its place.");
    Some(Explanation {
        subject: format!("{pod} does not exist any more."),
        findings: vec![Finding::new(Cause::Evicted, text).then(next)],
    })
}

/// Returns when a Pod of a workload was evicted last, and why. Where all of its Pods are ready, a device that is gone for good concerns
/// nobody any more.
pub(super) fn of_workload(
    snapshot: &Snapshot,
    workload: &Object,
    is_ready: bool,
    now: Timestamp,
) -> Option<String> {
    // The Events of a workload of its name that was there before stay for an hour.
    let created = snapshot.created.as_ref();
    let namespace = &workload.key.namespace;
    let is_its =
        |event: &Event| workload.may_have_made(name_of(event)) && !is_older(event, created);
    let event = last_of(snapshot, Reason::PodEvicted, Kind::Pod, namespace, is_its)?;
    (!is_ready || !is_of_former_device(snapshot, event)).then(|| said(event, namespace, now))
}

/// Returns when a Pod, or a Pod with a device, was evicted last, and why.
pub(super) fn of(snapshot: &Snapshot, object: &Object, now: Timestamp) -> Option<String> {
    let Object { kind, key } = object;
    let ObjectKey { namespace, name } = key;
    let is_it = |event: &Event| {
        let is_of_former = *kind == Kind::Instance && is_of_former_device(snapshot, event);
        name_of(event) == name && !is_of_former
    };
    let event = last_of(snapshot, Reason::PodEvicted, *kind, namespace, is_it)?;
    Some(said(event, namespace, now))
}

/// Returns what an Event of an eviction says, and how long ago.
fn said(event: &Event, namespace: &str, now: Timestamp) -> String {
    let ago = last_seen(event).map(|at| now.duration_since(at));
    let ago = ago.and_then(|ago| Duration::try_from(ago).ok());
    let ago = ago.map(|ago| format!(" {} ago", age::short(ago)));
    let ago = ago.unwrap_or_default();
    let message = event.message.as_deref().unwrap_or_default();
    // The Event of an Instance names the Pod.
    let text = match message.strip_prefix("evicted, ") {
        Some(why) => {
            let pod = name_of(event);
            format!("Pod {namespace}/{pod} was evicted{ago}, {why}")
        }
        None => message.replacen(" is evicted,", &format!(" was evicted{ago},"), 1),
    };
    sentence(&text)
}

/// Returns the name of the object that an Event is about.
fn name_of(event: &Event) -> &str {
    let name = event.involved_object.name.as_deref();
    name.unwrap_or_default()
}

/// Returns whether an Event happened before this time, as far as both are known.
fn is_older(event: &Event, than: Option<&Timestamp>) -> bool {
    let at = last_seen(event);
    at.zip(than).is_some_and(|(at, than)| at < *than)
}

/// Returns whether an eviction was for an Instance that does not exist any more, or that was there before another one of its name. The
/// controller's words name the first of several, and one of another namespace may be there unread.
fn is_of_former_device(snapshot: &Snapshot, event: &Event) -> bool {
    let message = event.message.as_deref().unwrap_or_default();
    let (_, named) = message.split_once(" of Instance ").unwrap_or_default();
    let key = named.split(' ').next().and_then(|key| key.split_once('/'));
    let Some((namespace, name)) = key else {
        return false;
    };
    match snapshot.instances.get(&InstanceKey::new(namespace, name)) {
        Some(instance) => {
            let created = instance.metadata.creation_timestamp.as_ref();
            is_older(event, created.map(|Time(at)| at))
        }
        None => !snapshot.hidden.objects,
    }
}

/// Returns the last of some Events of a reason about objects of a kind.
fn last_of<'a>(
    snapshot: &'a Snapshot,
    reason: Reason,
    kind: Kind,
    namespace: &str,
    is_its: impl Fn(&Event) -> bool,
) -> Option<&'a Event> {
    last(snapshot, namespace, &[reason.as_str()], |event| {
        event.involved_object.kind.as_deref() == Some(kind.as_str()) && is_its(event)
    })
}

/// Returns what ends a Pod that has lost its device: the controller, or what keeps the controller from it. Without
/// `whenGone: Evict` that is `otherwise`.
pub(super) fn remedy(
    snapshot: &Snapshot,
    key: &InstanceKey,
    instance: &Instance,
    otherwise: &str,
) -> String {
    let configuration = snapshot.configuration_of(key, instance);
    if configuration.is_none_or(|(_, its)| its.spec.when_gone != WhenGone::Evict) {
        return otherwise.to_owned();
    }
    let reason = Reason::EvictionRefused;
    let is_it = |event: &Event| key.name.as_str() == name_of(event);
    let refused = last_of(snapshot, reason, Kind::Instance, &key.namespace, is_it);
    match refused.and_then(|event| event.message.as_deref()) {
        Some(refused) => sentence(refused),
        None => "The controller ends the Pod by itself (whenGone: Evict).".to_owned(),
    }
}
