//! Owns the file of a socket: notices that another process has put its own there, and removes its own at the end.
use std::{
    fs, io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    time::Duration,
};
use tokio::time::sleep;
use tracing::warn;

/// The file of a socket that this process has bound. It is removed with this value, unless another process has its own there.
#[derive(Debug)]
pub struct OwnSocket {
    path: PathBuf,
    identity: Option<Identity>,
}

impl OwnSocket {
    /// Takes the file of a socket that has just been bound.
    pub fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            identity: identity(path),
        }
    }

    /// Returns whether the file is there, and is still this process's.
    pub fn is_there(&self) -> bool {
        self.identity.is_some() && identity(&self.path) == self.identity
    }

    /// Returns when the file is not there any more, or is another one. It is looked at once in each `interval`.
    pub async fn lost(&self, interval: Duration) {
        while self.is_there() {
            sleep(interval).await;
        }
    }

    /// Returns when nothing is at the path any more, in two looks: a process that replaces the file is there by the second.
    pub async fn removed(&self, interval: Duration) {
        let mut is_missing = false;
        while !is_missing || self.path.exists() {
            is_missing = !self.path.exists();
            sleep(interval).await;
        }
    }
}

impl Drop for OwnSocket {
    fn drop(&mut self) {
        if !self.is_there() {
            return;
        }
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                warn!("the socket {} stays: {error}", self.path.display());
            }
            Ok(()) | Err(_) => {}
        }
    }
}

/// Distinguishes a socket from another one at the same path: numbers of files are used again, so the time counts at which it was
/// made. A change of its mode or owner does not change that.
type Identity = (u64, i64, i64);

fn identity(path: &Path) -> Option<Identity> {
    let metadata = fs::metadata(path).ok()?;
    Some((metadata.ino(), metadata.mtime(), metadata.mtime_nsec()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::{fs::PermissionsExt as _, net::UnixListener};

    #[test]
    fn it_removes_its_own_file_also_with_another_mode_and_no_other_file() {
        let dir = tempfile::tempdir().unwrap();
        let [path, other] = ["a.sock", "other"].map(|name| dir.path().join(name));
        let _listener = UnixListener::bind(&path).unwrap();
        let own = OwnSocket::new(&path);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o660)).unwrap();
        assert!(own.is_there());
        drop(own);
        assert!(!path.exists());

        let _listener = UnixListener::bind(&path).unwrap();
        let own = OwnSocket::new(&path);
        let _other = UnixListener::bind(&other).unwrap();
        fs::rename(&other, &path).unwrap();
        assert!(!own.is_there());
        drop(own);
        assert!(path.exists());
    }

    #[test]
    fn a_file_that_was_not_there_is_not_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.sock");
        let own = OwnSocket::new(&path);
        fs::write(&path, "").unwrap();
        drop(own);
        assert!(path.exists());
    }
}
