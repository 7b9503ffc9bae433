//! Stores the last known objects on the disk. An agent that starts while the API server is unreachable serves its
//! devices from them.
use super::Inner;
use crate::{
    api::{configuration::Configuration, instance::Instance},
    files,
    store::{Configurations, Instances, instance_key, key_of},
};
use anyhow::Context as _;
use serde::{Serialize, de::DeserializeOwned};
use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tokio::{
    task::spawn_blocking,
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;
use tracing::warn;

const FILE_MODE: u32 = 0o600;
/// The time within which changes are collected for one write.
const SETTLE: Duration = Duration::from_millis(500);
/// The shortest time between two writes during continuous changes, because flash memory wears out.
const BETWEEN_WRITES: Duration = Duration::from_secs(2);

/// The contents of `<state>/mirror/{instances,configurations}.json` when the agent started.
pub(super) struct Mirror {
    folder: PathBuf,
    instances: Vec<Instance>,
    configurations: Vec<Configuration>,
}

impl Mirror {
    pub(super) fn open(state: &Path) -> anyhow::Result<Self> {
        let folder = state.join("mirror");
        fs::create_dir_all(&folder)
            .with_context(|| format!("cannot create the folder {}", folder.display()))?;
        files::check_owner(state)?;
        files::check_owner(&folder)?;
        Ok(Self {
            instances: read(&folder.join("instances.json")),
            configurations: read(&folder.join("configurations.json")),
            folder,
        })
    }

    pub(super) fn instances(&self) -> Instances {
        let all = self.instances.iter();
        all.map(|i| (instance_key(&i.metadata), Arc::new(i.clone())))
            .collect()
    }

    /// Returns the Configurations. They are not complete, because later deletions are unknown.
    pub(super) fn configurations(&self) -> Configurations {
        let all = self.configurations.iter();
        Configurations {
            objects: all
                .map(|c| (key_of(&c.metadata), Arc::new(c.clone())))
                .collect(),
            ..Configurations::default()
        }
    }
}

/// Reads one file. An unreadable file counts as empty, because it is written again.
fn read<T: DeserializeOwned>(path: &Path) -> Vec<T> {
    let text = match fs::read(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return vec![],
        text => text,
    };
    let read = text
        .map_err(anyhow::Error::from)
        .and_then(|text| Ok(serde_json::from_slice(&text)?));
    read.unwrap_or_else(|e| {
        warn!("{}: not used: {e:#}", path.display());
        vec![]
    })
}

/// Writes the published objects at each change.
pub(super) async fn run(inner: &Inner, shutdown: &CancellationToken) -> anyhow::Result<()> {
    let mut instances = inner.instances.subscribe();
    let mut configurations = inner.configurations.subscribe();
    let mut next = Instant::now();
    loop {
        tokio::select! {
            changed = instances.changed() => changed?,
            changed = configurations.changed() => changed?,
            // The last change is also written at the end. Objects that were never listed are not.
            () = shutdown.cancelled() => {
                if !instances.has_changed()? && !configurations.has_changed()? {
                    return Ok(());
                }
            }
        }
        let settled = sleep_until(next.max(Instant::now() + SETTLE));
        shutdown.run_until_cancelled(settled).await;
        next = Instant::now() + BETWEEN_WRITES;
        let folder = inner.mirror.folder.clone();
        let now = instances.borrow_and_update().clone();
        let all = configurations.borrow_and_update().clone();
        let written = spawn_blocking(move || {
            let now: Vec<_> = now.values().collect();
            write(&folder.join("instances.json"), &now)?;
            let all: Vec<_> = all.objects.values().collect();
            write(&folder.join("configurations.json"), &all)
        });
        if let Err(e) = written.await? {
            warn!(
                "cannot write the mirror; a start without the API server would use old objects: {e:#}"
            );
        }
    }
}

fn write<T: Serialize>(path: &Path, objects: &[&Arc<T>]) -> anyhow::Result<()> {
    let objects: Vec<&T> = objects.iter().map(|object| &***object).collect();
    let text = serde_json::to_vec(&objects)?;
    files::write_durably(path, &text, FILE_MODE).with_context(|| path.display().to_string())
}
