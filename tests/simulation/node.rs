//! Simulates a machine of the cluster: its power, its link to the API server, its disk, its containers, its kubelet and
//! its agent.
//!
//! The disk holds the kubelet's checkpoint and the agent's mirror. A crash ends a process at its present point;
//! containers run on. Without power all of them end.
use super::{
    World,
    agent::{Agent, resource},
    control_plane,
    invariants::Place,
    kubelet::{Holding, Kubelet},
    network::Client,
    objects::Claim,
    pods::{self, Run, Runtime},
    records::Disk,
};
use crate::{
    agent::values::Slot,
    model::{resource_name::ResourceName, slot::SlotId},
};
use petiole_kubelet_api::pod_resources::PodResources;
use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
    sync::{Arc, Mutex},
};
use tempfile::TempDir;
use tokio::sync::{mpsc, oneshot, watch};

pub(super) struct Node {
    pub(super) name: String,
    pub(super) is_powered: Cell<bool>,
    /// True if it is cordoned.
    pub(super) is_closed: Cell<bool>,
    /// True if it reaches the API server.
    pub(super) link: watch::Sender<bool>,
    /// The folder of the agent's state.
    pub(super) state: TempDir,
    /// What the kubelet has on the disk.
    pub(super) disk: Arc<Mutex<Disk>>,
    pub(super) runtime: RefCell<Runtime>,
    /// The number of changes of containers.
    pub(super) changes: watch::Sender<u64>,
    /// The number of kubelets so far. Each makes a socket of its own.
    pub(super) kubelet_socket: watch::Sender<u64>,
    pub(super) kubelet: RefCell<Option<Kubelet>>,
    pub(super) agent: RefCell<Option<Rc<Agent>>>,
    /// True if its agent ends right after its next answer of Allocate.
    pub(super) is_doomed: Cell<bool>,
    /// The time at which the last list of an agent reaches the kubelet. Lists arrive in order.
    last_list: Cell<u64>,
    /// The time of the last start, stop, cut, join or registration on the node.
    pub(super) disturbed: Cell<u64>,
    /// The time at which its Node last became NotReady.
    pub(super) not_ready_since: Cell<u64>,
    /// True if its kubelet reports, with the time since which it does or does not.
    pub(super) reporting: Cell<(bool, u64)>,
}

/// Returns a folder in memory, where the machine has one: an agent's mirror is synced to the disk each time.
fn folder() -> TempDir {
    let in_memory = tempfile::tempdir_in("/dev/shm");
    in_memory.or_else(|_| tempfile::tempdir()).unwrap()
}

