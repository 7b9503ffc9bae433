//! Which nodes Instances have lost, and what is taken out of them therefore. Pure.
//!
//! | the node | leaves `nodes`, its label, `status.nodes` | its slots are free |
//! |---|---|---|
//! | is deleted | at once | at once |
//! | is not ready | after [`AWAY_AFTER`] | after [`RELEASE_AFTER`], if its agent did not join again |
//! | is ready | never: its agent does that | never: its agent does that |
//!
//! A node that is not ready may run its containers, and its agent: only the kubelet must be silent for that. So its
//! slots wait as long as Kubernetes waits before it gives up the node's Pods, and an agent that joins again after its
//! node was taken out is there, and keeps its node's place and slots.
use super::{
    finalizers::without_akris,
    patch::{guarded, without_entry},
};
use crate::{
    api::{
        configuration::Configuration,
        instance::{Instance, InstanceStatus},
        names,
    },
    controller::{
        pace::{elapsed, sooner},
        world::{NodeState, World},
    },
    model::{
        names::ObjectKey,
        patch::{add, remove, replace},
        slot::{SlotId, SlotOwner, holders},
    },
};
use json_patch::{Patch, PatchOperation};
use k8s_openapi::{apimachinery::pkg::apis::meta::v1::ObjectMeta, jiff::Timestamp};
use serde_json::json;
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// A node that restarts is back by then.
const AWAY_AFTER: Duration = Duration::from_secs(60);
/// When Kubernetes evicts the Pods of a node that is not ready.
const RELEASE_AFTER: Duration = Duration::from_secs(300);
/// The agent of a node that was taken out joins again by then, if it runs.
const REJOIN_TIME: Duration = Duration::from_secs(60);
/// Where the Configuration cannot be read.
const DEFAULT_GRACE: Duration = Duration::from_secs(60);

/// The nodes that are not ready, since too long.
#[derive(Debug, Default)]
pub(super) struct Memory {
    away: BTreeMap<String, Away>,
}

#[derive(Debug)]
struct Away {
    since: Timestamp,
    noticed: Timestamp,
    /// The Instances it was taken out of since. One that names it again has an agent there.
    left: BTreeSet<ObjectKey>,
}

#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) actions: Vec<Action>,
    pub(super) wake_in: Option<Duration>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Action {
    Change(Box<Change>),
    /// An Instance that no node is left for.
    Delete {
        key: ObjectKey,
        uid: String,
        resource_version: String,
    },
    /// Takes Akri's finalizers off a Configuration.
    Strip {
        key: ObjectKey,
        patch: Patch,
    },
}

/// What is changed of an Instance.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Change {
    pub(super) key: ObjectKey,
    pub(super) patch: Option<Patch>,
    pub(super) status: Option<Patch>,
    /// The nodes that are taken out though they are there.
    pub(super) away: Vec<String>,
    /// The nodes that are taken for deleted.
    pub(super) gone: BTreeSet<String>,
}

impl Memory {
    /// Follows which nodes are away.
    pub(super) fn notice(&mut self, world: &World, now: Timestamp) {
        let away: BTreeMap<&String, Timestamp> = (world.nodes.iter())
            .filter(|(_, node)| !is_working(node, now))
            .filter_map(|(name, node)| Some((name, node.since?)))
            .collect();
        (self.away).retain(|name, known| away.get(name) == Some(&known.since));
        for (name, since) in away {
            self.away.entry(name.clone()).or_insert_with(|| Away {
                since,
                noticed: now,
                left: BTreeSet::new(),
            });
        }
    }

    /// `nodes` were taken out of an Instance.
    pub(super) fn left(&mut self, key: &ObjectKey, nodes: &[String]) {
        for node in nodes {
            if let Some(away) = self.away.get_mut(node) {
                away.left.insert(key.clone());
            }
        }
    }
}

impl Away {
    /// How long its slots wait yet.
    fn release_in(&self, now: Timestamp) -> Duration {
        let by_age = RELEASE_AFTER.saturating_sub(elapsed(self.since, now));
        by_age.max(REJOIN_TIME.saturating_sub(elapsed(self.noticed, now)))
    }
}

