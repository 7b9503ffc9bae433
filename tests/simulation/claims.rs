//! Says which slots are those of claims whose Pods do not run, and which Pods share a claim.
use super::{World, invariants::Place, objects::Pod};
use crate::model::slot::SlotOwner;
use std::sync::Arc;

/// Returns whether a slot is that of a claim of a Pod that cannot start just now: its device is gone since its node had no power.
pub(super) fn is_claimed(world: &World, usage: &str) -> bool {
    let Ok(Some(SlotOwner::Claim { uid, node })) = SlotOwner::from_usage(usage) else {
        return false;
    };
    let pods = &world.server.borrow().pods.objects;
    let is_its = |pod: &Arc<Pod>| {
        let claim = pod.claim.as_ref();
        claim.is_some_and(|claim| claim.uid == *uid) && pod.node == *node
    };
    let disk = world.node(&node).disk.lock().unwrap();
    disk.book.contains(&uid) && pods.values().any(is_its)
}

/// Returns whether two containers are of Pods with one claim.
pub(super) fn share_a_claim(world: &World, one: &Place, other: &Place) -> bool {
    let claim = |(node, pod, _): &Place| {
        let disk = world.node(node).disk.lock().unwrap();
        disk.claim_of(*pod).map(str::to_owned)
    };
    let of_one = claim(one);
    of_one.is_some() && of_one == claim(other)
}
