//! Publishes what a discovery sees, if it is something else than before.
use crate::model::device::DeviceSet;
use tokio::sync::watch;
use tracing::warn;

/// Publishes a set, and logs the problems that are new.
pub(super) fn publish(devices: DeviceSet, found: &watch::Sender<DeviceSet>) {
    found.send_if_modified(|last| {
        for problem in (devices.problems.iter()).filter(|p| !last.problems.contains(p)) {
            warn!("{problem}");
        }
        let is_changed = *last != devices;
        *last = devices;
        is_changed
    });
}
