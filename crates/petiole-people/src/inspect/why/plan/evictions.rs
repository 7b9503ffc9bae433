//! Says which Pods the controller has evicted because their devices are gone (`whenGone: Evict`), or could not evict. Pure.
use super::super::finding::{Cause, Explanation, Finding, sentence};
use crate::inspect::{
    events::{last, last_seen},
    object::{Kind, Object},
    snapshot::Snapshot,
};
use k8s_openapi::{api::core::v1::Event, jiff::Timestamp};
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

/// Returns when a Pod, a Pod of a workload, or a Pod with a device was evicted last, and why.
pub(super) fn of(snapshot: &Snapshot, object: &Object, now: Timestamp) -> Option<String> {
    let Object { kind, key } = object;
    let ObjectKey { namespace, name } = key;
    let event = if kind.is_workload() {
        let is_its = |pod: &str| object.may_have_made(pod);
        last_of(snapshot, Reason::PodEvicted, Kind::Pod, namespace, is_its)
    } else {
        let is_it = |its: &str| its == name;
        last_of(snapshot, Reason::PodEvicted, *kind, namespace, is_it)
    }?;
    let ago = last_seen(event).map(|at| now.duration_since(at));
    let ago = ago.and_then(|ago| Duration::try_from(ago).ok());
    let ago = ago.map(|ago| format!(" {} ago", age::short(ago)));
    let ago = ago.unwrap_or_default();
    let message = event.message.as_deref().unwrap_or_default();
    // The Event of an Instance names the Pod.
    let text = match message.strip_prefix("evicted, ") {
        Some(why) => {
            let pod = event.involved_object.name.as_deref().unwrap_or_default();
            format!("Pod {namespace}/{pod} was evicted{ago}, {why}")
        }
        None => message.replacen(" is evicted,", &format!(" was evicted{ago},"), 1),
    };
    Some(sentence(&text))
}

/// Returns the last Event of a reason about objects of a kind and with some names.
fn last_of<'a>(
    snapshot: &'a Snapshot,
    reason: Reason,
    kind: Kind,
    namespace: &str,
    is_its: impl Fn(&str) -> bool,
) -> Option<&'a Event> {
    last(snapshot, namespace, &[reason.as_str()], |about| {
        about.kind.as_deref() == Some(kind.as_str()) && about.name.as_deref().is_some_and(&is_its)
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
    let is_it = |name: &str| key.name.as_str() == name;
    let refused = last_of(snapshot, reason, Kind::Instance, &key.namespace, is_it);
    match refused.and_then(|event| event.message.as_deref()) {
        Some(refused) => sentence(refused),
        None => "The controller ends the Pod by itself (whenGone: Evict).".to_owned(),
    }
}
