//! The slot table of this node, shared by the tasks of the agent.
//!
//! Only [`super::run`] claims and releases slots: the methods for that are private to the folder `slots`. The plugins pass
//! on the Instances that have changed, and all tasks read.
use crate::model::slot_table::{SlotChange, SlotTable, Touched, Use};
use std::time::Duration;
use tokio::sync::watch;

/// A handle to the slot table.
#[derive(Debug, Clone)]
pub(in crate::agent) struct SharedTable(watch::Sender<SlotTable>);

impl SharedTable {
    pub(in crate::agent) fn new(node: &str) -> Self {
        Self(watch::Sender::new(SlotTable::new(node)))
    }

    pub(in crate::agent) fn subscribe(&self) -> watch::Receiver<SlotTable> {
        self.0.subscribe()
    }

    pub(in crate::agent) fn borrow(&self) -> watch::Ref<'_, SlotTable> {
        self.0.borrow()
    }

    /// Updates the table from the Instances. `observe` runs under the lock of the table, so that no claim is settled
    /// between its reading of the Instances and the update.
    pub(in crate::agent) fn observe(&self, observe: impl FnOnce(&mut SlotTable)) {
        self.0.send_modify(observe);
    }

    /// Returns what may list other slots than at the last call. This wakes nobody.
    pub(in crate::agent) fn take_touched(&self) -> Touched {
        let mut touched = Touched::default();
        self.0.send_if_modified(|slots| {
            touched = slots.take_touched();
            false
        });
        touched
    }

    /// Marks slots as being written.
    pub(super) fn begin(&self, changes: &[SlotChange]) {
        self.0.send_modify(|slots| slots.begin(changes));
    }

    /// Ends what [`Self::begin`] began. `written` is the uptime at which the write was answered; `None` if it failed.
    pub(super) fn settle(&self, changes: &[SlotChange], written: Option<Duration>) {
        self.0.send_modify(|slots| slots.settle(changes, written));
    }

    /// The same for slots that were not written, because this node alone had their devices when the change began.
    pub(super) fn settle_own(&self, changes: &[SlotChange], written: Option<Duration>) {
        (self.0).send_modify(|slots| slots.settle_own(changes, written));
    }

    /// Takes over a look at the kubelet's records: see [`SlotTable::confirm`].
    pub(in crate::agent) fn confirm(&self, uses: Vec<Use>, arrivals: u64, begun: Duration) {
        (self.0).send_if_modified(|slots| slots.confirm(uses, arrivals, begun));
    }

    /// Believes what the Instances say: see [`SlotTable::trust`].
    pub(super) fn trust(&self, arrivals: u64) -> bool {
        (self.0).send_if_modified(|slots| slots.trust(arrivals))
    }
}
