//! Keeps a second kubelet from starting on the same root folder.
use anyhow::bail;
use petiole_base::files;
use std::{
    fs::{File, TryLockError},
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
            Ok(()) => Ok(Self(file)),
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
