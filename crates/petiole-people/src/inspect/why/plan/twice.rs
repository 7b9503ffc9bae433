//! Says which slots are used by Pods of two nodes. Pure.
use super::super::finding::{Cause, Finding};
use crate::inspect::{
    snapshot::Snapshot,
    twice::{Twice, held_twice},
};
use petiole_model::{
    api::instance::Instance,
    model::{instance_name::InstanceKey, names::ObjectKey},
};

/// Returns a finding for each slot of these Instances that is used twice.
pub(super) fn of_instances(
    snapshot: &Snapshot,
    instances: &[(&InstanceKey, &Instance)],
) -> Vec<Finding> {
    let twice = held_twice(snapshot).into_iter();
    let its = twice.filter(|its| instances.iter().any(|(key, _)| *key == its.key));
    its.map(|its| finding(&its)).collect()
}

/// Returns a finding for a slot that a Pod uses and another one, too.
pub(super) fn of_pod(snapshot: &Snapshot, pod: &ObjectKey) -> Option<Finding> {
    let twice = held_twice(snapshot).into_iter();
    let mut its = twice.filter(|its| its.is_of(pod));
    its.next().map(|its| finding(&its))
}

fn finding(Twice { key, shown, other }: &Twice<'_>) -> Finding {
    let text = format!(
        "Slot {} of Instance {key} is used by two Pods, and only one may: on {}, as the Instance shows, and on {}, which has it still. Delete one of the two.",
        shown.slot,
        shown.holder(),
        other.holder(),
    );
    Finding::new(Cause::SlotsTaken, text).then(other.deletion())
}
