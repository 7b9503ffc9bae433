//! Answers Allocate and PreStartContainer: which slots, and what the container is told of their devices.
use super::{answer::to_wire, denied::Denied, former_name};
use crate::{
    agent::{
        Node, books,
        plan_inputs::{Sight, sight, why_gone},
        slots::{ClaimRequest, Request, Requests, reclaim, told_of},
    },
    api::reason::Reason,
    model::{
        container_edits::{ContainerEdits, Given},
        device::Device,
        instance_name::InstanceName,
        names::ObjectKey,
        slot::SlotId,
        slot_table::{Claim, ClaimError, Held, Resource, SlotChange},
    },
    proto::device_plugin::ContainerAllocateResponse,
    store::About,
    telemetry::metrics,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};
use tokio::{
    sync::{oneshot, watch},
    time::timeout,
};
use tonic::Status;
use tracing::{info, warn};

/// An Allocate call is answered by then, because the kubelet waits without end, and admits no other Pod meanwhile.
const ALLOCATE_TIMEOUT: Duration = Duration::from_secs(3);
/// How long a call waits for a device that was adopted and not seen yet. It leaves time for the claim.
const SEEN_TIMEOUT: Duration = Duration::from_millis(2500);
/// What containers were told is remembered for so many ids; then it is begun anew.
const TOLD_MAX: usize = 10_000;

pub(super) struct Allocator {
    node: Arc<Node>,
    requests: Requests,
    /// What the container that was given an id was told, as a digest: an Instance that was deleted and created again
    /// does not know it.
    told: watch::Sender<BTreeMap<String, String>>,
}

/// An Instance's device, and all else that a container is told.
struct Found {
    instance: InstanceName,
    device: Device,
    broker_properties: BTreeMap<String, String>,
}

impl Allocator {
    pub(super) fn new(node: Arc<Node>, requests: Requests) -> Self {
        Self {
            node,
            requests,
            told: watch::Sender::default(),
        }
    }

    /// Claims the slots that `containers` ask for, all or none; one response for each container.
    pub(super) async fn allocate(
        &self,
        resource: &Resource,
        containers: Vec<Vec<String>>,
    ) -> Result<Vec<ContainerAllocateResponse>, Status> {
        let _timer = metrics().time_allocate();
        let allocated = timeout(ALLOCATE_TIMEOUT, self.claim(resource, containers, false)).await;
        // The keeper undoes what was claimed for a call that has gone.
        let allocated =
            allocated.unwrap_or_else(|_| Err(Denied::too_late(ALLOCATE_TIMEOUT.as_secs())));
        let answer = counted(allocated).map_err(Status::from);
        answer.inspect_err(|status| self.tell(resource, Reason::AllocateRefused, status))
    }

    /// Those who look at the Instance, or at the Configuration, see why a Pod was refused.
    fn tell(&self, resource: &Resource, reason: Reason, status: &Status) {
        warn!(resource = resource.name(), "{reason}: {}", status.message());
        let instances = self.node.store.instances().borrow().clone();
        let about = match resource {
            Resource::Instance(name) => (instances.keys())
                .find(|key| key.name == *name)
                .map(|key| About::Instance(key.clone())),
            Resource::Configuration(name) => (instances.iter())
                .find(|(_, instance)| instance.spec.configuration_name == *name)
                .map(|(key, _)| About::Configuration(ObjectKey::new(&key.namespace, name))),
        };
        if let Some(about) = about {
            let note = format!("node {}: {}", self.node.name, status.message());
            self.node.store.warn(&about, reason, note);
        }
    }

