//! Decides which slots of Pods that are no brokers are lost: their Pods are to be evicted. Pure.
//!
//! | the node that has the slot | its Pod |
//! |---|---|
//! | says that it missed the device for the grace period | is evicted |
//! | reaches the device differently than the container was told | is evicted |
//! | sees the device, or has lost it within the grace period | stays |
//! | is not ready, or its agent has said nothing of the device | stays: what is not known is not gone |
//!
//! The node's agent counts the grace period, and an Instance stays as long as a slot of it is held: so what is due is in the
//! objects alone, whoever was restarted meanwhile. Which Pods have the slots is looked up when they are due (`holders.rs`).
use super::holders::Held;
use crate::{
    api::{
        configuration::{Configuration, WhenGone},
        instance::Instance,
        names,
        node_devices::SeenDevice,
    },
    controller::{queue::Waits, world::World},
    merge::{DeviceReports, plan::held_slots},
    model::{
        instance_name::InstanceKey,
        resource_name::ResourcePrefix,
        slot::{SlotId, SlotOwner, holders},
        typed_names::NodeName,
    },
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};
use tokio::time::Instant;

/// Pods of an Instance are evicted from a node at most so often, as a broker is replaced: anybody on a LAN can make a device
/// move.
pub(crate) const APART: Duration = Duration::from_mins(1);

/// The times at which Pods of an Instance were evicted from a node.
pub(crate) type Evicted = BTreeMap<(InstanceKey, NodeName), Instant>;

pub(crate) struct Input<'a> {
    pub(crate) world: &'a World,
    /// The prefix of the resources, such as `akri.sh`.
    pub(crate) resource_prefix: &'a ResourcePrefix,
    pub(crate) evicted: &'a Evicted,
    pub(crate) now: Instant,
}

/// Why a Pod is evicted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    Gone,
    /// The device is reached differently.
    Moved,
}

/// Evicts the Pods of a node that have these slots.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Action {
    pub(crate) key: InstanceKey,
    pub(crate) instance: Arc<Instance>,
    pub(crate) node: NodeName,
    pub(crate) cause: Cause,
    /// The slots by the Instance's resource and by the Configuration's.
    pub(crate) held: Vec<Held>,
}

impl Action {
    /// Returns what its Pods have lost, for sentences.
    pub(crate) fn why(&self) -> String {
        let Self { key, node, .. } = self;
        match self.cause {
            Cause::Gone => {
                format!("node {node} does not see the device of Instance {key} any more")
            }
            Cause::Moved => format!(
                "node {node} reaches the device of Instance {key} differently than the container was told"
            ),
        }
    }
}

/// A node that has slots of an Instance.
#[derive(Clone, Copy)]
struct Target<'a> {
    key: &'a InstanceKey,
    instance: &'a Instance,
    configuration: &'a Configuration,
    node: &'a NodeName,
}

pub(crate) fn plan(input: &Input<'_>) -> (Vec<Action>, Waits) {
    let (mut actions, mut waits) = (vec![], Waits::default());
    let world = input.world;
    let mut configurations = world.configurations.values();
    if !configurations.any(|of| of.spec.when_gone == WhenGone::Evict) {
        return (actions, waits);
    }
    let device_reports = DeviceReports::new(world.views(), &world.instances);
    for (key, instance) in &world.instances {
        let Some(configuration) = evicting(world, key, instance) else {
            continue;
        };
        let reports = device_reports.of(key, instance);
        for node in holders(&instance.spec.device_usage) {
            let is_ready = world.nodes.get(&node).is_some_and(|node| node.is_ready);
            let report = reports.get(&node).filter(|_| is_ready);
            let Some((cause, due)) = report.and_then(|report| due(instance, &node, report)) else {
                continue;
            };
            let last = input.evicted.get(&(key.clone(), node.clone()));
            let left = last.map(|last| (*last + APART).saturating_duration_since(input.now));
            if let Some(left) = left.filter(|left| !left.is_zero()) {
                waits.add(left);
                continue;
            }
            let target = Target {
                key,
                instance,
                configuration,
                node: &node,
            };
            actions.push(Action {
                held: held(input, target, &due),
                key: key.clone(),
                instance: instance.clone(),
                node,
                cause,
            });
        }
    }
    (actions, waits)
}

/// Returns the Configuration of an Instance, if Pods that have lost their device are evicted. What is being deleted takes no
/// Pod with it.
fn evicting<'a>(
    world: &'a World,
    key: &InstanceKey,
    instance: &Instance,
) -> Option<&'a Configuration> {
    let of = instance.spec.configuration_key(&key.namespace);
    let configuration = world.configurations.get(&of)?;
    let is_kept = [&instance.metadata, &configuration.metadata]
        .iter()
        .all(|metadata| metadata.deletion_timestamp.is_none());
    (is_kept && configuration.spec.when_gone == WhenGone::Evict).then_some(configuration)
}

/// Returns the slots of a node whose containers cannot use the device any more.
fn due<'a>(
    instance: &'a Instance,
    node: &NodeName,
    report: &SeenDevice,
) -> Option<(Cause, BTreeSet<&'a str>)> {
    let held = held_slots(instance).filter(|(_, holder)| holder == node);
    let held = held.map(|(slot, _)| slot);
    let (cause, due): (_, BTreeSet<&str>) = match &report.connection {
        _ if report.gone && !report.is_offered() => (Cause::Gone, held.collect()),
        Some(now) if report.is_healthy() => {
            let has_moved = |slot: &&str| told(instance, slot).is_some_and(|told| told != now);
            (Cause::Moved, held.filter(has_moved).collect())
        }
        Some(_) | None => return None,
    };
    (!due.is_empty()).then_some((cause, due))
}

/// Returns how the container with a slot was told to reach the device.
fn told<'a>(instance: &'a Instance, slot: &str) -> Option<&'a String> {
    let slot: SlotId = slot.parse().ok()?;
    let annotations = instance.metadata.annotations.as_ref()?;
    annotations.get(&names::connection_annotation(slot.index))
}

/// Returns what is held on a node by each resource that gives one of the due slots. By the Configuration's resource containers
/// may have slots of its other Instances.
fn held(input: &Input<'_>, target: Target<'_>, due: &BTreeSet<&str>) -> Vec<Held> {
    let Target {
        key,
        instance,
        configuration,
        node,
    } = target;
    let (of, prefix) = (&instance.spec.configuration_name, input.resource_prefix);
    let resource = configuration.spec.resource();
    let mut of_instance = Held::new(prefix.resource(&key.name));
    let mut of_configuration = Held::new(resource.unwrap_or_else(|| prefix.resource(of)));
    let its = input.world.instances.iter();
    let its = its.filter(|(k, i)| k.namespace == key.namespace && i.spec.configuration_name == *of);
    for (its_key, instance) in its {
        for (slot, usage) in &instance.spec.device_usage {
            let is_due = its_key == key && due.contains(slot.as_str());
            let owner = SlotOwner::from_usage(usage).ok().flatten();
            match owner.filter(|owner| owner.node() == node) {
                Some(SlotOwner::Node(_)) if its_key == key => of_instance.add(slot.clone(), is_due),
                Some(SlotOwner::Configuration { slot, .. }) => of_configuration.add(slot, is_due),
                Some(SlotOwner::Node(_)) | None => {}
            }
        }
    }
    let both = [of_instance, of_configuration].into_iter();
    both.filter(|held| !held.due.is_empty()).collect()
}

#[cfg(test)]
mod tests;
