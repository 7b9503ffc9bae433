//! Keeps the CDI file of a claim back while a device is reached in another way than when the claim was prepared. The kubelet starts a
//! container of a Pod again without a call, and what the file brings may be another device by now. A container without its file does
//! not start.
use super::super::{
    cdi_files,
    claims_settings::{KEPT_BACK, cdi_file},
    connections::ConnectionDigest,
};
use crate::files;
use petiole_dra::book::HeldDevice;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Path, PathBuf},
};

/// The file of a claim that says how its devices were reached.
const FILE: &str = "connections.json";
/// The most bytes of that file that are read: a claim has 32 devices. Beyond it: the claim's devices count as not moved.
const FILE_BYTES_MAX: u64 = 64 * 1024;

/// How devices are reached, by their pools and names. Those that are not seen have no entry.
pub(super) type Reached = BTreeMap<String, ConnectionDigest>;

/// The folders of the files of claims.
#[derive(Debug, Clone)]
pub(super) struct Folders {
    /// That of the CDI files.
    pub(super) cdi: PathBuf,
    /// That of what containers may read of their devices.
    pub(super) metadata: PathBuf,
}

/// Returns the key of a device.
pub(super) fn key(pool: &str, device: &str) -> String {
    format!("{pool}/{device}")
}

/// Returns the devices that are reached in another way than they were.
fn moved(then: &Reached, now: &Reached) -> Vec<String> {
    let is_other = |(device, then): &(&String, &ConnectionDigest)| {
        now.get(*device).is_some_and(|now| now != *then)
    };
    let moved = then.iter().filter(is_other);
    moved.map(|(device, _)| device.clone()).collect()
}

impl Folders {
    pub(super) fn of_claim(&self, uid: &str) -> PathBuf {
        self.metadata.join(uid)
    }

    /// Notes how the devices of a claim are reached, whose CDI file was just written.
    pub(super) fn note(&self, uid: &str, reached: &Reached) -> Result<(), String> {
        let text = serde_json::to_string(reached).map_err(|e| e.to_string())?;
        cdi_files::replace(&self.of_claim(uid).join(FILE), &text)?;
        files::remove(&cdi_file(&self.cdi, uid).with_extension(KEPT_BACK))
            .map_err(|e| e.to_string())
    }

    /// Keeps the CDI file of a claim back, or gives it back. Returns the devices that have moved.
    pub(super) fn look(&self, uid: &str, now: &Reached) -> io::Result<Vec<String>> {
        let then = files::read_text(&self.of_claim(uid).join(FILE), FILE_BYTES_MAX);
        let then: Reached = serde_json::from_str(&then.unwrap_or_default()).unwrap_or_default();
        let moved = moved(&then, now);
        let file = cdi_file(&self.cdi, uid);
        let kept_back = file.with_extension(KEPT_BACK);
        if !moved.is_empty() {
            rename(&file, &kept_back)?;
        } else if then.keys().all(|device| now.contains_key(device)) {
            rename(&kept_back, &file)?;
        }
        Ok(moved)
    }

    /// Looks at all claims, each with its devices. Returns the devices that have moved for all claims that have them.
    pub(super) fn look_at_all(
        &self,
        claims: Vec<(String, Vec<String>)>,
        now: &Reached,
    ) -> io::Result<BTreeSet<String>> {
        let (mut moved, mut right) = (BTreeSet::new(), BTreeSet::new());
        for (uid, devices) in claims {
            let of_claim = self.look(&uid, now)?;
            right.extend(
                devices
                    .into_iter()
                    .filter(|device| !of_claim.contains(device)),
            );
            moved.extend(of_claim);
        }
        Ok(&moved - &right)
    }

    /// Removes what there is of a claim.
    pub(super) fn remove(&self, uid: &str) -> io::Result<()> {
        let file = cdi_file(&self.cdi, uid);
        files::remove(&file)?;
        files::remove(&file.with_extension(KEPT_BACK))?;
        files::remove_folder(&self.of_claim(uid))
    }
}

/// Renames a file, if it is there.
fn rename(from: &Path, to: &Path) -> io::Result<()> {
    match fs::rename(from, to) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(files::at(from, &e)),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Returns the key of each device of a claim.
pub(super) fn keys(devices: &[HeldDevice]) -> impl Iterator<Item = String> {
    devices.iter().map(|one| key(&one.pool, &one.device))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_has_its_file_while_its_devices_are_reached_as_when_it_was_prepared() {
        let dir = tempfile::tempdir().unwrap();
        let folders = Folders {
            cdi: dir.path().join("cdi"),
            metadata: dir.path().join("metadata"),
        };
        let reached = |digests: &[(&str, &str)]| -> Reached {
            let digests = digests.iter();
            digests
                .map(|(device, digest)| (key("lab/usb", device), (*digest).to_owned()))
                .collect()
        };
        let file = cdi_file(&folders.cdi, "u-1");
        cdi_files::replace(&file, "{}").unwrap();
        folders
            .note("u-1", &reached(&[("a", "1"), ("b", "2")]))
            .unwrap();
        let look = |digests: &[(&str, &str)]| {
            let moved = folders.look("u-1", &reached(digests)).unwrap();
            (moved, file.exists())
        };
        let both = [("a", "1"), ("b", "2")];
        assert_eq!(look(&both), (vec![], true));
        assert_eq!(
            look(&[("a", "1")]),
            (vec![], true),
            "a device that is gone has not moved"
        );
        let moved = vec!["lab/usb/b".to_owned()];
        for _ in 0..2 {
            assert_eq!(look(&[("a", "1"), ("b", "3")]), (moved.clone(), false));
        }
        assert_eq!(
            look(&[("a", "1")]),
            (vec![], false),
            "and is not back either"
        );
        assert_eq!(look(&both), (vec![], true));

        look(&[("b", "3")]);
        cdi_files::replace(&file, "{}").unwrap();
        folders.note("u-1", &reached(&[("b", "3")])).unwrap();
        assert_eq!(look(&[("b", "3")]), (vec![], true), "it was prepared again");
        look(&[("b", "4")]);
        folders.remove("u-1").unwrap();
        assert_eq!(fs::read_dir(&folders.cdi).unwrap().count(), 0);
        assert_eq!(fs::read_dir(&folders.metadata).unwrap().count(), 0);
        assert_eq!(
            look(&[("b", "5")]),
            (vec![], false),
            "another agent has prepared it"
        );
    }
}