/// Whether the node's agent is to be reckoned with: one that is not ready just now may be back soon.
pub(in crate::controller) fn is_working(node: &NodeState, now: Timestamp) -> bool {
    node.is_ready || settles_in(node, now).is_none_or(|left| !left.is_zero())
}

/// How long a node that is not ready is taken for one that works.
pub(in crate::controller) fn settles_in(node: &NodeState, now: Timestamp) -> Option<Duration> {
    let since = node.since.filter(|_| !node.is_ready)?;
    Some(AWAY_AFTER.saturating_sub(elapsed(since, now)))
}

/// What there is to do for Instances and Configurations, after `memory` has noticed the same world.
pub(super) fn plan(world: &World, memory: &Memory, now: Timestamp) -> Plan {
    let view = View {
        world,
        memory,
        now,
        labels: world
            .nodes
            .keys()
            .map(|name| names::node_label(name))
            .collect(),
    };
    let mut plan = Plan {
        wake_in: view.wake_in(),
        ..Plan::default()
    };
    for (key, instance) in &world.instances {
        if let Some(change) = view.change(key, instance) {
            plan.actions.push(Action::Change(Box::new(change)));
        } else if let Some(left) = view.deleted_in(key, instance) {
            if left.is_zero() {
                plan.actions.push(delete(key, &instance.metadata));
            } else {
                plan.wake_in = sooner(plan.wake_in, Some(left));
            }
        }
    }
    let stripped = world.configurations.iter();
    (plan.actions).extend(stripped.filter_map(|(key, configuration)| strip(key, configuration)));
    plan
}

struct View<'a> {
    world: &'a World,
    memory: &'a Memory,
    now: Timestamp,
    /// Those of the nodes that are there.
    labels: BTreeSet<String>,
}

