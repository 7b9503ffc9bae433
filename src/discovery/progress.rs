//! What one run of a discovery has shown so far. Pure.
use crate::model::device::{DeviceId, DeviceSet};
use std::{collections::BTreeSet, sync::Arc};

/// The ids of devices that were seen while a look was not whole may take this part of the bytes of a Configuration's devices: names
/// may come and go without end.
const SEEN_PART: usize = 4;
/// The bytes that an id is counted with, beside its text.
const ID_BYTES: usize = 64;

/// The results of one run of a discovery.
#[derive(Default)]
pub(super) struct Progress {
    pub(super) has_answered: bool,
    pub(super) has_completed: bool,
    /// The same as `DiscoveryState::seen`.
    pub(super) seen: Arc<BTreeSet<DeviceId>>,
    seen_bytes: usize,
}

impl Progress {
    /// Remembers the devices of a set, and of the one before, while a missing one may be there.
    /// The ids take a part of `most`, the bytes of the Configuration.
    pub(super) fn see(&mut self, before: &DeviceSet, now: &DeviceSet, most: usize) {
        if now.is_whole() {
            self.seen = Arc::default();
            self.seen_bytes = 0;
            return;
        }
        let ids = before.devices.keys().chain(now.devices.keys());
        let new: Vec<_> = ids.filter(|id| !self.seen.contains(*id)).collect();
        for id in new {
            let bytes = self.seen_bytes + ID_BYTES + id.as_str().len();
            if bytes <= most / SEEN_PART && Arc::make_mut(&mut self.seen).insert(id.clone()) {
                self.seen_bytes = bytes;
            }
        }
    }
}
