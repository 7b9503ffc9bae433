//! Records the connection digest that each container was given for its device.
//!
//! A container gets the address of its device at its start, and the kubelet repeats the same answer at each restart of the
//! container. A digest of the answer shows later whether it is still valid. The digest of a slot is in an annotation of its
//! Instance. Agents remember the digests as well, because an Instance that was deleted and created again has none. The
//! annotation of a broker ([`names::BROKER_CONNECTION`]) has the same digest.
use crate::{
    api::names,
    model::{instance_name::InstanceKey, slot::SlotId, slot_table::SlotTable},
    store::Instances,
};
use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// The most ids of a device's connection that are remembered. Beyond it: the record is cleared.
const MAX_IDS: usize = 10_000;

/// The text says of a device that it is not reached as its container was told.
pub(super) const MOVED: &str = "is reached differently now (its address, port, mounts, device nodes or CDI names changed, or containerDevices of its Configuration) than when this container started: delete the Pod, its successor gets the new values";

/// A digest of how a device is reached.
pub(crate) type ConnectionDigest = String;

/// The digests that this agent has given, by the id of the slot in the kubelet's words.
#[derive(Debug, Default)]
pub(super) struct Connections {
    /// The lock is never held over an await.
    given: Mutex<BTreeMap<String, ConnectionDigest>>,
}

impl Connections {
    pub(super) fn remember(&self, given: Vec<(String, ConnectionDigest)>) {
        let mut all = self.lock();
        if all.len() > MAX_IDS {
            all.clear();
        }
        all.extend(given);
    }

    /// Returns whether a container that has this id was given another digest.
    pub(super) fn has_changed(&self, id: &str, now: &str) -> bool {
        self.lock().get(id).is_some_and(|given| given != now)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, ConnectionDigest>> {
        // A panic of another holder leaves a valid map.
        self.given.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the digest that the container with this slot was given: by the table where it remembers the slot, and else by the
/// Instance.
pub(crate) fn given(
    table: &SlotTable,
    instances: &Instances,
    key: &InstanceKey,
    slot: &SlotId,
) -> Option<ConnectionDigest> {
    if table.is_own(slot) {
        return table.told(slot).cloned();
    }
    let annotations = instances.get(key)?.metadata.annotations.as_ref()?;
    annotations
        .get(&names::connection_annotation(slot.index))
        .cloned()
}
