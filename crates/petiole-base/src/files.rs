//! Writes files atomically, reads files of bounded size, and checks the owners of folders.
use nix::{libc, unistd::geteuid};
use std::{
    fs, io,
    io::{Read as _, Write as _},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

/// The file in a folder that is locked.
const LOCK: &str = ".lock";

/// Replaces the file at `path` atomically: a reader gets the old content or the new content. Errors name the path.
///
/// The file is not synced to the disk. After a power failure it may be old or empty, and its reader must accept that.
pub fn write_atomically(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    write(path, mode, |file| file.write_all(content), |_| Ok(()))
}

/// Replaces the file at `path` atomically and durably: file and folder are on the disk before the function returns, so after
/// a power failure a reader gets the new content. Errors name the path.
pub fn write_durably(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    write_in_parts(path, mode, |file| file.write_all(content))
}

/// Does the same with a content that is never in memory as a whole.
pub fn write_in_parts(
    path: &Path,
    mode: u32,
    fill: impl FnOnce(&mut dyn io::Write) -> io::Result<()>,
) -> io::Result<()> {
    let fill = |file: &mut fs::File| {
        let mut buffered = io::BufWriter::new(file);
        fill(&mut buffered)?;
        buffered.flush()
    };
    write(path, mode, fill, |path| fs::File::open(path)?.sync_all())
}

fn write(
    path: &Path,
    mode: u32,
    fill: impl FnOnce(&mut fs::File) -> io::Result<()>,
    sync: impl Fn(&Path) -> io::Result<()>,
) -> io::Result<()> {
    let temporary = temporary_of(path);
    let written = (|| {
        fill(&mut create(&temporary, mode)?)?;
        sync(&temporary)?;
        fs::rename(&temporary, path)?;
        // The folder has the name, and is written by itself.
        let folder = path.parent().filter(|folder| *folder != Path::new(""));
        sync(folder.unwrap_or(Path::new(".")))
    })();
    written.map_err(|e| {
        // The temporary file is useless now. A failure to remove it adds nothing to the first error.
        fs::remove_file(&temporary).ok();
        at(path, &e)
    })
}

/// Creates a new file. An existing file of this name was left by a process that was killed, or placed there by someone
/// else. It is removed, and a link is not followed.
fn create(path: &Path, mode: u32) -> io::Result<fs::File> {
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true).mode(mode);
    match options.open(path) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
            fs::remove_file(path)?;
            options.open(path)
        }
        opened => opened,
    }
}

/// Reads the text of a regular file of at most `most` bytes. Other files are an error, so that the call never blocks.
pub fn read_text(path: &Path, most: u64) -> io::Result<String> {
    let mut options = fs::OpenOptions::new();
    // Without this flag the call would block on a pipe until something writes to it.
    options.read(true).custom_flags(libc::O_NONBLOCK);
    let file = options.open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut content = vec![];
    file.take(most + 1).read_to_end(&mut content)?;
    if content.len() as u64 > most {
        return Err(io::Error::other(format!("it has more than {most} bytes")));
    }
    String::from_utf8(content).map_err(|_| io::Error::other("it is not UTF-8"))
}

/// Locks a folder against other processes that do the same, as long as the returned file is open. The folder is created if it does
/// not exist. Only a lock of another process is an error: what else is wrong with the folder is found by those who use it.
pub fn lock(folder: &Path) -> io::Result<Option<fs::File>> {
    // Whoever can open the file can lock it: only its owner can.
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).mode(0o600);
    options.custom_flags(libc::O_NOFOLLOW);
    let opened = fs::create_dir_all(folder).and_then(|()| options.open(folder.join(LOCK)));
    let Ok(file) = opened else { return Ok(None) };
    match file.try_lock() {
        Err(fs::TryLockError::WouldBlock) => Err(io::Error::new(
            io::ErrorKind::ResourceBusy,
            format!(
                "{}: another agent uses this folder: end it, or give this one another folder",
                folder.display()
            ),
        )),
        Ok(()) | Err(fs::TryLockError::Error(_)) => Ok(Some(file)),
    }
}

