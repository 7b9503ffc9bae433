//! Publishes values to the tasks that wait for a change.
use tokio::sync::watch;

/// Replaces the value, and wakes the receivers only if it is another one.
pub fn if_changed<T: PartialEq>(sender: &watch::Sender<T>, now: T) {
    sender.send_if_modified(|value| {
        let is_changed = *value != now;
        *value = now;
        is_changed
    });
}
