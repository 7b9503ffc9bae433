//! Answers Allocate and PreStartContainer: claims the slots, and gives the container the properties of their devices.
use super::{
    answer::{FoundDevice, answers, cdi_files, connection_digests},
    denied::Denied,
    former_name,
    inputs::Inputs,
    predecessor,
    told::told,
};
use crate::{
    agent::{
        connections::{self, ConnectionDigest, Connections},
        device_state::{DeviceState, device_state, why_gone},
        node_only::plan::Offer,
        slots::{ClaimRequest, Refusal, Request, Requests, Wanted},
    },
    api::reason::Reason,
    model::{
        instance_name::{InstanceKey, InstanceName},
        slot::SlotId,
        slot_table::{Claim, ClaimError, Held, Resource, SlotTable},
    },
    telemetry::metrics,
};
use petiole_kubelet_api::device_plugin::ContainerAllocateResponse;
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};
use tokio::{
    sync::oneshot,
    time::{Instant, timeout_at},
};
use tonic::Status;
use tracing::{info, warn};

/// An Allocate call is answered by then, because the kubelet waits without end, and admits no other Pod meanwhile.
const ALLOCATE_TIMEOUT: Duration = Duration::from_secs(3);
/// The time for which a call waits in all: for the kubelet's records, for a slot that nobody knows yet whether it is free, and
/// for a device that was adopted and not seen yet. It leaves time for the claim.
const SEEN_TIMEOUT: Duration = Duration::from_millis(2500);
pub(in crate::agent) struct Allocator {
    pub(super) inputs: Inputs,
    pub(super) requests: Requests,
    connections: Connections,
}

/// The kind of a container's start. At a later start the kubelet repeats the answer of the first one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Start {
    First,
    Replayed,
}

impl Allocator {
    pub(in crate::agent) fn new(inputs: Inputs, requests: Requests) -> Self {
        Self {
            inputs,
            requests,
            connections: Connections::default(),
        }
    }

    /// Claims the slots that `containers` ask for, all or none; one response for each container.
    pub(in crate::agent) async fn allocate(
        &self,
        resource: &Resource,
        containers: Vec<Vec<String>>,
    ) -> Result<Vec<ContainerAllocateResponse>, Status> {
        let _timer = metrics().time_allocate();
        let until = Instant::now() + ALLOCATE_TIMEOUT;
        let allocated = timeout_at(until, self.claim(resource, containers, Start::First)).await;
        // The task of the slots undoes the claim of a call that has ended.
        let seconds = ALLOCATE_TIMEOUT.as_secs();
        let allocated = allocated.unwrap_or(Err(Denied::TooLate { seconds }));
        let answer = counted(allocated).map_err(Status::from);
        if answer.is_err() {
            told(&self.inputs, resource, until).await;
        }
        answer.inspect_err(|status| {
            self.inputs
                .report(resource, Reason::AllocateRefused, status)
        })
    }

    async fn claim(
        &self,
        resource: &Resource,
        containers: Vec<Vec<String>>,
        start: Start,
    ) -> Result<Vec<ContainerAllocateResponse>, Denied> {
        let until = Instant::now() + SEEN_TIMEOUT;
        former_name::check(&self.inputs, resource, &containers).await?;
        predecessor::learn(&self.inputs, resource, until).await;
        let offer = self.inputs.offer(resource);
        let (gone, expected) = match &offer {
            Some(offer) => {
                let claim = offer.claim(&containers).map_err(Refusal::from)?;
                (BTreeSet::new(), claim)
            }
            None => self.expected(resource, &containers, until).await?,
        };
        let keys = expected
            .changes()
            .map(|change| change.key.clone())
            .collect();
        let found = self.seen(offer.as_deref(), keys, until).await?;
        let digests = connection_digests(&found);
        let given = expected
            .changes()
            .map(|change| digests[&change.slot.instance].clone());
        let given: Vec<(String, ConnectionDigest)> =
            containers.iter().flatten().cloned().zip(given).collect();
        match start {
            Start::Replayed => self.check_replayed(resource, &given)?,
            // Before the claim: who is refused holds nothing.
            Start::First => answers(&expected, &found).map(drop)?,
        }
        self.write_cdi_files(&found).await?;
        let claim = match &offer {
            // The kubelet alone gives out these slots.
            Some(_) => expected,
            None => {
                let wanted = Wanted::Listed {
                    resource: resource.clone(),
                    containers,
                    gone,
                };
                self.written(wanted, digests).await?
            }
        };
        self.connections.remember(given);
        // The later start of a container without Instances claims nothing.
        if start == Start::First || offer.is_none() {
            let slots = claim.changes().map(|change| change.slot.to_string());
            let slots = slots.collect::<Vec<_>>().join(",");
            info!(
                resource = resource.name(),
                slots, "slots claimed for a container"
            );
        }
        answers(&claim, &found)
    }

