//! Stores the last known objects on the disk. An agent that starts while the API server is unreachable serves its
//! devices from them.
use crate::{
    api::{configuration::Configuration, instance::Instance},
    cluster::{configuration_key, instance_key},
    files,
    own_thread::aside,
    store::interface::{Configurations, Instances},
};
use anyhow::Context as _;
use petiole_base::collect::CollectMap as _;
use serde::{Serialize, de::DeserializeOwned};
use std::{
    fs, io, mem,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;
use tracing::warn;

const FILE_MODE: u32 = 0o600;
/// The time within which changes are collected for one write.
const SETTLE: Duration = Duration::from_millis(500);
/// The shortest time between two writes during continuous changes, because flash memory wears out.
const BETWEEN_WRITES: Duration = Duration::from_secs(2);
/// The time between two writes of which the second only says which slots other nodes hold. A node without the API server
/// gives out the slots of devices that no other node sees, so it does not need them soon.
const OTHERS_WAIT: Duration = Duration::from_secs(60);

/// The files `<state>/mirror/{instances,configurations}.json`, and what they contained when the agent started.
pub(super) struct Mirror {
    folder: PathBuf,
    earlier: Mutex<Earlier>,
}

/// The objects of the last run. The Configurations are not complete, because later deletions are unknown.
#[derive(Clone, Default)]
pub(super) struct Earlier {
    pub(super) instances: Instances,
    pub(super) configurations: Configurations,
}

impl Mirror {
    pub(super) fn open(state: &Path) -> anyhow::Result<Self> {
        let folder = state.join("mirror");
        match prepare(&folder) {
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => return Err(e.into()),
            // Only a start without the API server needs it, so that a full disk takes no devices from the node.
            Err(e) => warn!("{e}; the folder is tried again with each write of the mirror"),
            Ok(()) => {}
        }
        let instances = read::<Instance>(&folder.join("instances.json"));
        let configurations = read::<Configuration>(&folder.join("configurations.json"));
        let instances = instances
            .into_iter()
            .map(|i| (instance_key(&i.metadata), Arc::new(i)));
        let configurations = configurations
            .into_iter()
            .map(|c| (configuration_key(&c.metadata), Arc::new(c)));
        let earlier = Earlier {
            instances: instances.collect(),
            configurations: Configurations {
                objects: configurations.collect_map(),
                ..Configurations::default()
            },
        };
        Ok(Self {
            folder,
            earlier: Mutex::new(earlier),
        })
    }

    pub(super) fn earlier(&self) -> Earlier {
        self.locked().clone()
    }

    /// Forgets the objects of the last run, and returns them.
    pub(super) fn take(&self) -> Earlier {
        mem::take(&mut self.locked())
    }

    fn locked(&self) -> MutexGuard<'_, Earlier> {
        self.earlier.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes what was listed. Returns whether it could.
    async fn write(&self, published: &Published) -> anyhow::Result<bool> {
        let folder = self.folder.clone();
        let instances = published.instances.borrow().clone();
        let configurations = published.configurations.borrow().clone();
        let are_read = configurations.are_read();
        let is_written = aside(move || {
            prepare(&folder)?;
            let all: Vec<_> = instances.values().collect();
            write(&folder.join("instances.json"), &all)?;
            if !are_read {
                return Ok(());
            }
            let all: Vec<_> = configurations.objects.values().collect();
            write(&folder.join("configurations.json"), &all)
        });
        let written = is_written.await?;
        if let Err(e) = &written {
            warn!(
                "cannot write the mirror, tried again until it can; a start without the API server would use old objects: {e:#}"
            );
        }
        Ok(written.is_ok())
    }
}

/// Creates the folder of the mirror, and checks that no other user can change it. Errors name the path.
fn prepare(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder).map_err(|e| files::at(folder, &e))?;
    folder.parent().map_or(Ok(()), files::check_owner)?;
    files::check_owner(folder)
}

/// Reads one file. An unreadable file counts as empty, because it is written again.
fn read<T: DeserializeOwned>(path: &Path) -> Vec<T> {
    let read = match fs::File::open(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(vec![]),
        // It may be as large as all Instances are, and is read piece by piece.
        file => file
            .map_err(anyhow::Error::from)
            .and_then(|file| Ok(serde_json::from_reader(io::BufReader::new(file))?)),
    };
    read.unwrap_or_else(|e| {
        warn!("{}: not used: {e:#}", path.display());
        vec![]
    })
}

/// The objects that the store publishes.
pub(super) struct Published {
    pub(super) instances: watch::Receiver<Arc<Instances>>,
    pub(super) news: watch::Receiver<()>,
    pub(super) configurations: watch::Receiver<Arc<Configurations>>,
}

/// Writes the published objects when they have changed: soon if that concerns this node, and later if not. Until `held` another
/// agent writes them.
pub(super) async fn run(
    mirror: &Mirror,
    mut published: Published,
    held: &CancellationToken,
    shutdown: &CancellationToken,
) -> anyhow::Result<()> {
    let mut last: Option<Instant> = None;
    let mut due: Option<Instant> = None;
    if (shutdown.run_until_cancelled(held.cancelled()).await).is_none() {
        return Ok(());
    }
    loop {
        let is_news = tokio::select! {
            biased;
            changed = published.news.changed() => {
                changed?;
                true
            }
            changed = published.instances.changed() => {
                changed?;
                false
            }
            changed = published.configurations.changed() => {
                changed?;
                published.configurations.mark_unchanged();
                true
            }
            () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                let is_written = mirror.write(&published).await?;
                let now = Instant::now();
                (last, due) = (Some(now), (!is_written).then_some(now + OTHERS_WAIT));
                continue;
            }
            // The last change is also written at the end. Objects that were never listed are not.
            () = shutdown.cancelled() => {
                if due.is_some() || published.instances.has_changed()? || published.configurations.has_changed()? {
                    mirror.write(&published).await?;
                }
                return Ok(());
            }
        };
        let pause = if is_news { BETWEEN_WRITES } else { OTHERS_WAIT };
        let settled = Instant::now() + SETTLE;
        let at = last.map_or(settled, |last| settled.max(last + pause));
        due = Some(due.map_or(at, |due| due.min(at)));
    }
}

fn write<T: Serialize>(path: &Path, objects: &[&Arc<T>]) -> anyhow::Result<()> {
    let objects: Vec<&T> = objects.iter().map(|object| &***object).collect();
    files::write_in_parts(path, FILE_MODE, |file| {
        Ok(serde_json::to_writer(file, &objects)?)
    })
    .with_context(|| path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_on_a_disk_that_takes_no_folder_is_a_start() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("state");
        fs::write(&state, "").unwrap();
        let mirror = Mirror::open(&state).unwrap();
        assert!(mirror.earlier().instances.is_empty());
        fs::remove_file(&state).unwrap();
        prepare(&mirror.folder).unwrap();
        assert!(mirror.folder.is_dir());
    }
}
