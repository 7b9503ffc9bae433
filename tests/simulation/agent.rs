//! Simulates one run of an agent: its Instances follow its devices, its plugins list its slots, its looks release them.
//!
//! The decisions are the real ones: `agent::instances::plan`, `agent::plugins::plan`, `SlotTable`. The loops around them
//! are copies. A run ends with its process; only the mirror on the node's disk and the kubelet's state remain.
//! It does not model discovery handlers (the devices of `devices.rs` come as whole sets) and capacity entries.
use super::{
    World,
    devices::CONFIGURATIONS,
    looks,
    machine::{Machine, Process},
    node::Node,
    slots_task::{self, Request},
    store::Store,
};
use crate::{
    agent::{
        device_state::observed_slots,
        instances::plan::{self as instances, Absences},
        kubelet_records::plan::Entry,
        node_only::plan::NodeOnly,
        plugins::plan as plugins,
        slots::usage,
        values::{Offered, Slot},
    },
    api::instance::Instance,
    discovery::session::{Discoveries, DiscoveryState},
    model::{
        device::DeviceSet,
        instance_name::InstanceKey,
        instance_name::InstanceName,
        plugin_name::PluginName,
        resource_name::ResourceName,
        slot_table::{Resource, SlotTable, Touched, Use},
    },
    store::{Configurations, Instances, StoreError},
};
use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
    sync::Arc,
    time::Duration,
};
use tokio::sync::{mpsc, watch};

const FOREVER: Duration = Duration::from_secs(1_000_000);
const GATHER: u64 = 250;
const WRITE_TIMEOUT: Duration = Duration::from_secs(2);
const RETRY: Duration = Duration::from_secs(5);

pub(super) struct Agent {
    pub(super) world: Rc<World>,
    /// The index of its node in the world.
    pub(super) at: usize,
    pub(super) process: Process,
    started: u64,
    pub(super) store: Rc<Store>,
    pub(super) slots: watch::Sender<SlotTable>,
    pub(super) discoveries: watch::Sender<Arc<Discoveries>>,
    pub(super) requests: mpsc::UnboundedSender<Request>,
    /// The connection digest that each container got in this run, by the kubelet's id.
    pub(super) connection_digest: RefCell<BTreeMap<String, String>>,
    /// The slots that containers used at the last look.
    pub(super) uses: watch::Sender<Option<Vec<Use>>>,
    /// The version of the kubelet's checkpoint that was read last, and its entries.
    pub(super) checkpoint: RefCell<(u64, Vec<Entry>)>,
    /// The last list of each resource that the kubelet got.
    listed: RefCell<BTreeMap<ResourceName, Vec<Slot>>>,
}

impl Agent {
    pub(super) fn start(world: &Rc<World>, at: usize) -> Rc<Self> {
        let (requests, requested) = mpsc::unbounded_channel();
        let node = &world.nodes[at];
        let machine = &world.machine;
        let agent = Rc::new(Self {
            world: world.clone(),
            at,
            process: machine.process(),
            started: machine.now(),
            store: Rc::new(Store::new(
                &node.name,
                node.client(world, "agent"),
                node.mirror.clone(),
            )),
            slots: watch::Sender::new(SlotTable::new(node.name.as_str())),
            discoveries: watch::Sender::default(),
            requests,
            connection_digest: RefCell::default(),
            uses: watch::Sender::default(),
            checkpoint: RefCell::default(),
            listed: RefCell::default(),
        });
        let process = agent.process;
        machine.spawn(process, agent.store.clone().follow_instances());
        machine.spawn(process, agent.store.clone().begin_without_server());
        machine.spawn(process, agent.store.clone().keep_mirror());
        machine.spawn(process, agent.clone().keep_usage());
        machine.spawn(process, agent.store.clone().follow_own());
        machine.spawn(process, agent.store.clone().keep_own());
        machine.spawn(process, agent.clone().discover());
        machine.spawn(process, agent.clone().keep_instances());
        machine.spawn(process, slots_task::run(agent.clone(), requested));
        machine.spawn(process, looks::run(agent.clone()));
        machine.spawn(process, agent.clone().keep_plugins());
        agent
    }

    pub(super) fn machine(&self) -> &Machine {
        &self.world.machine
    }

    pub(super) fn node(&self) -> &Node {
        &self.world.nodes[self.at]
    }

    pub(super) fn uptime(&self) -> Duration {
        Duration::from_millis(self.machine().now() - self.started)
    }

