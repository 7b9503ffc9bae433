//! Says which slots are those of claims whose Pods do not run.
use super::{
    World,
    objects::{Claim, Pod},
};
use crate::model::slot::SlotOwner;
use std::sync::Arc;

/// Returns whether a slot is that of a claim of a Pod that cannot start just now: its device is gone since its node had no power.
pub(super) fn is_claimed(world: &World, usage: &str) -> bool {
    let Ok(Some(SlotOwner::Claim { uid, node })) = SlotOwner::from_usage(usage) else {
        return false;
    };
    let pods = &world.server.borrow().pods.objects;
    let is_its = |pod: &Arc<Pod>| pod.uid == Claim::pod(&uid) && pod.node == *node;
    let disk = world.node(&node).disk.lock().unwrap();
    disk.book.contains(&uid) && pods.values().any(is_its)
}
