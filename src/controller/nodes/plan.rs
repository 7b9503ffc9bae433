//! Decides the actions on Instances, NodeDevices and Configurations. Pure.
//!
//! `crate::merge` makes Instances of what the nodes report in their NodeDevices. `lost.rs` tells it which nodes are lost, and
//! when their slots are free.
use super::{
    absent_node::Now,
    lost::{NodeMemory, Outlook, PlaceInInstance},
    notices::{self, Notice},
    patch::{as_seen, guarded, status},
};
use crate::{
    api::{configuration::Configuration, defaults, instance::Instance, names},
    controller::{outcome::Problems, queue::Waits, reported::Reported, world::World},
    merge::{
        DeviceReports, InstanceEvent, Taken,
        finalizers::without_akris,
        plan::{self as merge, End, Fate, Merge, Surroundings, held_slots},
    },
    model::{
        instance_name::InstanceKey,
        typed_names::{ConfigurationKey, NodeName},
    },
};
use json_patch::Patch;
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};
use tokio::time::Instant;

/// The time after which devices without an Instance are looked at again: what they lack, a name or room in memory, another
/// Configuration may have given up.
const LEFT_OUT_AGAIN: Duration = Duration::from_secs(15);

#[derive(Debug, Default)]
pub(crate) struct Plan {
    pub(crate) actions: Vec<Action>,
    /// Warnings that were not reported before.
    pub(crate) notices: Vec<Notice>,
    /// The Configurations on which an outage was not reported before.
    pub(crate) outage_on: BTreeSet<ConfigurationKey>,
    /// The Configurations with devices that have no Instance because their names are taken.
    pub(crate) left_out: Problems,
    pub(crate) waits: Waits,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Action {
    Change(Box<Change>),
    /// The Instance of a device that has none.
    Create(Box<Instance>),
    /// An Instance that no node is left for, or whose Configuration is gone.
    Delete {
        key: InstanceKey,
        /// Its Configuration, which may be gone.
        of: ConfigurationKey,
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

impl Change {
    fn of(key: &InstanceKey, instance: &Instance, change: merge::Change) -> Self {
        Self {
            key: key.clone(),
            patch: guarded(instance, change.operations),
            status: change.status.map(|after| status(instance, &after)),
            absent: change.absent,
            gone: change.gone,
            freed: change.freed,
            events: change.events,
        }
    }
}

/// Returns what there is to do for Instances and Configurations, after `memory` has noticed the same world.
pub(crate) fn plan(reported: &Reported<'_>, memory: &NodeMemory, now: Now) -> Plan {
    let world = reported.world;
    let planner = Planner {
        world,
        memory,
        device_reports: reported.by_device(),
        instant: now.instant,
    };
    let merge = Merge {
        surroundings: &planner,
        instances: &world.instances,
        all_instances: &world.whole().instances,
        reports: planner.device_reports,
        labels: (world.nodes.keys())
            .map(|name| (names::node_label(name), name))
            .collect(),
        now: now.clock,
        taken: Taken::default(),
    };
    let mut plan = Plan::default();
    let wake = memory.wake_in(now.instant).into_iter();
    wake.for_each(|wait| plan.waits.add(wait));
    for (key, instance) in &world.instances {
        planner.report_held_slots(key, instance, &mut plan);
        match merge.fate(key, instance) {
            Fate::Stays => {}
            Fate::Changes(change) => {
                let change = Change::of(key, instance, change);
                plan.actions.push(Action::Change(Box::new(change)));
            }
            Fate::Ends(end) if end.is_by_time && memory.outage.is_some() => {}
            Fate::Ends(end) => plan.actions.push(delete(key, instance, end)),
            Fate::EndsIn(_) if memory.outage.is_some() => {}
            Fate::EndsIn(left) => {
                plan.waits.add(left);
            }
        }
    }
    let (made, left_out) = merge.new_instances();
    if !left_out.is_empty() {
        plan.waits.add(LEFT_OUT_AGAIN);
    }
    plan.left_out = left_out;
    (plan.actions).extend(made.into_iter().map(|new| Action::Create(Box::new(new))));
    plan.actions.extend(silenced(world, memory, now.instant));
    let stripped = world.configurations.iter();
    (plan.actions).extend(stripped.filter_map(|(key, configuration)| strip(key, configuration)));
    plan
}

/// The objects of nodes that are lost, and of those that are deleted.
fn silenced(world: &World, memory: &NodeMemory, now: Instant) -> impl Iterator<Item = Action> {
    let objects = world.node_devices.iter();
    objects.filter_map(move |(node, object)| {
        let is_gone = !world.nodes.contains_key(node);
        (is_gone || memory.is_asked(node, now)).then(|| Action::DeleteNodeDevices {
            node: node.clone(),
            uid: object.metadata.uid.clone().unwrap_or_default(),
        })
    })
}

struct Planner<'a> {
    world: &'a World,
    memory: &'a NodeMemory,
    device_reports: &'a DeviceReports<'a>,
    /// The time by a clock that does not step.
    instant: Instant,
}

impl Surroundings for Planner<'_> {
    fn configuration(&self, of: &ConfigurationKey) -> Option<&Configuration> {
        self.world.configurations.get(of).map(AsRef::as_ref)
    }

    fn all_configurations<'s>(
        &'s self,
    ) -> Box<dyn Iterator<Item = (&'s ConfigurationKey, Option<&'s Configuration>)> + 's> {
        let whole = self.world.whole();
        let readable = whole.configurations.iter();
        let readable = readable.map(|(key, configuration)| (key, Some(configuration.as_ref())));
        Box::new(readable.chain(whole.unreadable.keys().map(|key| (key, None))))
    }

    fn may_have(&self, of: &ConfigurationKey) -> bool {
        self.world.configurations.contains_key(of) || self.world.unreadable.contains_key(of)
    }

    fn has_node(&self, node: &NodeName) -> bool {
        self.world.nodes.contains_key(node)
    }

    fn only_node(&self) -> Option<&NodeName> {
        None
    }

    fn selects(&self, of: &ConfigurationKey, node: &NodeName) -> bool {
        self.world.selects(of, node)
    }

    fn is_silent(&self, node: &NodeName) -> bool {
        self.memory.is_silent(node, self.instant)
    }

    fn is_released(&self, node: &NodeName, key: &InstanceKey, instance: &Instance) -> bool {
        self.outlook(key, instance, node) == Some(Outlook::Free)
    }

    fn slots_before(&self, key: &InstanceKey) -> Option<&BTreeMap<String, String>> {
        self.world.held_before.usage(key)
    }

    fn room(&self, of: &ConfigurationKey) -> usize {
        self.world.room.get(of).copied().unwrap_or(usize::MAX)
    }

    fn unseen_for(&self, instance: &Instance) -> Option<Duration> {
        let seen = self.memory.last_seen(instance)?;
        Some(self.instant - seen)
    }
}

