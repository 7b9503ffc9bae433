//! Simulates the agent's store: the requests of `store::kubernetes::{exchanges, writes, own}`, in their order and with their
//! tries.
//!
//! The real `store::kubernetes::plan`, `own_plan` and `view`, and `store::plan`, decide what is sent, what an answer
//! means and what is known afterwards. The loop around them is written again here, function by function.
use super::{
    api_server::ApiServer,
    network::{Client, Event, follow},
};
use crate::{
    agent::values::ValidatedConfigurations,
    api::{instance::Instance, names, node_devices::NodeDevices},
    backoff::Backoff,
    cluster::{code, is_conflict, is_not_found, is_unprocessable, reason},
    model::{instance_name::InstanceKey, typed_names::ConfigurationKey},
    store::{
        Exchange, Instances, Report, Reports, StoreError, is_same,
        kubernetes::{
            own_plan::{self, Step, Urgency, Written},
            plan,
            view::{self, Known},
        },
        plan::exchanged,
    },
};
use futures::future::join_all;
use json_patch::Patch;
use serde_json::json;
use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
    sync::Arc,
    time::Duration,
};
use tokio::sync::watch;

const TRIES: usize = 4;
const FIRST_LIST: u64 = 2_000;
const BETWEEN_WRITES: u64 = 100;
const LOOK_DELAY: u64 = 2_000;
const BETWEEN_MIRRORS: u64 = 500;

/// The Instances on a node's disk.
pub(super) type Mirror = Rc<RefCell<Instances>>;

pub(super) struct Store {
    pub(super) node: String,
    client: Client,
    known: RefCell<Known>,
    mirror: Mirror,
    pub(super) instances: watch::Sender<Arc<Instances>>,
    /// The validated Configurations, and whether they are from the server's list. They are listed together with the
    /// Instances.
    pub(super) validated: watch::Sender<Option<(Arc<ValidatedConfigurations>, bool)>>,
    is_listed: watch::Sender<bool>,
    /// The reports of the agent. The next field has its object from the watch.
    reports: watch::Sender<BTreeMap<ConfigurationKey, Report>>,
    own: watch::Sender<Option<Option<Arc<NodeDevices>>>>,
}

type Made<T> = Result<T, StoreError>;