    /// Publishes sets that grow until the first complete one. Each later one follows the devices.
    async fn discover(self: Rc<Self>) {
        let mut devices = self.world.devices.changed.subscribe();
        let complete_at = self.machine().now() + self.machine().between(50, 5_000);
        let mut found = BTreeSet::new();
        loop {
            let now = self.machine().now();
            let is_complete = now >= complete_at;
            let mut discoveries = Discoveries::new();
            for (configuration, seen) in self.world.devices.seen_by(self.at) {
                let seen = seen.into_iter().filter(|device| {
                    is_complete || found.contains(&device.id) || self.machine().chance(40)
                });
                let mut set = DeviceSet::complete(seen);
                found.extend(set.devices.keys().cloned());
                set.complete = is_complete;
                let discovery = DiscoveryState {
                    set: Arc::new(set),
                    ..DiscoveryState::default()
                };
                let configuration = super::api_server::key(configuration).typed();
                discoveries.insert(configuration, discovery);
            }
            self.discoveries.send_if_modified(|before| {
                let is_changed = **before != discoveries;
                *before = Arc::new(discoveries);
                is_changed
            });
            let wait = match is_complete {
                true => FOREVER,
                false => Duration::from_millis(complete_at - now),
            };
            let changed = Box::pin(devices.changed());
            if self.machine().timeout(wait, changed).await.is_some() {
                self.machine().sleep(self.machine().between(1, 800)).await;
            }
        }
    }

    /// Runs the loop of `agent::instances`.
    async fn keep_instances(self: Rc<Self>) {
        let mut discoveries = self.discoveries.subscribe();
        let mut published = self.store.instances.subscribe();
        let mut validated = self.store.validated.subscribe();
        let mut uses = self.uses.subscribe();
        let mut absences = Absences::new();
        let mut arrivals = instances::Arrivals::default();
        loop {
            let known = validated.borrow_and_update().clone();
            let is_known = known.is_some();
            let (known, is_complete) = known.unwrap_or_default();
            let configurations = Configurations {
                objects: (self.world.server.borrow().configurations.objects.iter())
                    .filter(|_| is_known)
                    .map(|(key, configuration)| (key.clone().typed(), configuration.clone()))
                    .collect(),
                is_complete,
                ..Configurations::default()
            };
            let planned = instances::plan(&instances::World {
                node: &self.node().name.as_str().into(),
                max_instances: 1000,
                uptime: self.uptime(),
                configurations: &configurations,
                validated: &known,
                discoveries: &discoveries.borrow_and_update().clone(),
                instances: &published.borrow_and_update().clone(),
                node_only: &NodeOnly::new(),
                uses: uses.borrow_and_update().clone().as_deref(),
                absences: &absences,
                arrivals: &arrivals,
            });
            (absences, arrivals) = (planned.absences, planned.arrivals);
            self.store.report(planned.reports);
            let wait = planned.wake_in.unwrap_or(FOREVER);
            let is_over = tokio::select! {
                biased;
                _ = validated.changed() => false,
                _ = discoveries.changed() => false,
                _ = published.changed() => false,
                _ = uses.changed() => false,
                () = self.machine().sleep(u64::try_from(wait.as_millis()).unwrap() + 1) => true,
            };
            if !is_over {
                self.machine().sleep(5).await;
            }
        }
    }

    /// Runs the loop of `agent::slots::usage`.
    async fn keep_usage(self: Rc<Self>) {
        let mut slots = self.slots.subscribe();
        let mut published = self.store.instances.subscribe();
        let mut again = FOREVER;
        loop {
            let changed = Box::pin(async {
                tokio::select! {
                    biased;
                    _ = slots.changed() => {}
                    _ = published.changed() => {}
                }
            });
            self.machine().timeout(again, changed).await;
            self.machine().sleep(GATHER).await;
            slots.mark_unchanged();
            published.mark_unchanged();
            let due = usage::due(&self.slots.borrow(), &self.store.instances.borrow());
            again = FOREVER;
            for due in due {
                let write = Box::pin(self.store.exchange(due.exchanges));
                let written = self.machine().timeout(WRITE_TIMEOUT, write).await;
                if matches!(written, None | Some(Err(StoreError::Unavailable(_)))) {
                    again = RETRY;
                    break;
                }
            }
        }
    }

    fn gone(&self) -> BTreeSet<InstanceName> {
        let (instances, discoveries) = (&self.store.instances, &self.discoveries);
        let slots = self.slots.borrow();
        let has_slots = |key: &InstanceKey| slots.has_slots(key);
        plugins::gone(&instances.borrow(), &discoveries.borrow(), has_slots)
    }