    /// Has a claim written.
    pub(super) async fn written(
        &self,
        wanted: Wanted,
        connections: BTreeMap<InstanceName, ConnectionDigest>,
    ) -> Result<Claim, Denied> {
        let (reply, answer) = oneshot::channel();
        let request = ClaimRequest {
            wanted,
            connections,
            reply,
        };
        let sent = self.requests.send(Request::Claim(request)).await;
        sent.map_err(|_| Denied::Stopping)?;
        let answer = answer.await.map_err(|_| Denied::Stopping)?;
        Ok(answer?)
    }

    /// Refuses ids whose containers were given another digest.
    fn check_replayed(
        &self,
        resource: &Resource,
        now: &[(String, ConnectionDigest)],
    ) -> Result<(), Denied> {
        let has_moved = |(id, now): &(String, String)| self.connections.has_changed(id, now);
        if now.iter().any(has_moved) {
            Err(Denied::Moved {
                whose: resource.name().to_owned(),
            })
        } else {
            Ok(())
        }
    }

    /// Refuses a container whose device is gone, or whose values no longer connect it to the device: the kubelet
    /// repeats the first answer at each restart of a container.
    pub(in crate::agent) async fn pre_start(
        &self,
        resource: &Resource,
        ids: Vec<String>,
    ) -> Result<(), Status> {
        let answer = self.check_start(resource, ids).await;
        answer.inspect_err(|status| self.inputs.report(resource, Reason::StartRefused, status))
    }

    async fn check_start(&self, resource: &Resource, ids: Vec<String>) -> Result<(), Status> {
        if self.inputs.offer(resource).is_some() {
            let claimed = self.claim(resource, vec![ids], Start::Replayed).await;
            return Ok(claimed.map(drop)?);
        }
        let (mut slots, mut lost) = (vec![], vec![]);
        for id in ids {
            let held = self.inputs.table.borrow().held_as(resource, &id);
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
            counted(self.claim(resource, vec![lost], Start::Replayed).await)?;
        }
        let keys = slots.iter().map(|held| held.key.clone()).collect();
        let found = self.seen(None, keys, Instant::now() + SEEN_TIMEOUT).await?;
        for held in slots {
            self.check_connection(resource, &held, &found)?;
        }
        // Their folder is empty after the machine was started again, and anybody may have removed them.
        Ok(self.write_cdi_files(&found).await?)
    }

    /// Writes the CDI files that a container needs at its start.
    pub(super) async fn write_cdi_files(
        &self,
        found: &BTreeMap<InstanceName, FoundDevice>,
    ) -> Result<(), Denied> {
        let written = self.inputs.cdi_files.write(cdi_files(found)).await;
        written.map_err(Denied::NoCdiFile)
    }

    fn check_connection(
        &self,
        resource: &Resource,
        held: &Held,
        found: &BTreeMap<InstanceName, FoundDevice>,
    ) -> Result<(), Denied> {
        let instances = self.inputs.store.instances().borrow().clone();
        let given = connections::given(
            &self.inputs.table.borrow(),
            &instances,
            &held.key,
            &held.slot,
        );
        let now = found
            .get(&held.slot.instance)
            .map(FoundDevice::connection_digest);
        let now = now.as_ref();
        match given {
            Some(given) if Some(&given) != now => Err(Denied::Moved {
                whose: held.key.to_string(),
            }),
            Some(_) => Ok(()),
            // Slots that were claimed again, and those of Akri, have no annotation. This agent may remember the digest.
            None => {
                let now = now.map(|now| (held.id(), now.clone()));
                self.check_replayed(resource, now.as_slice())
            }
        }
    }

