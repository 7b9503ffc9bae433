//! Keeps a refusal until the scheduler can know of it.
//!
//! A Pod that is refused is created again within milliseconds. As long as this node's status says that the slot is free, the
//! scheduler sends the next one here too.
use super::{inputs::Inputs, plan};
use crate::{
    agent::values::Slot,
    cluster::{node::OwnNode, watch::named},
    model::{
        node_resources::{EntryChange, Part},
        resource_name::ResourceName,
        slot_table::Resource,
    },
};
use std::{collections::BTreeSet, time::Duration};
use tokio::time::{Instant, timeout_at};

/// The longest wait. The status is written 0.1 s after the last time, or at once.
const TOLD_WITHIN: Duration = Duration::from_millis(500);

/// Waits until the status of this node has no more allocatable slots of the resource than there are, and no longer than `until`.
pub(super) async fn told(inputs: &Inputs, resource: &Resource, until: Instant) {
    let name = inputs.validated.borrow().names.of(resource);
    let (Some(mut own), Some(name)) = (inputs.own_node.clone(), name) else {
        return;
    };
    let (mut slots, mut listed) = (inputs.table.subscribe(), inputs.listed.clone());
    let told = async {
        loop {
            let status = named(&own.borrow_and_update(), &inputs.settings.node_name);
            let last = listed.borrow_and_update().get(&name).cloned();
            let there = (inputs.offer(resource).is_none()).then(|| {
                plan::listed(
                    resource,
                    &name,
                    &slots.borrow_and_update(),
                    &BTreeSet::new(),
                )
            });
            let usable = usable(last.as_deref().unwrap_or_default(), there.as_deref());
            let changed = async {
                tokio::select! {
                    changed = own.changed() => changed,
                    changed = slots.changed() => changed,
                    changed = listed.changed() => changed,
                }
            };
            if !promises(status.as_deref(), &name, usable) || changed.await.is_err() {
                return;
            }
        }
    };
    let until = until.min(Instant::now() + TOLD_WITHIN);
    timeout_at(until, told).await.ok();
}

/// Returns the number of slots that can be used: as the list had them last, which leaves out devices that are gone, and as the slot
/// table has them, where the resource has Instances: what another node has claimed is listed a moment later.
fn usable(last: &[Slot], there: Option<&[Slot]>) -> usize {
    let healthy = |slots: &[Slot]| slots.iter().filter(|slot| slot.is_healthy).count();
    healthy(last).min(there.map_or(usize::MAX, healthy))
}

/// Returns whether a node's status has more allocatable slots than can be used.
fn promises(own: Option<&OwnNode>, name: &ResourceName, usable: usize) -> bool {
    let change = own.and_then(|own| own.resources.change(Part::Allocatable, name, usable as u64));
    change.as_ref().is_some_and(EntryChange::sinks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_usable_that_is_listed_and_that_no_other_node_has() {
        let slots = |health: &str| -> Vec<Slot> {
            let slots = health.chars().map(|health| Slot {
                id: "cam-0".to_owned(),
                is_healthy: health == 'h',
            });
            slots.collect()
        };
        for (last, there, expected) in [
            ("hhh", Some("hhh"), 3),
            // Its device is gone, which the table does not know.
            ("hh-", Some("hhh"), 2),
            // Other nodes have claimed two.
            ("hhh", Some("h--"), 1),
            // Without Instances.
            ("h-", None, 1),
            ("", Some("h"), 0),
        ] {
            let there = there.map(slots);
            assert_eq!(usable(&slots(last), there.as_deref()), expected, "{last}");
        }
    }

    #[test]
    fn a_status_promises_more_until_it_has_sunk_to_what_is_left() {
        let name: ResourceName = "akri.sh/cam-1".parse().unwrap();
        for (allocatable, expected) in [("3", true), ("2", false), ("1", false)] {
            let mut own = OwnNode::default();
            let entry = (name.clone(), allocatable.to_owned());
            own.resources.allocatable.extend([entry]);
            assert_eq!(promises(Some(&own), &name, 2), expected);
        }
        assert!(!promises(None, &name, 2));
    }
}
