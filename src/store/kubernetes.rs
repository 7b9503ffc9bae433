//! Implements the store of a cluster, which uses the API server.
//!
//! ```text
//! watches ─> known ─> Instances, Configurations ─> agent ─> NodeDevices: all that the node sees    (published over a watch)
//!              ^                                     │
//!              └── answers of the API server <── slots: one guarded patch for each Instance
//! ```
//! An agent watches the Configurations and those Instances that carry its node's label. A write is in its sets as
//! soon as the server has answered. With a mirror on the disk the agent can begin without the server.
mod inner;
mod mirror;
mod own;
mod own_bounds;
pub(crate) mod own_plan;
pub mod plan;
pub(crate) mod view;
mod watches;
mod writes;

pub use inner::Settings;

use super::{
    interface::{About, Configurations, Instances, Reports, Store, StoreError},
    plan::by_instance,
};
use crate::{
    api::reason::Reason,
    cluster::events::{self},
    model::slot_table::SlotChange,
};
use futures::future::{BoxFuture, join_all};
use inner::Inner;
use kube::Client;
use mirror::Mirror;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use view::KnownInstances;

pub struct KubernetesStore {
    inner: Arc<Inner>,
    /// Cancelled as soon as this process may write the mirror.
    held: CancellationToken,
    /// The writer of Events until the store ends. `run` takes it.
    events: Mutex<Option<events::Writer>>,
}

impl KubernetesStore {
    /// Reads the mirror. Nothing is published before `run`.
    pub fn new(client: Client, settings: Settings) -> anyhow::Result<Self> {
        let (events, writer) = events::events(client.clone(), "petiole-agent", &settings.node_name);
        let mirror = Mirror::open(&settings.state)?;
        let inner = Inner {
            known: Mutex::new(KnownInstances::new(&settings.node_name)),
            mirror,
            client,
            events,
            instances: watch::Sender::default(),
            news: watch::Sender::default(),
            configurations: watch::Sender::default(),
            watched: watch::Sender::default(),
            listed: watch::Sender::default(),
            reports: watch::Sender::default(),
            settings,
        };
        let held = CancellationToken::new();
        held.cancel();
        Ok(Self {
            held,
            inner: Arc::new(inner),
            events: Mutex::new(Some(writer)),
        })
    }

    /// Leaves the mirror to another agent until `held` is cancelled.
    pub fn standing_by(self, held: CancellationToken) -> Self {
        Self { held, ..self }
    }
}

impl Store for KubernetesStore {
    fn configurations(&self) -> watch::Receiver<Arc<Configurations>> {
        self.inner.configurations.subscribe()
    }

    fn instances(&self) -> watch::Receiver<Arc<Instances>> {
        self.inner.instances.subscribe()
    }

    fn news(&self) -> watch::Receiver<()> {
        self.inner.news.subscribe()
    }

    fn earlier(&self) -> Instances {
        self.inner.mirror.earlier().instances
    }

    fn is_remote(&self) -> bool {
        true
    }

    fn exchange(&self, changes: Vec<SlotChange>) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async move {
            let writes = by_instance(&changes)
                .into_iter()
                .map(|(key, changes)| self.inner.exchange(key, changes));
            let outcomes = join_all(writes).await;
            self.inner.publish();
            outcomes.into_iter().collect()
        })
    }

    /// A controller takes what is left out of a report to be gone, so that only whole ones are published.
    fn report(&self, reports: Reports) -> BoxFuture<'_, Result<(), StoreError>> {
        self.inner.reports.send_if_modified(|before| {
            let is_changed = reports.is_whole && before.as_ref() != Some(&reports.of);
            if is_changed {
                *before = Some(reports.of);
            }
            is_changed
        });
        Box::pin(async { Ok(()) })
    }

    fn warn(&self, object: &About, reason: Reason, note: String) {
        if let Some(object) = self.inner.reference(object) {
            self.inner.events.warning(object, reason.as_str(), note);
        }
    }

    fn run(&self, shutdown: CancellationToken) -> BoxFuture<'_, anyhow::Result<()>> {
        let writer = self
            .events
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let (inner, held) = (&*self.inner, self.held.clone());
        Box::pin(async move {
            let own = watch::Sender::new(None);
            let seen = own.subscribe();
            let events = async {
                match writer {
                    Some(writer) => writer.run(shutdown.clone()).await,
                    None => Ok(()),
                }
            };
            tokio::try_join!(
                events,
                inner.follow_instances(&shutdown),
                inner.follow_configurations(shutdown.clone()),
                inner.publish_configurations(&shutdown),
                inner.begin_without_server(&shutdown),
                own::follow(inner, own, shutdown.clone()),
                own::run(inner, seen, &shutdown),
                mirror::run(&inner.mirror, inner.published(), &held, &shutdown),
            )?;
            Ok(())
        })
    }
}
