//! Raises the limit of open files of the process.
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tracing::debug;

/// Raises the soft limit to the hard limit, as every Go program does. A device plugin needs two files, its socket and
/// the kubelet's connection, and shells and systemd allow 1024.
pub(super) fn allow_all() {
    let raised = getrlimit(Resource::RLIMIT_NOFILE)
        .and_then(|(_, most)| setrlimit(Resource::RLIMIT_NOFILE, most, most));
    if let Err(e) = raised {
        debug!("the limit of open files stays as it is: {e}");
    }
}
