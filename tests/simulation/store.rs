//! The agent's store: the requests of `store::kubernetes::writes`, in its order and with its tries.
//!
//! What is sent, what an answer means and what is known afterwards is decided by the real `store::kubernetes::plan`,
//! `store::plan` and `store::kubernetes::view`. The loop around them is written again here, function by function.
use super::network::{Client, Event, follow};
use crate::{
    agent::configurations::Judged,
    api::instance::Instance,
    backoff::Backoff,
    cluster::{code, is_conflict, is_not_found, is_unprocessable, reason},
    model::names::ObjectKey,
    store::{
        Exchange, InstanceChange, Instances, StoreError, View, is_same,
        kubernetes::{
            plan::{self, Description, Met, met},
            view::{self, Known},
        },
        plan::{exchanged, forced, in_use_by},
    },
};
use futures::future::join_all;
use json_patch::Patch;
use kube::api::Preconditions;
use serde_json::Value;
use std::{cell::RefCell, collections::BTreeMap, rc::Rc, sync::Arc, time::Duration};
use tokio::sync::watch;

const TRIES: usize = 4;
const LOCAL_WRITE_TIMEOUT: Duration = Duration::from_secs(1);
const FIRST_LIST: u64 = 2_000;
const BETWEEN_MIRRORS: u64 = 500;

/// What is on a node's disk.
pub(super) type Mirror = Rc<RefCell<Instances>>;

pub(super) struct Store {
    pub(super) node: String,
    client: Client,
    known: RefCell<Known>,
    mirror: Mirror,
    pub(super) instances: watch::Sender<Arc<Instances>>,
    /// The Configurations are listed together with the Instances; whether the list is the server's.
    pub(super) judged: watch::Sender<Option<(Arc<Judged>, bool)>>,
    is_listed: watch::Sender<bool>,
    postponed: watch::Sender<()>,
}

type Made<T> = Result<T, StoreError>;

impl Store {
    pub(super) fn new(node: &str, client: Client, mirror: Mirror) -> Self {
        let earlier = mirror.borrow().clone();
        Self {
            node: node.to_owned(),
            known: RefCell::new(Known::new(node, earlier)),
            client,
            mirror,
            instances: watch::Sender::default(),
            judged: watch::Sender::default(),
            is_listed: watch::Sender::new(false),
            postponed: watch::Sender::default(),
        }
    }

    pub(super) fn is_pending(&self) -> bool {
        self.known.borrow().is_pending()
    }

    fn change<T>(&self, change: impl FnOnce(&mut Known) -> T) -> T {
        change(&mut self.known.borrow_mut())
    }

    fn publish(&self) {
        let now = self.change(|known| known.has_begun().then(|| known.published()));
        let Some(now) = now else { return };
        self.instances.send_if_modified(|current| {
            let is_changed = !is_same(current, &now);
            *current = Arc::new(now);
            is_changed
        });
    }

    /// Writes the mirror a little after each change, as `store::kubernetes::mirror` does.
    pub(super) async fn keep_mirror(self: Rc<Self>) {
        let mut instances = self.instances.subscribe();
        while instances.changed().await.is_ok() {
            self.client.world.machine.sleep(BETWEEN_MIRRORS).await;
            *self.mirror.borrow_mut() = Instances::clone(&instances.borrow_and_update());
        }
    }

    pub(super) async fn begin_without_server(self: Rc<Self>) {
        let mut listed = self.is_listed.subscribe();
        let machine = &self.client.world.machine;
        let is_listed = Box::pin(listed.wait_for(|listed| *listed));
        let limit = Duration::from_millis(FIRST_LIST);
        if machine.timeout(limit, is_listed).await.is_none() {
            let earlier = self.mirror.borrow().clone();
            if !earlier.is_empty() {
                self.change(|known| known.begin_with(earlier, |_| false));
                self.publish();
                let judged = self.client.world.judged.clone();
                self.judged.send_replace(Some((judged, false)));
            }
        }
    }

    pub(super) async fn follow_instances(self: Rc<Self>) {
        let label = crate::api::names::node_label(&self.node);
        let selects = move |instance: &Instance| {
            let labels = instance.metadata.labels.as_ref();
            labels.is_some_and(|labels| labels.contains_key(&label))
        };
        let on = |events: Vec<Event<Instance>>| {
            for event in events {
                let is_complete = matches!(event, Event::Complete);
                self.change(|known| known.follow(&None, read(event)));
                if is_complete {
                    self.change(Known::begin);
                    let judged = self.client.world.judged.clone();
                    self.judged.send_replace(Some((judged, true)));
                    self.is_listed.send_replace(true);
                }
            }
            self.publish();
        };
        follow(self.client.clone(), |server| &server.instances, selects, on).await;
    }

