//! Reads the kubelet's two records of which container has which device: the list of its pod resources API, and its
//! checkpoint, a file that it reads when it starts. Beside them is the record of the ResourceClaims that it had prepared.
//!
//! The list has no ordinary init containers. The checkpoint has them, and may be older: the kubelet drops ended Pods from
//! its memory at every list (podresources/server_v1.go: `List`), but writes the checkpoint only when a plugin sends its
//! devices, a container is given one, or a resource is removed (devicemanager/manager.go: `writeCheckpoint`). So if the two
//! differ, one of our plugins sends its list once more, unchanged. A device that is in the checkpoint after that is held.
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
pub(crate) mod plan;

use super::{
    pod_resources,
    settings::{Clock, Settings},
    values::{KubeletFolder, PodList, Prepared},
};
use crate::{
    model::{
        resource_name::{ResourceName, ResourcePrefixes},
        slot_table::{Held, Use},
    },
    telemetry::metrics,
};
use futures::future::BoxFuture;
use petiole_kubelet_api::checkpoint::{self, FILE};
use plan::At;
pub(crate) use plan::{Checkpoint, Confirmed, KubeletRecords, RecordsLook, Unreadable};
use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::{self, BufReader, Read as _},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tokio::{
    sync::watch,
    task::spawn_blocking,
    time::{sleep, timeout},
};

/// The largest checkpoint of the kubelet, in bytes: it has all answers for all containers, and is read one by one.
/// Beyond it: it counts as unreadable, and no slot is released.
const SIZE_LIMIT: u64 = 512 << 20;
/// The kubelet writes at once; ours gathers for 250 ms.
const WRITTEN_WITHIN: Duration = Duration::from_secs(1);
/// The time for which a fresh checkpoint is believed while no Pod goes, in times between two looks. A Pod that is replaced
/// by another of its name does not show in the list, so a longer time would keep the slots of the first one.
const CONFIRMED_FOR: u32 = 1;
const BETWEEN_STATS: Duration = Duration::from_millis(20);

/// Distinguishes one version of the file from the next: each is a file of its own, renamed into place.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Version {
    pub(crate) inode: u64,
    pub(crate) modified: (i64, i64),
    pub(crate) size: u64,
}

/// The two records as they are: of a kubelet, or of a simulated one.
pub(crate) trait Records: Send + Sync {
    fn list(&self) -> BoxFuture<'_, anyhow::Result<PodList>>;

    fn checkpoint(&self) -> BoxFuture<'_, Checkpoint>;

    /// Returns the ResourceClaims that are prepared on this node.
    fn claims(&self) -> BoxFuture<'_, anyhow::Result<Prepared>>;

    /// Returns which checkpoint there is, if there is one.
    fn version(&self) -> Option<Version>;
}

/// The records of this node's kubelet.
pub(super) struct OfKubelet(pub(super) Arc<Settings>);

impl Records for OfKubelet {
    fn list(&self) -> BoxFuture<'_, anyhow::Result<PodList>> {
        Box::pin(pod_resources::pod_list(&self.0))
    }

    fn checkpoint(&self) -> BoxFuture<'_, Checkpoint> {
        Box::pin(read_checkpoint(&self.0))
    }

    fn claims(&self) -> BoxFuture<'_, anyhow::Result<Prepared>> {
        Box::pin(async {
            match &self.0.claims {
                Some(claims) => claims.prepared().await,
                None => Ok(Prepared {
                    are_unknown: true,
                    ..Prepared::default()
                }),
            }
        })
    }

    fn version(&self) -> Option<Version> {
        let metadata = fs::metadata(path(&self.0)).ok()?;
        Some(Version {
            inode: metadata.ino(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            size: metadata.len(),
        })
    }
}

/// Reads both records.
#[derive(Clone)]
pub(super) struct RecordsReader {
    pub(super) source: Arc<dyn Records>,
    pub(super) settings: Arc<Settings>,
    pub(super) clock: Clock,
    pub(super) kubelet_folder: watch::Receiver<KubeletFolder>,
    /// Our resources that are registered with the kubelet.
    pub(super) registered: watch::Receiver<BTreeSet<ResourceName>>,
    /// Asks the plugin of a resource to send its list once more.
    pub(super) resend: watch::Sender<Option<ResourceName>>,
}

impl RecordsReader {
    /// Looks at both records, and decides whether they can be trusted. `held` are the slots of this node.
    ///
    /// A kubelet lists nothing for a while after its start, although containers run, and as long as it cannot reach the API
    /// server. A list is complete once it contains the agent's own Pod. An agent without a Pod trusts the checkpoint, which
    /// the kubelet keeps over its restart and shortens only when it knows its Pods. Without a checkpoint it waits for
    /// `kubelet_startup_grace`.
    pub(super) async fn look(
        &self,
        held: &[Held],
        confirmed: &mut Option<Confirmed>,
    ) -> anyhow::Result<RecordsLook> {
        let begun = self.clock.uptime();
        let records = self.read().await?;
        let is_trusted = match &self.settings.own_pod {
            Some(own) => records.are_whole(own),
            // A checkpoint that cannot be read releases nothing.
            None => records.checkpoint != Checkpoint::Missing || self.has_started(),
        };
        let records = if is_trusted {
            (self.freshened(records, Begin { held, begun }, confirmed)).await
        } else {
            records
        };
        Ok(RecordsLook {
            is_trusted,
            has_started: self.has_started(),
            records,
        })
    }

