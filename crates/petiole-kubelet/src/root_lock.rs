//! Keeps a second kubelet from starting on the same root folder.
use anyhow::bail;
use nix::{
    sys::socket::{getsockopt, sockopt::PeerCredentials},
    unistd::getpid,
};
use petiole_base::files;
use std::{
    fs::{File, TryLockError},
    os::unix::net::UnixStream,
    path::Path,
};
use tracing::warn;

/// The lock on a root folder. Two kubelets on one folder would remove each other's sockets and end each other's
/// containers. The lock ends with the process, however that ends.
pub(super) struct RootLock(File);

impl RootLock {
    pub(super) fn take(root: &Path) -> anyhow::Result<Self> {
        let path = root.join("kubelet.lock");
        let at = |e| files::at(&path, &e);
        let file = File::create(&path).map_err(at)?;
        match file.try_lock() {
            Ok(()) => {
                let own = getpid().as_raw();
                ensure_no_other(&root.join("device-plugins/kubelet.sock"), own)?;
                Ok(Self(file))
            }
            Err(TryLockError::WouldBlock) => {
                bail!(
                    "root folder {}: another kubelet uses it; stop that kubelet, or choose another --root-dir",
                    root.display()
                )
            }
            Err(TryLockError::Error(e)) => Err(at(e).into()),
        }
    }
}

/// Refuses a folder where the kubelet of another project listens, which takes no lock of ours. Kubelets of the `own` process may follow
/// one another: a child process holds a copy of the last one's socket between fork and exec.
fn ensure_no_other(socket: &Path, own: i32) -> anyhow::Result<()> {
    let Ok(stream) = UnixStream::connect(socket) else {
        return Ok(());
    };
    let peer = getsockopt(&stream, PeerCredentials)?.pid();
    if peer != own {
        bail!(
            "{}: the kubelet with process id {peer} listens here; stop that kubelet, or choose another --root-dir",
            socket.display()
        );
    }
    Ok(())
}

impl Drop for RootLock {
    /// Unlocks explicitly. Closing the file is not enough: a child process holds a copy of it between fork and exec
    /// (flock(2)).
    fn drop(&mut self) {
        if let Err(e) = self.0.unlock() {
            warn!("kubelet.lock cannot be unlocked: {e}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn a_folder_where_another_process_listens_is_refused_until_that_has_ended() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("kubelet.sock");
        let own = getpid().as_raw();
        ensure_no_other(&socket, own).unwrap();
        let listener = UnixListener::bind(&socket).unwrap();
        ensure_no_other(&socket, own).unwrap();
        let refused = ensure_no_other(&socket, own + 1).unwrap_err().to_string();
        assert!(
            refused.contains(&format!("process id {own} listens")),
            "{refused}"
        );
        drop(listener);
        ensure_no_other(&socket, own + 1).unwrap();
    }

    #[test]
    fn a_root_folder_has_one_kubelet_and_is_free_when_that_has_ended() {
        let folder = tempfile::tempdir().unwrap();
        let lock = RootLock::take(folder.path()).unwrap();
        assert!(RootLock::take(folder.path()).is_err());
        // A child process holds such a copy between fork and exec.
        let _inherited = lock.0.try_clone().unwrap();
        drop(lock);
        RootLock::take(folder.path()).unwrap();
    }
}
