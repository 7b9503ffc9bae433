//! Decides which nodes each Instance names, and which Instances are created and deleted. Pure.
//!
//! The nodes report shared devices in their NodeDevices (`device_reports.rs`). The parts of Instances about a node without
//! a report stay as they are. The Instance of a device that one node alone has is written by its agent, and only lost
//! nodes are taken out of it here. `lost.rs` decides which nodes are lost, and when their slots are free.
use super::{
    absent_node::Now,
    create::{has_anothers_name, new_instances},
    device_reports::DeviceReports,
    finalizers::without_akris,
    lost::{Memory, Outlook, Place},
    notices::{self, InstanceEvent, Notice},
    patch::{as_seen, guarded},
    stale::{is_slot, without_connection_digest, without_stale},
};
use crate::{
    api::{
        configuration::{Configuration, DEFAULT_SLOT_RELEASE_SECONDS},
        instance::Instance,
        names,
    },
    controller::{outcome::Problems, pace::elapsed, queue::Waits, world::World},
    model::{
        instance_name::InstanceKey,
        patch::{add, remove, test},
        slot::SlotOwner,
        typed_names::{ConfigurationKey, NodeName},
    },
};
use json_patch::{Patch, PatchOperation};
use k8s_openapi::{apimachinery::pkg::apis::meta::v1::ObjectMeta, jiff::Timestamp};
use serde_json::json;
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};
use tokio::time::Instant;

/// Why an Instance is deleted that has the name of another device.
pub(crate) const ANOTHERS_NAME: &str = "delete the Instance that has the name of another device";

/// The grace period of an Instance whose Configuration cannot be read.
const DEFAULT_GRACE: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(crate) struct Plan {
    pub(crate) actions: Vec<Action>,
    /// Warnings that were not reported before.
    pub(crate) notices: Vec<Notice>,
    /// The Configurations on which an outage was not reported before.
    pub(crate) outage_on: BTreeSet<ConfigurationKey>,
    /// The Configurations with devices that have no Instance because their names are taken.
    pub(crate) nameless: Problems,
    pub(crate) waits: Waits,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Action {
    Change(Box<Change>),
    /// The Instance of a shared device that has none.
    Create(Box<Instance>),
    /// An Instance that no node is left for, whose Configuration is gone, or that has the name of another device.
    Delete {
        key: InstanceKey,
        uid: String,
        resource_version: String,
        /// The Configuration that must be gone.
        orphan_of: Option<ConfigurationKey>,
        /// The reason of the deletion, for the log.
        why: &'static str,
    },
    /// Deletes the NodeDevices of a lost node. Its agent, if it lives, creates them again.
    DeleteNodeDevices {
        node: NodeName,
        uid: String,
    },
    /// Takes Akri's finalizers off a Configuration.
    Strip {
        key: ConfigurationKey,
        patch: Patch,
    },
}

impl Action {
    /// Returns whether it follows what nodes see: at once, then in batches.
    pub(crate) fn is_batched(&self) -> bool {
        matches!(self, Self::Change(_) | Self::Create(_))
    }
}

/// The changes of one Instance.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Change {
    pub(crate) key: InstanceKey,
    pub(crate) patch: Option<Patch>,
    pub(crate) status: Option<Patch>,
    /// The nodes that are taken out though they are there.
    pub(crate) absent: Vec<NodeName>,
    /// The nodes that are taken for deleted.
    pub(crate) gone: BTreeSet<NodeName>,
    /// The slots that are taken from nodes, each with its node.
    pub(crate) freed: Vec<(String, NodeName)>,
    /// The Events about the health of the device.
    pub(crate) events: Vec<InstanceEvent>,
}

/// Returns what there is to do for Instances and Configurations, after `memory` has noticed the same world.
pub(crate) fn plan(world: &World, memory: &Memory, now: Now) -> Plan {
    let planner = Planner {
        world,
        memory,
        device_reports: DeviceReports::new(world),
        now: now.clock,
        instant: now.instant,
        labels: (world.nodes.keys())
            .map(|name| (names::node_label(name), name))
            .collect(),
    };
    let mut plan = Plan::default();
    // A look that is due now says when to look again once it is answered.
    let wake = memory.wake_in(now.instant);
    wake.filter(|wait| !wait.is_zero())
        .into_iter()
        .for_each(|wait| plan.waits.add(wait));
    let is_outage = memory.outage.is_some();
    for (key, instance) in &world.instances {
        planner.report_held_slots(key, instance, &mut plan);
        if let Some(of) = planner.orphan_of(key, instance) {
            let why = "delete the Instance of a Configuration that does not exist any more";
            (plan.actions).push(delete(key, &instance.metadata, Some(of), why));
        } else if has_anothers_name(key, instance) {
            (plan.actions).push(delete(key, &instance.metadata, None, ANOTHERS_NAME));
        } else if let Some(change) = planner.change(key, instance) {
            plan.actions.push(Action::Change(Box::new(change)));
        } else if let Some(left) = planner.deleted_in(key, instance).filter(|_| !is_outage) {
            if left.is_zero() {
                let why = "delete the Instance that no node sees";
                plan.actions
                    .push(delete(key, &instance.metadata, None, why));
            } else {
                plan.waits.add(left);
            }
        }
    }
    let (made, nameless) = new_instances(world, &planner.device_reports, memory, now.instant);
    plan.nameless = nameless;
    (plan.actions).extend(made.into_iter().map(|new| Action::Create(Box::new(new))));
    plan.actions.extend(silenced(world, memory, now.instant));
    let stripped = world.configurations.iter();
    (plan.actions).extend(stripped.filter_map(|(key, configuration)| strip(key, configuration)));
    plan
}

