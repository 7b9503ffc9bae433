//! Builds the JSON patches that change Instances on the API server. Pure.
//!
//! Each patch has a `test` for every value that the change depends on. A change is one request, leaves no record of
//! field owners that would outlive a node, and does not fail because of a concurrent change by another node.
use crate::{
    api::{
        instance::{Instance, InstanceStatus},
        names,
    },
    model::{
        patch::{add, remove, test},
        slot::{SlotId, SlotOwner},
        slot_table::SlotChange,
    },
    store::{
        Exchange, Health, instance_key,
        plan::{forced, with_conditions, with_exception},
    },
};
use json_patch::{Patch, PatchOperation};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Returns an Instance as it is created: without its status.
pub(crate) fn to_create(instance: &Instance, node: &str) -> Instance {
    let mut instance = instance.clone();
    instance.status = None;
    let labels = instance.metadata.labels.get_or_insert_default();
    labels.insert(names::node_label(node), String::new());
    instance
}

/// The relation of an existing Instance to one of the same name that should be created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NameConflict {
    /// The Instance is of the same device.
    Same,
    /// The Instance is of another device.
    Other,
    /// The Instance is being deleted.
    Leaving,
}

pub(crate) fn name_conflict(there: &Instance, ours: &Instance) -> NameConflict {
    let id = |instance: &Instance| {
        let annotations = instance.metadata.annotations.as_ref();
        annotations
            .and_then(|all| all.get(names::DEVICE_ID))
            .cloned()
    };
    if there.metadata.deletion_timestamp.is_some() {
        return NameConflict::Leaving;
    }
    // An Instance that Akri made has no annotation of its device, but its name is derived from the device's id as ours
    // is.
    let is_same = id(there).is_none_or(|there| Some(there) == id(ours))
        && there.spec.configuration_name == ours.spec.configuration_name;
    if is_same {
        NameConflict::Same
    } else {
        NameConflict::Other
    }
}

/// Adds this node.
pub(crate) fn join(instance: &Instance, node: &str) -> Patch {
    let mut patch = guarded(instance);
    patch.extend(with_label(instance, node));
    if !instance.spec.names_node(node) {
        patch.push(add(&["spec", "nodes", "-"], json!(node)));
    }
    Patch(patch)
}

/// Removes this node. While it holds a slot its label stays, so that its agent can release the slot.
pub(crate) fn leave(instance: &Instance, node: &str) -> Patch {
    let mut patch = guarded(instance);
    if let Some(n) = instance.spec.nodes.iter().position(|n| n == node) {
        let at = n.to_string();
        patch.push(test(&["spec", "nodes", &at], json!(node)));
        patch.push(remove(&["spec", "nodes", &at]));
    }
    if !holds_slot(instance, node) {
        patch.extend(without_label(instance, node));
    }
    Patch(patch)
}

/// Returns whether the Instance no longer concerns this node: other nodes see the device, and this node's watch does
/// not have it.
pub(crate) fn has_left(instance: &Instance, node: &str) -> bool {
    let nodes = &instance.spec.nodes;
    let labels = instance.metadata.labels.as_ref();
    let is_watched = labels.is_some_and(|labels| labels.contains_key(&names::node_label(node)));
    !nodes.is_empty() && !nodes.iter().any(|n| n == node) && !is_watched
}

fn holds_slot(instance: &Instance, node: &str) -> bool {
    let mut owners = instance
        .spec
        .device_usage
        .values()
        .map(|usage| SlotOwner::from_usage(usage));
    owners.any(|owner| owner.is_ok_and(|owner| owner.is_some_and(|owner| owner.node() == node)))
}

/// The values from the Configuration and the device.
pub(crate) struct Description<'a> {
    pub(crate) capacity: i32,
    pub(crate) broker_properties: &'a BTreeMap<String, String>,
    pub(crate) device_id: Option<&'a String>,
    pub(crate) pin: Option<&'a String>,
    pub(crate) connection: Option<&'a String>,
}

pub(crate) fn describe(instance: &Instance, said: &Description<'_>) -> Patch {
    let mut patch = guarded(instance);
    patch.push(add(&["spec", "capacity"], json!(said.capacity)));
    patch.push(add(
        &["spec", "brokerProperties"],
        json!(said.broker_properties),
    ));
    let notes = [
        (names::DEVICE_ID, said.device_id),
        (names::PIN, said.pin),
        (names::CONNECTION, said.connection),
    ];
    if notes.iter().any(|(_, note)| note.is_some()) {
        let annotations = instance.metadata.annotations.as_ref();
        patch.extend(with_map(annotations, "annotations"));
    }
    for (name, note) in notes {
        patch.extend(note.map(|note| add(&["metadata", "annotations", name], json!(note))));
    }
    Patch(patch)
}

/// Changes the owners of slots. Each slot must still have the owner that it had when the Instance was read.
pub(crate) fn exchange(instance: &Instance, node: &str, exchanges: &[&Exchange]) -> Patch {
    let mut patch = guarded(instance);
    let annotations = instance.metadata.annotations.as_ref();
    let annotation = |exchange: &Exchange| names::connection_annotation(exchange.change.slot.index);
    if exchanges
        .iter()
        .any(|e| e.connection_digest.is_some() && e.change.to.is_some())
    {
        patch.extend(with_map(annotations, "annotations"));
    }
    for exchange in exchanges {
        let slot = exchange.change.slot.to_string();
        let at = ["spec", "deviceUsage", slot.as_str()];
        let usage = instance.spec.device_usage.get(&slot);
        // `null` matches an absent key if the map exists, which the schema's default ensures.
        patch.push(test(&at, json!(usage)));
        match &exchange.change.to {
            Some(owner) => patch.push(add(&at, json!(owner.to_string()))),
            None if usage.is_some() => patch.push(remove(&at)),
            None => {}
        }
        let key = annotation(exchange);
        let at = ["metadata", "annotations", key.as_str()];
        match exchange
            .connection_digest
            .as_ref()
            .filter(|_| exchange.change.to.is_some())
        {
            Some(connection_digest) => patch.push(add(&at, json!(connection_digest))),
            None if annotations.is_some_and(|all| all.contains_key(&key)) => {
                patch.push(remove(&at))
            }
            None => {}
        }
    }
    // The controller writes the labels of a shared Instance.
    let has_left = !instance.spec.names_node(node);
    if has_left
        && !instance.spec.shared
        && !holds_slot(&forced(instance, exchanges.iter().copied()), node)
    {
        patch.extend(without_label(instance, node));
    }
    Patch(patch)
}

