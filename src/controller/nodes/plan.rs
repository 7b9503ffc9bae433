//! What is changed of Instances that have lost nodes, and which Instances go. Pure.
//!
//! Which nodes are lost, and when their slots are free, is in `lost.rs`. A node that is ready leaves no Instance and
//! loses no slot here: its agent does that.
use super::{
    away::Now,
    finalizers::without_akris,
    lost::{Memory, Outlook},
    notices::{self, Notice},
    patch::{guarded, without_entry},
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
        patch::{add, remove, replace},
        slot::{SlotId, SlotOwner},
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
}

/// What there is to do for Instances and Configurations, after `memory` has noticed the same world.
pub(crate) fn plan(world: &World, memory: &Memory, now: Now) -> Plan {
    let view = View {
        world,
        memory,
        now: now.clock,
        instant: now.instant,
        labels: world
            .nodes
            .keys()
            .map(|name| names::node_label(name))
            .collect(),
    };
    let mut plan = Plan {
        wake_in: memory.wake_in(now.instant),
        ..Plan::default()
    };
    let is_outage = memory.outage.is_some();
    for (key, instance) in &world.instances {
        view.report(key, instance, &mut plan);
        if let Some(change) = view.change(key, instance) {
            plan.actions.push(Action::Change(Box::new(change)));
        } else if let Some(left) = view.deleted_in(key, instance).filter(|_| !is_outage) {
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
    /// By a clock that does not step.
    instant: Instant,
    /// Those of the nodes that are there.
    labels: BTreeSet<String>,
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
        };
        let mut operations = without_akris(&instance.metadata);
        if instance.metadata.deletion_timestamp.is_none() {
            let kept = self.kept(key, instance, &mut change);
            if kept.len() < instance.spec.nodes.len() {
                operations.push(replace(&["spec", "nodes"], json!(kept)));
            }
            operations.extend(self.relabelled(instance, &kept, &mut change));
            operations.extend(self.released(key, instance, &mut change));
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
            if self.is_gone(node) {
                change.gone.insert(node.clone());
            } else if self.memory.leaves(node, key, self.instant) {
                change.away.push(node.clone());
            } else {
                kept.push(node);
            }
        }
        kept
    }

    /// Each node that sees the device or holds a slot has its label: that is what its agent's watch selects. The label of
    /// a node that is there goes when its agent leaves: a container that runs on is found by it when the node is back.
    /// Akri's Instances have none.
    fn relabelled(
        &self,
        instance: &Instance,
        kept: &[&String],
        change: &mut Change,
    ) -> Vec<PatchOperation> {
        let labels = instance.metadata.labels.as_ref();
        let mut operations = vec![];
        for key in labels.into_iter().flat_map(BTreeMap::keys) {
            let node = key.strip_prefix(names::NODE_LABEL_PREFIX);
            if let Some(node) = node.filter(|_| !self.labels.contains(key)) {
                operations.push(remove(&["metadata", "labels", key]));
                change.gone.insert(self.whole_name(instance, node));
            }
        }
        let holders = holders(instance).map(|(_, node)| node);
        let holders = holders.filter(|node| !self.is_gone(node));
        let added: BTreeSet<String> = (kept.iter().map(|node| (*node).clone()))
            .chain(holders)
            .map(|node| names::node_label(&node))
            .filter(|key| !labels.is_some_and(|labels| labels.contains_key(key)))
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
            operations.push(remove(&["spec", "deviceUsage", slot]));
            operations.extend(untold(instance, slot));
            change.freed.push((slot.to_owned(), node));
        }
        operations
    }

    /// What becomes of the slots of a node in an Instance: `None` where it is not lost, or its agent joined again.
    fn outlook(&self, key: &ObjectKey, instance: &Instance, node: &str) -> Option<Outlook> {
        let is_named = instance.spec.nodes.iter().any(|name| name == node);
        let stays = !self.is_gone(node) && !self.memory.leaves(node, key, self.instant);
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
    /// that its node was taken out.
    fn status(&self, instance: &Instance, kept: &[&String], change: &mut Change) -> Option<Patch> {
        let nodes = instance.status.iter().flat_map(|status| &status.nodes);
        let mut operations = vec![];
        // From the end: what is removed moves what comes after it.
        for (n, entry) in nodes.enumerate().collect::<Vec<_>>().into_iter().rev() {
            let is_gone = self.is_gone(&entry.name);
            if is_gone {
                change.gone.insert(entry.name.clone());
            } else if kept.contains(&&entry.name) {
                continue;
            }
            operations.extend(without_entry(n, &entry.name));
        }
        (!operations.is_empty()).then_some(Patch(operations))
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