impl Store {
    pub(super) fn new(node: &str, client: Client, mirror: Mirror) -> Self {
        Self {
            node: node.to_owned(),
            known: RefCell::new(Known::new(node)),
            client,
            mirror,
            instances: watch::Sender::default(),
            validated: watch::Sender::default(),
            is_listed: watch::Sender::new(false),
            reports: watch::Sender::default(),
            own: watch::Sender::default(),
        }
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
                let validated = self.client.world.validated.clone();
                self.validated.send_replace(Some((validated, false)));
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
                    let validated = self.client.world.validated.clone();
                    self.validated.send_replace(Some((validated, true)));
                    self.is_listed.send_replace(true);
                }
            }
            self.publish();
        };
        follow(self.client.clone(), |server| &server.instances, selects, on).await;
    }

    /// Implements `store::kubernetes::own::follow`.
    pub(super) async fn follow_own(self: Rc<Self>) {
        let name = self.node.clone();
        let selects = move |object: &NodeDevices| object.metadata.name.as_ref() == Some(&name);
        let mut listed = None;
        let on = |events: Vec<Event<NodeDevices>>| {
            for event in events {
                match event {
                    Event::Init => listed = None,
                    Event::Listed(object) => listed = Some(object),
                    Event::Complete => drop(self.own.send_replace(Some(listed.take()))),
                    Event::Applied(object) => drop(self.own.send_replace(Some(Some(object)))),
                    Event::Deleted(..) => drop(self.own.send_replace(Some(None))),
                }
            }
        };
        follow(
            self.client.clone(),
            |server| &server.node_devices,
            selects,
            on,
        )
        .await;
    }

    pub(super) fn report(&self, reports: Reports) {
        self.reports.send_if_modified(|before| {
            let is_changed = reports.is_whole && *before != reports.of;
            if is_changed {
                *before = reports.of;
            }
            is_changed
        });
    }

    /// Implements `store::kubernetes::own::run`.
    pub(super) async fn keep_own(self: Rc<Self>) {
        let (mut reports, mut own) = (self.reports.subscribe(), self.own.subscribe());
        let machine = &self.client.world.machine;
        let mut written = Written::default();
        let (first, last) = (Duration::from_millis(100), Duration::from_secs(30));
        let mut backoff = Backoff::new(first, last);
        let mut due: Option<u64> = None;
        if reports.changed().await.is_err() || own.wait_for(Option::is_some).await.is_err() {
            return;
        }
        loop {
            let wanted = own_plan::wanted(&reports.borrow_and_update(), &BTreeSet::new());
            let is_news = own.has_changed().is_ok_and(|is_news| is_news);
            let seen = own.borrow_and_update().clone().flatten();
            if is_news && seen.is_none() {
                written.note_deletion();
            }
            let began = machine.now();
            let urgency = match due {
                Some(due) if due <= began => Urgency::Due,
                _ => Urgency::Fresh,
            };
            let step = own_plan::step(&wanted, seen.as_deref(), &written, urgency);
            if step == Step::Wait {
                let until = *due.get_or_insert(began + LOOK_DELAY);
                tokio::select! {
                    biased;
                    _ = reports.changed() => reports.mark_changed(),
                    () = machine.sleep(until - began) => {}
                }
                continue;
            }
            due = None;
            match self.carry_out(step, &mut written).await {
                None => {}
                Some(true) => {
                    backoff.reset();
                    machine
                        .sleep((began + BETWEEN_WRITES).saturating_sub(machine.now()))
                        .await;
                    continue;
                }
                Some(false) => {
                    let wait = backoff.next_wait().as_millis();
                    machine.sleep(u64::try_from(wait).unwrap() + 1).await;
                    continue;
                }
            }
            tokio::select! {
                biased;
                _ = reports.changed() => {}
                _ = own.changed() => own.mark_changed(),
            }
        }
    }

    async fn carry_out(&self, step: Step<'_>, written: &mut Written) -> Option<bool> {
        let (name, by) = (&self.node, names::AGENT_MANAGER);
        let outcome = match step {
            Step::Nothing | Step::Wait => return None,
            Step::Create(spec) => {
                let what = || format!("create nodedevices {name}: {}", json!(spec));
                let ask = |server: &mut ApiServer| server.create_node_devices(name, spec, by);
                self.client.request(what, ask).await
            }
            Step::Patch(spec) => {
                let what = || format!("patch nodedevices {name}: {}", json!(spec));
                let ask = |server: &mut ApiServer| server.patch_node_devices(name, spec, by);
                self.client.request(what, ask).await
            }
        };
        match outcome {
            Ok(object) => written.set_written(object),
            Err(e) if is_not_found(&e) => written.note_missing(),
            Err(e) if is_conflict(&e) => written.note_other(),
            Err(_) => return Some(false),
        }
        Some(true)
    }

    /// Exchanges slots: for each Instance all or none.
    pub(super) async fn exchange(&self, exchanges: Vec<Exchange>) -> Made<()> {
        let mut by_instance: BTreeMap<&InstanceKey, Vec<&Exchange>> = BTreeMap::new();
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

    async fn exchange_of(&self, key: &InstanceKey, exchanges: Vec<&Exchange>) -> Made<()> {
        let patch = |instance: &Instance| {
            exchanged(instance, &exchanges)?;
            Ok(plan::exchange(instance, &exchanges))
        };
        self.patch(key, patch).await.map(drop)
    }

    async fn patch(
        &self,
        key: &InstanceKey,
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

    async fn patch_once(&self, key: &InstanceKey, patch: Patch) -> Made<Attempt> {
        let by = names::AGENT_MANAGER;
        let what = || format!("patch {}: {patch}", key.name);
        let patched = self
            .client
            .request(what, |server| server.patch(&key.name, (&patch, false), by))
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

    async fn read(&self, key: &InstanceKey) -> Made<Instance> {
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

    async fn refresh(&self, key: &InstanceKey) -> Made<()> {
        let instance = self.read(key).await?;
        self.change(|known| known.read(instance));
        Ok(())
    }

    fn stored(&self, key: &InstanceKey) -> Made<Arc<Instance>> {
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