impl Planner<'_> {
    /// Returns what happens to the slots of a node in an Instance; `None` if the node is not lost, or its agent has
    /// joined again.
    fn outlook(&self, key: &InstanceKey, instance: &Instance, node: &NodeName) -> Option<Outlook> {
        let is_named = instance.spec.names_node(node);
        let stays = self.has_node(node) && !self.is_silent(node);
        // Its agent lives, and it is about to join again; while it is asked again, nothing is known of what it reports.
        let may_report = || {
            let reports = self.device_reports.of(key, instance);
            reports.contains_key(node) || !self.world.node_devices.contains_key(node)
        };
        let is_named =
            is_named || stays && self.memory.has_answered(node, self.instant) && may_report();
        match (is_named && stays, &self.memory.outage) {
            (true, Some(_)) if self.memory.absent.contains_key(node) => Some(Outlook::Outage),
            (true, _) => None,
            (false, _) => {
                let release = self.release_after(key, instance);
                let place = PlaceInInstance {
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
            None => defaults::SLOT_RELEASE_SECONDS,
        };
        let seconds = u64::try_from(seconds).ok().filter(|seconds| *seconds > 0);
        seconds.map(Duration::from_secs)
    }

    /// Says why slots of lost nodes are not free, and when to look again.
    fn report_held_slots(&self, key: &InstanceKey, instance: &Instance, plan: &mut Plan) {
        let mut held: BTreeMap<NodeName, Vec<&str>> = BTreeMap::new();
        for (slot, node) in held_slots(instance) {
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
            let is_out = !self.has_node(node) || self.memory.must_leave(node, self.instant);
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
}

fn delete(key: &InstanceKey, instance: &Instance, end: End) -> Action {
    let metadata = &instance.metadata;
    Action::Delete {
        key: key.clone(),
        of: instance.spec.configuration_key(&key.namespace),
        uid: metadata.uid.clone().unwrap_or_default(),
        resource_version: metadata.resource_version.clone().unwrap_or_default(),
        orphan_of: end.orphan_of,
        why: end.why,
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
