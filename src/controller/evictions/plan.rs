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
    api::{configuration::WhenGone, instance::Instance, names, node_devices::SeenDevice},
    controller::{queue::Waits, reported::Reported, world::World},
    merge::plan::held_slots,
    model::{
        instance_name::InstanceKey,
        resource_name::{ResourceName, ResourcePrefix},
        slot::{SlotId, SlotOwner},
        typed_names::{ConfigurationKey, NodeName},
    },
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};
use tokio::time::Instant;

/// Pods of a Configuration are evicted from a node at most so often, as a broker is replaced: anybody on a LAN can make a
/// device move.
pub(crate) const APART: Duration = Duration::from_mins(1);

/// The times at which Pods of a Configuration were evicted from a node.
pub(crate) type Evicted = BTreeMap<(ConfigurationKey, NodeName), Instant>;

/// The most Instances of one Pod that get an Event of its eviction.
const NAMED: usize = 16;

pub(crate) struct Input<'a> {
    /// The prefix of the resources, such as `akri.sh`.
    pub(crate) resource_prefix: &'a ResourcePrefix,
    pub(crate) evicted: &'a Evicted,
    pub(crate) now: Instant,
}

impl Input<'_> {
    /// Returns the rest of the time in which no further Pod of a Configuration is evicted from a node.
    fn pause(&self, of: &ConfigurationKey, node: &NodeName) -> Option<Duration> {
        let last = self.evicted.get(&(of.clone(), node.clone()))?;
        let left = (*last + APART).saturating_duration_since(self.now);
        (!left.is_zero()).then_some(left)
    }
}

/// Why a Pod is evicted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    Gone,
    /// The device is reached differently.
    Moved,
}

/// An Instance whose device a node has lost.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Lost {
    pub(crate) instance: Arc<Instance>,
    pub(crate) cause: Cause,
    /// Its slots whose containers cannot use the device any more.
    slots: BTreeSet<String>,
}

/// Evicts the Pods of a node that have lost slots of a Configuration. All of its Instances are in one action: by its resource a
/// Pod may have a slot of any.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Action {
    pub(crate) configuration: ConfigurationKey,
    pub(crate) node: NodeName,
    pub(crate) lost: BTreeMap<InstanceKey, Lost>,
    /// What the node holds by each resource that gives one of the lost slots.
    pub(crate) held: BTreeMap<ResourceName, Held>,
}

impl Action {
    fn new(configuration: ConfigurationKey, node: NodeName) -> Self {
        Self {
            configuration,
            node,
            lost: BTreeMap::new(),
            held: BTreeMap::new(),
        }
    }

    /// Returns what a Pod with slots of these Instances has lost, for sentences.
    pub(crate) fn why(&self, of: &BTreeSet<InstanceKey>) -> String {
        let (node, mut named) = (&self.node, of.iter());
        let key = named.next().map(ToString::to_string).unwrap_or_default();
        let more = match named.len() {
            0 => String::new(),
            n => format!(" and of {n} more"),
        };
        let first = of.first().and_then(|key| self.lost.get(key));
        match first.map(|lost| lost.cause) {
            Some(Cause::Gone) | None => {
                format!("node {node} does not see the device of Instance {key}{more} any more")
            }
            Some(Cause::Moved) => format!(
                "node {node} reaches the device of Instance {key}{more} differently than the container was told"
            ),
        }
    }

    /// Returns those of the Instances that get an Event.
    pub(crate) fn named(&self, of: &BTreeSet<InstanceKey>) -> impl Iterator<Item = &Lost> {
        of.iter().filter_map(|key| self.lost.get(key)).take(NAMED)
    }
}

/// What all slots of an Instance have in common.
struct Of<'a> {
    key: &'a InstanceKey,
    instance_resource: ResourceName,
    configuration_resource: ResourceName,
    grace: Duration,
}

impl Action {
    /// Takes in a slot that the node holds.
    fn hold(&mut self, of: &Of<'_>, slot: &str, owner: SlotOwner) {
        let lost = self.lost.get(of.key);
        let (resource, id) = match owner {
            // Its Pod asks for the resource of the Configuration, or its status names the claim.
            SlotOwner::Claim { uid, .. } => (&of.configuration_resource, uid),
            SlotOwner::Node(_) => (&of.instance_resource, slot.to_owned()),
            SlotOwner::Configuration { slot, .. } => (&of.configuration_resource, slot),
        };
        let held = self.held.entry(resource.clone()).or_default();
        if let Some(lost) = lost.filter(|lost| lost.slots.contains(slot)) {
            let due = held.due.entry(id.clone()).or_default();
            due.push(of.key.clone());
            if lost.cause == Cause::Gone {
                held.lost_for = of.grace;
            }
        }
        *held.ids.entry(id).or_default() += 1;
    }
}

