//! Holds an admitted service and the time at which its state is published. Pure.
use crate::{discovery::damping::FIRST_CONNECTION_HOLD, model::device::Device};
use std::{net::IpAddr, sync::Arc, time::Duration};

/// A service that was admitted.
pub(super) struct Tracked {
    /// The host to which its bytes are counted.
    pub(super) source: IpAddr,
    /// The device to publish; `None` if the device is to be removed.
    pub(super) device: Option<Arc<Device>>,
    /// The time of the publication, if `device` differs from the published device.
    pub(super) due: Option<Duration>,
    /// The time at which its last change was published.
    pub(super) changed: Option<Duration>,
    /// The device before its connection changed, and the time until which its address is preferred. The move is not
    /// published before that time, and an address that returns among others counts as never gone.
    home: Option<(Arc<Device>, Duration)>,
}

impl Tracked {
    /// Creates a service that is to be published at `due`.
    pub(super) fn new(source: IpAddr, device: Arc<Device>, due: Duration) -> Self {
        Self {
            source,
            device: Some(device),
            due: Some(due),
            changed: None,
            home: None,
        }
    }

    pub(super) fn home(&self, now: Duration) -> Option<&Device> {
        let (device, until) = self.home.as_ref()?;
        (now < *until).then_some(device)
    }

    /// Records the device that was published before.
    pub(super) fn leaves(&mut self, before: Option<Arc<Device>>, now: Duration) {
        let is_home = self.home(now).is_some();
        let digest = |device: &Device| device.connection_digest();
        let moves = (self.device.as_ref().zip(before.as_ref()))
            .is_some_and(|(device, before)| digest(device) != digest(before));
        self.home = match before.filter(|_| moves) {
            Some(_) if is_home => self.home.take(),
            Some(before) => Some((before, now + FIRST_CONNECTION_HOLD)),
            None => None,
        };
    }

    /// Sets the device. A change waits until `due`, or until the due time of an earlier change that still waits.
    pub(super) fn becomes(
        &mut self,
        device: Option<Arc<Device>>,
        published: Option<&Arc<Device>>,
        due: Duration,
    ) {
        self.due = if device.as_ref() == published {
            None
        } else {
            Some(self.due.map_or(due, |earlier| earlier.min(due)))
        };
        self.device = device;
    }
}
