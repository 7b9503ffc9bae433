//! Describes one device in full, for its page. Pure.
use crate::inspect::{
    events::last_seen,
    object::{Kind, Object},
    pods::{inspection, is_ready, label, node_of, state_of},
    slots::Holders,
    snapshot::Snapshot,
    why::{Explanation, explain},
};
use k8s_openapi::{
    api::core::v1::{Event, Pod},
    apimachinery::pkg::apis::meta::v1::Time,
    jiff::Timestamp,
};
use petiole_model::{
    api::{condition::Condition, instance::Instance, names::INSTANCE_LABEL},
    model::{instance_name::InstanceKey, names::ObjectKey},
};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// The Events and the brokers that are shown of a device.
const SHOWN: usize = 50;
/// The Pods of a device for which a command is shown.
const INSPECTED: usize = 3;

/// What was read for one device besides the objects that all browsers see.
#[derive(Debug, Default)]
pub(super) struct Read {
    pub(super) events: Vec<Event>,
    /// What could not be read, a sentence each.
    pub(super) unread: Vec<String>,
    /// True if the device is one of a cluster, which has kubectl.
    pub(super) is_of_cluster: bool,
    /// True if the snapshot has what explains the device.
    pub(super) is_explained: bool,
}

/// One device, as its page gets it.
#[derive(Debug, Serialize)]
pub(super) struct Details<'a> {
    created: Option<Timestamp>,
    properties: &'a BTreeMap<String, String>,
    conditions: &'a [Condition],
    brokers: Vec<BrokerPod<'a>>,
    why: Option<Why>,
    /// The newest first.
    events: Vec<Happened>,
    /// The commands that show more, or change it.
    commands: Vec<String>,
    unread: Vec<String>,
}

#[derive(Debug, Serialize)]
struct BrokerPod<'a> {
    pod: &'a str,
    node: Option<&'a str>,
    /// A word, such as `Running` or `CrashLoopBackOff`.
    state: String,
    ready: bool,
}

/// The answer of `petiole why`.
#[derive(Debug, Serialize)]
struct Why {
    fine: bool,
    text: String,
    next: Vec<String>,
}

/// An Event.
#[derive(Debug, Serialize)]
struct Happened {
    at: Option<Timestamp>,
    warning: bool,
    reason: String,
    message: String,
    count: i32,
}

/// Returns what is known of a device; `None` if it has no Instance.
pub(super) fn details<'a>(
    snapshot: &'a Snapshot,
    key: &InstanceKey,
    read: Read,
    now: Timestamp,
) -> Option<Details<'a>> {
    let instance = snapshot.instances.get(key)?;
    let created = instance.metadata.creation_timestamp.as_ref();
    let object = Object::new(Kind::Instance, key.untyped());
    let answer = read.is_explained.then(|| explain(snapshot, &object, now));
    let mut events: Vec<Happened> = read.events.into_iter().map(happened).collect();
    events.sort_by_key(|event| std::cmp::Reverse(event.at));
    events.truncate(SHOWN);
    Some(Details {
        created: created.map(|Time(at)| *at),
        properties: &instance.spec.broker_properties,
        conditions: conditions(instance),
        brokers: brokers(snapshot, key),
        why: answer.as_ref().map(said),
        events,
        commands: if read.is_of_cluster {
            commands(snapshot, key, instance)
        } else {
            ["instances", "pods"]
                .map(|kind| format!("petiole get {kind}"))
                .into()
        },
        unread: read.unread,
    })
}

fn conditions(instance: &Instance) -> &[Condition] {
    let status = instance.status.as_ref();
    status.map_or(&[], |status| &status.conditions)
}

fn is_broker(instance: &InstanceKey, key: &ObjectKey, pod: &Pod) -> bool {
    key.namespace == instance.namespace
        && label(pod, INSTANCE_LABEL).is_some_and(|its| *its == instance.name)
}

fn brokers<'a>(snapshot: &'a Snapshot, key: &InstanceKey) -> Vec<BrokerPod<'a>> {
    let pods = snapshot.pods.iter();
    let its = pods.filter(|(pod_key, pod)| is_broker(key, pod_key, pod));
    let brokers = its.map(|(pod_key, pod)| BrokerPod {
        pod: &pod_key.name,
        node: node_of(pod),
        state: state_of(pod).to_owned(),
        ready: is_ready(pod),
    });
    brokers.take(SHOWN).collect()
}

fn commands(snapshot: &Snapshot, key: &InstanceKey, instance: &Instance) -> Vec<String> {
    let InstanceKey { namespace, name } = key;
    let configuration = &instance.spec.configuration_name;
    let used = Holders::new(snapshot).used(key, instance);
    let holders: BTreeSet<&str> = used
        .iter()
        .flat_map(|slot| &slot.pods)
        .map(String::as_str)
        .collect();
    let holding = snapshot.pods.iter().filter(|(pod_key, pod)| {
        is_broker(key, pod_key, pod) || holders.contains(pod_key.to_string().as_str())
    });
    let holding = holding.map(|(pod_key, pod)| inspection(pod_key, pod));
    let its = [
        format!("kubectl petiole why -n {namespace} instance/{name}"),
        format!("kubectl -n {namespace} describe instance {name}"),
        format!("kubectl -n {namespace} edit configuration {configuration}"),
    ];
    its.into_iter().chain(holding.take(INSPECTED)).collect()
}

fn said(answer: &Explanation) -> Why {
    Why {
        fine: answer.is_fine(),
        text: answer.paragraph(),
        next: answer.next().into_iter().collect(),
    }
}

/// An Event has the number of its repetitions in an old field or in a new one.
fn happened(event: Event) -> Happened {
    let at = last_seen(&event);
    let series = event.series.unwrap_or_default();
    Happened {
        at,
        warning: event.type_.as_deref() == Some("Warning"),
        reason: event.reason.unwrap_or_default(),
        message: event.message.unwrap_or_default(),
        count: event.count.max(series.count).unwrap_or(1),
    }
}

#[cfg(test)]
mod tests;