/// The objects of nodes that are lost, and of those that are deleted.
fn silenced(world: &World, memory: &Memory, now: Instant) -> impl Iterator<Item = Action> {
    let objects = world.node_devices.iter();
    objects.filter_map(move |(node, object)| {
        let is_gone = !world.nodes.contains_key(node);
        (is_gone || memory.is_silent(node, now)).then(|| Action::DeleteNodeDevices {
            node: node.clone(),
            uid: object.metadata.uid.clone().unwrap_or_default(),
        })
    })
}

pub(super) struct Planner<'a> {
    pub(super) world: &'a World,
    pub(super) memory: &'a Memory,
    pub(super) device_reports: DeviceReports<'a>,
    pub(super) now: Timestamp,
    /// The time by a clock that does not step.
    pub(super) instant: Instant,
    /// The labels of existing nodes, each with its node.
    pub(super) labels: BTreeMap<String, &'a NodeName>,
}

impl Planner<'_> {
    pub(super) fn is_gone(&self, node: &NodeName) -> bool {
        !self.world.nodes.contains_key(node)
    }

    fn change(&self, key: &InstanceKey, instance: &Instance) -> Option<Change> {
        let mut change = Change {
            key: key.clone(),
            patch: None,
            status: None,
            absent: vec![],
            gone: BTreeSet::new(),
            freed: vec![],
            events: vec![],
        };
        let mut operations = without_akris(&instance.metadata);
        if instance.metadata.deletion_timestamp.is_none() {
            let reports = self.reports(key, instance);
            let nodes = self.nodes(key, instance, &reports, &mut change);
            if nodes != instance.spec.nodes {
                operations.push(add(&["spec", "nodes"], json!(nodes)));
            }
            operations.extend(self.relabelled(instance, &nodes, &reports, &mut change));
            operations.extend(self.described(key, instance, &nodes, &reports));
            operations.extend(self.released(key, instance, &mut change));
            operations.extend(without_stale(instance));
            change.status = self.status(instance, &nodes, &reports, &mut change);
        }
        change.patch = guarded(instance, operations);
        (change.patch.is_some() || change.status.is_some()).then_some(change)
    }

    fn released(
        &self,
        key: &InstanceKey,
        instance: &Instance,
        change: &mut Change,
    ) -> Vec<PatchOperation> {
        let mut operations = vec![];
        for (slot, node) in holders(instance) {
            let is_free = self.outlook(key, instance, &node) == Some(Outlook::Free);
            if !is_free || !is_slot(instance, slot) {
                continue;
            }
            if self.is_gone(&node) {
                change.gone.insert(node.clone());
            }
            let held = json!(instance.spec.device_usage.get(slot));
            operations.push(test(&["spec", "deviceUsage", slot], held));
            operations.push(remove(&["spec", "deviceUsage", slot]));
            operations.extend(without_connection_digest(instance, slot));
            change.freed.push((slot.to_owned(), node));
        }
        operations
    }

    /// Returns what happens to the slots of a node in an Instance; `None` if the node is not lost, or its agent has
    /// joined again.
    fn outlook(&self, key: &InstanceKey, instance: &Instance, node: &NodeName) -> Option<Outlook> {
        let is_named = instance.spec.names_node(node);
        let scope = instance.spec.scope();
        let leaves = (self.memory).leaves(node, key, scope, self.instant);
        let stays = !self.is_gone(node) && !leaves;
        // Its agent lives, and it is about to join again.
        let is_named = is_named
            || stays
                && self.memory.has_answered(node)
                && self.reports(key, instance).contains_key(node);
        match (is_named && stays, &self.memory.outage) {
            (true, Some(_)) if self.memory.absent.contains_key(node) => Some(Outlook::Outage),
            (true, _) => None,
            (false, _) => {
                let release = self.release_after(key, instance);
                let place = Place {
                    instance: key,
                    is_named,
                };
                (self.memory).outlook(node, place, release, self.instant)
            }
        }
    }

    /// Returns what the Configuration says of slots of lost nodes; one that cannot be read may say never.
    fn release_after(&self, key: &InstanceKey, instance: &Instance) -> Option<Duration> {
        let of = instance.spec.configuration_key(&key.namespace);
        let seconds = match self.world.configurations.get(&of) {
            Some(configuration) => configuration.spec.slot_release_seconds,
            None if self.world.unreadable.contains_key(&of) => 0,
            None => DEFAULT_SLOT_RELEASE_SECONDS,
        };
        let seconds = u64::try_from(seconds).ok().filter(|seconds| *seconds > 0);
        seconds.map(Duration::from_secs)
    }

    /// Says why slots of lost nodes are not free, and when to look again.
    fn report_held_slots(&self, key: &InstanceKey, instance: &Instance, plan: &mut Plan) {
        let mut held: BTreeMap<NodeName, Vec<&str>> = BTreeMap::new();
        for (slot, node) in holders(instance) {
            held.entry(node).or_default().push(slot);
        }
        let is_used_up = notices::is_used_up(instance);
        for (node, slots) in &held {
            let Some(outlook) = self.outlook(key, instance, node) else {
                continue;
            };
            match (outlook, &self.memory.outage) {
                (Outlook::FreeIn(left), _) => plan.waits.add(left),
                (Outlook::Outage, Some(outage)) => {
                    let of = instance.spec.configuration_key(&key.namespace);
                    let is_news = outage.is_news(&of, self.instant);
                    plan.outage_on.extend(is_news.then_some(of));
                }
                (Outlook::Free | Outlook::Never | Outlook::Outage, _) => {}
            }
            let is_out = self.is_gone(node) || self.memory.must_leave(node, self.instant);
            if let Some(absent) = self.memory.absent.get(node)
                && let Some(wait) = notices::wait(absent, outlook)
                && is_out
                && is_used_up
                && !absent.is_reported(key, wait)
            {
                plan.notices.push(Notice {
                    instance: key.clone(),
                    node: node.clone(),
                    wait,
                    note: notices::held(slots, node, absent.why, outlook),
                });
            }
        }
    }

    /// Returns the Configuration of a shared Instance, if it was deleted. The controller then deletes the Instance, because no
    /// agent does.
    fn orphan_of(&self, key: &InstanceKey, instance: &Instance) -> Option<ConfigurationKey> {
        let of = instance.spec.configuration_key(&key.namespace);
        let is_there =
            self.world.configurations.contains_key(&of) || self.world.unreadable.contains_key(&of);
        let is_deleting = instance.metadata.deletion_timestamp.is_some();
        (instance.spec.shared && !is_there && !is_deleting).then_some(of)
    }

    /// Returns the time until an Instance without nodes is deleted. No agent is left to do it.
    fn deleted_in(&self, key: &InstanceKey, instance: &Instance) -> Option<Duration> {
        let is_deleting = instance.metadata.deletion_timestamp.is_some();
        if is_deleting || !instance.spec.nodes.is_empty() || holders(instance).next().is_some() {
            return None;
        }
        let since = instance.status.as_ref()?.unavailable_since()?;
        // The agent of a node that has no Node says again and again that it sees the device.
        let seen = self.memory.last_seen(instance);
        let calm = seen.map_or(Duration::MAX, |seen| self.instant - seen);
        let of = instance.spec.configuration_key(&key.namespace);
        let grace = match self.world.configurations.get(&of) {
            Some(configuration) => {
                let seconds = u64::try_from(configuration.spec.grace_period_seconds);
                Duration::from_secs(seconds.unwrap_or_default())
            }
            None => DEFAULT_GRACE,
        };
        Some(grace.saturating_sub(elapsed(since, self.now).min(calm)))
    }
}

/// The slots in use, each with the node that holds it. A value that nobody of ours writes is left to who wrote it.
pub(super) fn holders(instance: &Instance) -> impl Iterator<Item = (&str, NodeName)> {
    let usage = instance.spec.device_usage.iter();
    usage.filter_map(|(slot, usage)| {
        let owner = SlotOwner::from_usage(usage).ok().flatten()?;
        Some((slot.as_str(), owner.node().clone()))
    })
}

fn delete(
    key: &InstanceKey,
    metadata: &ObjectMeta,
    orphan_of: Option<ConfigurationKey>,
    why: &'static str,
) -> Action {
    Action::Delete {
        key: key.clone(),
        uid: metadata.uid.clone().unwrap_or_default(),
        resource_version: metadata.resource_version.clone().unwrap_or_default(),
        orphan_of,
        why,
    }
}

fn strip(key: &ConfigurationKey, configuration: &Configuration) -> Option<Action> {
    let operations = without_akris(&configuration.metadata);
    let patch = as_seen(&configuration.metadata, operations)?;
    Some(Action::Strip {
        key: key.clone(),
        patch,
    })
}

#[cfg(test)]
mod tests;
