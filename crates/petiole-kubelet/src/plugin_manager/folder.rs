//! Follows the sockets in `plugins_registry`: which are new and which are gone. A socket that was created again is new;
//! a socket whose mode or owner has changed is not.
use super::plan::Key;
use petiole_base::folder_watch::FolderWatch;
use std::{
    collections::BTreeMap,
    fs::{self, DirEntry, Metadata},
    io,
    os::unix::fs::{FileTypeExt as _, MetadataExt as _},
    path::{Path, PathBuf},
    time::SystemTime,
};

/// The number of levels of sub-folders that are searched.
const DEPTH: usize = 8;

pub(super) struct Folder {
    path: PathBuf,
    watch: FolderWatch,
    seen: BTreeMap<PathBuf, Identity>,
    /// The paths that could not be read the last time, with the error.
    unreadable: BTreeMap<PathBuf, String>,
}

/// Distinguishes a socket from an earlier one at the same path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Identity {
    device: u64,
    inode: u64,
    /// The time of creation, because a new file may get the inode number of a removed file.
    created: Option<SystemTime>,
}

#[derive(Debug, Default)]
pub(super) struct Changes {
    pub(super) new: Vec<Key>,
    pub(super) gone: Vec<Key>,
    /// The folders and files that cannot be read, with the error. Errors that were reported before are left out.
    pub(super) unreadable: BTreeMap<PathBuf, String>,
}

/// The result of one search.
#[derive(Debug, Default)]
struct Found {
    sockets: BTreeMap<PathBuf, Identity>,
    unreadable: BTreeMap<PathBuf, String>,
}

impl Folder {
    pub(super) fn new(path: PathBuf) -> Self {
        Self {
            watch: FolderWatch::new(&path),
            path,
            seen: BTreeMap::new(),
            unreadable: BTreeMap::new(),
        }
    }

    /// Waits for a change of the folder. Changes in sub-folders are not watched; for them it returns every few seconds.
    pub(super) async fn changed(&mut self) {
        self.watch.changed().await;
    }

    /// Reads the folder, and returns the changes since the last call.
    pub(super) fn rescan(&mut self) -> Changes {
        let mut found = Found::default();
        found.search(&self.path, DEPTH);
        let now = found.with_unreadable(&self.seen);
        let new = now
            .iter()
            .filter(|(path, id)| self.seen.get(*path) != Some(id));
        let gone = self.seen.keys().filter(|path| !now.contains_key(*path));
        let unreadable = found.unreadable.iter();
        let changes = Changes {
            new: new.map(|(path, _)| key(path)).collect(),
            gone: gone.map(|path| key(path)).collect(),
            unreadable: unreadable
                .filter(|(path, error)| self.unreadable.get(*path) != Some(error))
                .map(|(path, error)| (path.clone(), error.clone()))
                .collect(),
        };
        self.seen = now;
        self.unreadable = found.unreadable;
        changes
    }
}

impl Found {
    fn search(&mut self, folder: &Path, depth: usize) {
        let listed = fs::read_dir(folder).and_then(|entries| entries.collect());
        let entries: Vec<DirEntry> = self.readable(folder, listed).unwrap_or_default();
        for entry in entries {
            let path = entry.path();
            let hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
            let Some(metadata) = self.readable(&path, entry.metadata()) else {
                continue;
            };
            if metadata.is_dir() && depth > 0 {
                self.search(&path, depth - 1);
                continue;
            }
            // A symbolic link stands for its socket. Links to folders are not followed, because they can form a loop.
            let metadata = if metadata.is_symlink() {
                match self.readable(&path, fs::metadata(&path)) {
                    Some(metadata) => metadata,
                    None => continue,
                }
            } else {
                metadata
            };
            if metadata.file_type().is_socket() && !hidden {
                self.sockets.insert(path, Identity::of(&metadata));
            }
        }
    }