impl View<'_> {
    fn wake_in(&self) -> Option<Duration> {
        let settle = self
            .world
            .nodes
            .values()
            .filter_map(|node| settles_in(node, self.now));
        let release = self
            .memory
            .away
            .values()
            .map(|away| away.release_in(self.now));
        settle.chain(release).filter(|left| !left.is_zero()).min()
    }

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
        };
        let mut operations = without_akris(&instance.metadata);
        if instance.metadata.deletion_timestamp.is_none() {
            let kept = self.kept(key, instance, &mut change);
            if kept.len() < instance.spec.nodes.len() {
                operations.push(replace(&["spec", "nodes"], json!(kept)));
            }
            operations.extend(self.relabelled(instance, &kept, &mut change));
            operations.extend(self.released(instance, &mut change));
            change.status = self.status(instance, &kept, &mut change);
        }
        change.patch = guarded(&instance.metadata, operations);
        (change.patch.is_some() || change.status.is_some()).then_some(change)
    }

    /// The nodes that stay. What is gone or away is noted in `change`.
    fn kept<'i>(
        &self,
        key: &ObjectKey,
        instance: &'i Instance,
        change: &mut Change,
    ) -> Vec<&'i String> {
        let mut kept = vec![];
        for node in &instance.spec.nodes {
            let away = self.memory.away.get(node);
            if self.is_gone(node) {
                change.gone.insert(node.clone());
            } else if away.is_some_and(|away| !away.left.contains(key)) {
                change.away.push(node.clone());
            } else {
                kept.push(node);
            }
        }
        kept
    }

    /// Each node that is there has its label: that is what its agent's watch selects. Akri's Instances have none.
    fn relabelled(
        &self,
        instance: &Instance,
        kept: &[&String],
        change: &mut Change,
    ) -> Vec<PatchOperation> {
        let none = BTreeMap::new();
        let labels = instance.metadata.labels.as_ref();
        let mut operations = vec![];
        let mut removed: BTreeSet<String> = change
            .away
            .iter()
            .map(|node| names::node_label(node))
            .collect();
        for key in labels.unwrap_or(&none).keys() {
            let node = key.strip_prefix(names::NODE_LABEL_PREFIX);
            if let Some(node) = node.filter(|_| !self.labels.contains(key)) {
                removed.insert(key.clone());
                change.gone.insert(self.whole_name(instance, node));
            }
        }
        let is_there = |key: &String| labels.is_some_and(|labels| labels.contains_key(key));
        let removed = removed.into_iter().filter(is_there);
        operations.extend(removed.map(|key| remove(&["metadata", "labels", &key])));
        let added: BTreeSet<String> = (kept.iter())
            .map(|node| names::node_label(node))
            .filter(|key| !is_there(key))
            .collect();
        if labels.is_none() && !added.is_empty() {
            operations.push(add(&["metadata", "labels"], json!({})));
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

    fn released(&self, instance: &Instance, change: &mut Change) -> Vec<PatchOperation> {
        let mut operations = vec![];
        for (slot, usage) in &instance.spec.device_usage {
            // A value that nobody of ours writes is left to who wrote it.
            let Ok(Some(owner)) = SlotOwner::from_usage(usage) else {
                continue;
            };
            if self.is_gone(owner.node()) {
                change.gone.insert(owner.node().to_owned());
            } else if !self.is_given_up(instance, owner.node()) {
                continue;
            }
            operations.push(remove(&["spec", "deviceUsage", slot]));
            operations.extend(untold(instance, slot));
        }
        operations
    }

    /// Whether the slots of a node that is there are free.
    fn is_given_up(&self, instance: &Instance, node: &str) -> bool {
        let away = self.memory.away.get(node);
        !instance.spec.nodes.iter().any(|name| name == node)
            && away.is_some_and(|away| away.release_in(self.now).is_zero())
    }

    fn status(&self, instance: &Instance, kept: &[&String], change: &mut Change) -> Option<Patch> {
        let nodes = instance.status.iter().flat_map(|status| &status.nodes);
        let mut operations = vec![];
        // From the end: what is removed moves what comes after it.
        for (n, entry) in nodes.enumerate().collect::<Vec<_>>().into_iter().rev() {
            let is_gone = self.is_gone(&entry.name);
            if is_gone {
                change.gone.insert(entry.name.clone());
            } else if !self.memory.away.contains_key(&entry.name) || kept.contains(&&entry.name) {
                continue;
            }
            operations.extend(without_entry(n, &entry.name));
        }
        (!operations.is_empty()).then_some(Patch(operations))
    }

    /// When an Instance without nodes is to be deleted: nobody else is left to do it. Not while a container on any node
    /// holds one of its slots.
    fn deleted_in(&self, key: &ObjectKey, instance: &Instance) -> Option<Duration> {
        let is_deleting = instance.metadata.deletion_timestamp.is_some();
        if is_deleting || !instance.spec.nodes.is_empty() || is_held(instance) {
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

fn is_held(instance: &Instance) -> bool {
    !holders(&instance.spec.device_usage).is_empty()
}

/// Since when no node sees the device: kept on the API server, so that a new controller goes on counting.
fn unavailable_since(status: &InstanceStatus) -> Option<Timestamp> {
    let mut conditions = status.conditions.iter();
    let condition = conditions.find(|c| c.type_ == "Available" && c.status == "False")?;
    condition.last_transition_time.parse().ok()
}

/// Removes what was remembered with a slot that is in use no more.
fn untold(instance: &Instance, slot: &str) -> Option<PatchOperation> {
    let index = slot.parse::<SlotId>().ok()?.index;
    let annotation = names::told(index);
    let annotations = instance.metadata.annotations.as_ref()?;
    let is_told = annotations.contains_key(&annotation);
    is_told.then(|| remove(&["metadata", "annotations", &annotation]))
}

fn delete(key: &ObjectKey, metadata: &ObjectMeta) -> Action {
    Action::Delete {
        key: key.clone(),
        uid: metadata.uid.clone().unwrap_or_default(),
        resource_version: metadata.resource_version.clone().unwrap_or_default(),
    }
}

fn strip(key: &ObjectKey, configuration: &Configuration) -> Option<Action> {
    let operations = without_akris(&configuration.metadata);
    let patch = guarded(&configuration.metadata, operations)?;
    Some(Action::Strip {
        key: key.clone(),
        patch,
    })
}

#[cfg(test)]
mod tests;
