//! Computes an Instance after an exchange of its slots. Pure.
use super::interface::{StoreError, instance_key};
use crate::{
    api::{instance::Instance, names},
    model::{instance_name::InstanceKey, slot::SlotOwner, slot_table::SlotChange},
};
use std::collections::BTreeMap;

/// Returns an Instance of an earlier run in a folder, whose only node is `node`. If it has another name, the node was
/// renamed.
#[cfg(any(test, feature = "people"))]
pub(crate) fn adopted(instance: &Instance, node: &str) -> Instance {
    let mut instance = instance.clone();
    let is_others = |usage: &str| {
        let owner = SlotOwner::from_usage(usage);
        !owner.is_ok_and(|owner| owner.is_some_and(|owner| owner.node() == node))
    };
    // An Instance without nodes is kept only for its slots.
    if !instance.spec.nodes.is_empty() {
        instance.spec.nodes = vec![node.into()];
    }
    instance
        .spec
        .device_usage
        .retain(|_, usage| !is_others(usage));
    if let Some(status) = &mut instance.status {
        status.nodes.retain(|entry| entry.name == node);
    }
    instance
}

/// Returns the changes of each Instance.
pub(crate) fn by_instance(changes: &[SlotChange]) -> BTreeMap<&InstanceKey, Vec<&SlotChange>> {
    let mut by_instance: BTreeMap<&InstanceKey, Vec<&SlotChange>> = BTreeMap::new();
    for change in changes {
        by_instance.entry(&change.key).or_default().push(change);
    }
    by_instance
}

/// Returns `instance` with new owners for its slots: all of `changes`, or the first one whose expected owner is not
/// found.
pub(crate) fn exchanged(
    instance: &Instance,
    changes: &[&SlotChange],
) -> Result<Instance, StoreError> {
    let mut instance = instance.clone();
    for change in changes {
        let id = change.slot.to_string();
        let usage = instance
            .spec
            .device_usage
            .get(&id)
            .cloned()
            .unwrap_or_default();
        let current = SlotOwner::from_any_usage(&usage);
        if current != change.from && current != change.to {
            return Err(StoreError::SlotTaken {
                instance: instance_key(&instance.metadata),
                slot: id,
                owner: usage,
            });
        }
        write(&mut instance, change);
    }
    Ok(instance)
}

fn write(instance: &mut Instance, change: &SlotChange) {
    let id = change.slot.to_string();
    let annotation = names::connection_annotation(change.slot.index);
    let annotations = instance.metadata.annotations.get_or_insert_default();
    let connection_digest = change.connection_digest.clone();
    match connection_digest.filter(|_| change.to.is_some()) {
        Some(connection_digest) => annotations.insert(annotation, connection_digest),
        None => annotations.remove(&annotation),
    };
    match &change.to {
        Some(owner) => instance.spec.device_usage.insert(id, owner.to_string()),
        None => instance.spec.device_usage.remove(&id),
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::fixtures::exchange_of;

    fn camera() -> Instance {
        let mut instance = Instance::new("cam-1", Default::default());
        instance.metadata.namespace = Some("default".to_owned());
        instance.spec.nodes = vec!["a".into()];
        instance
    }

    #[test]
    fn a_slot_goes_only_from_the_owner_that_was_expected() {
        let claimed = exchanged(&camera(), &[&exchange_of(None, Some("a"))]).unwrap();
        assert_eq!(claimed.spec.device_usage["cam-1-0"], "a");
        assert_eq!(
            claimed.metadata.annotations.as_ref().unwrap()["told.akri.sh/0"],
            "digest"
        );

        let refused = exchanged(&claimed, &[&exchange_of(None, Some("b"))]).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "slot cam-1-0 of Instance default/cam-1 was just taken by a"
        );

        let released = exchanged(&claimed, &[&exchange_of(Some("a"), None)]).unwrap();
        assert!(released.spec.device_usage.is_empty());
        assert!(released.metadata.annotations.unwrap().is_empty());
    }

    #[test]
    fn an_instance_of_an_earlier_run_has_this_node_alone_unless_it_is_kept_for_its_slots() {
        let mut left = camera();
        let usage = &mut left.spec.device_usage;
        usage.insert("cam-1-0".to_owned(), "a".to_owned());
        usage.insert("cam-1-1".to_owned(), "b".to_owned());
        let renamed = adopted(&left, "b");
        assert_eq!(renamed.spec.nodes, ["b"]);
        assert_eq!(renamed.spec.device_usage.len(), 1);
        left.spec.nodes.clear();
        assert_eq!(adopted(&left, "a").spec.nodes, [""; 0]);
    }
}
