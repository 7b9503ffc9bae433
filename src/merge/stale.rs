//! Finds the entries of an Instance that are of no use: keys of `deviceUsage` that are no slots of it, and what is
//! remembered of slots that are free. Agents leave none, but whoever may write Instances can. Pure.
use crate::{
    api::{instance::Instance, names},
    model::{
        patch::{remove, test},
        slot::{INDEX_LIMIT, SlotId},
    },
};
use json_patch::PatchOperation;
use serde_json::json;

/// The most entries that one patch removes. The next patch removes further ones.
const REMOVED_MAX: usize = 500;

/// Returns whether a key of `deviceUsage` is a slot that the Instance may ever have offered.
pub(super) fn is_slot(instance: &Instance, key: &str) -> bool {
    let slot = key.parse::<SlotId>();
    slot.is_ok_and(|slot| {
        instance.metadata.name.as_deref() == Some(slot.instance.as_str())
            && slot.index < INDEX_LIMIT
    })
}

/// Returns the operations that remove such entries, if they are still as they were seen.
pub(super) fn without_stale(instance: &Instance) -> Vec<PatchOperation> {
    let usage = &instance.spec.device_usage;
    let foreign = (usage.iter()).filter(|(key, _)| !is_slot(instance, key));
    let foreign = foreign.map(|(key, value)| {
        let at = ["spec", "deviceUsage", key];
        [test(&at, json!(value)), remove(&at)]
    });
    let name = instance.metadata.name.as_deref().unwrap_or_default();
    let annotations = instance.metadata.annotations.iter().flatten();
    let notes = annotations.filter_map(|(annotation, _)| {
        let index = annotation.strip_prefix(names::SLOT_CONNECTION_PREFIX)?;
        let slot = format!("{name}-{index}");
        let value = usage.get(&slot).filter(|_| is_slot(instance, &slot));
        // `null` matches a slot that has no entry.
        value.is_none_or(String::is_empty).then(|| {
            let is_free = test(&["spec", "deviceUsage", &slot], json!(value));
            [is_free, remove(&["metadata", "annotations", annotation])]
        })
    });
    foreign.chain(notes).take(REMOVED_MAX).flatten().collect()
}

/// Removes what was remembered with a slot that is in use no more.
pub(super) fn without_connection_digest(instance: &Instance, slot: &str) -> Option<PatchOperation> {
    let index = slot.parse::<SlotId>().ok()?.index;
    let annotation = names::connection_annotation(index);
    let annotations = instance.metadata.annotations.as_ref()?;
    let has_digest = annotations.contains_key(&annotation);
    has_digest.then(|| remove(&["metadata", "annotations", &annotation]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;
    use std::collections::BTreeMap;

    /// Returns the paths of what is removed from an Instance `cam-1` with this usage and these annotations.
    fn removed(usage: Value, annotations: Value) -> Vec<String> {
        let object = json!({
            "apiVersion": "akri.sh/v0", "kind": "Instance",
            "metadata": { "name": "cam-1", "annotations": annotations },
            "spec": { "configurationName": "cam", "cdiName": "", "capacity": 2, "deviceUsage": usage },
        });
        let instance = serde_json::from_value(object).unwrap();
        let operations = without_stale(&instance).into_iter();
        let removed = operations.filter_map(|operation| {
            let PatchOperation::Remove(remove) = operation else {
                return None;
            };
            Some(remove.path.to_string())
        });
        removed.collect()
    }

    #[test]
    fn keys_that_are_no_slots_and_notes_of_free_slots_are_removed() {
        let usage = json!({
            "cam-1-0": "a", "cam-1-1": "", "cam-1-9999": "C:cam-0:a", "cam-1-3": "?",
            "g0": "", "cam-1": "a", "cam-1-": "", "cam-1-01": "", "cam-1-10000": "a", "cam-2-0": "b",
        });
        let notes = json!({
            "told.akri.sh/0": "x", "told.akri.sh/9999": "x", "told.akri.sh/3": "x", "akri.sh/device-id": "x",
            "told.akri.sh/1": "x", "told.akri.sh/2": "x", "told.akri.sh/00": "x", "told.akri.sh/x": "x", "told.akri.sh/10000": "x",
        });
        let usages = [
            "cam-1",
            "cam-1-",
            "cam-1-01",
            "cam-1-10000",
            "cam-2-0",
            "g0",
        ];
        let annotations = ["00", "1", "10000", "2", "x"];
        let usages = usages.map(|key| format!("/spec/deviceUsage/{key}"));
        let annotations =
            annotations.map(|index| format!("/metadata/annotations/told.akri.sh~1{index}"));
        let expected: Vec<String> = usages.into_iter().chain(annotations).collect();
        assert_eq!(removed(usage, notes), expected);
    }

    #[test]
    fn one_patch_removes_a_bounded_number_of_entries() {
        let usage: BTreeMap<String, &str> = (0..5000).map(|n| (format!("g{n}"), "")).collect();
        assert_eq!(removed(json!(usage), json!({})).len(), REMOVED_MAX);
    }
}