    /// Runs the loop of `agent::plugins`. The list of each resource goes to the kubelet in order, and complete at each
    /// registration.
    async fn keep_plugins(self: Rc<Self>) {
        let mut published = self.store.instances.subscribe();
        let mut discoveries = self.discoveries.subscribe();
        let mut validated = self.store.validated.subscribe();
        let mut slots = self.slots.subscribe();
        let mut kubelet = self.node().kubelet_socket.subscribe();
        let mut observed: Arc<Instances> = Arc::default();
        let (mut desired, mut gone) = (BTreeMap::new(), BTreeSet::new());
        loop {
            let is_new = published.has_changed().unwrap_or(false)
                || validated.has_changed().unwrap_or(false)
                || slots.borrow().has_unobserved();
            if is_new {
                published.mark_unchanged();
                validated.mark_unchanged();
                self.observe(&mut observed);
                desired = self.desired();
            }
            slots.mark_unchanged();
            discoveries.mark_unchanged();
            let mut stale = Touched::default();
            self.slots.send_if_modified(|slots| {
                stale = slots.take_touched();
                false
            });
            let before = std::mem::replace(&mut gone, self.gone());
            stale.add(gone.symmetric_difference(&before), &self.slots.borrow());
            if kubelet.has_changed().unwrap_or(false) {
                kubelet.mark_unchanged();
                self.listed.borrow_mut().clear();
            }
            self.list(&desired, &gone, &stale);
            tokio::select! {
                biased;
                _ = published.changed() => published.mark_changed(),
                _ = discoveries.changed() => {}
                _ = slots.changed() => {}
                _ = validated.changed() => validated.mark_changed(),
                _ = kubelet.changed() => {
                    kubelet.mark_changed();
                    self.machine().sleep(self.machine().between(10, 1_500)).await;
                }
            }
            self.machine().sleep(5).await;
        }
    }

    /// Returns the resources that are registered at the kubelet.
    pub(super) fn registered(&self) -> BTreeSet<ResourceName> {
        self.listed.borrow().keys().cloned().collect()
    }

    /// Sends the last list again.
    pub(super) fn resend(&self, resource: &ResourceName) {
        let list = self.listed.borrow().get(resource).cloned();
        let lists = list.map(|list| (resource.clone(), list));
        self.node()
            .send_slots(&self.world, lists.into_iter().collect(), vec![]);
    }

    fn desired(&self) -> BTreeMap<PluginName, Offered> {
        let Some((validated, _)) = self.store.validated.borrow().clone() else {
            return BTreeMap::new();
        };
        let instances = self.store.instances.borrow();
        let node = &self.node().name;
        plugins::desired(&instances, &NodeOnly::new(), node, &validated.names)
    }

    /// Sends the kubelet the lists that have changed.
    fn list(
        &self,
        desired: &BTreeMap<PluginName, Offered>,
        gone: &BTreeSet<InstanceName>,
        stale: &Touched,
    ) {
        let (slots, mut listed) = (self.slots.borrow(), self.listed.borrow_mut());
        let names: BTreeSet<&ResourceName> =
            desired.values().map(|offered| &offered.full_name).collect();
        let ended = listed.keys().filter(|name| !names.contains(name));
        let ended: Vec<ResourceName> = ended.cloned().collect();
        listed.retain(|name, _| names.contains(name));
        let mut changed = vec![];
        for offered in desired.values() {
            let before = listed.get(&offered.full_name);
            if before.is_some() && !stale.contains(&offered.resource) {
                continue;
            }
            let list = plugins::listed(&offered.resource, &slots, gone);
            if before != Some(&list) {
                changed.push((offered.full_name.clone(), list.clone()));
                listed.insert(offered.full_name.clone(), list);
            }
        }
        if !changed.is_empty() || !ended.is_empty() {
            self.node().send_slots(&self.world, changed, ended);
        }
    }

    fn observe(&self, observed: &mut Arc<Instances>) {
        // Both Configurations are accepted, once they are known.
        let is_stray = self.store.validated.borrow().is_none();
        self.slots.send_modify(|slots| {
            let now = self.store.instances.borrow().clone();
            let before = std::mem::replace(observed, now.clone());
            let unobserved = slots.take_unobserved();
            let is_same = |key: &InstanceKey, instance: &Arc<Instance>| {
                let before = before.get(key).filter(|_| !unobserved.contains(key));
                before.is_some_and(|before| Arc::ptr_eq(before, instance))
            };
            let changed = now.iter().filter(|(key, instance)| !is_same(key, instance));
            let gone = before.keys().filter(|key| !now.contains_key(*key));
            slots.observe_changes(
                changed.map(|(key, instance)| {
                    let mut observed = observed_slots(key, instance, &self.node().name);
                    observed.precedence.is_stray = is_stray;
                    observed
                }),
                gone.cloned(),
            );
        });
    }
}

/// Returns the resource with this full name.
pub(super) fn resource(full_name: &str) -> Resource {
    let name = full_name.trim_start_matches("akri.sh/").to_owned();
    match CONFIGURATIONS
        .iter()
        .any(|(configuration, _)| *configuration == name)
    {
        true => Resource::Configuration(name.into()),
        false => Resource::Instance(name.into()),
    }
}