impl Node {
    pub(super) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            is_powered: Cell::new(true),
            is_closed: Cell::new(false),
            link: watch::Sender::new(true),
            state: folder(),
            disk: Arc::default(),
            runtime: RefCell::default(),
            changes: watch::Sender::new(0),
            kubelet_socket: watch::Sender::new(0),
            kubelet: RefCell::default(),
            agent: RefCell::default(),
            is_doomed: Cell::new(false),
            last_list: Cell::new(0),
            disturbed: Cell::new(0),
            not_ready_since: Cell::new(0),
            reporting: Cell::new((false, 0)),
        }
    }

    pub(super) fn client(&self, world: &Rc<World>, what: &str) -> Client {
        Client::new(world, &format!("{} {what}", self.name), &self.link)
    }

    pub(super) fn changed(&self) {
        self.changes.send_modify(|n| *n += 1);
    }

    pub(super) fn is_linked(&self) -> bool {
        *self.link.borrow()
    }

    /// Returns whether its kubelet reports to the API server.
    pub(super) fn reports(&self) -> bool {
        self.is_linked() && self.kubelet.borrow().is_some()
    }

    pub(super) fn link(&self, world: &Rc<World>, is_linked: bool) {
        self.link.send_replace(is_linked);
        self.disturb(world);
    }

    fn disturb(&self, world: &Rc<World>) {
        self.disturbed.set(world.machine.now());
        control_plane::node_changed(world, &self.name);
    }

    pub(super) fn start_kubelet(&self, world: &Rc<World>, at: usize) {
        if self.kubelet.borrow().is_some() {
            return;
        }
        let process = world.machine.process();
        let (admissions, admitted) = mpsc::unbounded_channel();
        let checkpoint = self.disk.lock().unwrap().checkpoint.clone();
        let kubelet = Kubelet::new(process, checkpoint, admissions);
        self.kubelet.replace(Some(kubelet));
        let machine = &world.machine;
        machine.spawn(process, pods::admit(world.clone(), at, admitted));
        machine.spawn(process, pods::follow_pods(world.clone(), at));
        self.kubelet_socket.send_modify(|n| *n += 1);
        self.disturb(world);
    }

    pub(super) fn stop_kubelet(&self, world: &Rc<World>) {
        if let Some(kubelet) = self.kubelet.take() {
            world.machine.kill(kubelet.process);
        }
        self.disturb(world);
    }

    pub(super) fn start_agent(&self, world: &Rc<World>, at: usize) {
        if self.agent.borrow().is_none() {
            let agent = Agent::start(world, at);
            self.agent.replace(Some(agent));
            self.disturb(world);
        }
    }

    /// Ends the agent. The kubelet sees its streams end.
    pub(super) fn stop_agent(&self, world: &Rc<World>) {
        let Some(agent) = self.agent.take() else {
            return;
        };
        world.machine.kill(agent.process);
        if let Some(kubelet) = self.kubelet.borrow_mut().as_mut() {
            let all: Vec<String> = kubelet.endpoints.keys().cloned().collect();
            all.iter()
                .for_each(|resource| kubelet.disconnected(resource));
        }
        self.disturb(world);
    }

    pub(super) fn lose_power(&self, world: &Rc<World>) {
        self.stop_agent(world);
        self.stop_kubelet(world);
        // A Pod that was past its init containers starts from the beginning.
        self.runtime.borrow_mut().clear();
        self.disk.lock().unwrap().files.clear();
        self.changed();
    }

    pub(super) fn write_checkpoint(&self, kubelet: &Kubelet) {
        let mut disk = self.disk.lock().unwrap();
        disk.checkpoint.clone_from(&kubelet.given);
        disk.written += 1;
    }

    /// Returns the kubelet's answer to `List`.
    pub(super) async fn list_pods(&self, world: &Rc<World>) -> Option<Vec<PodResources>> {
        let machine = &world.machine;
        machine.sleep(machine.between(1, 60)).await;
        let own = format!("agent-{}", self.name);
        let pods = self.kubelet.borrow_mut().as_mut()?.list(&own);
        machine.sleep(machine.between(1, 60)).await;
        Some(pods)
    }

    /// Delivers the lists of plugins to the kubelet, and ends plugins.
    pub(super) fn send_slots(
        &self,
        world: &Rc<World>,
        lists: Vec<(ResourceName, Arc<[Slot]>)>,
        ended: Option<ResourceName>,
    ) {
        let machine = &world.machine;
        let at = (machine.now() + machine.between(1, 60)).max(self.last_list.get());
        self.last_list.set(at);
        let process = self.agent.borrow().as_ref().map(|agent| agent.process);
        let socket = *self.kubelet_socket.borrow();
        let (later, name) = (world.clone(), self.name.clone());
        machine.after(at - machine.now(), move || {
            let node = later.node(&name);
            let is_same = node.agent.borrow().as_ref().map(|agent| agent.process) == process
                && *node.kubelet_socket.borrow() == socket;
            let mut kubelet = node.kubelet.borrow_mut();
            if let Some(kubelet) = kubelet.as_mut().filter(|_| is_same) {
                for (resource, slots) in &lists {
                    kubelet.listed(resource, slots);
                }
                ended
                    .iter()
                    .for_each(|resource| kubelet.disconnected(resource));
                node.write_checkpoint(kubelet);
            }
        });
    }

    fn running_agent(&self) -> Result<Rc<Agent>, String> {
        let agent = self.agent.borrow().clone();
        agent.ok_or_else(|| "the plugin does not answer".to_owned())
    }

    /// Calls the plugin of a resource. The call ends with the kubelet, or with the agent.
    async fn call<T: 'static>(
        &self,
        world: &Rc<World>,
        call: impl AsyncFnOnce(&Agent) -> Result<T, String> + 'static,
    ) -> Result<T, String> {
        let machine = &world.machine;
        machine.sleep(machine.between(1, 10)).await;
        let agent = self.running_agent()?;
        let (mut reply, answer) = oneshot::channel();
        let process = agent.process;
        machine.spawn(process, async move {
            let answer = tokio::select! {
                biased;
                () = reply.closed() => return,
                answer = call(&agent) => answer,
            };
            reply.send(answer).ok();
        });
        let answer = answer.await;
        // A busy kubelet notices it late.
        let millis = if machine.chance(10) {
            machine.between(100, 8_000)
        } else {
            machine.between(1, 10)
        };
        machine.sleep(millis).await;
        answer.unwrap_or_else(|_| Err("the plugin hung up".to_owned()))
    }

    pub(super) async fn allocate(
        &self,
        world: &Rc<World>,
        name: &str,
        ids: BTreeSet<String>,
    ) -> Result<Vec<SlotId>, String> {
        let (resource, ids) = (resource(name), ids.into_iter().collect());
        self.call(world, async move |agent: &Agent| {
            let answer = agent.allocate(&resource, ids).await;
            if answer.is_ok() && agent.node().is_doomed.take() {
                super::faults::lose_agent(&agent.world, agent.at);
            }
            answer
        })
        .await
    }

    pub(super) async fn pre_start(
        &self,
        world: &Rc<World>,
        name: &str,
        ids: BTreeSet<String>,
    ) -> Result<(), String> {
        let (resource, ids) = (resource(name), ids.into_iter().collect());
        self.call(world, async move |agent: &Agent| {
            agent.pre_start(&resource, ids).await
        })
        .await
    }

    pub(super) async fn prepare(&self, world: &Rc<World>, claim: Claim) -> Result<(), String> {
        let call = async move |agent: &Agent| agent.prepare(&claim).await;
        self.call(world, call).await
    }

    pub(super) async fn unprepare(&self, world: &Rc<World>, uid: String) -> Result<(), String> {
        let call = async move |agent: &Agent| {
            agent.unprepare(&uid).await;
            Ok(())
        };
        self.call(world, call).await
    }

    fn run_of(&self, uid: u64, container: &'static str) -> Run {
        let runtime = self.runtime.borrow();
        runtime.get(&(uid, container)).cloned().unwrap_or_default()
    }

    pub(super) fn runs(&self, uid: u64, container: &'static str) -> bool {
        self.run_of(uid, container).is_running
    }

    pub(super) fn has_ended(&self, uid: u64, container: &'static str) -> bool {
        self.run_of(uid, container).has_ended
    }

    pub(super) fn has_started(&self, uid: u64, container: &'static str) -> bool {
        self.runtime.borrow().contains_key(&(uid, container))
    }

    pub(super) fn is_running(&self, uid: u64) -> bool {
        (self.runtime.borrow().iter()).any(|((of, _), run)| *of == uid && run.is_running)
    }

    /// Returns the slots in a container's environment.
    pub(super) fn slots_given(&self, uid: u64, container: &'static str) -> BTreeSet<SlotId> {
        let kubelet = self.kubelet.borrow();
        let given = kubelet
            .as_ref()
            .into_iter()
            .flat_map(|kubelet| &kubelet.given);
        given
            .filter(|((of, name, _), _)| *of == uid && *name == container)
            .flat_map(|(_, given)| given.values().cloned())
            .chain(self.claimed(uid))
            .collect()
    }

    /// Returns the slots that all containers of a Pod have by its claim.
    pub(super) fn claimed(&self, uid: u64) -> Vec<SlotId> {
        let disk = self.disk.lock().unwrap();
        let claimed = disk.claimed().into_iter();
        claimed
            .filter(|(known, _)| known.pods.contains(&uid))
            .map(|(_, slot)| slot)
            .collect()
    }

    /// Returns the containers that the kubelet's checkpoint has with a slot.
    pub(super) fn places_given(&self, slot: &SlotId) -> Vec<Place> {
        let disk = self.disk.lock().unwrap();
        let holdings =
            (disk.checkpoint.iter()).filter(|(_, given)| given.values().any(|of| of == slot));
        let place = |((uid, container, _), _): (&Holding, _)| (self.name.clone(), *uid, *container);
        let claimed = disk.claimed().into_iter().filter(|(_, of)| of == slot);
        let runtime = self.runtime.borrow();
        let containers = claimed.flat_map(|(known, _)| {
            let its = runtime.keys().filter(|(of, _)| known.pods.contains(of));
            its.map(|(uid, container)| (self.name.clone(), *uid, *container))
        });
        holdings.map(place).chain(containers).collect()
    }

    /// Returns the Pods that have containers here, once each.
    pub(super) fn pods_with_containers(&self) -> BTreeSet<u64> {
        let runtime = self.runtime.borrow();
        runtime.keys().map(|(uid, _)| *uid).collect()
    }

    /// Removes the containers of a Pod.
    pub(super) fn end_pod(&self, world: &Rc<World>, uid: u64) {
        world.note(|| format!("{}: the containers of Pod {uid} are gone", self.name));
        self.runtime.borrow_mut().retain(|(of, _), _| *of != uid);
        if let Some(kubelet) = self.kubelet.borrow_mut().as_mut()
            && let Some(known) = kubelet.pods.get_mut(&uid)
        {
            known.is_active = false;
        }
        self.changed();
    }

    /// Returns whether a plugin of this resource is connected to its kubelet.
    pub(super) fn has_plugin(&self, resource: &str) -> bool {
        let kubelet = self.kubelet.borrow();
        let mut kubelets = kubelet.iter();
        kubelets.any(|kubelet| matches!(kubelet.endpoints.get(resource), Some((_, true))))
    }

    /// Returns the number of healthy ids of each resource, as the Node has it.
    pub(super) fn allocatable(&self) -> BTreeMap<String, usize> {
        let kubelet = self.kubelet.borrow();
        let endpoints = kubelet.iter().flat_map(|kubelet| &kubelet.endpoints);
        endpoints
            .map(|(name, (healthy, _))| (name.clone(), healthy.len()))
            .collect()
    }

    /// Returns the resources with a free healthy id, as the scheduler sees them.
    pub(super) fn offers(&self) -> Vec<String> {
        let kubelet = self.kubelet.borrow();
        let Some(kubelet) = kubelet.as_ref() else {
            return vec![];
        };
        let names = kubelet.endpoints.keys();
        names
            .filter(|name| !kubelet.free(name).is_empty())
            .cloned()
            .collect()
    }
}
