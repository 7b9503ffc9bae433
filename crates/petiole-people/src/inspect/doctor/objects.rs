//! Checks Configurations, brokers and devices: a line for each reason, which counts them. Pure.
use super::{
    super::{
        pods::{is_ready, label, phase, state_of},
        snapshot::Snapshot,
        twice,
        words::{listed, plural},
    },
    line::{Check, Level, check},
};
use petiole_model::{
    api::{
        condition::{ConditionStatus, ConditionType},
        names::INSTANCE_LABEL,
    },
    model::instance_name::InstanceKey,
};
use std::collections::{BTreeMap, BTreeSet};

/// The names of objects with a problem, by its reason.
type ByReason<'a> = BTreeMap<&'a str, Vec<String>>;

/// Returns a line for each reason. `kind` and `noun` are those of the objects, in the words of commands and of people.
fn lines(by_reason: ByReason<'_>, kind: &str, said: impl Fn(usize) -> String) -> Vec<Check> {
    let mut all: Vec<_> = by_reason.into_iter().collect();
    all.sort_by_key(|(_, keys)| std::cmp::Reverse(keys.len()));
    let lines = all.into_iter().map(|(reason, keys)| {
        let (namespace, name) = keys[0].split_once('/').unwrap_or_default();
        let text = format!(
            "{} ({reason}): petiole why -n {namespace} {kind}/{name} ({})",
            said(keys.len()),
            listed(&keys)
        );
        check(Level::Warn, text)
    });
    lines.collect()
}

/// Returns a line for each reason for which Configurations are not ready, or that there is none.
pub(super) fn configurations(snapshot: &Snapshot) -> Vec<Check> {
    let mut by_reason = ByReason::new();
    for (key, configuration) in &snapshot.configurations {
        match configuration.condition(ConditionType::Ready) {
            Some(ready) if ready.is_true() => {}
            // Nobody looks at it, as another line says.
            _ if !snapshot.is_watched(&key.namespace) => {}
            ready => {
                let reason = ready.map_or("no status", |ready| &ready.reason);
                by_reason.entry(reason).or_default().push(key.to_string());
            }
        }
    }
    let readable = snapshot.readable_objects();
    if by_reason.is_empty() {
        let text = format!(
            "{}{readable}: none has a problem; {} offered",
            plural(snapshot.configurations.len(), "Configuration"),
            plural(snapshot.instances.len(), "device")
        );
        return vec![check(Level::Ok, text)];
    }
    lines(by_reason, "configuration", |count| {
        format!("{}{readable} not ready", plural(count, "Configuration"))
    })
}

/// Returns a line for each state of brokers that do not run, and for each reason for which brokers have no Pods.
pub(super) fn brokers(snapshot: &Snapshot) -> Vec<Check> {
    let mut by_state = ByReason::new();
    for (key, pod) in &snapshot.pods {
        let is_due = label(pod, INSTANCE_LABEL).is_some() && phase(pod) != "Succeeded";
        if is_due && !is_ready(pod) && pod.metadata.deletion_timestamp.is_none() {
            by_state
                .entry(state_of(pod))
                .or_default()
                .push(key.to_string());
        }
    }
    let mut by_reason = ByReason::new();
    for (key, configuration) in &snapshot.configurations {
        let ready = configuration.condition(ConditionType::BrokersReady);
        if let Some(its) = ready.filter(|its| its.has_status(ConditionStatus::False)) {
            by_reason
                .entry(&its.reason)
                .or_default()
                .push(key.to_string());
        }
    }
    let pods = lines(by_state, "pod", |count| {
        format!("{} not ready", plural(count, "broker"))
    });
    let others = lines(by_reason, "configuration", |count| {
        format!(
            "{} with brokers that do not run",
            plural(count, "Configuration")
        )
    });
    pods.into_iter().chain(others).collect()
}

/// Returns a line for each reason for which devices cannot be used.
pub(super) fn devices(snapshot: &Snapshot) -> Vec<Check> {
    let mut by_reason = ByReason::new();
    for (key, instance) in &snapshot.instances {
        if let Some(its) = instance.unavailable() {
            by_reason
                .entry(&its.reason)
                .or_default()
                .push(key.to_string());
        }
    }
    lines(by_reason, "instance", |count| {
        format!("{} not available", plural(count, "device"))
    })
}

/// Returns a line about the slots that containers of two nodes use.
pub(super) fn held_twice(snapshot: &Snapshot) -> Option<Check> {
    let twice = twice::held_twice(snapshot);
    let first = twice.first()?;
    let InstanceKey { namespace, name } = first.key;
    let slots: BTreeSet<&str> = twice.iter().map(|its| its.shown.slot.as_str()).collect();
    let verb = if slots.len() == 1 { "is" } else { "are" };
    let text = format!(
        "{} {verb} used by two Pods, on {} and {}: petiole why -n {namespace} instance/{name} ({})",
        plural(slots.len(), "slot"),
        first.shown.node,
        first.other.node,
        listed(&Vec::from_iter(slots)),
    );
    Some(check(Level::Warn, text))
}