    /// A container that `is_replayed` starts with what it was told at its first start.
    async fn claim(
        &self,
        resource: &Resource,
        containers: Vec<Vec<String>>,
        is_replayed: bool,
    ) -> Result<Vec<ContainerAllocateResponse>, Denied> {
        former_name::check(&self.node, resource, &containers).await?;
        let (gone, expected) = self.expected(resource, &containers).await?;
        let keys = expected
            .changes()
            .map(|change| change.key.clone())
            .collect();
        let found = self.seen(keys).await?;
        let digest = |found: &Found| found.device.connection_digest();
        let digests: BTreeMap<String, String> = found
            .iter()
            .map(|(name, found)| (name.clone(), digest(found)))
            .collect();
        let told = expected
            .changes()
            .map(|change| digests[&change.slot.name].clone());
        let told: Vec<(String, String)> = containers.iter().flatten().cloned().zip(told).collect();
        if is_replayed {
            self.check_replayed(resource, &told)?;
        }
        let (reply, answer) = oneshot::channel();
        let request = ClaimRequest {
            resource: resource.clone(),
            containers,
            gone,
            told: digests,
            reply,
        };
        self.requests
            .send(Request::Claim(request))
            .await
            .map_err(|_| Denied::stopping())?;
        let claim = answer
            .await
            .map_err(|_| Denied::stopping())?
            .map_err(|e| Denied::claim(&e))?;
        self.remember(told);
        let slots: Vec<_> = claim
            .changes()
            .map(|change| change.slot.to_string())
            .collect();
        info!(
            resource = resource.name(),
            slots = slots.join(","),
            "slots claimed for a container"
        );
        claim
            .requests
            .iter()
            .map(|slots| response(slots, &found))
            .collect()
    }

    /// Refuses ids whose containers were told something else.
    fn check_replayed(&self, resource: &Resource, now: &[(String, String)]) -> Result<(), Denied> {
        let before = self.told.borrow();
        let has_moved =
            |(id, now): &(String, String)| before.get(id).is_some_and(|told| told != now);
        match now.iter().any(has_moved) {
            true => Err(Denied::moved(resource.name())),
            false => Ok(()),
        }
    }

    fn remember(&self, told: Vec<(String, String)>) {
        self.told.send_modify(|all| {
            if all.len() > TOLD_MAX {
                all.clear();
            }
            all.extend(told);
        });
    }

    /// Refuses a container whose device is gone, or is no longer to be reached as the container was told: the kubelet
    /// replays the first answer at each restart of a container.
    pub(super) async fn pre_start(
        &self,
        resource: &Resource,
        ids: Vec<String>,
    ) -> Result<(), Status> {
        let answer = self.check_start(resource, ids).await;
        answer.inspect_err(|status| self.tell(resource, Reason::StartRefused, status))
    }

    async fn check_start(&self, resource: &Resource, ids: Vec<String>) -> Result<(), Status> {
        let (mut slots, mut lost) = (vec![], vec![]);
        for id in ids {
            let held = self.node.slots.borrow().held_as(resource, &id);
            match held {
                Some(held) => slots.push(held),
                None => lost.push(id),
            }
        }
        if !lost.is_empty() {
            // The kubelet is right on its own node: what it starts with is in use.
            warn!(
                resource = resource.name(),
                ?lost,
                "a container starts with slots that were free: they are claimed again"
            );
            counted(self.claim(resource, vec![lost], true).await)?;
        }
        let found = self
            .seen(slots.iter().map(|held| held.key.clone()).collect())
            .await?;
        for held in slots {
            self.check_told(resource, &held, &found)?;
        }
        Ok(())
    }

    fn check_told(
        &self,
        resource: &Resource,
        held: &Held,
        found: &BTreeMap<String, Found>,
    ) -> Result<(), Denied> {
        let instances = self.node.store.instances().borrow().clone();
        let instance = instances.get(&held.key);
        let told = instance.and_then(|instance| told_of(instance, held.slot.index));
        let told = told.cloned();
        let now = found
            .get(&held.slot.name)
            .map(|found| found.device.connection_digest());
        let now = now.as_ref();
        let moved = |whose: &str| Err(Denied::moved(whose));
        match told {
            Some(told) if Some(&told) != now => moved(&held.key.to_string()),
            Some(_) => Ok(()),
            // Slots that were claimed again, and those of Akri's, have no note of it; this agent may know.
            None => {
                let now = now.map(|now| (held.id(), now.clone()));
                self.check_replayed(resource, now.as_slice())
            }
        }
    }

    pub(super) fn preferred(
        &self,
        resource: &Resource,
        available: &[String],
        must: &[String],
        size: usize,
    ) -> Vec<String> {
        self.node
            .slots
            .borrow()
            .preferred(resource.name(), available, must, size)
    }

