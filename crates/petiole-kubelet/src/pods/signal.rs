//! Sends signals to the process groups of containers.
use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};
use tracing::debug;

/// Sends a signal to a process group. A group that has ended by itself is not an error.
pub(super) fn signal(group: Pid, signal: Signal) {
    if let Err(error) = killpg(group, signal) {
        debug!(%group, %error, "no such process group");
    }
}