/// Replaces the nodes and conditions in an Instance's status; returns `None` if they are the same. The controller
/// writes `brokerGeneration` and the condition `BrokersReady`, also after the Instance was read: conditions are replaced
/// only if they are still those that were read.
pub(crate) fn status(instance: &Instance, after: &InstanceStatus) -> Option<Patch> {
    let mut patch = guarded(instance);
    match &instance.status {
        Some(before) if before.nodes == after.nodes && before.conditions == after.conditions => {
            return None;
        }
        Some(before) => {
            if before.nodes != after.nodes {
                patch.push(add(&["status", "nodes"], json!(after.nodes)));
            }
            if before.conditions != after.conditions {
                let at = ["status", "conditions"];
                patch.push(test(&at, json!(before.conditions)));
                patch.push(add(&at, json!(after.conditions)));
            }
        }
        None if *after == InstanceStatus::default() => return None,
        None => {
            patch.push(test(&["status"], Value::Null));
            patch.push(add(&["status"], json!(after)));
        }
    }
    Some(Patch(patch))
}

/// Returns the write of the status of a device of this node alone, as the node sees it; `None` if it is unchanged.
pub(crate) fn health(instance: &Instance, node: &str, health: &Health, now: &str) -> Option<Patch> {
    let before = instance.status.clone().unwrap_or_default();
    let seen = with_exception(&before, node, health, now);
    status(instance, &with_conditions(seen, &instance.spec, now))
}

/// Writes the status of a device of this node alone that it no longer offers, before the node leaves the Instance.
pub(crate) fn unseen(instance: &Instance, node: &str) -> Option<Patch> {
    let mut after = instance.status.clone().unwrap_or_default();
    let since = after.nodes.iter().find(|entry| entry.name == node);
    let since = since.map(|entry| entry.last_transition_time.clone());
    after.nodes.retain(|entry| entry.name != node);
    let mut spec = instance.spec.clone();
    spec.nodes.retain(|name| name != node);
    let after = with_conditions(after, &spec, &since.unwrap_or_default());
    status(instance, &after)
}

/// Returns the slots of a device of this node alone that an earlier run claimed and could not write. A slot that it has
/// released since is released again when no container holds it.
pub(crate) fn unwritten(earlier: &Instance, now: &Instance, node: &str) -> Vec<Exchange> {
    let is_own = !now.spec.shared && now.spec.nodes == [node];
    if !is_own || now.metadata.uid != earlier.metadata.uid {
        return vec![];
    }
    let exchange = |(slot, usage): (&String, &String)| {
        let owner = SlotOwner::from_usage(usage).ok()??;
        let is_free = (now.spec.device_usage.get(slot)).is_none_or(String::is_empty);
        if owner.node() != node || !is_free {
            return None;
        }
        let slot: SlotId = slot.parse().ok()?;
        let annotations = earlier.metadata.annotations.as_ref();
        let connection_digest =
            annotations.and_then(|a| a.get(&names::connection_annotation(slot.index)));
        Some(Exchange {
            connection_digest: connection_digest.cloned(),
            change: SlotChange {
                key: instance_key(&now.metadata),
                slot,
                from: None,
                to: Some(owner),
            },
        })
    };
    earlier
        .spec
        .device_usage
        .iter()
        .filter_map(exchange)
        .collect()
}

/// Returns the preconditions of a delete: the uid and the version of the Instance that was read. A claim of a slot
/// meanwhile changes the version.
pub(crate) fn deleted_as(instance: &Instance) -> (Option<String>, Option<String>) {
    let metadata = &instance.metadata;
    (metadata.uid.clone(), metadata.resource_version.clone())
}

/// Returns the beginning of every patch, which restricts it to this object: a later object of the same name fails the
/// test.
pub(crate) fn guarded(instance: &Instance) -> Vec<PatchOperation> {
    vec![test(&["metadata", "uid"], json!(instance.metadata.uid))]
}

fn with_label(instance: &Instance, node: &str) -> Vec<PatchOperation> {
    let mut patch = with_map(instance.metadata.labels.as_ref(), "labels");
    patch.push(add(
        &["metadata", "labels", &names::node_label(node)],
        json!(""),
    ));
    patch
}

fn without_label(instance: &Instance, node: &str) -> Option<PatchOperation> {
    let (label, labels) = (names::node_label(node), instance.metadata.labels.as_ref());
    let is_there = labels.is_some_and(|labels| labels.contains_key(&label));
    is_there.then(|| remove(&["metadata", "labels", &label]))
}

/// Returns the operations that create a map of the metadata if it is missing.
pub(crate) fn with_map(map: Option<&BTreeMap<String, String>>, name: &str) -> Vec<PatchOperation> {
    match map {
        Some(_) => vec![],
        None => vec![
            test(&["metadata", name], Value::Null),
            add(&["metadata", name], Value::Object(Map::new())),
        ],
    }
}

#[cfg(test)]
mod tests;