    /// Writes what is pending: after each event, and again where a write did not succeed.
    pub(super) async fn keep_making_up(self: Rc<Self>) {
        let mut instances = self.instances.subscribe();
        let mut postponed = self.postponed.subscribe();
        let (first, last) = (Duration::from_millis(500), Duration::from_secs(10));
        let mut backoff = Backoff::new(first, last);
        loop {
            if self.make_up().await {
                backoff.reset();
            }
            let wait = match self.is_pending() {
                true => backoff.next_wait(),
                false => Duration::from_secs(1_000_000),
            };
            let changed = Box::pin(async {
                tokio::select! {
                    biased;
                    _ = instances.changed() => {}
                    _ = postponed.changed() => {}
                }
            });
            self.client.world.machine.timeout(wait, changed).await;
        }
    }

    pub(super) async fn apply(&self, changes: Vec<InstanceChange>) -> Vec<Made<()>> {
        let mut by_instance: BTreeMap<ObjectKey, Vec<(usize, InstanceChange)>> = BTreeMap::new();
        for (n, change) in changes.into_iter().enumerate() {
            by_instance
                .entry(change.key())
                .or_default()
                .push((n, change));
        }
        let groups = by_instance.into_values().map(|group| async move {
            let mut outcomes = vec![];
            for (n, change) in group {
                outcomes.push((n, self.apply_one(&change).await));
            }
            self.publish();
            outcomes
        });
        let mut outcomes: Vec<_> = join_all(groups).await.into_iter().flatten().collect();
        outcomes.sort_by_key(|(n, _)| *n);
        outcomes.into_iter().map(|(_, outcome)| outcome).collect()
    }

    async fn apply_one(&self, change: &InstanceChange) -> Made<()> {
        let (key, node) = (change.key(), &self.node);
        match change {
            InstanceChange::Create(instance) => self.create(&key, instance).await,
            InstanceChange::Join(_) => {
                let joined = self.patch(&key, |i| Ok(plan::join(i, node))).await;
                joined.map(drop)
            }
            InstanceChange::Leave(_) => self.leave(&key).await,
            InstanceChange::Describe {
                capacity,
                broker_properties,
                device_id,
                pin,
                ..
            } => {
                let said = Description {
                    capacity: *capacity,
                    broker_properties,
                    device_id: device_id.as_ref(),
                    pin: pin.as_ref(),
                };
                let described = self
                    .patch(&key, |i| Ok(plan::describe(i, node, &said)))
                    .await;
                described.map(drop)
            }
            InstanceChange::Health { view, now, .. } => self.health(&key, view, now).await,
            InstanceChange::Delete { even_in_use, .. } => self.delete(&key, *even_in_use).await,
        }
    }

    async fn create(&self, key: &ObjectKey, instance: &Instance) -> Made<()> {
        let new = plan::to_create(instance, &self.node);
        let (by, now) = (
            plan::field_manager(&self.node),
            self.client.world.machine.clock(),
        );
        let created = self
            .client
            .request(
                || format!("create {}", key.name),
                |server| server.create(&new, (&by, now)),
            )
            .await;
        match created {
            Ok(created) => {
                self.change(|known| known.written(Instance::clone(&created)));
                Ok(())
            }
            Err(e) if is_conflict(&e) => self.join_existing(key, &new).await,
            Err(e) => Err(unavailable(&e)),
        }
    }

    async fn join_existing(&self, key: &ObjectKey, ours: &Instance) -> Made<()> {
        let node = &self.node;
        if let Attempt::Written(_) = self.patch_once(key, plan::join_same(ours, node)).await? {
            return Ok(());
        }
        let there = self.read(key).await?;
        match met(&there, ours) {
            Met::Same => {
                self.change(|known| known.read(there));
                self.patch(key, |i| Ok(plan::join(i, node))).await.map(drop)
            }
            Met::Other => {
                self.change(|known| known.met(there));
                Err(StoreError::Exists(key.clone()))
            }
            Met::Leaving => Err(StoreError::Unavailable("still being deleted".to_owned())),
        }
    }

    async fn leave(&self, key: &ObjectKey) -> Made<()> {
        let node = &self.node;
        let before = self.stored(key)?;
        let is_alone = before.spec.nodes == [node.as_str()] && in_use_by(&before.spec).is_none();
        if !is_alone {
            let gone = plan::health(&before, node, None);
            self.apply_status(key, gone).await?;
        }
        let left = self.patch(key, |i| Ok(plan::leave(i, node))).await?;
        if left.spec.nodes.is_empty() && in_use_by(&left.spec).is_none() {
            return self.delete(key, false).await;
        }
        if is_alone {
            let gone = plan::health(&left, node, None);
            return self.apply_status(key, gone).await;
        }
        Ok(())
    }

