//! Bounds the services that one discovery admits, because anyone on a LAN can announce many services, each as large as
//! a packet. Pure.
//!
//! A service that was admitted stays, whatever comes after it.
use super::service::with_record_of;
use crate::model::device::Device;
use std::{collections::BTreeSet, sync::Arc};

/// The most services of a Configuration. Beyond it: services that come later are left out (`DiscoveryIncomplete`).
pub(super) const SERVICES_MAX: usize = 4096;
/// The most bytes of all devices of a Configuration, with their ids and variables. Beyond it: services that come
/// later are left out (`DiscoveryIncomplete`).
const BYTES_MAX: usize = 4 << 20;
/// The most left-out services that are remembered by name. Beyond it: only their existence is recorded.
const LEFT_OUT_MAX: usize = 4096;

/// The bytes of the admitted services, and the services that are left out.
#[derive(Default)]
pub(super) struct ServiceBudget {
    bytes: usize,
    /// The full names of services that are left out.
    left_out: BTreeSet<String>,
    more_are_left_out: bool,
    /// The querier has left out services that this discovery may want.
    others_are_left_out: bool,
}

/// The earlier states of a service.
pub(super) struct Known<'a> {
    /// The device of its last announcement; `None` if it is about to be removed.
    pub(super) device: Option<&'a Device>,
    /// The device that is published.
    pub(super) published: Option<&'a Device>,
}

impl ServiceBudget {
    /// Replaces the device of an admitted service. A device that has grown too large keeps its earlier TXT record.
    pub(super) fn replace(
        &mut self,
        known: &Known<'_>,
        device: Option<Device>,
    ) -> Option<Arc<Device>> {
        let others = self.bytes - known.device.map_or(0, bytes_of);
        let device = device.map(|device| match others + bytes_of(&device) <= BYTES_MAX {
            true => device,
            false => with_record_of(device, known.device.or(known.published)),
        });
        self.bytes = others + device.as_ref().map_or(0, bytes_of);
        device.map(Arc::new)
    }

    /// Admits a new service beside `count` others. Returns `None` if the limits are reached.
    pub(super) fn admit(&mut self, count: usize, device: Device) -> Option<Arc<Device>> {
        let bytes = self.bytes + bytes_of(&device);
        if count >= SERVICES_MAX || bytes > BYTES_MAX {
            self.leave_out(device.id.as_str());
            return None;
        }
        self.bytes = bytes;
        Some(Arc::new(device))
    }

    /// Frees the bytes of a device.
    pub(super) fn release(&mut self, device: Option<&Device>) {
        self.bytes -= device.map_or(0, bytes_of);
    }

    fn leave_out(&mut self, fullname: &str) {
        if self.left_out.len() < LEFT_OUT_MAX || self.left_out.contains(fullname) {
            self.left_out.insert(fullname.to_owned());
        } else {
            self.more_are_left_out = true;
        }
    }

    /// Records that a service, which may have been left out, is gone or is no longer wanted.
    pub(super) fn forget(&mut self, fullname: &str) {
        self.left_out.remove(fullname);
    }

    pub(super) fn others_are_left_out(&mut self, are: bool) {
        self.others_are_left_out = are;
    }

    pub(super) fn leaves_out(&self) -> bool {
        self.others_are_left_out || self.more_are_left_out || !self.left_out.is_empty()
    }

    /// Returns a message if services are left out.
    pub(super) fn problem(&self) -> Option<String> {
        self.leaves_out().then(|| {
            format!(
                "services are left out: {SERVICES_MAX} services with {} MiB of names and TXT records are the most; narrow the filters",
                BYTES_MAX >> 20
            )
        })
    }
}

fn bytes_of(device: &Device) -> usize {
    let properties = device.properties.iter();
    device.id.as_str().len() + properties.map(|(k, v)| k.len() + v.len()).sum::<usize>()
}