/// Returns an error if the folder belongs to another user, who could change its content at any time. Root is trusted.
pub fn check_owner(folder: &Path) -> io::Result<()> {
    let (owner, own) = (fs::metadata(folder)?.uid(), geteuid().as_raw());
    if owner == own || owner == 0 {
        return Ok(());
    }
    Err(io::Error::new(
        io::ErrorKind::PermissionDenied,
        format!(
            "{} belongs to user {owner}, and this process is user {own}: choose another folder, or chown it",
            folder.display()
        ),
    ))
}

/// Removes the file at `path`. A file that does not exist is not an error. Errors name the path.
pub fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(at(path, &e)),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Renames the file at `from`. A file that does not exist is not an error. Errors name the path.
pub fn rename(from: &Path, to: &Path) -> io::Result<()> {
    match fs::rename(from, to) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(at(from, &e)),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Removes a folder with its files. One that is gone is no error.
pub fn remove_folder(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(at(path, &e)),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Adds the path to an error.
pub fn at(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// Returns the path of a hidden file in the same folder. The rename thus stays on one file system, and programs that
/// watch the folder can ignore the file.
fn temporary_of(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.tmp"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

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
    fn what_is_durable_is_synced_before_it_gets_its_name_and_its_folder_after() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        let synced = RefCell::new(vec![]);
        let sync = |synced_path: &Path| {
            let is_folder = synced_path == dir.path();
            synced.borrow_mut().push((is_folder, path.exists()));
            Ok(())
        };
        write(&path, 0o600, |file| file.write_all(b"one"), sync).unwrap();
        assert_eq!(*synced.borrow(), [(false, false), (true, true)]);
    }

    #[test]
    fn a_folder_has_one_user_until_that_ends() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("state");
        let first = lock(&folder).unwrap();
        assert!(first.is_some());
        let refused = lock(&folder).unwrap_err().to_string();
        assert!(refused.contains(&*folder.to_string_lossy()), "{refused}");
        drop(first);
        assert!(lock(&folder).unwrap().is_some());
        // Its user says what is wrong with it.
        fs::write(dir.path().join("file"), "").unwrap();
        assert!(lock(&dir.path().join("file/state")).unwrap().is_none());
    }

    #[test]
    fn a_link_in_the_place_of_the_temporary_file_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (path, others) = (dir.path().join("a.yaml"), dir.path().join("others"));
        fs::write(&others, "theirs").unwrap();
        std::os::unix::fs::symlink(&others, temporary_of(&path)).unwrap();
        write_durably(&path, b"ours", 0o600).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"ours");
        assert_eq!(fs::read(&others).unwrap(), b"theirs");
        assert!(!fs::symlink_metadata(&path).unwrap().is_symlink());
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    }

    #[test]
    fn only_a_regular_file_of_bounded_size_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        fs::write(&path, "12345").unwrap();
        assert_eq!(read_text(&path, 5).unwrap(), "12345");
        let why = |path: &Path, most| read_text(path, most).unwrap_err().to_string();
        assert_eq!(why(&path, 4), "it has more than 4 bytes");
        assert_eq!(why(dir.path(), 4), "it is not a regular file");
        let pipe = dir.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(made.unwrap().success());
        assert_eq!(why(&pipe, 4), "it is not a regular file");
    }

    #[test]
    fn a_folder_of_another_user_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        check_owner(dir.path()).unwrap();
        check_owner(Path::new("/")).unwrap();
        if !geteuid().is_root() {
            return; // only root can give a folder away
        }
        std::os::unix::fs::chown(dir.path(), Some(12_345), None).unwrap();
        let error = check_owner(dir.path()).unwrap_err().to_string();
        assert!(error.contains("belongs to user 12345"), "{error}");
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
