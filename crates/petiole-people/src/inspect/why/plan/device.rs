//! Decides whether a device is there, and who has its slots. Pure.
use super::{
    super::finding::{Cause, Finding, sentence},
    nodes::Request,
};
use crate::inspect::{
    devices::{device_name, nodes},
    nodes::{is_lost, shut_down},
    slots::{UsedSlot, used},
    snapshot::Snapshot,
};
use k8s_openapi::jiff::Timestamp;
use petiole_model::{
    api::{
        condition::{Condition, ConditionType},
        configuration::Configuration,
        instance::Instance,
        reason::Reason,
    },
    model::{age, instance_name::InstanceKey},
};
use std::time::Duration;

/// The most holders that a sentence names.
const HOLDERS_MAX: usize = 3;

/// Returns the nodes that offer the device and see it.
pub(super) fn seen_by(instance: &Instance) -> Vec<String> {
    let healthy = nodes(instance).into_iter().filter(|node| node.healthy);
    healthy.map(|node| node.name).collect()
}

/// Returns why a device cannot be used now, in the words of the condition of its Instance.
pub(super) fn gone(
    snapshot: &Snapshot,
    key: &InstanceKey,
    instance: &Instance,
    now: Timestamp,
) -> Option<Finding> {
    if !seen_by(instance).is_empty() {
        return None;
    }
    let name = device_name(instance);
    let status = instance.status.as_ref();
    let available =
        status.and_then(|s| Condition::of_type(&s.conditions, ConditionType::Available));
    let why = match available.filter(|available| !available.is_true()) {
        Some(available) => sentence(&available.message),
        None => "no node sees the device.".to_owned(),
    };
    let configuration = snapshot.configuration_of(key, instance);
    let left = available
        .filter(|available| available.reason == Reason::DeviceGone)
        .zip(configuration)
        .and_then(|(available, (_, configuration))| grace_left(available, configuration, now));
    let left = left.map(|left| format!(" That is in {}.", age::short(left)));
    let text = format!(
        "Device {name} (Instance {key}) is not available: {why}{} Switch it on, connect it again, or check whether discoveryDetails of its Configuration leave it out.",
        left.unwrap_or_default()
    );
    let next = format!(
        "kubectl -n {} describe instance {}",
        key.namespace, key.name
    );
    Some(Finding::new(Cause::DeviceGone, text).then(next))
}

fn grace_left(
    available: &Condition,
    configuration: &Configuration,
    now: Timestamp,
) -> Option<Duration> {
    let since: Timestamp = available.last_transition_time.parse().ok()?;
    let gone_for = Duration::try_from(now.duration_since(since)).unwrap_or_default();
    let grace = u64::try_from(configuration.spec.grace_period_seconds).ok()?;
    Some(Duration::from_secs(grace).saturating_sub(gone_for))
}

/// Returns who has the slots of devices of which too few are free.
pub(super) fn taken(
    snapshot: &Snapshot,
    request: Request<'_>,
    instances: &[(&InstanceKey, &Instance)],
    free: usize,
) -> Finding {
    let holders: Vec<(&InstanceKey, UsedSlot)> = (instances.iter())
        .flat_map(|(key, instance)| {
            let used = used(snapshot, key, instance).into_iter();
            used.map(move |slot| (*key, slot))
        })
        .collect();
    let lost = holders
        .iter()
        .find(|(_, slot)| is_lost(snapshot, &slot.node));
    if let Some((instance, slot)) = lost {
        return held_by_lost_node(snapshot, instance, &slot.node);
    }
    let shortage = shortage(request, holders.len(), free);
    if let Some((instance, slot)) = holders
        .iter()
        .find(|(_, slot)| slot.has_known_pods && slot.pods.is_empty())
    {
        return match without_agent(snapshot, instance, slot) {
            Some(finding) => Finding {
                text: format!("{shortage}. {}", finding.text),
                ..finding
            },
            None => being_released(&shortage, instance, slot),
        };
    }
    let named = holders.iter().take(HOLDERS_MAX);
    let named: Vec<String> = named.map(|(_, slot)| slot.holder()).collect();
    let others = match holders.len().saturating_sub(HOLDERS_MAX) {
        0 => String::new(),
        n => format!(" and {n} more"),
    };
    let by = match named.is_empty() {
        true => String::new(),
        false => format!(", by {}{others}", named.join(", ")),
    };
    let text = format!(
        "{shortage}{by}. The Pod starts when one is free, 3 to 15 s after a holder has ended; or raise spec.capacity of the Configuration, if the device can serve more containers."
    );
    let finding = Finding::new(Cause::SlotsTaken, text);
    let first = instances.first().and_then(|(key, instance)| {
        let (configuration, _) = snapshot.configuration_of(key, instance)?;
        Some(configuration)
    });
    match first {
        Some(key) => finding.then(format!(
            "kubectl -n {} edit configuration {}",
            key.namespace, key.name
        )),
        None => finding,
    }
}

