//! Runs an agent: its real store, reports, slots and looks at the kubelet's records, and its real answers to the kubelet
//! (`agent::simulated`). Written again is the loop of `agent::plugins`, which lists the slots: the real one needs sockets.
//!
//! A run ends with its process; only the mirror on the node's disk and the kubelet's state remain. It does not model discovery
//! handlers (the devices of `devices.rs` come as whole sets) and capacity entries.
use super::{
    World,
    devices::CONFIGURATIONS,
    http,
    machine::{Machine, Process},
    node::Node,
    records::OfNode,
};
use crate::{
    agent::{
        device_state::observed_slots,
        node_only::plan::NodeOnly,
        plugins::plan as plugins,
        simulated::Simulated,
        values::{Offered, Slot},
    },
    api::{instance::Instance, names},
    discovery::session::{Discoveries, DiscoveryState},
    model::{
        container_edits::SLOT_VARIABLE,
        device::DeviceSet,
        instance_name::{InstanceKey, InstanceName},
        plugin_name::PluginName,
        resource_name::ResourceName,
        slot::SlotId,
        slot_table::{Resource, Touched},
    },
    store::{
        Instances, Store,
        kubernetes::{KubernetesStore, Settings},
    },
};
use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
    sync::Arc,
    time::Duration,
};
use tokio_util::sync::CancellationToken;

const FOREVER: Duration = Duration::from_secs(1_000_000);

pub(super) struct Agent {
    pub(super) world: Rc<World>,
    /// The index of its node in the world.
    pub(super) at: usize,
    pub(super) process: Process,
    store: Arc<KubernetesStore>,
    pub(super) inner: Simulated,
    /// The last list of each resource that the kubelet got.
    listed: RefCell<BTreeMap<ResourceName, Vec<Slot>>>,
}

impl Agent {
    pub(super) fn start(world: &Rc<World>, at: usize) -> Rc<Self> {
        let (node, machine) = (&world.nodes[at], &world.machine);
        let process = machine.process();
        let client = http::client(node.client(world, "agent"), names::AGENT_MANAGER);
        let settings = Settings {
            node_name: node.name.as_str().into(),
            namespaces: vec![],
            state: node.state.path().to_owned(),
            max_configurations: 100,
        };
        let store = Arc::new(KubernetesStore::new(client, settings).unwrap());
        let records = Arc::new(OfNode::new(world, at, process));
        let stop = CancellationToken::new();
        let (inner, tasks) = Simulated::new(&node.name, store.clone(), records, &stop);
        let agent = Rc::new(Self {
            world: world.clone(),
            at,
            process,
            store,
            inner,
            listed: RefCell::default(),
        });
        for task in tasks {
            let agent = agent.clone();
            machine.spawn(process, async move {
                let ended = task.await;
                let name = &agent.node().name;
                agent
                    .world
                    .broke(format!("a task of the agent of {name} ended: {ended:?}"));
            });
        }
        machine.spawn(process, agent.clone().validate());
        machine.spawn(process, agent.clone().discover());
        machine.spawn(process, agent.clone().keep_plugins());
        agent
    }

    fn machine(&self) -> &Machine {
        &self.world.machine
    }

    pub(super) fn node(&self) -> &Node {
        &self.world.nodes[self.at]
    }

    fn instances(&self) -> Arc<Instances> {
        self.store.instances().borrow().clone()
    }

    /// Accepts the Configurations, once the store has them.
    async fn validate(self: Rc<Self>) {
        let mut configurations = self.store.configurations();
        let known = configurations.wait_for(|known| !known.objects.is_empty());
        if known.await.is_ok() {
            let validated = self.world.validated.clone();
            self.inner.validated().send_replace(validated);
        }
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
            self.inner.discoveries().send_if_modified(|before| {
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

    /// Returns the slots that a container gets.
    pub(super) async fn allocate(
        &self,
        resource: &Resource,
        ids: Vec<String>,
    ) -> Result<Vec<SlotId>, String> {
        let answer = self.inner.allocate(resource, ids).await;
        let answer = answer.map_err(|status| status.message().to_owned())?;
        let slots = answer.envs[SLOT_VARIABLE].split(',');
        Ok(slots.map(|slot| slot.parse().unwrap()).collect())
    }

    pub(super) async fn pre_start(
        &self,
        resource: &Resource,
        ids: Vec<String>,
    ) -> Result<(), String> {
        let answer = self.inner.pre_start(resource, ids).await;
        answer.map_err(|status| status.message().to_owned())
    }

    fn gone(&self) -> BTreeSet<InstanceName> {
        let slots = self.inner.slots();
        let slots = slots.borrow();
        let has_slots = |key: &InstanceKey| slots.has_slots(key);
        plugins::gone(
            &self.instances(),
            &self.inner.discoveries().borrow(),
            has_slots,
        )
    }

    /// Runs the loop of `agent::plugins`. The list of each resource goes to the kubelet in order, and complete at each
    /// registration.
    async fn keep_plugins(self: Rc<Self>) {
        let mut published = self.store.instances();
        let mut discoveries = self.inner.discoveries().subscribe();
        let mut validated = self.inner.validated().subscribe();
        let mut slots = self.inner.slots();
        let mut kubelet = self.node().kubelet_socket.subscribe();
        let mut resend = self.inner.resend();
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
            let mut stale = self.inner.take_touched();
            let before = std::mem::replace(&mut gone, self.gone());
            stale.add(gone.symmetric_difference(&before), &slots.borrow());
            if kubelet.has_changed().unwrap_or(false) {
                self.inner.see_kubelet(*kubelet.borrow_and_update());
                self.listed.borrow_mut().clear();
            }
            self.list(&desired, &gone, &stale);
            tokio::select! {
                biased;
                _ = resend.changed() => {
                    self.resend(resend.borrow_and_update().as_ref());
                    continue;
                }
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

    /// Sends the last list again.
    fn resend(&self, resource: Option<&ResourceName>) {
        let list = resource.and_then(|resource| {
            let list = self.listed.borrow().get(resource).cloned();
            Some((resource.clone(), list?))
        });
        let lists = list.into_iter().collect();
        self.node().send_slots(&self.world, lists, vec![]);
    }

    fn desired(&self) -> BTreeMap<PluginName, Offered> {
        let validated = self.inner.validated().borrow().clone();
        let node = &self.node().name;
        plugins::desired(&self.instances(), &NodeOnly::new(), node, &validated.names)
    }

    /// Sends the kubelet the lists that have changed.
    fn list(
        &self,
        desired: &BTreeMap<PluginName, Offered>,
        gone: &BTreeSet<InstanceName>,
        stale: &Touched,
    ) {
        let slots = self.inner.slots();
        let (slots, mut listed) = (slots.borrow(), self.listed.borrow_mut());
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
        let registered = listed.keys().cloned().collect();
        self.inner.registered().send_replace(registered);
        if !changed.is_empty() || !ended.is_empty() {
            self.node().send_slots(&self.world, changed, ended);
        }
    }

    fn observe(&self, observed: &mut Arc<Instances>) {
        let validated = self.inner.validated().borrow().clone();
        self.inner.observe(|slots| {
            let now = self.instances();
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
                    let of = instance.spec.configuration_key(&key.namespace);
                    observed.precedence.is_stray = !validated.accepted.contains_key(&of);
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
