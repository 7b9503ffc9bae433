//! How many files the process may have open.
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tracing::debug;

/// Raises the limit as far as it goes without rights, as every program in Go does. A device plugin is two files, its
/// socket and its kubelet's connection, and shells and systemd give a process 1024.
pub(super) fn allow_all() {
    let raised = getrlimit(Resource::RLIMIT_NOFILE)
        .and_then(|(_, most)| setrlimit(Resource::RLIMIT_NOFILE, most, most));
    if let Err(e) = raised {
        debug!("the limit of open files stays as it is: {e}");
    }
}
