//! Files that are there whole or not at all.
use std::{
    fs, io,
    io::Write as _,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

/// Replaces the file at `path`: readers see the old content or the new, never a part. Errors name the path.
///
/// Not synced to the disk: after a power cut a file may be old or empty, and its reader must bear that.
pub fn write_atomically(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let temporary = temporary_of(path);
    let written = (|| {
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(mode)
            .open(&temporary)?;
        file.write_all(content)?;
        fs::rename(&temporary, path)
    })();
    written.map_err(|e| {
        // What was begun is of no use; that it cannot be removed adds nothing to the first error.
        fs::remove_file(&temporary).ok();
        at(path, &e)
    })
}

/// Removes the file at `path`; one that is not there is as good as removed. Errors name the path.
pub fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(at(path, &e)),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// `error` with the path it is about.
pub fn at(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// A hidden neighbour, so that the rename stays on one file system and watchers can tell it apart.
fn temporary_of(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.tmp"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_whole_and_leaves_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.yaml");
        write_atomically(&path, b"one", 0o600).unwrap();
        write_atomically(&path, b"two", 0o600).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_write_that_fails_names_the_path_and_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("taken");
        fs::create_dir(&path).unwrap();
        fs::write(path.join("x"), "").unwrap();
        let error = write_atomically(&path, b"one", 0o600).unwrap_err();
        assert!(
            error.to_string().starts_with(path.to_str().unwrap()),
            "{error}"
        );
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);

        let gone = dir.path().join("no/such/folder/a.yaml");
        assert!(write_atomically(&gone, b"one", 0o600).is_err());
    }
}