type Actions = BTreeMap<ConfigurationKey, BTreeMap<NodeName, Action>>;

pub(crate) fn plan(reported: &Reported<'_>, input: &Input<'_>) -> (Vec<Action>, Waits) {
    let mut waits = Waits::default();
    let mut actions = lost(reported, input, &mut waits);
    if !actions.is_empty() {
        add_held(reported.world, input.resource_prefix, &mut actions);
    }
    let actions = actions.into_values().flat_map(BTreeMap::into_values);
    let with_lost = actions.map(|mut action| {
        action.held.retain(|_, held| !held.due.is_empty());
        action
    });
    (with_lost.collect(), waits)
}

/// Returns the actions with what their nodes have lost.
fn lost(reported: &Reported<'_>, input: &Input<'_>, waits: &mut Waits) -> Actions {
    let (mut actions, world) = (Actions::new(), reported.world);
    let mut configurations = world.configurations.values();
    if !configurations.any(|of| of.spec.when_gone == WhenGone::Evict) {
        return actions;
    }
    for (key, instance) in &world.instances {
        let of = instance.spec.configuration_key(&key.namespace);
        if !is_evicting(world, &of, instance) {
            continue;
        }
        let reports = reported.by_device().of(key, instance);
        for (slot, node) in held_slots(instance) {
            let is_ready = world.nodes.get(&node).is_some_and(|node| node.is_ready);
            let report = reports.get(&node).filter(|_| is_ready);
            let Some(cause) = report.and_then(|report| cause(instance, slot, report)) else {
                continue;
            };
            if let Some(left) = input.pause(&of, &node) {
                waits.add(left);
                continue;
            }
            let of_nodes = actions.entry(of.clone()).or_default();
            let action = of_nodes
                .entry(node.clone())
                .or_insert_with(|| Action::new(of.clone(), node));
            let lost = action.lost.entry(key.clone()).or_insert_with(|| Lost {
                instance: instance.clone(),
                cause,
                slots: BTreeSet::new(),
            });
            lost.slots.insert(slot.to_owned());
        }
    }
    actions
}

/// Adds what the nodes hold, in one pass over all slots.
fn add_held(world: &World, prefix: &ResourcePrefix, actions: &mut Actions) {
    for (key, instance) in &world.instances {
        let configuration = instance.spec.configuration_key(&key.namespace);
        let spec = (world.configurations.get(&configuration)).map(|of| &of.spec);
        let Some((actions, spec)) = actions.get_mut(&configuration).zip(spec) else {
            continue;
        };
        let resource = spec.resource();
        let of = Of {
            key,
            instance_resource: prefix.resource(&key.name),
            configuration_resource: resource
                .unwrap_or_else(|| prefix.resource(&configuration.name)),
            grace: spec.grace(),
        };
        for (slot, usage) in &instance.spec.device_usage {
            let owner = SlotOwner::from_usage(usage).ok().flatten();
            let Some(owner) = owner else { continue };
            if let Some(action) = actions.get_mut(owner.node()) {
                action.hold(&of, slot, owner);
            }
        }
    }
}

/// Returns whether Pods that have lost the device of an Instance are evicted. What is being deleted takes no Pod with it.
fn is_evicting(world: &World, of: &ConfigurationKey, instance: &Instance) -> bool {
    world.configurations.get(of).is_some_and(|configuration| {
        let of_both = [&instance.metadata, &configuration.metadata];
        let is_kept = (of_both.iter()).all(|metadata| metadata.deletion_timestamp.is_none());
        is_kept && configuration.spec.when_gone == WhenGone::Evict
    })
}

/// Returns why the container with a slot cannot use the device any more; `None` if it may.
fn cause(instance: &Instance, slot: &str, report: &SeenDevice) -> Option<Cause> {
    if report.gone && !report.is_offered() {
        return Some(Cause::Gone);
    }
    let now = report.connection.as_ref().filter(|_| report.is_healthy())?;
    let has_moved = told(instance, slot).is_some_and(|told| told != now);
    has_moved.then_some(Cause::Moved)
}

/// Returns how the container with a slot was told to reach the device.
fn told<'a>(instance: &'a Instance, slot: &str) -> Option<&'a String> {
    let slot: SlotId = slot.parse().ok()?;
    let annotations = instance.metadata.annotations.as_ref()?;
    annotations.get(&names::connection_annotation(slot.index))
}

#[cfg(test)]
mod tests;
