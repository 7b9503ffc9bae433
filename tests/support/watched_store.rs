//! Implements a store that counts writes, and whose claims a test can block between their write and their answer.
use futures::future::BoxFuture;
use petiole::{
    api::reason::Reason,
    model::typed_names::ConfigurationKey,
    store::{
        About, Configurations, Exchange, InstanceChange, Instances, Report, Store, StoreError,
        folder::FolderStore,
    },
};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// The object, the reason and the note of a warning.
pub type Warning = (About, Reason, String);

/// The state of all stores that the test reads and controls. It outlives the agent.
#[derive(Clone, Default)]
pub struct StoreWatch {
    /// While this is set, claims and releases that are written are not answered.
    pub is_held_up: watch::Sender<bool>,
    /// The number of writes by the name of the Instance.
    pub writes: Arc<Mutex<BTreeMap<String, usize>>>,
    /// The warnings about objects.
    pub warnings: Arc<Mutex<Vec<Warning>>>,
}

pub struct WatchedStore {
    pub inner: Arc<FolderStore>,
    pub watch: StoreWatch,
}

impl Store for WatchedStore {
    fn configurations(&self) -> watch::Receiver<Arc<Configurations>> {
        self.inner.configurations()
    }

    fn instances(&self) -> watch::Receiver<Arc<Instances>> {
        self.inner.instances()
    }

    fn news(&self) -> watch::Receiver<()> {
        self.inner.news()
    }

    fn earlier(&self) -> Instances {
        self.inner.earlier()
    }

    fn warn(&self, object: &About, reason: Reason, note: String) {
        let mut warnings = self.watch.warnings.lock().unwrap();
        warnings.push((object.clone(), reason, note.clone()));
        self.inner.warn(object, reason, note);
    }

    fn merges(&self) -> bool {
        self.inner.merges()
    }

    fn apply(&self, changes: Vec<InstanceChange>) -> BoxFuture<'_, Vec<Result<(), StoreError>>> {
        let mut writes = self.watch.writes.lock().unwrap();
        for change in &changes {
            *writes.entry(change.key().name.into()).or_default() += 1;
        }
        drop(writes);
        self.inner.apply(changes)
    }

    fn exchange(&self, changes: Vec<Exchange>) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async move {
            let outcome = self.inner.exchange(changes).await;
            let mut is_held_up = self.watch.is_held_up.subscribe();
            is_held_up.wait_for(|is_held_up| !is_held_up).await.unwrap();
            outcome
        })
    }

    fn report(
        &self,
        reports: BTreeMap<ConfigurationKey, Report>,
    ) -> BoxFuture<'_, Result<(), StoreError>> {
        self.inner.report(reports)
    }

    fn run(&self, shutdown: CancellationToken) -> BoxFuture<'_, anyhow::Result<()>> {
        self.inner.run(shutdown)
    }
}
