//! What an agent needs to prepare ResourceClaims, and which ones are prepared.
use super::{connections::ConnectionDigest, values::Prepared};
use crate::{
    files,
    model::{claim_file, dra, instance_name::InstanceName, limits, slot_table::Use},
};
use kube::Client;
use petiole_dra::book::Book;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt, io,
    path::{Path, PathBuf},
};
use tokio::task::spawn_blocking;

/// The file of a claim that says how its devices were reached.
pub(super) const CONNECTIONS: &str = "connections.json";
/// The most bytes of the file that says how the devices of a claim were reached. A claim has 32 devices. Beyond it: they count as not
/// moved.
const CONNECTIONS_BYTES_MAX: u64 = 64 * 1024;

/// How the devices of Instances are reached. Those that are not seen have no entry.
pub(super) type Reached = BTreeMap<InstanceName, ConnectionDigest>;

/// The client, the record and the folders with which ResourceClaims are prepared.
#[derive(Clone)]
pub struct Claims {
    pub(super) client: Client,
    pub(super) settings: petiole_dra::Settings,
    pub(super) book: Book,
    /// The folder of the CDI files.
    pub(super) folder: PathBuf,
}

impl fmt::Debug for Claims {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Claims")
            .field("folder", &self.folder)
            .finish_non_exhaustive()
    }
}

impl Claims {
    /// Opens the record of prepared claims below the root folder of the kubelet. CDI files go into `folder`. The error names the path.
    pub fn open(
        client: Client,
        kubelet_root: PathBuf,
        pod_uid: Option<String>,
        folder: PathBuf,
    ) -> io::Result<Self> {
        Ok(Self {
            book: Book::of(&kubelet_root, dra::DRIVER)?,
            settings: petiole_dra::Settings {
                driver: dra::DRIVER.to_owned(),
                kubelet_root,
                pod_uid,
            },
            client,
            folder,
        })
    }

    /// Returns the folder of what containers may read of their devices.
    pub(super) fn metadata(&self) -> PathBuf {
        let plugins = self.settings.kubelet_root.join("plugins");
        plugins.join(dra::DRIVER).join("metadata")
    }

    /// Returns the claims that are prepared, and what their containers were given.
    pub(super) async fn prepared(&self) -> anyhow::Result<Prepared> {
        let (book, folder) = (self.book.clone(), self.folder.clone());
        let read = spawn_blocking(move || {
            let uids = book.entries()?.into_iter().map(|entry| entry.claim.uid);
            let uids: BTreeSet<String> = uids.collect();
            let uses = uids.iter().filter_map(|uid| given(&folder, uid));
            let uses = uses.collect();
            io::Result::Ok(Prepared {
                uids,
                uses,
                are_unknown: false,
            })
        });
        Ok(read.await??)
    }

    /// Returns the Instances of the claims that are prepared, also those whose devices a claim only looks at (`adminAccess`).
    pub(super) fn instances(&self) -> io::Result<BTreeSet<InstanceName>> {
        let (entries, metadata) = (self.book.entries()?.into_iter(), self.metadata());
        let reached: io::Result<Vec<Reached>> = entries
            .map(|entry| reached_then(&metadata, &entry.claim.uid))
            .collect();
        Ok(reached?.into_iter().flat_map(Reached::into_keys).collect())
    }
}

/// Returns how the devices of a claim were reached when it was prepared, by the folder of what containers may read. It is empty if nothing
/// says it.
pub(super) fn reached_then(metadata: &Path, uid: &str) -> io::Result<Reached> {
    match files::read_text(&metadata.join(uid).join(CONNECTIONS), CONNECTIONS_BYTES_MAX) {
        Ok(text) => Ok(serde_json::from_str(&text).unwrap_or_default()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Reached::new()),
        Err(e) => Err(e),
    }
}

/// Returns the slots that the containers of a claim were given; `None` if nothing says it, as after a start of the machine: the
/// kubelet has the claim prepared again before it starts a container.
fn given(folder: &Path, uid: &str) -> Option<Use> {
    let path = cdi_file(folder, uid);
    let read = |path: &Path| files::read_text(path, limits::CDI_FILE_BYTES_MAX as u64);
    let text = read(&path).or_else(|_| read(&kept_back(folder, uid)));
    Some(claim_file::use_of(uid, &text.ok()?))
}

/// Returns the path of the CDI file of a claim.
pub(super) fn cdi_file(folder: &Path, uid: &str) -> PathBuf {
    folder.join(dra::cdi_file_name(uid))
}

/// Returns the path to which it is renamed while containers are not to get it: a runtime reads `.json` and `.yaml` alone.
pub(super) fn kept_back(folder: &Path, uid: &str) -> PathBuf {
    cdi_file(folder, uid).with_extension("moved")
}
