//! Runs an agent: all of it (`agent::simulated`) but the sockets of the plugins, capacity entries, and the order in which a claim is
//! prepared. Its discovery handlers see the devices of `devices.rs`.
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
        Claims,
        simulated::{List, Parts, Simulated},
        values::Slot,
    },
    api::names,
    discovery::{DetailsError, Discovery, DiscoveryHandler, Properties, Task, session::Handlers},
    model::{
        container_edits::SLOT_VARIABLE,
        device::{DeviceSet, Scope},
        resource_name::ResourceName,
        slot::SlotId,
        slot_table::Resource,
    },
    publish,
    store::kubernetes::{KubernetesStore, Settings},
};
use k8s_openapi::api::resource::v1::DeviceRequestAllocationResult;
use petiole_dra::claim::{self as dra, ClaimKey};
use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
    sync::Arc,
    time::Duration,
};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

const FOREVER: Duration = Duration::from_secs(1_000_000);

pub(super) struct Agent {
    pub(super) world: Rc<World>,
    /// The index of its node in the world.
    pub(super) at: usize,
    pub(super) process: Process,
    /// The devices that its node sees now, of each Configuration.
    sights: [watch::Sender<DeviceSet>; CONFIGURATIONS.len()],
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
        let (root, cdi) = (
            node.state.path().join("kubelet"),
            node.state.path().join("cdi"),
        );
        let sights: [_; CONFIGURATIONS.len()] = Default::default();
        let (sent, lists) = mpsc::unbounded_channel();
        let parts = Parts {
            node: node.name.clone(),
            claims: Claims::open(client.clone(), root, None, cdi).unwrap(),
            store: Arc::new(KubernetesStore::new(client, settings).unwrap()),
            handlers: Arc::new(handlers(&sights)),
            records: Arc::new(OfNode::new(world, at, process)),
            lists: sent,
        };
        let (inner, tasks) = Simulated::new(parts, &CancellationToken::new());
        let agent = Rc::new(Self {
            world: world.clone(),
            at,
            process,
            sights,
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

    /// Publishes sets that grow until the first complete one. Each later one follows the devices.
    async fn discover(self: Rc<Self>) {
        let mut devices = self.world.devices.changed.subscribe();
        let complete_at = self.machine().now() + self.machine().between(50, 5_000);
        let mut found = BTreeSet::new();
        loop {
            let now = self.machine().now();
            let is_complete = now >= complete_at;
            let seen = self.world.devices.seen_by(self.at);
            for ((configuration, _), sight) in CONFIGURATIONS.iter().zip(&self.sights) {
                let seen = seen[configuration].iter().filter(|device| {
                    is_complete || found.contains(&device.id) || self.machine().chance(40)
                });
                let mut set = DeviceSet::complete(seen.cloned());
                found.extend(set.devices.keys().cloned());
                set.complete = is_complete;
                publish::if_changed(sight, set);
            }
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
        let device = |device: &String| DeviceRequestAllocationResult {
            pool: claim.pool.clone(),
            device: device.clone(),
            ..DeviceRequestAllocationResult::default()
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

/// Sees the devices of one Configuration, whose name it has.
struct Sight {
    configuration: &'static str,
    scope: Scope,
    devices: watch::Receiver<DeviceSet>,
}

fn handlers(sights: &[watch::Sender<DeviceSet>]) -> Handlers {
    let all = CONFIGURATIONS.iter().zip(sights);
    let handler = |(&(configuration, scope), sight): (_, &watch::Sender<_>)| {
        let devices = sight.subscribe();
        let handler = Sight {
            configuration,
            scope,
            devices,
        };
        Box::new(handler) as Box<dyn DiscoveryHandler>
    };
    Handlers::new(all.map(handler).collect())
}

impl DiscoveryHandler for Sight {
    fn name(&self) -> &'static str {
        self.configuration
    }

    fn prepare(&self, _: &str, _: &Properties) -> Result<Discovery, DetailsError> {
        let mut devices = self.devices.clone();
        Ok(Discovery::new(self.scope, async move |task: Task| {
            devices.mark_changed();
            while devices.changed().await.is_ok() {
                let set = devices.borrow_and_update().clone();
                task.found.send_replace(set);
            }
            Ok(())
        }))
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
