//! Builds the JSON patches by which an agent exchanges slots of Instances on the API server. Pure.
//!
//! Each patch has a `test` for every value that the change depends on. A change is one request, leaves no record of
//! field owners that would outlive a node, and does not fail because of a concurrent change by another node.
use crate::{
    api::{instance::Instance, names},
    model::{
        patch::{add, remove, test, with_map},
        slot_table::SlotChange,
    },
};
use json_patch::Patch;
use serde_json::json;

/// Returns whether the Instance no longer concerns this node: this node's watch does not have it.
pub(crate) fn has_left(instance: &Instance, node: &str) -> bool {
    let labels = instance.metadata.labels.as_ref();
    let is_watched = labels.is_some_and(|labels| labels.contains_key(&names::node_label(node)));
    !instance.spec.names_node(node) && !is_watched
}

/// Changes the owners of slots. Each slot must still have the owner that it had when the Instance was read.
pub(crate) fn exchange(instance: &Instance, changes: &[&SlotChange]) -> Patch {
    // A later object of the same name fails the test.
    let mut patch = vec![test(&["metadata", "uid"], json!(instance.metadata.uid))];
    let annotations = instance.metadata.annotations.as_ref();
    let has_digest = |c: &&SlotChange| c.connection_digest.is_some() && c.to.is_some();
    if changes.iter().any(has_digest) {
        patch.extend(with_map(annotations, "annotations"));
    }
    for change in changes {
        let slot = change.slot.to_string();
        let at = ["spec", "deviceUsage", slot.as_str()];
        let usage = instance.spec.device_usage.get(&slot);
        // `null` matches an absent key if the map exists, which the schema's default ensures.
        patch.push(test(&at, json!(usage)));
        match &change.to {
            Some(owner) => patch.push(add(&at, json!(owner.to_string()))),
            None if usage.is_some() => patch.push(remove(&at)),
            None => {}
        }
        let key = names::connection_annotation(change.slot.index);
        let at = ["metadata", "annotations", key.as_str()];
        let connection_digest = change.connection_digest.as_ref();
        match connection_digest.filter(|_| change.to.is_some()) {
            Some(connection_digest) => patch.push(add(&at, json!(connection_digest))),
            None if annotations.is_some_and(|all| all.contains_key(&key)) => {
                patch.push(remove(&at))
            }
            None => {}
        }
    }
    Patch(patch)
}

#[cfg(test)]
mod tests;