    /// Returns whether the kubelet has been running for `kubelet_startup_grace`.
    fn has_started(&self) -> bool {
        let folder = self.kubelet_folder.borrow().clone();
        let by_clock = (folder.kubelet).and_then(|kubelet| kubelet.created.elapsed().ok());
        let known = folder.since.map(|since| since.elapsed());
        // The smaller of the two, because the machine's clock may have been set just now.
        let age = by_clock.zip(known).map(|(a, b)| a.min(b));
        age.is_some_and(|age| age >= self.settings.kubelet_startup_grace)
    }

    /// Reads both records as they are, trusted or not.
    pub(super) async fn read(&self) -> anyhow::Result<KubeletRecords> {
        // The list first. What the kubelet allocates after that is in the file as well.
        let list = self.source.list().await?;
        let checkpoint = self.source.checkpoint().await;
        let claims = self.source.claims().await?;
        Ok(KubeletRecords {
            list,
            checkpoint,
            claims,
        })
    }

    /// Returns all that containers have or may have by the checkpoint alone, if it can be read. The kubelet need not answer.
    pub(super) async fn kept_uses(&self) -> Option<Vec<Use>> {
        let records = KubeletRecords {
            list: PodList::default(),
            checkpoint: self.source.checkpoint().await,
            claims: self.source.claims().await.ok()?,
        };
        records.kept_uses()
    }

    /// Reads both records, with a checkpoint that is not older than the list if the kubelet can be made to write one.
    pub(super) async fn read_fresh(&self) -> anyhow::Result<KubeletRecords> {
        let begun = self.clock.uptime();
        let records = self.read().await?;
        let at = Begin { held: &[], begun };
        Ok(self.freshened(records, at, &mut None).await)
    }

    /// Returns the same records, with a new checkpoint if the old one may be older than the list.
    async fn freshened(
        &self,
        mut records: KubeletRecords,
        Begin { held, begun }: Begin<'_>,
        confirmed: &mut Option<Confirmed>,
    ) -> KubeletRecords {
        let doubts = records.doubts(held);
        let at_most = CONFIRMED_FOR * self.settings.look_interval;
        let is_confirmed = (confirmed.as_ref())
            .is_some_and(|last| last.still_holds(&records, &doubts, At { begun, at_most }));
        let mut is_fresh = true;
        // One that is missing may have been removed, and is written again.
        if !doubts.is_empty() && !is_confirmed {
            is_fresh = self.is_written_anew().await;
            records.checkpoint = self.source.checkpoint().await;
            *confirmed = is_fresh.then(|| Confirmed::by(&records, held, begun, confirmed.as_ref()));
        }
        if let Checkpoint::Read { is_fresh: so, .. } = &mut records.checkpoint {
            *so = is_fresh;
        }
        records
    }

    /// Makes the kubelet write its checkpoint. Returns whether it did.
    async fn is_written_anew(&self) -> bool {
        let before = self.source.version();
        let Some(resource) = plan::resent(&self.registered.borrow()).cloned() else {
            return false;
        };
        self.resend.send_replace(Some(resource));
        let written = async {
            while self.source.version() == before {
                sleep(BETWEEN_STATS).await;
            }
        };
        timeout(WRITTEN_WITHIN, written).await.is_ok()
    }
}

/// The begin of a look at the records.
struct Begin<'a> {
    /// The slots that this node holds.
    held: &'a [Held],
    /// The uptime at which the look began.
    begun: Duration,
}

fn path(settings: &Settings) -> PathBuf {
    settings.plugin_folder.join(FILE)
}

async fn read_checkpoint(settings: &Settings) -> Checkpoint {
    let (path, prefixes) = (path(settings), settings.resource_prefixes.clone());
    let read = spawn_blocking(move || match File::open(&path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Checkpoint::Missing,
        Err(e) => unreadable(&path, &e),
        Ok(file) => match entries(file, &prefixes) {
            Err(e) => unreadable(&path, &e),
            Ok(entries) => Checkpoint::Read {
                entries,
                is_fresh: false,
            },
        },
    });
    let read = read
        .await
        .unwrap_or_else(|e| unreadable(Path::new(FILE), &e));
    metrics().set_checkpoint_unreadable(matches!(read, Checkpoint::Unreadable(_)));
    read
}

fn unreadable(path: &Path, error: &dyn std::fmt::Display) -> Checkpoint {
    Checkpoint::Unreadable(Unreadable(format!("{}: {error}", path.display())))
}

/// Reads what the file says of our resources. A file beyond the limit ends too early, which is an error.
fn entries(file: File, prefixes: &ResourcePrefixes) -> Result<Vec<plan::Entry>, checkpoint::Error> {
    let text = BufReader::new(file.take(SIZE_LIMIT));
    let (mut entries, mut json) = (vec![], serde_json::Deserializer::from_reader(text));
    checkpoint::each_entry(&mut json, &mut |entry| {
        entries.extend(plan::entry(&entry, prefixes));
    })?;
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    #[test]
    fn twelve_containers_with_a_megabyte_of_environment_each_hold_up_no_release() {
        let mut file = tempfile::tempfile().unwrap();
        let entry = |n: usize| checkpoint::Entry {
            pod_uid: "uid".to_owned(),
            container_name: n.to_string(),
            resource_name: "akri.sh/cam".to_owned(),
            device_ids: Some([(-1, Some(vec![format!("cam-{n}")]))].into()),
            alloc_resp: Some("A".repeat(1_400_000)),
        };
        let data = checkpoint::Data {
            pod_device_entries: Some((0..12).map(entry).collect()),
            registered_devices: None,
        };
        file.write_all(&checkpoint::written(data)).unwrap();
        io::Seek::rewind(&mut file).unwrap();
        let entries = entries(file, &"akri.sh".parse().unwrap()).unwrap();
        assert_eq!(entries.len(), 12);
    }
}
