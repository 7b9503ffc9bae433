//! The sockets in `plugins_registry`: which are there, which came, which went. A socket that was created anew is new;
//! one whose mode or owner has changed is not.
use super::plan::Key;
use crate::folder_watch::FolderWatch;
use std::{
    collections::BTreeMap,
    fs::{self, Metadata},
    os::unix::fs::{FileTypeExt as _, MetadataExt as _},
    path::{Path, PathBuf},
    time::SystemTime,
};

/// How deep sub-folders are looked into.
const DEPTH: usize = 8;

pub(super) struct Folder {
    path: PathBuf,
    watch: FolderWatch,
    seen: BTreeMap<PathBuf, Identity>,
}

/// What tells a socket from another one that was at its path before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Identity {
    device: u64,
    inode: u64,
    /// A new file may get the inode of one that was removed.
    created: Option<SystemTime>,
}

#[derive(Debug, Default)]
pub(super) struct Changes {
    pub(super) new: Vec<Key>,
    pub(super) gone: Vec<Key>,
}

impl Folder {
    pub(super) fn new(path: PathBuf) -> Self {
        Self {
            watch: FolderWatch::new(&path),
            path,
            seen: BTreeMap::new(),
        }
    }

    /// Returns when it is time to look. Sub-folders are looked at every few seconds only.
    pub(super) async fn changed(&mut self) {
        self.watch.changed().await;
    }

    pub(super) fn look(&mut self) -> Changes {
        let mut now = BTreeMap::new();
        sockets(&self.path, DEPTH, &mut now);
        let new = now
            .iter()
            .filter(|(path, id)| self.seen.get(*path) != Some(id));
        let gone = self.seen.keys().filter(|path| !now.contains_key(*path));
        let changes = Changes {
            new: new.map(|(path, _)| key(path)).collect(),
            gone: gone.map(|path| key(path)).collect(),
        };
        self.seen = now;
        changes
    }
}

impl Identity {
    /// Where the file system does not keep the time of creation, that of the last write is as good: nobody writes to
    /// a socket's file, and a change of its mode or owner leaves that time alone.
    fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            created: metadata.created().or_else(|_| metadata.modified()).ok(),
        }
    }
}

fn key(socket: &Path) -> Key {
    Key {
        socket: socket.to_owned(),
        resource: None,
    }
}

/// A folder that cannot be read has no sockets; it is looked at again.
fn sockets(folder: &Path, depth: usize, found: &mut BTreeMap<PathBuf, Identity>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
        let Ok(metadata) = entry.metadata() else {
            continue;
        };
        if metadata.is_dir() && depth > 0 {
            sockets(&entry.path(), depth - 1, found);
        } else if metadata.file_type().is_socket() && !hidden {
            found.insert(entry.path(), Identity::of(&metadata));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn sockets_come_go_and_are_created_anew() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("sub")).unwrap();
        fs::write(dir.path().join("file"), "").unwrap();
        let a = dir.path().join("a.sock");
        let b = dir.path().join("sub/b.sock");
        let bind = |path: &Path| drop(UnixListener::bind(path).unwrap());
        for path in [&a, &b, &dir.path().join(".hidden.sock")] {
            bind(path);
        }
        let mut folder = Folder::new(dir.path().to_owned());
        assert_eq!(folder.look().new, [key(&a), key(&b)]);
        assert!(folder.look().new.is_empty());

        // The old one keeps its inode until the new one is there.
        fs::rename(&a, dir.path().join(".old")).unwrap();
        bind(&a);
        fs::remove_file(&b).unwrap();
        let changes = folder.look();
        assert_eq!((changes.new, changes.gone), (vec![key(&a)], vec![key(&b)]));
    }
    #[test]
    fn a_socket_whose_mode_changes_is_the_same() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("a.sock");
        drop(UnixListener::bind(&socket).unwrap());
        let mut folder = Folder::new(dir.path().to_owned());
        assert_eq!(folder.look().new, [key(&socket)]);

        let changed = || {
            let metadata = fs::metadata(&socket).unwrap();
            (metadata.ctime(), metadata.ctime_nsec())
        };
        let before = changed();
        // That time moves in steps of milliseconds.
        while changed() == before {
            for mode in [0o600, 0o666] {
                fs::set_permissions(&socket, fs::Permissions::from_mode(mode)).unwrap();
            }
        }
        let changes = folder.look();
        assert_eq!((changes.new, changes.gone), (vec![], vec![]));
    }
}
