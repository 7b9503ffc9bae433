//! Learns what an agent before this one gave out last, and did not write.
use super::inputs::Inputs;
use crate::model::slot_table::{Resource, SETTLED_AFTER};
use std::time::Duration;
use tokio::time::{Instant, timeout, timeout_at};

/// The time for the kubelet to list its Pods. After that its checkpoint alone counts.
const LIST_TIMEOUT: Duration = Duration::from_secs(1);

/// Takes over the kubelet's records of this moment. The kubelet admits one Pod at a time, so all that it was given before this
/// call of Allocate is in its records now, and was not at the first look if the kubelet was slow.
pub(super) async fn learn(inputs: &Inputs, resource: &Resource, until: Instant) {
    let begun = inputs.clock.uptime();
    if begun >= SETTLED_AFTER || !inputs.store.is_remote() {
        return;
    }
    let arrivals = {
        let table = inputs.table.borrow();
        if !table.has_own(resource) {
            return;
        }
        table.arrivals()
    };
    let all = async {
        match timeout(LIST_TIMEOUT, inputs.records.read()).await {
            Ok(Ok(records)) => records.kept_uses(),
            Ok(Err(_)) | Err(_) => inputs.records.kept_uses().await,
        }
    };
    if let Ok(Some(all)) = timeout_at(until, all).await {
        inputs.table.confirm(all, arrivals, begun);
    }
}
