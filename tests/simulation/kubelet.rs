//! Simulates one run of a kubelet: its device manager, its memory and checkpoint, and its Pods from the API server.
//!
//! The rules are those of the real one (1.34 to 1.36). An id is free while no container of a known Pod has it.
//! Resources are counted separately, so those of an Instance and of its Configuration do not affect each other. The
//! memory holds the devices of containers; the checkpoint is a copy of it, written with each allocation and each list
//! of a plugin. `List` shows application and restartable init containers of active Pods, and nothing before the Pods
//! are known. It drops ended Pods from the memory, not from the checkpoint. A kubelet that starts reads the checkpoint,
//! and every plugin must register again.
use super::{
    World,
    agent::resource,
    machine::Process,
    objects::{Claim, Pod},
    pods::Kind,
    records::KnownClaim,
};
use crate::{agent::values::Slot, model::slot::SlotId};
use petiole_kubelet_api::pod_resources::{ContainerDevices, ContainerResources, PodResources};
use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
    time::Duration,
};
use tokio::sync::{mpsc, watch};

/// A container of a Pod, and a resource of it.
pub(super) type Holding = (u64, &'static str, String);

/// The devices of a container of one resource: the ids, each with the slot in the plugin's answer.
pub(super) type Given = BTreeMap<String, SlotId>;

pub(super) type Checkpoint = BTreeMap<Holding, Given>;

pub(super) struct Known {
    pub(super) pod: Pod,
    /// True if its containers may run.
    pub(super) is_active: bool,
    pub(super) stop: watch::Sender<bool>,
}

pub(super) struct Kubelet {
    pub(super) process: Process,
    /// The healthy ids of each plugin that has registered with this kubelet, and whether its stream is open.
    pub(super) endpoints: BTreeMap<String, (BTreeSet<String>, bool)>,
    pub(super) given: BTreeMap<Holding, Given>,
    /// The ids of pending Allocate calls.
    in_flight: BTreeMap<String, BTreeSet<String>>,
    pub(super) pods: BTreeMap<u64, Known>,
    pub(super) are_sources_ready: bool,
    pub(super) admissions: mpsc::UnboundedSender<Pod>,
}

impl Kubelet {
    pub(super) fn new(
        process: Process,
        checkpoint: Checkpoint,
        admissions: mpsc::UnboundedSender<Pod>,
    ) -> Self {
        Self {
            process,
            endpoints: BTreeMap::new(),
            given: checkpoint,
            in_flight: BTreeMap::new(),
            pods: BTreeMap::new(),
            are_sources_ready: false,
            admissions,
        }
    }

    /// Implements `UpdateAllocatedDevices`: the devices of Pods that are no longer active become free.
    fn forget_ended(&mut self) {
        if self.are_sources_ready {
            let pods = &self.pods;
            let is_active = |uid: &u64| pods.get(uid).is_some_and(|known| known.is_active);
            self.given.retain(|(uid, ..), _| is_active(uid));
        }
    }

    /// Stores a plugin's list in place of the one before.
    pub(super) fn listed(&mut self, resource: &str, slots: &[Slot]) {
        let healthy = slots.iter().filter(|slot| slot.is_healthy);
        let healthy = healthy.map(|slot| slot.id.clone()).collect();
        self.endpoints.insert(resource.to_owned(), (healthy, true));
    }

    /// Handles the end of a plugin's stream.
    pub(super) fn disconnected(&mut self, resource: &str) {
        if let Some((healthy, is_open)) = self.endpoints.get_mut(resource) {
            healthy.clear();
            *is_open = false;
        }
    }

    pub(super) fn free(&self, resource: &str) -> BTreeSet<String> {
        let Some((healthy, _)) = self.endpoints.get(resource) else {
            return BTreeSet::new();
        };
        let given = (self.given.iter())
            .filter(|((_, _, of), _)| of == resource)
            .flat_map(|(_, given)| given.keys());
        let taken: BTreeSet<&String> = given
            .chain(self.in_flight.get(resource).into_iter().flatten())
            .collect();
        (healthy.iter())
            .filter(|id| !taken.contains(id))
            .cloned()
            .collect()
    }

    /// Implements `List` of the pod resources API.
    pub(super) fn list(&mut self, own: &str) -> Vec<PodResources> {
        if !self.are_sources_ready {
            return vec![];
        }
        self.forget_ended();
        let active = self.pods.values().filter(|known| known.is_active);
        let pods = active.map(|known| PodResources {
            name: known.pod.name.clone(),
            namespace: "default".to_owned(),
            containers: (known.pod.containers.iter())
                .filter(|container| container.kind != Kind::Init)
                .map(|container| ContainerResources {
                    name: container.name.to_owned(),
                    devices: self.devices(known.pod.uid, container.name),
                    ..ContainerResources::default()
                })
                .collect(),
            ..PodResources::default()
        });
        let own = PodResources {
            name: own.to_owned(),
            namespace: "default".to_owned(),
            ..PodResources::default()
        };
        pods.chain([own]).collect()
    }

    fn devices(&self, uid: u64, container: &str) -> Vec<ContainerDevices> {
        (self.given.iter())
            .filter(|((of, name, _), _)| *of == uid && *name == container)
            .map(|((_, _, resource), given)| ContainerDevices {
                resource_name: resource.clone(),
                device_ids: given.keys().cloned().collect(),
                ..ContainerDevices::default()
            })
            .collect()
    }

    /// Chooses the ids for a container: those of init containers that have ended first, then free ones at random.
    fn choose(
        &mut self,
        (uid, container, resource): &Holding,
        count: usize,
        shuffled: impl FnOnce(BTreeSet<String>) -> Vec<String>,
    ) -> Result<BTreeSet<String>, String> {
        self.forget_ended();
        let held = self.given.get(&(*uid, container, resource.clone()));
        let held: BTreeSet<String> = held
            .into_iter()
            .flat_map(|given| given.keys().cloned())
            .collect();
        let Some((healthy, _)) = self.endpoints.get(resource) else {
            return Err(format!("cannot allocate unregistered device {resource}"));
        };
        if !held.is_subset(healthy) || healthy.is_empty() {
            return Err(format!("devices of {resource} are not healthy"));
        }
        if held.len() == count {
            return Ok(BTreeSet::new());
        }
        let inits = self
            .pods
            .get(uid)
            .into_iter()
            .flat_map(|known| &known.pod.containers);
        let inits: BTreeSet<_> = (inits.filter(|c| c.kind == Kind::Init))
            .map(|c| c.name)
            .collect();
        let app_held: BTreeSet<&String> = (self.given.iter())
            .filter(|((of, name, r), _)| of == uid && r == resource && !inits.contains(name))
            .flat_map(|(_, given)| given.keys())
            .collect();
        let reusable = (self.given.iter())
            .filter(|((of, name, r), _)| of == uid && r == resource && inits.contains(name))
            .flat_map(|(_, given)| given.keys().cloned())
            .filter(|id| !app_held.contains(id));
        let reusable: BTreeSet<String> = reusable.collect();
        let chosen = reusable.into_iter().chain(shuffled(self.free(resource)));
        let chosen: BTreeSet<String> = chosen.take(count).collect();
        if chosen.len() == count {
            Ok(chosen)
        } else {
            Err(format!(
                "requested number of devices unavailable for {resource}"
            ))
        }
    }
}

/// Allocates everything that a container requests, with one Allocate call for each resource.
pub(super) async fn allocate(
    world: &Rc<World>,
    at: usize,
    (pod, container): (&Pod, &super::pods::Container),
) -> Result<(), String> {
    let node = &world.nodes[at];
    let machine = &world.machine;
    for (name, count) in container.asks.iter().filter(|(name, _)| !pod.claims(name)) {
        let holding = (pod.uid, container.name, name.clone());
        let ids = {
            let mut kubelet = node.kubelet.borrow_mut();
            let kubelet = kubelet.as_mut().ok_or("the kubelet is gone")?;
            let shuffled = |free: BTreeSet<String>| {
                let mut left: Vec<String> = free.into_iter().collect();
                let mut all = vec![];
                while let Some(id) = machine.one_of(&left).cloned() {
                    left.retain(|other| *other != id);
                    all.push(id);
                }
                all
            };
            let ids = kubelet.choose(&holding, *count, shuffled)?;
            if ids.is_empty() {
                continue;
            }
            kubelet
                .in_flight
                .entry(name.clone())
                .or_default()
                .extend(ids.clone());
            ids
        };
        world.note(|| {
            format!(
                "{}: Allocate {ids:?} for {}/{}",
                node.name, pod.name, container.name
            )
        });
        let answer = node.allocate(world, name, ids.clone()).await;
        let mut kubelet = node.kubelet.borrow_mut();
        let kubelet = kubelet.as_mut().ok_or("the kubelet is gone")?;
        kubelet
            .in_flight
            .entry(name.clone())
            .or_default()
            .retain(|id| !ids.contains(id));
        let given: Given = ids.into_iter().zip(answer?).collect();
        world.note(|| {
            format!(
                "{}: {}/{} is given {}",
                node.name,
                pod.name,
                container.name,
                text(&given)
            )
        });
        kubelet.given.entry(holding).or_default().extend(given);
        node.write_checkpoint(kubelet);
    }
    Ok(())
}

/// Asks the plugins before a container starts.
pub(super) async fn pre_start(
    world: &Rc<World>,
    at: usize,
    (pod, container): (&Pod, &super::pods::Container),
) -> Result<(), String> {
    let (node, uid) = (&world.nodes[at], pod.uid);
    for (name, _) in container.asks.iter().filter(|(name, _)| !pod.claims(name)) {
        let ids = {
            let kubelet = node.kubelet.borrow();
            let kubelet = kubelet.as_ref().ok_or("the kubelet is gone")?;
            let is_open = kubelet
                .endpoints
                .get(name)
                .is_some_and(|(_, is_open)| *is_open);
            if !is_open {
                return Err(format!("the plugin of {name} has not registered"));
            }
            let given = kubelet.given.get(&(uid, container.name, name.clone()));
            given
                .ok_or("no devices in the cache")?
                .keys()
                .cloned()
                .collect()
        };
        node.pre_start(world, name, ids).await?;
    }
    Ok(())
}

/// The longest time for which the kubelet waits for an answer about a claim (dra_plugin.go: 45 s).
const CALL_MAX: u64 = 45_000;

/// Has the claim of a Pod prepared, before its first container and once more by each kubelet.
pub(super) async fn prepare(world: &Rc<World>, at: usize, pod: &Pod) {
    let (node, machine) = (&world.nodes[at], &world.machine);
    let Some(claim) = pod.claim.clone() else {
        return;
    };
    while !uses(&mut node.disk.lock().unwrap().claims, &claim, pod.uid) {
        machine.sleep(machine.between(100, 1_000)).await;
    }
    while let Err(why) = limited(world, node.prepare(world, claim.clone())).await {
        world.note(|| format!("{}: {} is not prepared: {why}", node.name, claim.uid));
        machine.sleep(machine.between(1_000, 10_000)).await;
    }
    world.note(|| {
        format!(
            "{}: {} has {:?}",
            node.name,
            pod.name,
            node.claimed(pod.uid)
        )
    });
}

/// Notes that a Pod uses a claim. It does not while another gives it back.
fn uses(claims: &mut BTreeMap<String, KnownClaim>, claim: &Claim, pod: u64) -> bool {
    let known = claims
        .entry(claim.uid.clone())
        .or_insert_with(|| KnownClaim {
            claim: claim.clone(),
            pods: BTreeSet::new(),
            is_ending: false,
        });
    if !known.is_ending {
        known.pods.insert(pod);
    }
    !known.is_ending
}

/// Waits for an answer about a claim for as long as the kubelet does, and sometimes for so short a time that the agent is in
/// the middle of it.
async fn limited<T>(
    world: &World,
    call: impl Future<Output = Result<T, String>>,
) -> Result<T, String> {
    let machine = &world.machine;
    let limit = if machine.chance(20) {
        machine.between(1, 300)
    } else {
        CALL_MAX
    };
    let answer = machine.timeout(Duration::from_millis(limit), call).await;
    answer.unwrap_or_else(|| Err("the call took too long".to_owned()))
}

/// Has the claim of a Pod unprepared that has no containers any more, if no other Pod of the node uses it.
pub(super) async fn unprepare(world: &Rc<World>, at: usize, pod: u64) {
    let (node, machine) = (&world.nodes[at], &world.machine);
    loop {
        let uid = {
            let mut disk = node.disk.lock().unwrap();
            let mut all = disk.claims.iter_mut();
            let Some((uid, known)) = all.find(|(_, known)| known.pods.contains(&pod)) else {
                return;
            };
            if known.pods.len() > 1 {
                known.pods.remove(&pod);
                return;
            }
            known.is_ending = true;
            uid.clone()
        };
        match limited(world, node.unprepare(world, uid.clone())).await {
            Ok(()) => drop(node.disk.lock().unwrap().claims.remove(&uid)),
            Err(_) => machine.sleep(machine.between(1_000, 10_000)).await,
        }
    }
}

fn text(given: &Given) -> String {
    let all = given.iter().map(|(id, slot)| format!("{slot} as {id}"));
    all.collect::<Vec<_>>().join(", ")
}

/// Returns whether a name is that of a Configuration's resource.
pub(super) fn is_of_configuration(full_name: &str) -> bool {
    matches!(
        resource(full_name),
        crate::model::slot_table::Resource::Configuration(_)
    )
}