/// Returns how many slots are in use, without a period.
fn shortage(request: Request<'_>, used: usize, free: usize) -> String {
    let Request {
        resource, amount, ..
    } = request;
    match free {
        0 if used == 1 => format!("The only slot of {resource} is in use"),
        0 => format!("All {used} slots of {resource} are in use"),
        free => format!(
            "The Pod asks for {amount} of {resource}, {free} can be had, and {used} slots are in use"
        ),
    }
}

/// Returns why a slot stays in use longer than a container uses it.
pub(super) fn stays(
    snapshot: &Snapshot,
    instance: &InstanceKey,
    slot: &UsedSlot,
) -> Option<Finding> {
    match is_lost(snapshot, &slot.node) {
        true => Some(held_by_lost_node(snapshot, instance, &slot.node)),
        false => without_agent(snapshot, instance, slot),
    }
}

/// Returns the finding for a slot that no Pod uses any more and that stays in use, because its node has no agent.
fn without_agent(snapshot: &Snapshot, instance: &InstanceKey, slot: &UsedSlot) -> Option<Finding> {
    let is_unused = slot.has_known_pods && slot.pods.is_empty();
    if !is_unused || snapshot.agent_on(&slot.node).is_some() {
        return None;
    }
    let UsedSlot { slot, node, .. } = slot;
    let text = format!(
        "Node {node} holds slot {slot} of Instance {instance}, no Pod of the node asks for it any more, and no agent runs on the node that could release it. Let the agent run there again, or release the slot yourself."
    );
    let InstanceKey { namespace, name } = instance;
    let next = format!(
        "kubectl -n {namespace} patch instance {name} --type merge -p '{{\"spec\":{{\"deviceUsage\":{{\"{slot}\":\"\"}}}}}}'"
    );
    Some(Finding::new(Cause::AgentMissing, text).then(next))
}

/// Returns the finding for a slot whose container has ended. The agent looks at the kubelet's records before it releases it.
fn being_released(shortage: &str, instance: &InstanceKey, slot: &UsedSlot) -> Finding {
    let text = format!(
        "{shortage}, and node {} holds one of Instance {instance} that none of its Pods asks for any more: the agent releases it 3 to 15 s after its container has ended.",
        slot.node
    );
    let next = format!(
        "kubectl -n {} get instance {} -o jsonpath='{{.spec.deviceUsage}}' -w",
        instance.namespace, instance.name
    );
    Finding::new(Cause::SlotsBeingReleased, text).then(next)
}

/// Returns the words of the controller's Event, which knows the time, or the fact without it.
fn held_by_lost_node(snapshot: &Snapshot, instance: &InstanceKey, node: &str) -> Finding {
    let reported = snapshot.events.iter().rev().find(|event| {
        event.reason.as_deref() == Some(Reason::SlotsHeldByLostNode.as_str())
            && event.involved_object.name.as_deref() == Some(instance.name.as_str())
            && event.involved_object.namespace.as_deref() == Some(&instance.namespace)
    });
    let reported = reported.and_then(|event| event.message.as_deref());
    let text = match reported {
        Some(message) => format!(
            "Node {node} is lost and holds a slot of Instance {instance}: {}",
            sentence(message)
        ),
        None => format!(
            "Node {node} is lost and holds a slot of Instance {instance}, until spec.slotReleaseSeconds of its Configuration is over: a container on it may still use the device. If the node is shut down, say so."
        ),
    };
    Finding::new(Cause::SlotHeldByLostNode, text).then(shut_down(node))
}
