//! What the status of an Instance says of its nodes. Pure.
use super::reports::NodeReports;
use crate::{
    api::{
        condition::{Condition, ConditionStatus, ConditionType},
        instance::{HEALTHY, InstanceSpec, InstanceStatus, NodeHealth, UNHEALTHY, is_seen},
        reason::Reason,
    },
    model::{slot::holders, typed_names::NodeName},
};

/// The most nodes that a condition names.
const NAMED: usize = 5;

/// Returns the entries of an Instance's status for `nodes`. Only nodes with a problem have an entry.
pub(crate) fn exceptions(
    before: &InstanceStatus,
    nodes: &[NodeName],
    reports: &NodeReports<'_>,
    now: &str,
) -> Vec<NodeHealth> {
    let mut entries = vec![];
    for node in nodes {
        let before = before.nodes.iter().find(|entry| entry.name == *node);
        let Some(report) = reports.get(node) else {
            entries.extend(before.cloned());
            continue;
        };
        let trouble = report.trouble();
        if report.is_healthy() && trouble.is_none() {
            continue;
        }
        let health = if report.is_healthy() {
            HEALTHY
        } else {
            UNHEALTHY
        };
        let is_same = |entry: &&NodeHealth| entry.health == health;
        let reason = trouble.map(|(reason, _)| reason);
        let is_reported = |entry: &&NodeHealth| entry.reason.as_deref() == reason;
        let reported = before
            .filter(is_reported)
            .and_then(|entry| entry.message.clone());
        entries.push(NodeHealth {
            name: node.clone(),
            health: health.to_owned(),
            last_transition_time: (before.filter(is_same))
                .map_or(now, |entry| &entry.last_transition_time)
                .to_owned(),
            connection: None,
            reason: reason.map(str::to_owned),
            // Another number in the sentence is no reason to write.
            message: trouble.map(|(_, message)| reported.unwrap_or_else(|| message.clone())),
        });
    }
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    entries
}

/// Returns `status` with conditions that describe its nodes. Devices that have always been healthy get no conditions.
pub(crate) fn with_conditions(
    status: InstanceStatus,
    spec: &InstanceSpec,
    now: &str,
) -> InstanceStatus {
    let mut entries = status.nodes.iter();
    let is_well = status.conditions.iter().all(is_of_brokers)
        && entries.all(|entry| entry.health == HEALTHY && entry.reason.is_none());
    if is_well && !spec.nodes.is_empty() {
        status
    } else {
        with_availability(status, spec, now)
    }
}

/// Returns the status with conditions that describe its nodes: `Available`, and `Flapping` and `IdentityChanged` where
/// they apply.
fn with_availability(mut status: InstanceStatus, spec: &InstanceSpec, now: &str) -> InstanceStatus {
    let is_available = spec.nodes.iter().any(|node| is_seen(&status, node));
    let flapping = trouble(
        &status,
        ConditionType::Flapping,
        Reason::Flapping,
        Reason::ComesAndGoes,
        now,
    );
    let identity = trouble(
        &status,
        ConditionType::IdentityChanged,
        Reason::IdentityChanged,
        Reason::OtherHost,
        now,
    );
    let in_use = in_use_by(spec).filter(|_| spec.nodes.is_empty());
    let (value, reason, message) = match in_use {
        _ if is_available => (
            ConditionStatus::True,
            Reason::DeviceSeen,
            "at least one node sees the device".to_owned(),
        ),
        Some(holders) => (
            ConditionStatus::False,
            Reason::DeviceGoneInUse,
            format!(
                "no node sees the device, and containers on {holders} hold slots of it; the Instance is deleted as soon as they are free: delete the Pods of these containers, or set spec.whenGone of the Configuration to Evict, which evicts those that are no brokers"
            ),
        ),
        None if identity.is_some() => (
            ConditionStatus::False,
            Reason::IdentityChanged,
            "another host announces the device, as condition IdentityChanged says; the Instance stays as it is".to_owned(),
        ),
        None if flapping.is_some() => (
            ConditionStatus::False,
            Reason::DeviceFlaps,
            "the device comes and goes, as condition Flapping says; the Instance is deleted when the device stays away for the grace period of its Configuration".to_owned(),
        ),
        None => (
            ConditionStatus::False,
            Reason::DeviceGone,
            "no node sees the device; the Instance is deleted when the grace period of its Configuration is over".to_owned(),
        ),
    };
    let available = Condition::new(
        ConditionType::Available,
        value,
        reason.as_str(),
        message,
        now,
    );
    let available = available.replacing(&status.conditions);
    let troubles = flapping.into_iter().chain(identity);
    status.conditions.retain(is_of_brokers);
    status
        .conditions
        .splice(0..0, [available].into_iter().chain(troubles));
    status
}

/// Returns whether the condition is the one that says nothing of nodes. Its writer is another.
fn is_of_brokers(condition: &Condition) -> bool {
    condition.type_ == ConditionType::BrokersReady.as_str()
}

/// Returns the condition for the nodes that report a trouble with the reason `trouble`.
fn trouble(
    status: &InstanceStatus,
    type_: ConditionType,
    trouble: Reason,
    reason: Reason,
    now: &str,
) -> Option<Condition> {
    let is_such = |entry: &&NodeHealth| entry.reason.as_deref() == Some(trouble.as_str());
    let mut entries = status.nodes.iter().filter(is_such);
    let (first, others) = (entries.next()?, entries.count());
    let message = first
        .message
        .as_deref()
        .unwrap_or("the node gives no details");
    let more = match others {
        0 => String::new(),
        1 => " (1 other node sees that too)".to_owned(),
        _ => format!(" ({others} other nodes see that too)"),
    };
    let condition = Condition::new(
        type_,
        ConditionStatus::True,
        reason.as_str(),
        format!("node {}: {message}{more}", first.name),
        now,
    );
    Some(condition.replacing(&status.conditions))
}

/// Returns the nodes whose containers prevent the deletion of an Instance, as text; `None` if all its slots are free.
fn in_use_by(spec: &InstanceSpec) -> Option<String> {
    let holders: Vec<NodeName> = holders(&spec.device_usage).into_iter().collect();
    let named = holders[..holders.len().min(NAMED)].join(", ");
    match holders.len() {
        0 => None,
        1 => Some(format!("node {named}")),
        2..=NAMED => Some(format!("nodes {named}")),
        count => Some(format!("nodes {named} and {} more", count - NAMED)),
    }
}