    async fn health(&self, key: &ObjectKey, view: &View, now: &str) -> Made<()> {
        let instance = self.stored(key)?;
        let status = plan::health(&instance, &self.node, Some((view, now)));
        self.apply_status(key, status).await
    }

    async fn apply_status(&self, key: &ObjectKey, status: Value) -> Made<()> {
        let manager = plan::field_manager(&self.node);
        let what = || format!("apply status of {}: {}", key.name, status["status"]);
        let applied = self
            .client
            .request(what, |server| {
                server.apply_status(&key.name, &status, &manager)
            })
            .await;
        match applied {
            Ok(written) => {
                self.change(|known| known.written(Instance::clone(&written)));
                Ok(())
            }
            Err(e) if is_not_found(&e) || is_conflict(&e) => {
                self.refresh(key).await?;
                Err(StoreError::Gone(key.clone()))
            }
            Err(e) => Err(unavailable(&e)),
        }
    }

    async fn delete(&self, key: &ObjectKey, even_in_use: bool) -> Made<()> {
        let instance = self.stored(key)?;
        if let Some(holders) = in_use_by(&instance.spec).filter(|_| !even_in_use) {
            let instance = key.clone();
            return Err(StoreError::InUse { instance, holders });
        }
        let (uid, resource_version) = plan::deleted_as(&instance);
        let preconditions = Preconditions {
            uid,
            resource_version,
        };
        let by = plan::field_manager(&self.node);
        let deleted = self
            .client
            .request(
                || format!("delete {}", key.name),
                |server| server.delete(&key.name, &preconditions, &by),
            )
            .await;
        match deleted {
            Ok(()) => {}
            Err(e) if is_not_found(&e) => {}
            Err(e) if is_conflict(&e) => {
                self.refresh(key).await?;
                return Err(StoreError::Unavailable("changed meanwhile".to_owned()));
            }
            Err(e) => return Err(unavailable(&e)),
        }
        self.change(|known| known.deleted(key));
        Ok(())
    }

    /// Exchanges slots: those of each Instance all or none.
    pub(super) async fn exchange(&self, exchanges: Vec<Exchange>) -> Made<()> {
        let mut by_instance: BTreeMap<&ObjectKey, Vec<&Exchange>> = BTreeMap::new();
        for exchange in &exchanges {
            by_instance
                .entry(&exchange.change.key)
                .or_default()
                .push(exchange);
        }
        let writes = (by_instance.into_iter()).map(|(key, all)| self.exchange_of(key, all));
        let outcomes = join_all(writes).await;
        self.publish();
        outcomes.into_iter().collect()
    }

    async fn exchange_of(&self, key: &ObjectKey, exchanges: Vec<&Exchange>) -> Made<()> {
        let instance = self.stored(key)?;
        if instance.spec.shared || instance.spec.nodes != [self.node.as_str()] {
            return self.exchange_stored(key, &exchanges, &[]).await;
        }
        let pending = self.change(|known| known.pending_of(key));
        let write = Box::pin(self.exchange_stored(key, &exchanges, &pending));
        match self
            .client
            .world
            .machine
            .timeout(LOCAL_WRITE_TIMEOUT, write)
            .await
        {
            Some(Ok(())) => {
                self.change(|known| known.made_up(key, &pending));
                Ok(())
            }
            Some(Err(StoreError::Unavailable(_))) | None => self.postpone(key, &exchanges),
            Some(Err(StoreError::Refused(_))) if !pending.is_empty() => {
                self.change(|known| known.made_up(key, &pending));
                self.exchange_stored(key, &exchanges, &[]).await
            }
            Some(Err(error)) => Err(error),
        }
    }

    fn postpone(&self, key: &ObjectKey, exchanges: &[&Exchange]) -> Made<()> {
        let pending = self.change(|known| known.pending_of(key));
        exchanged(&forced(&*self.stored(key)?, &pending), exchanges)?;
        self.change(|known| known.postpone(key, exchanges));
        self.postponed.send_replace(());
        Ok(())
    }

