//! The store without a cluster: Configurations are the manifests in one folder, Instances manifests in another.
//!
//! `<state>/instances/<namespace>_<name>.yaml` are the Instances, `<state>/configurations/…` the status of each
//! Configuration, and `<state>/<file>.error` says why a manifest is not used. The state folder is the agent's alone.
//!
//! A file for each of them: `instances`, `configurations` and `reports`. What all three put on the disk is in `disk`.
mod configurations;
mod disk;
mod instances;
mod plan;
mod reports;

pub use instances::instances;
pub use reports::configurations;

use super::{
    About, Configurations, Exchange, InstanceChange, Instances, Report, Store, StoreError,
    plan::adopted,
};
use crate::{
    api::{
        configuration::{Configuration, ConfigurationStatus, Problem},
        reason::Reason,
    },
    files,
    folder_watch::FolderWatch,
    model::names::ObjectKey,
};
use anyhow::{Context as _, bail};
use futures::future::BoxFuture;
use plan::Known;
use std::{
    collections::BTreeMap,
    fs,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::{sync::watch, task::spawn_blocking, time::Instant};
use tokio_util::sync::CancellationToken;
use tracing::warn;

#[derive(Debug, Clone)]
pub struct Settings {
    pub node_name: String,
    /// Configurations, one or more to a `.yaml`, `.yml` or `.json` file.
    pub configurations: PathBuf,
    /// Instances and errors.
    pub state: PathBuf,
}

pub struct FolderStore {
    inner: Arc<Inner>,
}

struct Inner {
    settings: Settings,
    configurations: watch::Sender<Arc<Configurations>>,
    instances: watch::Sender<Arc<Instances>>,
    /// The files on the disk beside the Instances. Its lock is held over every change of the folder, so that changes
    /// to one Instance follow one another; never over an await.
    written: Mutex<Written>,
    started: Instant,
}

#[derive(Default)]
struct Written {
    known: Known,
    /// The problems of each file that were found while reading it.
    unreadable: BTreeMap<String, Vec<Problem>>,
    reports: BTreeMap<ObjectKey, Report>,
    errors: BTreeMap<String, String>,
    /// The status files, each with what it shows.
    statuses: BTreeMap<ObjectKey, (Arc<Configuration>, ConfigurationStatus)>,
}

impl FolderStore {
    /// Creates the folders and reads what is there.
    pub fn open(settings: Settings) -> anyhow::Result<Self> {
        for folder in [
            &settings.configurations,
            &settings.state,
            &settings.state.join("instances"),
            &settings.state.join("configurations"),
        ] {
            fs::create_dir_all(folder)
                .with_context(|| format!("cannot create the folder {}", folder.display()))?;
        }
        for own in ["", "instances", "configurations"] {
            files::check_owner(&settings.state.join(own))?;
        }
        check_folders(&settings)?;
        reports::clear(&settings.state)?;
        let mut instances = instances::read_instances(&settings.state.join("instances"))?;
        for instance in instances.values_mut() {
            *instance = Arc::new(adopted(instance, &settings.node_name));
        }
        let inner = Inner {
            configurations: watch::Sender::new(Arc::default()),
            instances: watch::Sender::new(Arc::new(instances)),
            written: Mutex::default(),
            started: Instant::now(),
            settings,
        };
        if let Err(e) = inner.read_configurations() {
            // It is tried again with the next look.
            warn!("the Configurations: {e:#}");
        }
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Inner) -> T + Send + 'static,
    ) -> T {
        let inner = self.inner.clone();
        spawn_blocking(move || work(&inner))
            .await
            .expect("file work does not panic and is not cancelled")
    }
}

impl Store for FolderStore {
    fn configurations(&self) -> watch::Receiver<Arc<Configurations>> {
        self.inner.configurations.subscribe()
    }

    fn instances(&self) -> watch::Receiver<Arc<Instances>> {
        self.inner.instances.subscribe()
    }

    fn earlier(&self) -> Instances {
        Instances::clone(&self.inner.instances.borrow())
    }

    fn merges(&self) -> bool {
        false
    }

    fn apply(&self, changes: Vec<InstanceChange>) -> BoxFuture<'_, Vec<Result<(), StoreError>>> {
        Box::pin(self.blocking(move |inner| inner.apply(&changes)))
    }

    fn exchange(&self, exchanges: Vec<Exchange>) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(self.blocking(move |inner| inner.exchange(&exchanges)))
    }

    fn report(
        &self,
        reports: BTreeMap<ObjectKey, Report>,
    ) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(self.blocking(move |inner| {
            let mut written = inner.lock();
            written.reports = reports;
            inner.write_reports(&mut written)
        }))
    }

    /// The log has it.
    fn warn(&self, _: &About, _: Reason, _: String) {}

    fn run(&self, shutdown: CancellationToken) -> BoxFuture<'_, anyhow::Result<()>> {
        Box::pin(async move {
            let mut watch = FolderWatch::new(&self.inner.settings.configurations);
            // Read once more at first: what changed since the folder was opened woke nobody.
            loop {
                if let Err(e) = self.blocking(Inner::read_configurations).await {
                    // What was read last goes on; the watch looks again.
                    warn!("cannot read the Configurations: {e:#}");
                }
                let changed = shutdown.run_until_cancelled(watch.changed()).await;
                if changed.is_none() {
                    return Ok(());
                }
            }
        })
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, Written> {
        // A panic while it was held leaves values that the next read replaces.
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The two folders must be two: what the agent writes is not what it reads, and it clears what it wrote.
fn check_folders(settings: &Settings) -> anyhow::Result<()> {
    let state = fs::canonicalize(&settings.state)?;
    let configurations = fs::canonicalize(&settings.configurations)?;
    let taken = [
        state.clone(),
        state.join("instances"),
        state.join("configurations"),
    ];
    if taken.contains(&configurations) {
        bail!(
            "{} is the agent's own, in the state folder {}: keep the Configurations elsewhere",
            configurations.display(),
            state.display()
        );
    }
    Ok(())
}
