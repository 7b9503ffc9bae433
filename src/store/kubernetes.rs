//! Implements the store of a cluster, which uses the API server.
//!
//! ```text
//! watches ─> known ─> Instances, Configurations ─> agent ─> NodeDevices: all that the node sees    (published over a watch)
//!              ^                                     │
//!              └── answers of the API server <── slots: one guarded patch for each Instance
//! ```
//! An agent watches the Configurations and those Instances that carry its node's label. A write is in its sets as
//! soon as the server has answered. With a mirror on the disk the agent can begin without the server.
mod mirror;
mod own;
mod own_bounds;
pub(crate) mod own_plan;
pub mod plan;
pub(crate) mod view;
mod watches;
mod writes;

use super::{
    interface::{About, Configurations, Instances, Report, Reports, Store, StoreError, is_same},
    plan::by_instance,
};
use crate::{
    api::{configuration::Configuration, instance::Instance, reason::Reason},
    cluster::{
        events::{self, Events, about},
        watch as objects,
    },
    model::{
        instance_name::InstanceKey,
        slot_table::SlotChange,
        typed_names::{ConfigurationKey, ConfigurationName, NodeName},
    },
};
use futures::future::{BoxFuture, join_all};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::{Api, Client};
use mirror::{Earlier, Mirror};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::{sync::watch, time::sleep};
use tokio_util::sync::CancellationToken;
use tracing::info;
use view::KnownInstances;

/// The time for which the agent waits for the API server before it uses the mirror.
const FIRST_LIST: Duration = Duration::from_secs(2);

#[derive(Debug, Clone)]
pub struct Settings {
    pub node_name: NodeName,
    /// The namespaces that are watched; all namespaces if the set is empty.
    pub namespaces: Vec<String>,
    /// The folder of the mirror.
    pub state: PathBuf,
    /// The most Configurations that are read.
    pub max_configurations: usize,
}

pub struct KubernetesStore {
    inner: Arc<Inner>,
    /// Cancelled as soon as this process may write the mirror.
    held: CancellationToken,
    /// The writer of Events until the store ends. `run` takes it.
    events: Mutex<Option<events::Writer>>,
}

struct Inner {
    client: Client,
    settings: Settings,
    events: Events,
    mirror: Mirror,
    /// The known Instances. The lock is never held over an await.
    known: Mutex<KnownInstances>,
    instances: watch::Sender<Arc<Instances>>,
    /// Changes with the Instances, but not if the only change is which slots other nodes hold.
    news: watch::Sender<()>,
    configurations: watch::Sender<Arc<Configurations>>,
    /// The Configurations with their status, as on the API server.
    watched: watch::Sender<objects::Set<Configuration, ConfigurationName>>,
    /// The watches of Instances that have received a complete list.
    listed: watch::Sender<BTreeSet<Option<String>>>,
    /// The reports of all Configurations; `None` until the agent has reported. An agent without Configurations reports, too:
    /// its object says that it runs.
    reports: watch::Sender<Option<BTreeMap<ConfigurationKey, Report>>>,
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
                mirror::run(inner, &held, &shutdown),
            )?;
            Ok(())
        })
    }
}

impl Inner {
    /// Changes the known Instances. [`Self::publish`] publishes them.
    fn change<T>(&self, change: impl FnOnce(&mut KnownInstances) -> T) -> T {
        // A panic while the lock was held leaves values that the next event replaces.
        change(&mut self.known.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Publishes the Instances. Before the first list nothing is published, because an empty set would be wrong.
    fn publish(&self) {
        // The Instances are read under the lock of the channel, so that of two publications the later one is newer; and whom
        // `news` wakes reads them after that.
        self.instances.send_if_modified(|current| {
            let published = self.change(|known| {
                let publish = |known: &mut KnownInstances| (known.published(), known.take_news());
                known.has_begun().then(|| publish(known))
            });
            let Some((now, is_news)) = published else {
                return false;
            };
            let is_changed = !is_same(current, &now);
            *current = Arc::new(now);
            if is_news && is_changed {
                self.news.send_replace(());
            }
            is_changed
        });
    }

    fn has_listed(&self) -> bool {
        self.has_listed_all(&self.listed.borrow())
    }

    fn has_listed_all(&self, listed: &BTreeSet<Option<String>>) -> bool {
        listed.len() >= self.settings.namespaces.len().max(1)
    }

    /// Publishes the mirror if the server does not answer. The first list of the server replaces it.
    async fn begin_without_server(&self, shutdown: &CancellationToken) -> anyhow::Result<()> {
        let mut listed = self.listed.subscribe();
        let is_listed = listed.wait_for(|listed| self.has_listed_all(listed));
        tokio::select! {
            biased; // what the server says is better
            () = shutdown.cancelled() => {}
            _ = is_listed => {
                self.mirror.take();
            }
            () = sleep(FIRST_LIST) => {
                let Earlier { instances, configurations } = self.mirror.take();
                if instances.is_empty() && configurations.objects.is_empty() {
                    return Ok(());
                }
                info!(
                    instances = instances.len(),
                    configurations = configurations.objects.len(),
                    "the API server does not answer: the agent begins with the objects of its last run"
                );
                let listed = self.listed.borrow().clone();
                let is_listed = |namespace: &str| listed.contains(&Some(namespace.to_owned()));
                self.change(|known| known.begin_with(instances, is_listed));
                self.publish();
                self.configurations.send_replace(Arc::new(configurations));
            }
        }
        Ok(())
    }

    fn reference(&self, object: &About) -> Option<ObjectReference> {
        match object {
            About::Instance(key) => self.instances.borrow().get(key).map(|i| about(&**i)),
            About::Configuration(key) => {
                let watched = self.watched.borrow();
                let set = watched.as_ref()?;
                set.objects
                    .get(key)
                    .map(|configuration| about(&**configuration))
            }
        }
    }

    fn instance_api(&self, key: &InstanceKey) -> Api<Instance> {
        Api::namespaced(self.client.clone(), &key.namespace)
    }
}
