//! Learns what an agent before this one gave out last, and did not write.
use super::inputs::Inputs;
use crate::model::slot_table::SETTLED_AFTER;

/// Takes over the kubelet's records of this moment. The kubelet admits one Pod at a time, so all that it was given before this
/// call of Allocate is in its records now, and was not at the first look if the kubelet was slow.
pub(super) async fn learn(inputs: &Inputs) {
    let begun = inputs.clock.uptime();
    if begun >= SETTLED_AFTER || !inputs.store.is_remote() {
        return;
    }
    let arrivals = inputs.table.borrow().arrivals();
    let records = inputs.records.read().await.ok();
    if let Some(all) = records.and_then(|records| records.kept_uses()) {
        inputs.table.confirm(all, arrivals, begun);
    }
}
