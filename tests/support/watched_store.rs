//! Implements a store that counts writes, and whose claims a test can block between their write and their answer.
use futures::future::BoxFuture;
use petiole::{
    api::{instance::Instance, reason::Reason},
    model::slot_table::SlotChange,
    store::{About, Configurations, Instances, Reports, Store, StoreError, folder::FolderStore},
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

    fn is_remote(&self) -> bool {
        self.inner.is_remote()
    }

    fn exchange(&self, changes: Vec<SlotChange>) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async move {
            let outcome = self.inner.exchange(changes).await;
            let mut is_held_up = self.watch.is_held_up.subscribe();
            is_held_up.wait_for(|is_held_up| !is_held_up).await.unwrap();
            outcome
        })
    }

    fn report(&self, reports: Reports) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async move {
            let before = self.inner.instances().borrow().clone();
            let outcome = self.inner.report(reports).await;
            let after = self.inner.instances().borrow().clone();
            let mut writes = self.watch.writes.lock().unwrap();
            for (key, instance) in after.iter() {
                let is_same = |before: &Arc<Instance>| Arc::ptr_eq(before, instance);
                if !before.get(key).is_some_and(is_same) {
                    *writes.entry(key.name.to_string()).or_default() += 1;
                }
            }
            outcome
        })
    }

    fn run(&self, shutdown: CancellationToken) -> BoxFuture<'_, anyhow::Result<()>> {
        self.inner.run(shutdown)
    }
}
