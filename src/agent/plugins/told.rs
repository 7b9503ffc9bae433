//! Keeps a refusal until the scheduler can know of it.
//!
//! A Pod that is refused is created again within milliseconds. As long as this node's status says that the slot is free, the
//! scheduler sends the next one here too.
use super::{inputs::Inputs, plan};
use crate::{
    cluster::{node::OwnNode, watch::named},
    model::{
        node_resources::{EntryChange, Part},
        resource_name::ResourceName,
        slot_table::{Resource, SlotTable},
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
    let mut slots = inputs.table.subscribe();
    let told = async {
        loop {
            let status = named(&own.borrow_and_update(), &inputs.settings.node_name);
            let promises = promises(
                status.as_deref(),
                &name,
                resource,
                &slots.borrow_and_update(),
            );
            let changed = async {
                tokio::select! {
                    changed = own.changed() => changed,
                    changed = slots.changed() => changed,
                }
            };
            if !promises || changed.await.is_err() {
                return;
            }
        }
    };
    let until = until.min(Instant::now() + TOLD_WITHIN);
    timeout_at(until, told).await.ok();
}

/// Returns whether a node's status has more allocatable slots than there are.
fn promises(own: Option<&OwnNode>, name: &ResourceName, of: &Resource, slots: &SlotTable) -> bool {
    let listed = plan::listed(of, slots, &BTreeSet::new());
    let usable = listed.iter().filter(|slot| slot.is_healthy).count();
    let change = own.and_then(|own| own.resources.change(Part::Allocatable, name, usable as u64));
    change.as_ref().is_some_and(EntryChange::sinks)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{
        instance_name::InstanceKey,
        slot_table::{ObservedSlots, Precedence},
    };

    #[test]
    fn a_status_promises_more_until_it_has_sunk_to_what_is_left() {
        let resource = Resource::Instance("cam-1".into());
        let name: ResourceName = "akri.sh/cam-1".parse().unwrap();
        let mut slots = SlotTable::new("node-a");
        let observed = ObservedSlots {
            key: InstanceKey::new("default", "cam-1"),
            precedence: Precedence::default(),
            configuration: "cam".into(),
            capacity: 3,
            is_offered: true,
            is_by_claims: false,
            is_own: false,
            told: [].into(),
            usage: [("cam-1-0".to_owned(), "node-b".to_owned())].into(),
        };
        slots.observe([observed]);
        for (allocatable, expected) in [("3", true), ("2", false), ("1", false)] {
            let mut own = OwnNode::default();
            let entry = (name.clone(), allocatable.to_owned());
            own.resources.allocatable.extend([entry]);
            assert_eq!(promises(Some(&own), &name, &resource, &slots), expected);
        }
        assert!(!promises(None, &name, &resource, &slots));
    }
}
