//! A service that was taken in, and when what is known of it is to be published. Pure.
use crate::{discovery::damping::FIRST_MOVE, model::device::Device};
use std::{sync::Arc, time::Duration};

/// A service that was taken in.
pub(super) struct Tracked {
    /// What is to be published; none: the device is to go.
    pub(super) device: Option<Arc<Device>>,
    /// When, if `device` is not what is published.
    pub(super) due: Option<Duration>,
    /// When its latest change was published.
    pub(super) changed: Option<Duration>,
    /// What it was before it was reached differently, and how long its address is preferred for that: the move is not
    /// believed before, and an address that comes back among others was never gone.
    home: Option<(Arc<Device>, Duration)>,
}

impl Tracked {
    /// A new one, to be published at `due`.
    pub(super) fn new(device: Arc<Device>, due: Duration) -> Self {
        Self {
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

    /// Notes what was published before.
    pub(super) fn leaves(&mut self, before: Option<Arc<Device>>, now: Duration) {
        let is_home = self.home(now).is_some();
        let digest = |device: &Device| device.connection_digest();
        let moves = (self.device.as_ref().zip(before.as_ref()))
            .is_some_and(|(device, before)| digest(device) != digest(before));
        self.home = match before.filter(|_| moves) {
            Some(_) if is_home => self.home.take(),
            Some(before) => Some((before, now + FIRST_MOVE)),
            None => None,
        };
    }

    /// A change waits until `due`, or until an earlier one that waits already.
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