    /// Plans the claim, to learn which devices it needs. `slots::run` plans it again when it writes it, because the slots can
    /// change while this call waits for the devices. If this node's other resource holds a slot, the kubelet's records show
    /// whether the container of that slot has ended.
    async fn expected(
        &self,
        resource: &Resource,
        containers: &[Vec<String>],
        until: Instant,
    ) -> Result<(BTreeSet<SlotId>, Claim), Denied> {
        let planned = async |gone: &BTreeSet<SlotId>| {
            let plan = |slots: &SlotTable| slots.plan_claim(resource, containers, gone);
            self.planned(until, ClaimError::is_passing, plan).await
        };
        let mut gone = BTreeSet::new();
        let mut claim = planned(&gone).await;
        if let Err(ClaimError::HeldHere { .. }) = claim {
            gone = self.gone().await;
            claim = planned(&gone).await;
        }
        Ok((gone, claim.map_err(Refusal::from)?))
    }

    /// Plans a claim by the slot table. Waits as long as it fails for a reason that may be over in a moment.
    pub(super) async fn planned(
        &self,
        until: Instant,
        is_passing: impl Fn(&ClaimError) -> bool,
        plan: impl Fn(&SlotTable) -> Result<Claim, ClaimError>,
    ) -> Result<Claim, ClaimError> {
        let mut slots = self.inputs.table.subscribe();
        loop {
            let planned = plan(&slots.borrow_and_update());
            let waits = planned.as_ref().is_err_and(&is_passing);
            if !waits || !matches!(timeout_at(until, slots.changed()).await, Ok(Ok(()))) {
                return planned;
            }
        }
    }

    /// The devices of these Instances, once each was seen in this life of the agent.
    pub(super) async fn seen(
        &self,
        offer: Option<&Offer>,
        keys: BTreeSet<InstanceKey>,
        until: Instant,
    ) -> Result<BTreeMap<InstanceName, FoundDevice>, Denied> {
        let mut discoveries = self.inputs.discoveries.clone();
        let waiting = timeout_at(until, async {
            loop {
                discoveries.mark_unchanged();
                let found = self.find(offer, &keys)?;
                if found.len() == keys.len() || discoveries.changed().await.is_err() {
                    return Ok(found);
                }
            }
        });
        match waiting.await {
            Ok(found) => found,
            Err(_) => Err(Denied::NotSeen {
                uptime_seconds: self.inputs.clock.uptime().as_secs(),
            }),
        }
    }

    /// Returns the devices that are present now; an error if one is gone.
    fn find(
        &self,
        offer: Option<&Offer>,
        keys: &BTreeSet<InstanceKey>,
    ) -> Result<BTreeMap<InstanceName, FoundDevice>, Denied> {
        let instances = self.inputs.store.instances().borrow().clone();
        let discoveries = self.inputs.discoveries.borrow().clone();
        let validated = self.inputs.validated.borrow().clone();
        let mut found = BTreeMap::new();
        for key in keys {
            let missing = || Denied::Gone(format!("Instance {key} is gone"));
            let (state, configuration) = match offer {
                Some(offer) => (offer.state(&key.name, &discoveries), offer.key.clone()),
                None => {
                    let instance = instances.get(key).ok_or_else(missing)?;
                    let configuration = instance.spec.configuration_key(&key.namespace);
                    (device_state(instance, &discoveries), configuration)
                }
            };
            match state {
                DeviceState::Adopted => {}
                DeviceState::Gone => {
                    let instance = instances.get(key);
                    let why = instance.map_or("is gone", |i| why_gone(i, &discoveries));
                    let whose = match offer {
                        Some(offer) => format!("{}, of Configuration {},", key.name, offer.key),
                        None => format!("the device of Instance {key}"),
                    };
                    let message = format!("{whose} {why}");
                    return Err(Denied::Gone(message));
                }
                DeviceState::Seen(device) => {
                    let name = key.name.clone();
                    let accepted = validated.accepted.get(&configuration);
                    let entry = FoundDevice {
                        digest: name.digest_in(&configuration.name),
                        device: device.clone(),
                        configuration: accepted.map(|a| a.configuration.clone()),
                    };
                    found.insert(name, entry);
                }
            }
        }
        Ok(found)
    }
}

/// Counts a claim, made or not.
fn counted<T>(claimed: Result<T, Denied>) -> Result<T, Denied> {
    metrics()
        .claims(claimed.as_ref().err().map(Denied::word))
        .inc();
    claimed
}
