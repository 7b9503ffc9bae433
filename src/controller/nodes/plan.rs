//! What Instances are to say of nodes, which come and which go. Pure.
//!
//! Of a shared device the nodes say it in their NodeDevices, see `sights.rs`; a node without one is left as it is. Of a
//! device that one node has, its agent writes the Instance, and only lost nodes are taken out here. Which nodes are
//! lost, and when their slots are free, is in `lost.rs`.
use super::{
    away::Now,
    create::new_instances,
    finalizers::without_akris,
    lost::{Memory, Outlook},
    notices::{self, Notice, Told},
    patch::{as_seen, guarded},
    sights::{Sights, Views, exceptions},
};
use crate::{
    api::{
        configuration::{Configuration, DEFAULT_SLOT_RELEASE_SECONDS},
        instance::{Instance, InstanceStatus},
        names,
    },
    controller::{
        pace::{elapsed, sooner},
        world::World,
    },
    model::{
        names::ObjectKey,
        patch::{add, remove, replace, test},
        slot::{SlotId, SlotOwner},
    },
    store::{
        kubernetes::plan::{self as written, with_map},
        plan::with_conditions,
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

/// Where the Configuration cannot be read.
const DEFAULT_GRACE: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(crate) struct Plan {
    pub(crate) actions: Vec<Action>,
    /// What was not reported before.
    pub(crate) notices: Vec<Notice>,
    /// The Configurations on which an outage was not reported before.
    pub(crate) outage_on: BTreeSet<ObjectKey>,
    pub(crate) wake_in: Option<Duration>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Action {
    Change(Box<Change>),
    /// The Instance of a shared device that has none.
    Create(Box<Instance>),
    /// An Instance that no node is left for, or whose Configuration is gone.
    Delete {
        key: ObjectKey,
        uid: String,
        resource_version: String,
        /// The Configuration that must be gone.
        orphan_of: Option<ObjectKey>,
    },
    /// Takes away what a lost node said. Its agent, if it lives, says it again.
    Silence { node: String, uid: String },
    /// Takes Akri's finalizers off a Configuration.
    Strip {
        key: ObjectKey,
        patch: Patch,
    },
}

impl Action {
    /// Whether it follows what nodes see: at once, then in batches.
    pub(crate) fn is_batched(&self) -> bool {
        matches!(self, Self::Change(_) | Self::Create(_))
    }
}

/// What is changed of an Instance.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Change {
    pub(crate) key: ObjectKey,
    pub(crate) patch: Option<Patch>,
    pub(crate) status: Option<Patch>,
    /// The nodes that are taken out though they are there.
    pub(crate) away: Vec<String>,
    /// The nodes that are taken for deleted.
    pub(crate) gone: BTreeSet<String>,
    /// The slots that are taken from nodes, each with its node.
    pub(crate) freed: Vec<(String, String)>,
    /// What is told of the device's health.
    pub(crate) told: Vec<Told>,
}

/// What there is to do for Instances and Configurations, after `memory` has noticed the same world.
pub(crate) fn plan(world: &World, memory: &Memory, now: Now) -> Plan {
    let view = View {
        world,
        memory,
        sights: Sights::new(world),
        now: now.clock,
        instant: now.instant,
        labels: (world.nodes.keys())
            .map(|name| (names::node_label(name), name))
            .collect(),
    };
    let mut plan = Plan {
        wake_in: memory.wake_in(now.instant),
        ..Plan::default()
    };
    let is_outage = memory.outage.is_some();
    for (key, instance) in &world.instances {
        view.report(key, instance, &mut plan);
        if let Some(of) = view.orphan_of(key, instance) {
            plan.actions.push(delete(key, &instance.metadata, Some(of)));
        } else if let Some(change) = view.change(key, instance) {
            plan.actions.push(Action::Change(Box::new(change)));
        } else if let Some(left) = view.deleted_in(key, instance).filter(|_| !is_outage) {
            if left.is_zero() {
                plan.actions.push(delete(key, &instance.metadata, None));
            } else {
                plan.wake_in = sooner(plan.wake_in, Some(left));
            }
        }
    }
    let made = new_instances(world, &view.sights, (memory, now.instant));
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
        (is_gone || memory.is_silent(node, now)).then(|| Action::Silence {
            node: node.clone(),
            uid: object.metadata.uid.clone().unwrap_or_default(),
        })
    })
}

struct View<'a> {
    world: &'a World,
    memory: &'a Memory,
    sights: Sights<'a>,
    now: Timestamp,
    /// By a clock that does not step.
    instant: Instant,
    /// Those of the nodes that are there, each with its node.
    labels: BTreeMap<String, &'a String>,
}

