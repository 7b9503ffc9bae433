//! Follows the watches of the store, and takes over their events in batches.
use super::{
    inner::Inner,
    view::{self, KnownInstances},
};
use crate::{
    api::{
        configuration::Configuration,
        instance::{Instance, InstanceSpec},
        names,
    },
    cluster::{
        instance_key,
        watch::{self as objects, Bounded, Objects, Read, apis},
    },
    model::{budget::Room, limits, typed_names::ConfigurationName},
    store::interface::Configurations,
};
use futures::{StreamExt as _, stream::select_all};
use kube::{
    Resource as _,
    core::ObjectMeta,
    runtime::watcher::{self, Event},
};
use std::{sync::Arc, time::Duration};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::warn;

/// A Configuration as agents read it.
type ForAgents = Bounded<Configuration, true>;

/// The shortest time between two publications of events of which the second only says which slots other nodes hold. A
/// publication costs in proportion to all Instances, and in a large cluster nearly all changes are such.
const BETWEEN_OTHERS: Duration = Duration::from_millis(100);

impl Inner {
    pub(super) async fn follow_instances(
        &self,
        shutdown: &CancellationToken,
    ) -> anyhow::Result<()> {
        let label = names::node_label(&self.settings.node_name);
        let config = watcher::Config::default().labels(&label);
        let streams = apis::<Instance>(&self.client, &self.settings.namespaces)
            .into_iter()
            .map(|api| {
                let namespace = api.namespace().map(str::to_owned);
                let events =
                    objects::events(api, objects::Selection::new("instances", config.clone()));
                Box::pin(events.map(move |batch| (namespace.clone(), batch)))
            });
        let mut streams = select_all(streams);
        let mut published = Instant::now();
        let mut due: Option<Instant> = None;
        loop {
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return Ok(()),
                () = sleep_until(due.unwrap_or(published)), if due.is_some() => {
                    self.publish();
                    (published, due) = (Instant::now(), None);
                }
                batch = streams.next() => {
                    let Some((namespace, batch)) = batch else { return Ok(()) };
                    self.take(&namespace, batch);
                    if self.change(|known| known.has_news()) {
                        self.publish();
                        (published, due) = (Instant::now(), None);
                    } else {
                        due = Some(published + BETWEEN_OTHERS);
                    }
                }
            }
        }
    }

    fn take(&self, namespace: &Option<String>, batch: Vec<watcher::Result<Event<Read<Instance>>>>) {
        // An unreachable server changes nothing: the known objects stay.
        for event in batch.into_iter().flatten() {
            let is_complete = matches!(event, Event::InitDone);
            let event = instance_event(event);
            self.change(|known| known.follow(namespace, event));
            if is_complete {
                self.listed.send_modify(|listed| {
                    listed.insert(namespace.clone());
                });
                if self.has_listed() {
                    self.change(KnownInstances::begin);
                }
            }
        }
    }

    pub(super) async fn follow_configurations(
        &self,
        shutdown: CancellationToken,
    ) -> anyhow::Result<()> {
        let apis = apis::<ForAgents>(&self.client, &self.settings.namespaces);
        let config = watcher::Config::default();
        let room = Room {
            count: self.settings.max_configurations,
            bytes: limits::CONFIGURATIONS_BYTES_MAX,
        };
        let selection = objects::Selection::new("configurations", config).within(room);
        let reduce = |ForAgents { mut object, bytes }: ForAgents| {
            object.metadata.resource_version = None;
            (object, bytes)
        };
        objects::run_within(apis, selection, reduce, self.watched.clone(), shutdown).await
    }

    /// Publishes Configurations only after the Instances. If a Configuration came before its Instances, each device
    /// would be created a second time.
    pub(super) async fn publish_configurations(
        &self,
        shutdown: &CancellationToken,
    ) -> anyhow::Result<()> {
        let mut watched = self.watched.subscribe();
        let mut listed = self.listed.subscribe();
        let follow = async {
            listed
                .wait_for(|listed| self.has_listed_all(listed))
                .await?;
            loop {
                if let Some(set) = &*watched.borrow_and_update() {
                    self.configurations.send_if_modified(|current| {
                        let now = configurations(set, current);
                        let is_changed = !is_same(current, &now);
                        *current = Arc::new(now);
                        is_changed
                    });
                }
                watched.changed().await?;
            }
        };
        shutdown.run_until_cancelled(follow).await.unwrap_or(Ok(()))
    }
}

/// Converts an event of a watch for the view.
fn instance_event(event: Event<Read<Instance>>) -> view::Event {
    let read = |object: Read<Instance>| {
        object.0.map(Box::new).map_err(|invalid| {
            let key = instance_key(&invalid.metadata);
            warn!(instance = %key, "it cannot be read and stays as it was: {}", invalid.error);
            Box::new(invalid.metadata)
        })
    };
    let unreadable = |metadata: Box<ObjectMeta>| view::Event::Unreadable(instance_key(&metadata));
    match event {
        Event::Init => view::Event::Init,
        Event::InitDone => view::Event::Complete,
        Event::InitApply(object) => read(object).map_or_else(unreadable, view::Event::Listed),
        Event::Apply(object) => read(object).map_or_else(unreadable, view::Event::Applied),
        Event::Delete(object) => {
            let gone = read(object).unwrap_or_else(|metadata| {
                let mut gone = Instance::new("", InstanceSpec::default());
                gone.metadata = *metadata;
                Box::new(gone)
            });
            view::Event::Deleted(gone)
        }
    }
}

/// Converts the Configurations for the agent. One that says the same as `before` stays the same object: most changes are of
/// the status, which is not read.
fn configurations(
    set: &Objects<Configuration, ConfigurationName>,
    before: &Configurations,
) -> Configurations {
    let mut all = Configurations {
        hidden: set.unreadable.keys().cloned().collect(),
        left_out: set.left_out.clone(),
        is_complete: true,
        ..Configurations::default()
    };
    for (key, configuration) in &set.objects {
        if configuration.meta().deletion_timestamp.is_none() {
            let before = before.objects.get(key);
            let same = before
                .filter(|before| Arc::ptr_eq(before, configuration) || *before == configuration);
            (all.objects).insert(key.clone(), same.unwrap_or(configuration).clone());
        }
    }
    all
}

/// Returns whether both have the same. The Configurations of `now` are those of `before` where they say the same.
fn is_same(before: &Configurations, now: &Configurations) -> bool {
    (&before.hidden, &before.left_out, before.is_complete)
        == (&now.hidden, &now.left_out, now.is_complete)
        && before.objects.len() == now.objects.len()
        && (before.objects.iter().zip(&now.objects))
            .all(|(before, now)| before.0 == now.0 && Arc::ptr_eq(before.1, now.1))
}

#[cfg(test)]
#[path = "watches_tests.rs"]
mod tests;
