//! Implements the store without a cluster: Configurations are the manifests in one folder, and Instances those in
//! another.
//!
//! `<state>/instances/<namespace>_<name>.yaml` are the Instances, `<state>/configurations/…` the status of each
//! Configuration, and `<state>/<file>.error` says why a manifest is not used. Only the agent writes to the state
//! folder.
//!
//! Each of these has a file here: `instances`, `configurations` and `reports`. They write to the disk through `disk`. `merge`
//! makes Instances of the agent's reports.
mod configurations;
mod disk;
mod inner;
mod instances;
mod merge;
mod plan;
mod reports;

pub use inner::Settings;
pub use instances::instances;
pub use reports::{configurations, errors};

use super::{
    interface::{About, Configurations, Instances, Reports, Store, StoreError},
    plan::adopted,
};
use crate::{
    api::{configuration::Configuration, instance::Instance, reason::Reason},
    files,
    folder_watch::FolderWatch,
    model::slot_table::SlotChange,
};
use anyhow::{Context as _, bail};
use futures::future::BoxFuture;
use inner::Inner;
use std::{
    fs,
    path::Path,
    sync::{Arc, Mutex},
};
use tokio::{sync::watch, task::spawn_blocking, time::Instant};
use tokio_util::sync::CancellationToken;
use tracing::warn;

/// The changes of Instances that are written while the lock is held: the claim of a container waits for it.
const CHANGES_AT_ONCE: usize = 32;

pub struct FolderStore {
    inner: Arc<Inner>,
}

impl FolderStore {
    /// Creates the folders and reads their contents.
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
            news: watch::Sender::new(()),
            reported: watch::Sender::new(()),
            written: Mutex::default(),
            started: Instant::now(),
            settings,
        };
        if let Err(e) = inner.read_configurations() {
            // The next look tries it again.
            warn!("the Configurations: {e:#}");
        }
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    /// Returns when the agent has reported the answer of each Configuration's handler, or what is wrong with it.
    pub async fn answered(&self) {
        let mut reported = self.inner.reported.subscribe();
        while !self.is_answered() && reported.changed().await.is_ok() {}
    }

    pub fn is_answered(&self) -> bool {
        let configurations = self.inner.configurations.borrow().clone();
        plan::is_answered(&configurations, &self.inner.lock().reports)
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

    /// There are no other nodes, so every change is news.
    fn news(&self) -> watch::Receiver<()> {
        self.inner.news.subscribe()
    }

    fn earlier(&self) -> Instances {
        Instances::clone(&self.inner.instances.borrow())
    }

    /// A file is written in less than a millisecond, and an agent that starts knows the slots from it without the kubelet.
    fn is_remote(&self) -> bool {
        false
    }

    fn exchange(&self, changes: Vec<SlotChange>) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(self.blocking(move |inner| inner.exchange(&changes)))
    }

    /// Makes the Instances of the reports, as the controller of a cluster does.
    fn report(&self, reports: Reports) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async move {
            let mut merged = self
                .blocking(move |inner| inner.take_reports(reports))
                .await;
            let mut outcome = Ok(());
            while !merged.is_empty() {
                let rest = merged.split_off(merged.len().min(CHANGES_AT_ONCE));
                let some = std::mem::replace(&mut merged, rest);
                outcome = outcome.and(self.blocking(move |inner| inner.carry_out(some)).await);
            }
            let told = self.blocking(Inner::publish_reports).await;
            outcome.and(told)
        })
    }

    /// The log contains the warning.
    fn warn(&self, _: &About, _: Reason, _: String) {}

    fn run(&self, shutdown: CancellationToken) -> BoxFuture<'_, anyhow::Result<()>> {
        Box::pin(async move {
            let mut watch = FolderWatch::new(&self.inner.settings.configurations);
            // The folder is read once more at first, because changes since it was opened caused no event.
            loop {
                if let Err(e) = self.blocking(Inner::read_configurations).await {
                    // The Configurations that were read last stay in use; the watch reads again.
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

/// Returns the Configurations and the Instances in an agent's state folder.
pub fn objects(state: &Path) -> anyhow::Result<(Vec<Configuration>, Vec<Instance>)> {
    Ok((configurations(state)?, instances(state)?))
}

/// Checks that the two folders differ, because the agent clears the folder that it writes to.
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
            "{} is in the state folder {}, which the agent clears: keep the Configurations elsewhere",
            configurations.display(),
            state.display()
        );
    }
    Ok(())
}
