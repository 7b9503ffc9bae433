//! The sockets in `plugins_registry`: which are there, which came, which went. A socket that was created anew is new.
use super::plan::Key;
use crate::folder_watch::FolderWatch;
use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{FileTypeExt as _, MetadataExt as _},
    path::{Path, PathBuf},
};

/// How deep sub-folders are looked into.
const DEPTH: usize = 8;

pub(super) struct Folder {
    path: PathBuf,
    watch: FolderWatch,
    /// Each socket, with its inode and the time of its creation.
    seen: BTreeMap<PathBuf, (u64, i64, i64)>,
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

fn key(socket: &Path) -> Key {
    Key {
        socket: socket.to_owned(),
        resource: None,
    }
}

/// A folder that cannot be read has no sockets; it is looked at again.
fn sockets(folder: &Path, depth: usize, found: &mut BTreeMap<PathBuf, (u64, i64, i64)>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
        let Ok(metadata) = entry.metadata() else {
            continue;
        };
        if metadata.is_dir() && depth > 0 {
            sockets(&entry.path(), depth - 1, found);
        } else if metadata.file_type().is_socket() && !hidden {
            let id = (metadata.ino(), metadata.ctime(), metadata.ctime_nsec());
            found.insert(entry.path(), id);
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
}
