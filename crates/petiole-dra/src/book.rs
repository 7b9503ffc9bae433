//! Keeps the devices of prepared claims on disk, a file for each claim. It is the last line of defence: the scheduler gives a device to
//! one claim at a time, but the claim before may still be in use on this node.
//!
//! There is no copy in memory. During a rolling update the processes of two versions read and write the same files, one after the other.
pub use crate::held::{Entry, HeldDevice};
use crate::{held::conflict, sockets};
use blake2::{Blake2s256, Digest as _};
use petiole_base::files;
use serde::{Deserialize, Serialize};
use std::{
    fs, io,
    path::{Path, PathBuf},
};
use tracing::warn;

/// The most claims that are prepared on a node. Beyond it: further claims are not prepared until some have been unprepared.
const CLAIMS_MAX: usize = 4096;
/// The longest file of a claim, in bytes. The API server allows 32 devices, each of which takes 411 bytes at most. Beyond it: the
/// claim is not prepared, and a file that is there is ignored with a warning.
const FILE_LIMIT: u64 = 16 * 1024;
const LOCK: &str = "lock";
const SUFFIX: &str = ".json";

/// The folder with the files.
#[derive(Debug, Clone)]
pub struct Book {
    folder: PathBuf,
}

/// The form of a file. A file that was written in part, or by hand, has another checksum.
#[derive(Serialize, Deserialize)]
struct File {
    entry: Entry,
    checksum: String,
}

impl Book {
    /// Opens the book of a driver, in the folder `plugins/<driver>/claims` of the kubelet's root folder. [`Plugin::new`] opens the same.
    ///
    /// [`Plugin::new`]: crate::Plugin::new
    pub fn of(kubelet_root: &Path, driver: &str) -> io::Result<Self> {
        Self::open(sockets::folder(kubelet_root, driver).join("claims"))
    }

    /// Opens the book in this folder, which is created. Errors name the path.
    pub(crate) fn open(folder: PathBuf) -> io::Result<Self> {
        fs::create_dir_all(&folder).map_err(|e| files::at(&folder, &e))?;
        files::check_owner(&folder)?;
        Ok(Self { folder })
    }

    /// Returns all entries, in the order of their UIDs. A file that is damaged is ignored with a warning; one that cannot be read is an
    /// error.
    pub fn entries(&self) -> io::Result<Vec<Entry>> {
        let listed = fs::read_dir(&self.folder).map_err(|e| files::at(&self.folder, &e))?;
        let mut entries = vec![];
        for file in listed {
            let name = file?.file_name();
            if let Some(uid) = name.to_str().and_then(|name| name.strip_suffix(SUFFIX)) {
                entries.extend(self.entry(uid)?);
            }
        }
        entries.sort_by(|a, b| a.claim.cmp(&b.claim));
        Ok(entries)
    }

    /// Returns the entry of the claim with this UID.
    pub(crate) fn entry(&self, uid: &str) -> io::Result<Option<Entry>> {
        let path = self.path(uid);
        let text = match files::read_text(&path, FILE_LIMIT) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            // The file may be whole: without it, its devices would be given away.
            Err(e) if e.raw_os_error().is_some() => return Err(files::at(&path, &e)),
            text => text.ok(),
        };
        let entry = text.and_then(|text| parsed(&text));
        let entry = entry.filter(|entry| entry.claim.uid == uid);
        if entry.is_none() {
            warn!(path = %path.display(), "a record of a prepared claim is damaged: its devices are not protected from a second claim");
        }
        Ok(entry)
    }

    /// Records that a claim has its devices from now on, also after a power failure, and replaces what was recorded of it. Another
    /// claim that has one of them is an error, and nothing is recorded then.
    pub(crate) fn hold(&self, wanted: &Entry) -> io::Result<()> {
        // It is released when the file is closed.
        let _locked = self.lock()?;
        let held = self.entries()?;
        if let Some(conflict) = conflict(wanted, &held) {
            return Err(io::Error::other(conflict));
        }
        let is_new = !held.iter().any(|e| e.claim.uid == wanted.claim.uid);
        if is_new && held.len() >= CLAIMS_MAX {
            let message =
                format!("{CLAIMS_MAX} claims are prepared on this node, which is the most");
            return Err(io::Error::other(message));
        }
        let file = File {
            checksum: checksum(wanted)?,
            entry: wanted.clone(),
        };
        let content = serde_json::to_vec(&file)?;
        if content.len() as u64 > FILE_LIMIT {
            let message = format!("the record of the claim has more than {FILE_LIMIT} bytes");
            return Err(io::Error::other(message));
        }
        files::write_durably(&self.path(&wanted.claim.uid), &content, 0o600)
    }

    /// Forgets a claim, also after a power failure: the kubelet does not unprepare it again. One that is not recorded is no error.
    pub(crate) fn release(&self, uid: &str) -> io::Result<()> {
        files::remove(&self.path(uid))?;
        let synced = fs::File::open(&self.folder).and_then(|folder| folder.sync_all());
        synced.map_err(|e| files::at(&self.folder, &e))
    }

    /// Waits for the processes and calls that hold devices now.
    fn lock(&self) -> io::Result<fs::File> {
        let path = self.folder.join(LOCK);
        let opened = fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path);
        let locked = opened.and_then(|file| file.lock().map(|()| file));
        locked.map_err(|e| files::at(&path, &e))
    }

    fn path(&self, uid: &str) -> PathBuf {
        Path::join(&self.folder, format!("{uid}{SUFFIX}"))
    }
}

