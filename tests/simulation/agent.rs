//! Runs an agent: all of it (`agent::simulated`) but discovery (the devices of `devices.rs` come as whole sets), the validation of
//! Configurations, the sockets of the plugins, and capacity entries.
//!
//! A run ends with its process; only the mirror on the node's disk and the kubelet's state remain.
use super::{
    World,
    devices::CONFIGURATIONS,
    http,
    machine::{Machine, Process},
    node::Node,
    objects::Claim,
    records::OfNode,
};
use crate::{
    agent::{
        simulated::{List, Simulated},
        values::{Slot, ValidatedConfigurations},
    },
    api::names,
    discovery::session::{Discoveries, DiscoveryState},
    model::{
        container_edits::SLOT_VARIABLE, device::DeviceSet, resource_name::ResourceName,
        slot::SlotId, slot_table::Resource,
    },
    store::{
        Store as _,
        kubernetes::{KubernetesStore, Settings},
    },
};
use petiole_dra::{
    claim::{self as dra, ClaimKey},
    resource::AllocatedDevice,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
    sync::Arc,
    time::Duration,
};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

const FOREVER: Duration = Duration::from_secs(1_000_000);

pub(super) struct Agent {
    pub(super) world: Rc<World>,
    /// The index of its node in the world.
    pub(super) at: usize,
    pub(super) process: Process,
    store: Arc<KubernetesStore>,
    pub(super) inner: Simulated,
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
        let (sent, lists) = mpsc::unbounded_channel();
        let (inner, tasks) = Simulated::new(&node.name, store.clone(), records, sent, &stop);
        let agent = Rc::new(Self {
            world: world.clone(),
            at,
            process,
            store,
            inner,
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
        machine.spawn(process, agent.clone().carry(lists));
        agent
    }

    fn machine(&self) -> &Machine {
        &self.world.machine
    }

    pub(super) fn node(&self) -> &Node {
        &self.world.nodes[self.at]
    }

    /// Accepts the Configurations, once the store has them, as they are.
    async fn validate(self: Rc<Self>) {
        let mut configurations = self.store.configurations();
        loop {
            let known = configurations.wait_for(|known| !known.objects.is_empty());
            let Ok(known) = known.await.map(|known| known.objects.clone()) else {
                return;
            };
            let mut validated = ValidatedConfigurations::clone(&self.world.validated);
            for (key, configuration) in known {
                if let Some(accepted) = validated.accepted.get_mut(&key) {
                    accepted.configuration = configuration;
                }
            }
            validated.divide_by_allocation();
            self.inner.validated().send_if_modified(|before| {
                let is_other = **before != validated;
                *before = Arc::new(validated);
                is_other
            });
            if configurations.changed().await.is_err() {
                return;
            }
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
            let wait = if is_complete {
                FOREVER
            } else {
                Duration::from_millis(complete_at - now)
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

    /// Prepares a claim in the order of the driver: book, slots, CDI file. The claim is read first.
    pub(super) async fn prepare(&self, claim: &Claim) -> Result<(), String> {
        let (node, name) = (self.node(), &claim.uid);
        let client = node.client(&self.world, "agent");
        let read = client.request(|| format!("get {name}"), |_| Ok(()));
        read.await.map_err(|e| e.to_string())?;
        let device = |device: &String| AllocatedDevice {
            pool: claim.pool.clone(),
            device: device.clone(),
            ..AllocatedDevice::default()
        };
        let asked = dra::Claim {
            key: ClaimKey {
                uid: name.clone(),
                namespace: "default".to_owned(),
                name: name.clone(),
            },
            in_pod: None,
            devices: claim.devices.iter().map(device).collect(),
            configs: vec![],
        };
        node.disk.lock().unwrap().book.insert(name.clone());
        let text = self.inner.prepare(&asked).await?;
        if node.is_doomed.take() {
            super::faults::lose_agent(&self.world, self.at);
        }
        self.machine().sleep(self.machine().between(0, 20)).await;
        node.disk.lock().unwrap().files.insert(name.clone(), text);
        Ok(())
    }

    pub(super) async fn unprepare(&self, uid: &str) {
        self.node().disk.lock().unwrap().files.remove(uid);
        self.inner.unprepare(uid).await;
        self.machine().sleep(self.machine().between(0, 20)).await;
        self.node().disk.lock().unwrap().book.remove(uid);
    }

    /// Takes the lists of the plugins to the kubelet, in order, and all of them to a kubelet that is new.
    async fn carry(self: Rc<Self>, mut lists: mpsc::UnboundedReceiver<List>) {
        let mut kubelet = self.node().kubelet_socket.subscribe();
        kubelet.mark_changed();
        let mut listed: BTreeMap<ResourceName, Arc<[Slot]>> = BTreeMap::new();
        loop {
            tokio::select! {
                biased;
                _ = kubelet.changed() => {
                    self.inner.see_kubelet(*kubelet.borrow_and_update());
                    self.machine().sleep(self.machine().between(10, 1_500)).await;
                    let all: Vec<_> = listed.clone().into_iter().collect();
                    if !all.is_empty() {
                        self.node().send_slots(&self.world, all, None);
                    }
                }
                Some((resource, list)) = lists.recv() => match list {
                    Some(list) => {
                        listed.insert(resource.clone(), list.clone());
                        self.node().send_slots(&self.world, vec![(resource, list)], None);
                    }
                    None => {
                        listed.remove(&resource);
                        self.node().send_slots(&self.world, vec![], Some(resource));
                    }
                },
            }
            let registered = listed.keys().cloned().collect();
            self.inner.registered().send_replace(registered);
        }
    }
}

/// Returns the resource with this full name.
pub(super) fn resource(full_name: &str) -> Resource {
    let name = full_name.trim_start_matches("akri.sh/").to_owned();
    if CONFIGURATIONS
        .iter()
        .any(|(configuration, _)| *configuration == name)
    {
        Resource::Configuration(name.into())
    } else {
        Resource::Instance(name.into())
    }
}
