//! How much one discovery takes in: anyone on a LAN can announce services, and as large as a packet. Pure.
//!
//! A service that was taken in stays, whatever comes after it.
use super::service::with_record_of;
use crate::model::device::Device;
use std::{collections::BTreeSet, sync::Arc};

/// The most services.
pub(super) const SERVICES_MAX: usize = 4096;
/// The bytes of all devices, with their ids and variables.
const BYTES_MAX: usize = 4 << 20;
/// The services that are left out and remembered by name. Of more than these it is only known that there are some.
const LEFT_OUT_MAX: usize = 4096;

/// What is taken, and who is left out.
#[derive(Default)]
pub(super) struct Room {
    bytes: usize,
    /// By full name.
    left_out: BTreeSet<String>,
    more_are_left_out: bool,
    /// The querier has no room for services that this discovery may want.
    others_are_left_out: bool,
}

/// A service as it is known already.
pub(super) struct Known<'a> {
    /// What its last announcement made; none: it is about to go.
    pub(super) device: Option<&'a Device>,
    /// What is published.
    pub(super) published: Option<&'a Device>,
}

impl Room {
    /// The device as it is taken in. One that is known and has grown too large keeps the TXT record that it had.
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

    /// A service that was not known, beside `count` others; none where there is no room for it.
    pub(super) fn admit(&mut self, count: usize, device: Device) -> Option<Arc<Device>> {
        let bytes = self.bytes + bytes_of(&device);
        if count >= SERVICES_MAX || bytes > BYTES_MAX {
            self.leave_out(device.id.as_str());
            return None;
        }
        self.bytes = bytes;
        Some(Arc::new(device))
    }

    /// What a device took is free again.
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

    /// A service is gone, or is not wanted any more; it may be one that was left out.
    pub(super) fn forget(&mut self, fullname: &str) {
        self.left_out.remove(fullname);
    }

    pub(super) fn others_are_left_out(&mut self, are: bool) {
        self.others_are_left_out = are;
    }

    pub(super) fn leaves_out(&self) -> bool {
        self.others_are_left_out || self.more_are_left_out || !self.left_out.is_empty()
    }

    /// What is said of it.
    pub(super) fn problem(&self) -> Option<String> {
        self.leaves_out().then(|| {
            format!(
                "services are left out: {SERVICES_MAX} are taken in at most, with {} MiB of names and TXT records together; narrow the filters",
                BYTES_MAX >> 20
            )
        })
    }
}

fn bytes_of(device: &Device) -> usize {
    let properties = device.properties.iter();
    device.id.as_str().len() + properties.map(|(k, v)| k.len() + v.len()).sum::<usize>()
}
