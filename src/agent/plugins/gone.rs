//! Finds out which slots of this node no container has any more.
use super::allocate::Allocator;
use crate::{
    agent::kubelet_records::RecordsLook,
    model::{slot::SlotId, slot_table::Held},
};
use std::collections::BTreeSet;

impl Allocator {
    /// The slots of this node that no container holds, by a look at the kubelet's records just now.
    pub(super) async fn gone(&self) -> BTreeSet<SlotId> {
        let begun = self.inputs.clock.uptime();
        let held = self.inputs.table.borrow().held();
        let records = self.inputs.records.look(&held, &mut None).await;
        let Some(records) = records.ok().and_then(RecordsLook::trusted) else {
            return BTreeSet::new();
        };
        let Some(listed) = records.held() else {
            return BTreeSet::new();
        };
        let held = self.inputs.table.borrow().held().into_iter();
        let is_gone = |held: &Held| {
            held.answered <= begun && !listed.contains(&held.id()) && !records.is_prepared(held)
        };
        held.filter(is_gone).map(|held| held.slot).collect()
    }
}