    async fn exchange_stored(
        &self,
        key: &ObjectKey,
        exchanges: &[&Exchange],
        pending: &[Exchange],
    ) -> Made<()> {
        let is_superseded =
            |old: &&Exchange| (exchanges.iter()).any(|new| new.change.slot == old.change.slot);
        let all: Vec<&Exchange> = (pending.iter().filter(|old| !is_superseded(old)))
            .chain(exchanges.iter().copied())
            .collect();
        let patch = |instance: &Instance| {
            exchanged(&forced(instance, pending), exchanges)?;
            Ok(plan::exchange(instance, &self.node, &all))
        };
        self.patch(key, patch).await.map(drop)
    }

    async fn make_up(&self) -> bool {
        let pending = self.change(|known| known.pending());
        if pending.is_empty() {
            return true;
        }
        let writes = pending
            .iter()
            .map(|(key, exchanges)| self.make_up_one(key, exchanges));
        let written = join_all(writes).await;
        self.publish();
        written.into_iter().all(|is_done| is_done)
    }

    async fn make_up_one(&self, key: &ObjectKey, exchanges: &[Exchange]) -> bool {
        let all: Vec<&Exchange> = exchanges.iter().collect();
        let patch = |instance: &Instance| Ok(plan::exchange(instance, &self.node, &all));
        match self.patch(key, patch).await {
            Ok(_) | Err(StoreError::Refused(_)) => {
                self.change(|known| known.made_up(key, exchanges));
            }
            Err(StoreError::Gone(_)) => self.change(|known| known.deleted(key)),
            Err(_) => return false,
        }
        true
    }

    async fn patch(
        &self,
        key: &ObjectKey,
        patch: impl Fn(&Instance) -> Made<Patch>,
    ) -> Made<Arc<Instance>> {
        let mut is_refused = false;
        for _ in 0..TRIES {
            match patch(&*self.stored(key)?) {
                Ok(patch) => match self.patch_once(key, patch).await? {
                    Attempt::Written(written) => return Ok(written),
                    Attempt::Stale => {}
                },
                Err(error) if is_refused => return Err(error),
                Err(_) => is_refused = true,
            }
            self.refresh(key).await?;
        }
        Err(StoreError::Refused("it changes all the time".to_owned()))
    }

    async fn patch_once(&self, key: &ObjectKey, patch: Patch) -> Made<Attempt> {
        let by = plan::field_manager(&self.node);
        let what = || format!("patch {}: {patch}", key.name);
        let patched = self
            .client
            .request(what, |server| server.patch(&key.name, (&patch, false), &by))
            .await;
        match patched {
            Ok(written) => {
                self.change(|known| known.written(Instance::clone(&written)));
                Ok(Attempt::Written(written))
            }
            Err(e) if is_not_found(&e) => {
                self.change(|known| known.deleted(key));
                Err(StoreError::Gone(key.clone()))
            }
            Err(e) if is_unprocessable(&e) || is_conflict(&e) => Ok(Attempt::Stale),
            Err(e) => Err(unavailable(&e)),
        }
    }

    async fn read(&self, key: &ObjectKey) -> Made<Instance> {
        let read = self.client.request(
            || format!("get {}", key.name),
            |server| server.get(&key.name),
        );
        match read.await {
            Ok(instance) => Ok(Instance::clone(&instance)),
            Err(e) if is_not_found(&e) => {
                self.change(|known| known.deleted(key));
                Err(StoreError::Gone(key.clone()))
            }
            Err(e) => Err(unavailable(&e)),
        }
    }

    async fn refresh(&self, key: &ObjectKey) -> Made<()> {
        let instance = self.read(key).await?;
        self.change(|known| known.read(instance));
        Ok(())
    }

    fn stored(&self, key: &ObjectKey) -> Made<Arc<Instance>> {
        let stored = self.change(|known| known.stored(key));
        stored.ok_or_else(|| StoreError::Gone(key.clone()))
    }
}

enum Attempt {
    Written(Arc<Instance>),
    Stale,
}

fn read(event: Event<Instance>) -> view::Event {
    let boxed = |instance: Arc<Instance>| Box::new(Instance::clone(&instance));
    match event {
        Event::Init => view::Event::Init,
        Event::Listed(instance) => view::Event::Listed(boxed(instance)),
        Event::Complete => view::Event::Complete,
        Event::Applied(instance) => view::Event::Applied(boxed(instance)),
        Event::Deleted(instance, version) => {
            let mut gone = boxed(instance);
            gone.metadata.resource_version = Some(version.to_string());
            view::Event::Deleted(gone)
        }
    }
}

fn unavailable(error: &kube::Error) -> StoreError {
    match code(error) {
        None | Some(401 | 408 | 429 | 500..) => StoreError::Unavailable(reason(error)),
        Some(_) => StoreError::Refused(reason(error)),
    }
}