impl View<'_> {
    fn is_gone(&self, node: &str) -> bool {
        !self.world.nodes.contains_key(node)
    }

    fn change(&self, key: &ObjectKey, instance: &Instance) -> Option<Change> {
        let mut change = Change {
            key: key.clone(),
            patch: None,
            status: None,
            away: vec![],
            gone: BTreeSet::new(),
            freed: vec![],
            told: vec![],
        };
        let mut operations = without_akris(&instance.metadata);
        if instance.metadata.deletion_timestamp.is_none() {
            let views = self.views(key, instance);
            let nodes = self.nodes(key, instance, &views, &mut change);
            if nodes != instance.spec.nodes {
                operations.push(replace(&["spec", "nodes"], json!(nodes)));
            }
            operations.extend(self.relabelled(instance, (&nodes, &views), &mut change));
            operations.extend(self.described(key, instance, (&nodes, &views)));
            operations.extend(self.released(key, instance, &mut change));
            change.status = self.status(instance, (&nodes, &views), &mut change);
        }
        change.patch = guarded(instance, operations);
        (change.patch.is_some() || change.status.is_some()).then_some(change)
    }

    /// What the nodes say of a device that is shared. Of one of its own, its agent writes it.
    fn views(&self, key: &ObjectKey, instance: &Instance) -> Views<'_> {
        match instance.spec.shared {
            true => self.sights.of(key),
            false => Views::new(),
        }
    }

    /// The nodes as they are to be: those that stay in their order, then those that join. What is gone or away is noted in
    /// `change`.
    fn nodes(
        &self,
        key: &ObjectKey,
        instance: &Instance,
        views: &Views<'_>,
        change: &mut Change,
    ) -> Vec<String> {
        let is_shared = instance.spec.shared;
        let is_offered = |node: &str| views.get(node).is_some_and(|view| view.is_offered());
        let mut nodes = vec![];
        for node in &instance.spec.nodes {
            if self.is_gone(node) {
                change.gone.insert(node.clone());
            } else if self.memory.leaves(node, (key, is_shared), self.instant) {
                change.away.push(node.clone());
            } else if !is_shared || !self.sights.is_judged(node) || is_offered(node) {
                nodes.push(node.clone());
            }
        }
        let joining = views.iter().filter(|(node, view)| {
            view.is_healthy()
                && view.is_offered()
                && !self.is_gone(node)
                && !self.memory.is_silent(node, self.instant)
                && !instance.spec.nodes.iter().any(|name| name == *node)
        });
        nodes.extend(joining.map(|(node, _)| (*node).to_owned()));
        nodes
    }

    /// What the Configuration and the first node say of a shared device.
    fn described(
        &self,
        key: &ObjectKey,
        instance: &Instance,
        (nodes, views): (&[String], &Views<'_>),
    ) -> Vec<PatchOperation> {
        let mut operations = vec![];
        let Some((of, id)) = self.sights.device(key).filter(|_| instance.spec.shared) else {
            return operations;
        };
        let configuration = self.world.configurations.get(of);
        let capacity = configuration.map(|configuration| configuration.spec.capacity);
        let capacity = capacity.filter(|capacity| *capacity != instance.spec.capacity);
        operations.extend(capacity.map(|now| add(&["spec", "capacity"], json!(now))));
        let first = nodes.first().and_then(|first| views.get(first.as_str()));
        let said = first.and_then(|view| view.properties.as_ref());
        let said = said.filter(|said| **said != instance.spec.broker_properties);
        operations.extend(said.map(|now| add(&["spec", "brokerProperties"], json!(now))));
        let annotations = instance.metadata.annotations.as_ref();
        if !annotations.is_some_and(|all| all.contains_key(names::DEVICE_ID)) {
            operations.extend(with_map(annotations, "annotations"));
            let place = ["metadata", "annotations", names::DEVICE_ID];
            operations.push(add(&place, json!(id)));
        }
        operations
    }

    /// Each node that sees the device or holds a slot has its label: that is what its agent's watch selects. The label of
    /// a node that is there goes when its agent has left: a container that runs on is found by it when the node is back.
    /// Akri's Instances have none.
    fn relabelled(
        &self,
        instance: &Instance,
        (nodes, views): (&[String], &Views<'_>),
        change: &mut Change,
    ) -> Vec<PatchOperation> {
        let labels = instance.metadata.labels.as_ref();
        let holders: BTreeSet<String> = holders(instance).map(|(_, node)| node).collect();
        let mut operations = vec![];
        for key in labels.into_iter().flat_map(BTreeMap::keys) {
            let Some(node) = key.strip_prefix(names::NODE_LABEL_PREFIX) else {
                continue;
            };
            let has_left = |node: &&String| {
                instance.spec.shared
                    && self.sights.is_judged(node)
                    && !views.contains_key(node.as_str())
                    && !nodes.contains(node)
                    && !holders.contains(*node)
            };
            match self.labels.get(key) {
                None => {
                    operations.push(remove(&["metadata", "labels", key]));
                    change.gone.insert(self.whole_name(instance, node));
                }
                Some(node) if has_left(node) => {
                    operations.push(remove(&["metadata", "labels", key]));
                }
                Some(_) => {}
            }
        }
        let added: BTreeSet<String> = (nodes.iter().cloned())
            .chain(holders)
            .chain(views.keys().map(|node| (*node).to_owned()))
            .filter(|node| !self.is_gone(node))
            .map(|node| names::node_label(&node))
            .filter(|key| !labels.is_some_and(|labels| labels.contains_key(key)))
            .collect();
        if !added.is_empty() {
            operations.extend(with_map(labels, "labels"));
        }
        operations.extend((added.iter()).map(|key| add(&["metadata", "labels", key], json!(""))));
        operations
    }

    /// The name of the node in a label: a long one is cut there.
    fn whole_name(&self, instance: &Instance, in_label: &str) -> String {
        let mut nodes = instance.spec.nodes.iter();
        let whole = nodes.find(|node| names::node_in_label(node) == in_label);
        whole.map_or(in_label, String::as_str).to_owned()
    }

    fn released(
        &self,
        key: &ObjectKey,
        instance: &Instance,
        change: &mut Change,
    ) -> Vec<PatchOperation> {
        let mut operations = vec![];
        for (slot, node) in holders(instance) {
            if self.outlook(key, instance, &node) != Some(Outlook::Free) {
                continue;
            }
            if self.is_gone(&node) {
                change.gone.insert(node.clone());
            }
            let held = json!(instance.spec.device_usage.get(slot));
            operations.push(test(&["spec", "deviceUsage", slot], held));
            operations.push(remove(&["spec", "deviceUsage", slot]));
            operations.extend(untold(instance, slot));
            change.freed.push((slot.to_owned(), node));
        }
        operations
    }

    /// What becomes of the slots of a node in an Instance: `None` where it is not lost, or its agent joined again.
    fn outlook(&self, key: &ObjectKey, instance: &Instance, node: &str) -> Option<Outlook> {
        let is_named = instance.spec.nodes.iter().any(|name| name == node);
        let is_shared = instance.spec.shared;
        let leaves = (self.memory).leaves(node, (key, is_shared), self.instant);
        let stays = !self.is_gone(node) && !leaves;
        // Its agent lives, and it is about to join again.
        let is_named = is_named
            || stays
                && self.memory.has_answered(node)
                && self.views(key, instance).contains_key(node);
        match (is_named && stays, &self.memory.outage) {
            (true, Some(_)) if self.memory.away.contains_key(node) => Some(Outlook::Outage),
            (true, _) => None,
            (false, _) => {
                let release = self.release_after(key, instance);
                (self.memory).outlook(node, (key, is_named), release, self.instant)
            }
        }
    }

    /// What the Configuration says of slots of lost nodes; one that cannot be read may say never.
    fn release_after(&self, key: &ObjectKey, instance: &Instance) -> Option<Duration> {
        let of = ObjectKey::new(&key.namespace, &instance.spec.configuration_name);
        let seconds = match self.world.configurations.get(&of) {
            Some(configuration) => configuration.spec.slot_release_seconds,
            None if self.world.unreadable.contains_key(&of) => 0,
            None => DEFAULT_SLOT_RELEASE_SECONDS,
        };
        let seconds = u64::try_from(seconds).ok().filter(|seconds| *seconds > 0);
        seconds.map(Duration::from_secs)
    }

    /// Says why slots of lost nodes are not free, and when to look again.
    fn report(&self, key: &ObjectKey, instance: &Instance, plan: &mut Plan) {
        let mut held: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        for (slot, node) in holders(instance) {
            held.entry(node).or_default().push(slot);
        }
        let is_used_up = notices::is_used_up(instance);
        for (node, slots) in &held {
            let Some(outlook) = self.outlook(key, instance, node) else {
                continue;
            };
            match (outlook, &self.memory.outage) {
                (Outlook::FreeIn(left), _) => plan.wake_in = sooner(plan.wake_in, Some(left)),
                (Outlook::Outage, Some(outage)) => {
                    let of = ObjectKey::new(&key.namespace, &instance.spec.configuration_name);
                    let is_news = outage.is_news(&of, self.instant);
                    plan.outage_on.extend(is_news.then_some(of));
                }
                (Outlook::Free | Outlook::Never | Outlook::Outage, _) => {}
            }
            let is_out = self.is_gone(node) || self.memory.is_lost(node, self.instant);
            if let Some(away) = self.memory.away.get(node)
                && let Some(wait) = notices::wait(away, outlook)
                && is_out
                && is_used_up
                && !away.is_told(key, wait)
            {
                plan.notices.push(Notice {
                    instance: key.clone(),
                    node: node.clone(),
                    wait,
                    note: notices::held(slots, (node, away.why), outlook),
                });
            }
        }
    }

    /// Takes out the views of nodes that the Instance has not: of lost ones, and what an agent wrote that did not know yet
    /// that its node was taken out. Of a shared device, what the nodes say themselves is put there.
    fn status(
        &self,
        instance: &Instance,
        (nodes, views): (&[String], &Views<'_>),
        change: &mut Change,
    ) -> Option<Patch> {
        let is_well = views.values().all(|view| view.is_healthy() && view.flapping.is_none());
        if instance.status.is_none() && is_well && !nodes.is_empty() {
            return None;
        }
        let before = instance.status.clone().unwrap_or_default();
        let lost = before.nodes.iter().filter(|entry| self.is_gone(&entry.name));
        change.gone.extend(lost.map(|entry| entry.name.clone()));
        let now = clock(self.now);
        let mut after = before.clone();
        after.nodes = exceptions(&before, (nodes, views), &now);
        change.told = notices::of_health(&before, (&after, nodes));
        let mut spec = instance.spec.clone();
        spec.nodes = nodes.to_vec();
        for (slot, _) in &change.freed {
            spec.device_usage.remove(slot);
        }
        written::status(instance, &with_conditions(after, &spec, &now))
    }

    /// The Configuration of a shared Instance that is to go because that is gone: nobody else is there to delete it.
    fn orphan_of(&self, key: &ObjectKey, instance: &Instance) -> Option<ObjectKey> {
        let of = ObjectKey::new(&key.namespace, &instance.spec.configuration_name);
        let is_there = self.world.configurations.contains_key(&of)
            || self.world.unreadable.contains_key(&of);
        let is_deleting = instance.metadata.deletion_timestamp.is_some();
        (instance.spec.shared && !is_there && !is_deleting).then_some(of)
    }

    /// When an Instance without nodes is to be deleted: nobody else is left to do it.
    fn deleted_in(&self, key: &ObjectKey, instance: &Instance) -> Option<Duration> {
        let is_deleting = instance.metadata.deletion_timestamp.is_some();
        if is_deleting || !instance.spec.nodes.is_empty() || holders(instance).next().is_some() {
            return None;
        }
        let since = unavailable_since(instance.status.as_ref()?)?;
        let of = ObjectKey::new(&key.namespace, &instance.spec.configuration_name);
        let grace = match self.world.configurations.get(&of) {
            Some(configuration) => {
                let seconds = u64::try_from(configuration.spec.grace_period_seconds);
                Duration::from_secs(seconds.unwrap_or_default())
            }
            None => DEFAULT_GRACE,
        };
        Some(grace.saturating_sub(elapsed(since, self.now)))
    }
}

/// Since when no node sees the device: kept on the API server, so that a new controller goes on counting.
fn unavailable_since(status: &InstanceStatus) -> Option<Timestamp> {
    let mut conditions = status.conditions.iter();
    let condition = conditions.find(|c| c.type_ == "Available" && c.status == "False")?;
    condition.last_transition_time.parse().ok()
}

/// The slots in use, each with the node that holds it. A value that nobody of ours writes is left to who wrote it.
fn holders(instance: &Instance) -> impl Iterator<Item = (&str, String)> {
    let usage = instance.spec.device_usage.iter();
    usage.filter_map(|(slot, usage)| {
        let owner = SlotOwner::from_usage(usage).ok().flatten()?;
        Some((slot.as_str(), owner.node().to_owned()))
    })
}

/// Removes what was remembered with a slot that is in use no more.
fn untold(instance: &Instance, slot: &str) -> Option<PatchOperation> {
    let index = slot.parse::<SlotId>().ok()?.index;
    let annotation = names::told(index);
    let annotations = instance.metadata.annotations.as_ref()?;
    let is_told = annotations.contains_key(&annotation);
    is_told.then(|| remove(&["metadata", "annotations", &annotation]))
}

/// RFC 3339, to the second as Kubernetes writes it.
fn clock(now: Timestamp) -> String {
    now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

fn delete(key: &ObjectKey, metadata: &ObjectMeta, orphan_of: Option<ObjectKey>) -> Action {
    Action::Delete {
        key: key.clone(),
        uid: metadata.uid.clone().unwrap_or_default(),
        resource_version: metadata.resource_version.clone().unwrap_or_default(),
        orphan_of,
    }
}

fn strip(key: &ObjectKey, configuration: &Configuration) -> Option<Action> {
    let operations = without_akris(&configuration.metadata);
    let patch = as_seen(&configuration.metadata, operations)?;
    Some(Action::Strip {
        key: key.clone(),
        patch,
    })
}

#[cfg(test)]
mod tests;
