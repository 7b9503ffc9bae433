//! Publishes values to the tasks that wait for a change.
use tokio::sync::watch;

/// Replaces the value, and wakes the receivers only if it is another one.
pub fn if_changed<T: PartialEq>(sender: &watch::Sender<T>, now: T) {
    // Compared without the lock of writers: a large value takes a while, and receivers of other threads read meanwhile.
    if *sender.borrow() != now {
        sender.send_replace(now);
    }
}