    /// Records a read error. A path that does not exist is gone; any other error, such as too many open files, says
    /// nothing about the sockets below the path.
    fn readable<T>(&mut self, path: &Path, read: io::Result<T>) -> Option<T> {
        let error = match read {
            Ok(read) => return Some(read),
            Err(error) => error,
        };
        let is_gone = [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory];
        if !is_gone.contains(&error.kind()) {
            self.unreadable.insert(path.to_owned(), error.to_string());
        }
        None
    }

    /// Adds the sockets seen before whose folder could not be read. A socket counts as gone only if its folder was read
    /// without it.
    fn with_unreadable(&self, seen: &BTreeMap<PathBuf, Identity>) -> BTreeMap<PathBuf, Identity> {
        let is_unknown = |socket: &Path| {
            let mut unreadable = self.unreadable.keys();
            unreadable.any(|path| socket.starts_with(path))
        };
        let mut sockets = seen.clone();
        sockets.retain(|socket, _| is_unknown(socket));
        sockets.extend(self.sockets.clone());
        sockets
    }
}

impl Identity {
    /// Uses the time of the last write on file systems that do not store the time of creation. That is equivalent:
    /// nobody writes to the file of a socket, and a change of mode or owner does not alter this time.
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
        assert_eq!(folder.rescan().new, [key(&a), key(&b)]);
        assert!(folder.rescan().new.is_empty());

        // The old file keeps its inode until the new one exists.
        fs::rename(&a, dir.path().join(".old")).unwrap();
        bind(&a);
        fs::remove_file(&b).unwrap();
        let changes = folder.rescan();
        assert_eq!((changes.new, changes.gone), (vec![key(&a)], vec![key(&b)]));
    }
    #[test]
    fn a_socket_whose_mode_changes_is_the_same() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("a.sock");
        drop(UnixListener::bind(&socket).unwrap());
        let mut folder = Folder::new(dir.path().to_owned());
        assert_eq!(folder.rescan().new, [key(&socket)]);

        let changed = || {
            let metadata = fs::metadata(&socket).unwrap();
            (metadata.ctime(), metadata.ctime_nsec())
        };
        let before = changed();
        // The change time has a resolution of milliseconds.
        while changed() == before {
            for mode in [0o600, 0o666] {
                fs::set_permissions(&socket, fs::Permissions::from_mode(mode)).unwrap();
            }
        }
        let changes = folder.rescan();
        assert_eq!((changes.new, changes.gone), (vec![], vec![]));
    }

    #[test]
    fn a_folder_that_cannot_be_read_keeps_its_sockets_and_is_named_once() {
        let dir = tempfile::tempdir().unwrap();
        let (path, aside) = (dir.path().join("registry"), dir.path().join("aside"));
        fs::create_dir(&path).unwrap();
        let socket = path.join("a.sock");
        drop(UnixListener::bind(&socket).unwrap());
        let mut folder = Folder::new(path.clone());
        assert_eq!(folder.rescan().new, [key(&socket)]);

        // The path becomes a link to itself, which not even root can read.
        fs::rename(&path, &aside).unwrap();
        std::os::unix::fs::symlink(&path, &path).unwrap();
        for is_said in [true, false] {
            let changes = folder.rescan();
            assert_eq!((changes.new, changes.gone), (vec![], vec![]));
            assert_eq!(changes.unreadable.contains_key(&path), is_said);
        }

        fs::remove_file(&path).unwrap();
        fs::rename(&aside, &path).unwrap();
        let changes = folder.rescan();
        assert_eq!((changes.new, changes.gone), (vec![], vec![]));
        fs::remove_dir_all(&path).unwrap();
        assert_eq!(folder.rescan().gone, [key(&socket)]);
    }

    #[test]
    fn an_unreadable_subfolder_keeps_its_own_sockets_only() {
        let id = Identity {
            device: 1,
            inode: 1,
            created: None,
        };
        let seen = ["r/a.sock", "r/sub/b.sock", "r/sub-c.sock"].map(|path| (path.into(), id));
        let found = Found {
            sockets: BTreeMap::new(),
            unreadable: [("r/sub".into(), "no".to_owned())].into(),
        };
        let now = found.with_unreadable(&seen.into());
        assert_eq!(now, [("r/sub/b.sock".into(), id)].into());
    }
}