    /// The claim as it would be now. Where this node's other resource holds a slot, the kubelet's books tell whether its
    /// container is gone.
    async fn expected(
        &self,
        resource: &Resource,
        containers: &[Vec<String>],
    ) -> Result<(BTreeSet<SlotId>, Claim), Denied> {
        let mut slots = self.node.slots.subscribe();
        let mut gone = BTreeSet::new();
        loop {
            let planned = slots
                .borrow_and_update()
                .plan_claim(resource, containers, &gone);
            match planned {
                Ok(claim) => return Ok((gone, claim)),
                // Just being released, say: it is free or taken in a moment.
                Err(ClaimError::Busy { .. }) => {
                    slots.changed().await.map_err(|_| Denied::stopping())?;
                }
                Err(ClaimError::HeldHere { .. }) if gone.is_empty() => {
                    gone = self.gone().await;
                    if gone.is_empty() {
                        return planned
                            .map(|claim| (gone, claim))
                            .map_err(|e| Denied::claim(&e.into()));
                    }
                }
                Err(e) => return Err(Denied::claim(&e.into())),
            }
        }
    }

    /// The slots of this node that no container holds, by a look at the kubelet's books just now.
    async fn gone(&self) -> BTreeSet<SlotId> {
        let begun = self.node.uptime();
        let held = self.node.slots.borrow().held();
        let books = books::look(&self.node, &held, &mut None).await;
        match books.ok().flatten().and_then(|books| books.held()) {
            Some(listed) => (self.node.slots.borrow().held().into_iter())
                .filter(|held| held.answered <= begun && !reclaim::is_listed(held, &listed))
                .map(|held| held.slot)
                .collect(),
            None => BTreeSet::new(),
        }
    }

    /// The devices of these Instances, once each was seen in this life of the agent.
    async fn seen(&self, keys: BTreeSet<ObjectKey>) -> Result<BTreeMap<String, Found>, Denied> {
        let mut discoveries = self.node.discoveries.subscribe();
        let waiting = timeout(SEEN_TIMEOUT, async {
            loop {
                discoveries.mark_unchanged();
                let found = self.find(&keys)?;
                if found.len() == keys.len() || discoveries.changed().await.is_err() {
                    return Ok(found);
                }
            }
        });
        match waiting.await {
            Ok(found) => found,
            Err(_) => Err(Denied::not_seen(self.node.uptime().as_secs())),
        }
    }

    /// Those of the devices that are seen now; an error where one is gone.
    fn find(&self, keys: &BTreeSet<ObjectKey>) -> Result<BTreeMap<String, Found>, Denied> {
        let instances = self.node.store.instances().borrow().clone();
        let discoveries = self.node.discoveries.borrow().clone();
        let judged = self.node.judged.borrow().clone();
        let mut found = BTreeMap::new();
        for key in keys {
            let missing = || Denied::gone(format!("Instance {key} is gone"));
            let instance = instances.get(key).ok_or_else(missing)?;
            match sight(instance, &discoveries) {
                Sight::Adopted => {}
                Sight::Gone => {
                    let why = why_gone(instance, &discoveries);
                    let message = format!("the device of Instance {key} {why}");
                    return Err(Denied::gone(message));
                }
                Sight::Seen(device) => {
                    let configuration =
                        ObjectKey::new(&key.namespace, &instance.spec.configuration_name);
                    let accepted = judged.accepted.get(&configuration);
                    let entry = Found {
                        instance: key.name.parse().map_err(|_| missing())?,
                        device: device.clone(),
                        broker_properties: accepted
                            .map(|a| a.configuration.spec.broker_properties.clone())
                            .unwrap_or_default(),
                    };
                    found.insert(key.name.clone(), entry);
                }
            }
        }
        Ok(found)
    }
}

fn response(
    slots: &[SlotChange],
    found: &BTreeMap<String, Found>,
) -> Result<ContainerAllocateResponse, Denied> {
    let mut given = vec![];
    for slot in slots {
        let found = found
            .get(&slot.slot.name)
            .ok_or_else(|| Denied::internal(format!("{} was not looked at", slot.slot)))?;
        given.push(Given {
            digest: found.instance.digest(),
            slot: &slot.slot,
            device: &found.device,
            broker_properties: &found.broker_properties,
        });
    }
    Ok(to_wire(ContainerEdits::of(&given)))
}

/// Counts a claim, made or not.
fn counted<T>(claimed: Result<T, Denied>) -> Result<T, Denied> {
    metrics().count_claim(claimed.as_ref().err().map(Denied::word));
    claimed
}
