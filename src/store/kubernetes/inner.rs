//! Holds what the parts of the store share, and publishes the Instances.
use super::{
    mirror::{Earlier, Mirror, Published},
    view::KnownInstances,
};
use crate::{
    api::{configuration::Configuration, instance::Instance},
    cluster::{
        events::{Events, about},
        watch as objects,
    },
    model::{
        instance_name::InstanceKey,
        typed_names::{ConfigurationKey, ConfigurationName, NodeName},
    },
    store::interface::{About, Configurations, Instances, Report, is_same},
};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::{Api, Client};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::{sync::watch, time::sleep};
use tokio_util::sync::CancellationToken;
use tracing::info;

/// The time for which the agent waits for the API server before it uses the mirror.
pub(super) const FIRST_LIST: Duration = Duration::from_secs(2);

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

pub(super) struct Inner {
    pub(super) client: Client,
    pub(super) settings: Settings,
    pub(super) events: Events,
    pub(super) mirror: Mirror,
    /// The known Instances. The lock is never held over an await.
    pub(super) known: Mutex<KnownInstances>,
    pub(super) instances: watch::Sender<Arc<Instances>>,
    /// Changes with the Instances, but not if the only change is which slots other nodes hold.
    pub(super) news: watch::Sender<()>,
    pub(super) configurations: watch::Sender<Arc<Configurations>>,
    /// The Configurations with their status, as on the API server.
    pub(super) watched: watch::Sender<objects::Set<Configuration, ConfigurationName>>,
    /// The watches of Instances that have received a complete list.
    pub(super) listed: watch::Sender<BTreeSet<Option<String>>>,
    /// The reports of all Configurations; `None` until the agent has reported. An agent without Configurations reports, too:
    /// its object says that it runs.
    pub(super) reports: watch::Sender<Option<BTreeMap<ConfigurationKey, Report>>>,
}

impl Inner {
    /// Changes the known Instances. [`Self::publish`] publishes them.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut KnownInstances) -> T) -> T {
        // A panic while the lock was held leaves values that the next event replaces.
        change(&mut self.known.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Publishes the Instances. Before the first list nothing is published, because an empty set would be wrong.
    pub(super) fn publish(&self) {
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

    pub(super) fn published(&self) -> Published {
        Published {
            instances: self.instances.subscribe(),
            news: self.news.subscribe(),
            configurations: self.configurations.subscribe(),
        }
    }

    pub(super) fn has_listed(&self) -> bool {
        self.has_listed_all(&self.listed.borrow())
    }

    pub(super) fn has_listed_all(&self, listed: &BTreeSet<Option<String>>) -> bool {
        listed.len() >= self.settings.namespaces.len().max(1)
    }

    /// Publishes the mirror if the server does not answer. The first list of the server replaces it.
    pub(super) async fn begin_without_server(
        &self,
        shutdown: &CancellationToken,
    ) -> anyhow::Result<()> {
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

    pub(super) fn reference(&self, object: &About) -> Option<ObjectReference> {
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

    pub(super) fn instance_api(&self, key: &InstanceKey) -> Api<Instance> {
        Api::namespaced(self.client.clone(), &key.namespace)
    }
}