fn parsed(text: &str) -> Option<Entry> {
    let file: File = serde_json::from_str(text).ok()?;
    (checksum(&file.entry).ok()? == file.checksum).then_some(file.entry)
}

fn checksum(entry: &Entry) -> serde_json::Result<String> {
    let digest = Blake2s256::digest(serde_json::to_vec(entry)?);
    Ok(digest.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim::ClaimKey;

    fn entry(uid: &str, device: &str) -> Entry {
        Entry {
            claim: ClaimKey {
                uid: uid.to_owned(),
                namespace: "default".to_owned(),
                name: "c".to_owned(),
            },
            devices: vec![HeldDevice {
                pool: "p".to_owned(),
                device: device.to_owned(),
                share_id: None,
                admin_access: false,
            }],
        }
    }

    fn book() -> (tempfile::TempDir, Book) {
        let dir = tempfile::tempdir().unwrap();
        let book = Book::open(dir.path().join("claims")).unwrap();
        (dir, book)
    }

    #[test]
    fn a_device_is_held_until_it_is_released_whoever_reads() {
        let (_dir, book) = book();
        book.hold(&entry("a", "x")).unwrap();
        // Another process has a book of its own in the same folder.
        let other = Book::open(book.folder.clone()).unwrap();
        let refused = other.hold(&entry("b", "x")).unwrap_err();
        assert!(refused.to_string().contains("(UID a)"), "{refused}");
        // A claim holds its own device again, and other devices instead.
        book.hold(&entry("a", "x")).unwrap();
        other.hold(&entry("b", "y")).unwrap();
        assert_eq!(book.entries().unwrap(), [entry("a", "x"), entry("b", "y")]);
        book.release("a").unwrap();
        book.release("a").unwrap();
        other.hold(&entry("b", "x")).unwrap();
        assert_eq!(book.entries().unwrap(), [entry("b", "x")]);
    }

    #[test]
    fn a_damaged_file_hides_no_other_and_is_replaced() {
        let (_dir, book) = book();
        book.hold(&entry("a", "x")).unwrap();
        book.hold(&entry("b", "y")).unwrap();
        let path = book.path("a");
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, text.replace("\"x\"", "\"z\"")).unwrap();
        assert_eq!(book.entries().unwrap(), [entry("b", "y")]);
        // A file under another name is not believed.
        fs::copy(book.path("b"), book.path("c")).unwrap();
        assert_eq!(book.entries().unwrap(), [entry("b", "y")]);
        book.hold(&entry("a", "x")).unwrap();
        assert_eq!(book.entry("a").unwrap(), Some(entry("a", "x")));
    }

    #[test]
    fn a_file_that_cannot_be_read_gives_no_device_away() {
        let (_dir, book) = book();
        book.hold(&entry("a", "x")).unwrap();
        let (path, away) = (book.path("a"), book.folder.join("away"));
        fs::rename(&path, &away).unwrap();
        std::os::unix::fs::symlink(&path, &path).unwrap();
        let refused = book.hold(&entry("b", "x")).unwrap_err().to_string();
        assert!(refused.contains("claims/a.json"), "{refused}");
        fs::rename(&away, &path).unwrap();
        let refused = book.hold(&entry("b", "x")).unwrap_err().to_string();
        assert!(refused.contains("(UID a)"), "{refused}");
    }

    #[test]
    fn a_record_has_room_for_the_largest_claim_and_no_more() {
        let (_dir, book) = book();
        let mut large = entry(&"u".repeat(63), "x");
        (large.claim.namespace, large.claim.name) = ("n".repeat(63), "c".repeat(253));
        large.devices = vec![
            HeldDevice {
                pool: "p".repeat(253),
                device: "d".repeat(63),
                share_id: Some("s".repeat(36)),
                admin_access: false,
            };
            32
        ];
        book.hold(&large).unwrap();
        assert_eq!(book.entries().unwrap(), std::slice::from_ref(&large));
        large.devices.extend_from_within(..);
        let refused = book.hold(&large).unwrap_err().to_string();
        assert!(refused.contains("more than 16384 bytes"), "{refused}");
    }

    #[test]
    fn of_many_calls_for_one_device_one_gets_it() {
        let (_dir, book) = book();
        let held = std::thread::scope(|scope| {
            let book = &book;
            let calls = (0..8).map(|n| scope.spawn(move || book.hold(&entry(&n.to_string(), "x"))));
            let calls: Vec<_> = calls.collect();
            let results = calls.into_iter().map(|call| call.join().unwrap());
            results.filter(Result::is_ok).count()
        });
        assert_eq!(held, 1);
    }

    #[test]
    fn a_node_has_a_bounded_number_of_claims() {
        let (_dir, book) = book();
        for n in 0..CLAIMS_MAX {
            let entry = entry(&n.to_string(), &n.to_string());
            let file = File {
                checksum: checksum(&entry).unwrap(),
                entry,
            };
            let content = serde_json::to_vec(&file).unwrap();
            fs::write(book.path(&n.to_string()), content).unwrap();
        }
        let refused = book.hold(&entry("new", "new")).unwrap_err().to_string();
        assert!(refused.starts_with("4096 claims are prepared"), "{refused}");
        book.hold(&entry("7", "7")).unwrap();
    }
}
