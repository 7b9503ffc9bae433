//! Keeps the CDI file of a claim back while a device is reached in another way than when the claim was prepared. The kubelet starts a
//! container of a Pod again without a call, and what the file brings may be another device by now. A container without its file does
//! not start.
use super::super::{
    cdi_files,
    claims_settings::{CONNECTIONS, Reached, cdi_file, kept_back, reached_then},
    connections::ConnectionDigest,
};
use crate::{files, model::instance_name::InstanceName};
use std::{
    collections::BTreeSet,
    io,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tracing::warn;

/// The folders of the files of claims.
#[derive(Debug, Clone)]
pub(super) struct Folders {
    /// The folder of the CDI files.
    cdi: PathBuf,
    /// The folder of what containers may read of their devices.
    metadata: PathBuf,
    /// The lock is held while files of a claim are written, renamed or removed, and never over an await.
    changing: Arc<Mutex<()>>,
}

/// Returns the Instances whose devices are reached in another way than they were.
fn moved(then: &Reached, now: &Reached) -> BTreeSet<InstanceName> {
    let is_other = |(instance, then): &(&InstanceName, &ConnectionDigest)| {
        now.get(*instance).is_some_and(|now| now != *then)
    };
    let moved = then.iter().filter(is_other);
    moved.map(|(instance, _)| instance.clone()).collect()
}

impl Folders {
    pub(super) fn new(cdi: PathBuf, metadata: PathBuf) -> Self {
        Self {
            cdi,
            metadata,
            changing: Arc::default(),
        }
    }

    pub(super) fn of_claim(&self, uid: &str) -> PathBuf {
        self.metadata.join(uid)
    }

    fn change(&self) -> MutexGuard<'_, ()> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the CDI file of a claim, and how its devices are reached by that.
    pub(super) fn write(&self, uid: &str, text: &str, reached: &Reached) -> Result<(), String> {
        let _changing = self.change();
        let noted = serde_json::to_string(reached).map_err(|e| e.to_string())?;
        cdi_files::replace(&self.of_claim(uid).join(CONNECTIONS), &noted)?;
        cdi_files::replace(&cdi_file(&self.cdi, uid), text)?;
        files::remove(&kept_back(&self.cdi, uid)).map_err(|e| e.to_string())
    }

    /// Keeps the CDI file of a claim back, or gives it back. Returns the Instances whose devices have moved.
    fn look(&self, uid: &str, now: &Reached) -> io::Result<BTreeSet<InstanceName>> {
        let _changing = self.change();
        let then = reached_then(&self.metadata, uid).unwrap_or_default();
        let moved = moved(&then, now);
        let (file, kept_back) = (cdi_file(&self.cdi, uid), kept_back(&self.cdi, uid));
        if !moved.is_empty() {
            files::rename(&file, &kept_back)?;
        } else if then.keys().all(|instance| now.contains_key(instance)) {
            files::rename(&kept_back, &file)?;
        }
        Ok(moved)
    }

    /// Looks at all claims, each with its Instances. Returns the Instances whose devices have moved for all claims that have them.
    pub(super) fn look_at_all(
        &self,
        claims: Vec<OfClaim>,
        now: &Reached,
    ) -> BTreeSet<InstanceName> {
        let (mut moved, mut right) = (BTreeSet::new(), BTreeSet::new());
        for OfClaim { uid, instances } in claims {
            let of_claim = self.look(&uid, now).unwrap_or_else(|error| {
                warn!(%uid, %error, "the CDI file of a claim cannot be kept back or given back");
                BTreeSet::new()
            });
            right.extend(
                instances
                    .into_iter()
                    .filter(|name| !of_claim.contains(name)),
            );
            moved.extend(of_claim);
        }
        &moved - &right
    }

    /// Removes what there is of a claim.
    pub(super) fn remove(&self, uid: &str) -> io::Result<()> {
        let _changing = self.change();
        files::remove(&cdi_file(&self.cdi, uid))?;
        files::remove(&kept_back(&self.cdi, uid))?;
        files::remove_folder(&self.of_claim(uid))
    }
}

/// A claim that is prepared.
pub(super) struct OfClaim {
    pub(super) uid: String,
    pub(super) instances: Vec<InstanceName>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_claim_has_its_file_while_its_devices_are_reached_as_when_it_was_prepared() {
        let dir = tempfile::tempdir().unwrap();
        let folders = Folders::new(dir.path().join("cdi"), dir.path().join("metadata"));
        let reached = |digests: &[(&str, &str)]| -> Reached {
            let digests = digests.iter();
            digests
                .map(|(name, digest)| ((*name).into(), (*digest).to_owned()))
                .collect()
        };
        let file = cdi_file(&folders.cdi, "u-1");
        let both = [("a-1", "1"), ("b-1", "2")];
        folders.write("u-1", "{}", &reached(&both)).unwrap();
        let look = |digests: &[(&str, &str)]| {
            let moved = folders.look("u-1", &reached(digests)).unwrap();
            let moved: Vec<String> = moved.iter().map(ToString::to_string).collect();
            (moved.join(" "), file.exists())
        };
        let is = |moved: &str, exists: bool| (moved.to_owned(), exists);
        assert_eq!(look(&both), is("", true));
        assert_eq!(
            look(&[("a-1", "1")]),
            is("", true),
            "it is gone, and has not moved"
        );
        for _ in 0..2 {
            assert_eq!(look(&[("a-1", "1"), ("b-1", "3")]), is("b-1", false));
        }
        assert_eq!(
            look(&[("a-1", "1")]),
            is("", false),
            "it is not back either"
        );
        assert_eq!(look(&both), is("", true));

        look(&[("b-1", "3")]);
        folders
            .write("u-1", "{}", &reached(&[("b-1", "3")]))
            .unwrap();
        assert_eq!(look(&[("b-1", "3")]), is("", true), "it was prepared again");
        let moved = reached(&[("b-1", "4")]);
        let claim = |uid: &str| OfClaim {
            uid: uid.to_owned(),
            instances: vec!["b-1".into()],
        };
        assert_eq!(folders.look_at_all(vec![claim("u-1")], &moved).len(), 1);
        folders.write("u-2", "{}", &moved).unwrap();
        let two = vec![claim("u-1"), claim("u-2")];
        assert_eq!(
            folders.look_at_all(two, &moved).len(),
            0,
            "one has the new values"
        );
        folders.remove("u-1").unwrap();
        folders.remove("u-2").unwrap();
        assert_eq!(fs::read_dir(&folders.cdi).unwrap().count(), 0);
        assert_eq!(fs::read_dir(&folders.metadata).unwrap().count(), 0);
        assert_eq!(
            look(&[("b-1", "5")]),
            is("", false),
            "it was not prepared by this version"
        );
    }
}
