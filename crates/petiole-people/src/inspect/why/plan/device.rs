//! Decides whether a device is there. Pure.
use super::super::finding::{Cause, Finding, sentence};
use crate::inspect::{
    devices::{device_name, nodes},
    snapshot::Snapshot,
};
use k8s_openapi::jiff::Timestamp;
use petiole_model::{
    api::{condition::Condition, configuration::Configuration, instance::Instance, reason::Reason},
    model::{age, instance_name::InstanceKey},
};
use std::time::Duration;

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
    let unavailable = instance.unavailable();
    let why = match unavailable {
        Some(unavailable) => sentence(&unavailable.message),
        None => "no node sees the device.".to_owned(),
    };
    let configuration = snapshot.configuration_of(key, instance);
    let left = unavailable
        .filter(|unavailable| unavailable.reason == Reason::DeviceGone)
        .zip(configuration)
        .and_then(|(unavailable, (_, configuration))| grace_left(unavailable, configuration, now));
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
    unavailable: &Condition,
    configuration: &Configuration,
    now: Timestamp,
) -> Option<Duration> {
    let since: Timestamp = unavailable.last_transition_time.parse().ok()?;
    let gone_for = Duration::try_from(now.duration_since(since)).unwrap_or_default();
    let grace = u64::try_from(configuration.spec.grace_period_seconds).ok()?;
    Some(Duration::from_secs(grace).saturating_sub(gone_for))
}
