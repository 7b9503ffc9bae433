//! Gives slots to ResourceClaims, and takes them back.
use super::{
    allocate::Allocator,
    answer::{FoundDevice, connection_digests, edits},
    denied::Denied,
};
use crate::{
    agent::{
        connections::ConnectionDigest,
        slots::{Refusal, Request, Wanted},
        values::ValidatedConfigurations,
    },
    model::{
        container_edits::{ContainerEdits, SLOT_VARIABLE},
        instance_name::{InstanceKey, InstanceName},
        slot::SlotId,
        slot_table::{ClaimError, Held, SlotChange, SlotTable},
    },
    store::Instances,
};
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio::time::{Instant, timeout};
use tonic::Status;
use tracing::{info, warn};

/// The time for which a call waits for devices and for slots whose last holder is just ending, on this node or on another. The
/// kubelet gives a call 45 s, and calls again.
const PREPARE_TIMEOUT: Duration = Duration::from_secs(20);
/// The time for which a call waits for the Instances after the start, before that.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// The devices of one request of a claim: a container that has the request gets all of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::agent) struct DeviceRequest {
    pub(in crate::agent) devices: Vec<InstanceKey>,
    /// True if the container only looks at them: it takes no slots.
    pub(in crate::agent) is_admin: bool,
}

/// What the containers of a claim get.
pub(in crate::agent) struct ForClaim {
    /// What the containers of each request get.
    pub(in crate::agent) edits: Vec<ContainerEdits>,
    /// The digest of how they reach the device of each Instance.
    pub(in crate::agent) connections: BTreeMap<InstanceName, ConnectionDigest>,
}

impl Allocator {
    pub(in crate::agent) fn instances(&self) -> Arc<Instances> {
        self.inputs.store.instances().borrow().clone()
    }

    /// Returns the Instances once they have been read, which they are soon after the start.
    pub(in crate::agent) async fn known_instances(&self) -> Result<Arc<Instances>, Status> {
        let mut configurations = self.inputs.store.configurations();
        let read = configurations.wait_for(|configurations| configurations.are_read());
        let read = async {
            match timeout(READ_TIMEOUT, read).await {
                Ok(Ok(_)) => Ok(()),
                Ok(Err(_)) | Err(_) => Err(Denied::NotRead),
            }
        };
        self.while_deciding(read).await?;
        Ok(self.instances())
    }

    pub(in crate::agent) fn validated(&self) -> Arc<ValidatedConfigurations> {
        self.inputs.validated.borrow().clone()
    }

    /// Claims a slot of each device of a ResourceClaim, all or none. A claim that has slots already keeps them.
    pub(in crate::agent) async fn allocate_claim(
        &self,
        uid: &str,
        requests: &[DeviceRequest],
    ) -> Result<ForClaim, Status> {
        let Some(_call) = self.inputs.decisions.begin().await else {
            return Err(Denied::Stopping.into());
        };
        Ok(self.claim_for(uid, requests).await?)
    }

    async fn claim_for(&self, uid: &str, requests: &[DeviceRequest]) -> Result<ForClaim, Denied> {
        let until = Instant::now() + PREPARE_TIMEOUT;
        let all = requests.iter().flat_map(|one| &one.devices);
        let seen = self.seen(None, all.cloned().collect(), until);
        let found = self.while_deciding(seen).await?;
        let taking = requests.iter().filter(|one| !one.is_admin);
        let devices = taking.flat_map(|one| one.devices.iter().map(|key| key.name.clone()));
        let devices: Vec<InstanceName> = devices.collect();
        let slots = self.slots_for(uid, &devices, &found, until).await?;
        let mut slots = slots.into_iter();
        let mut all = vec![];
        for request in requests {
            let any = |name: &InstanceName| SlotId::new(name, 0);
            let names = request.devices.iter().map(|key| &key.name);
            let of_request: Vec<SlotId> = if request.is_admin {
                names.map(any).collect()
            } else {
                slots.by_ref().take(names.len()).collect()
            };
            let mut edits = edits(&of_request, &found)?;
            if request.is_admin {
                edits.env.retain(|name, _| !name.starts_with(SLOT_VARIABLE));
            }
            all.push(edits);
        }
        self.write_cdi_files(&found).await?;
        Ok(ForClaim {
            edits: all,
            connections: connection_digests(&found),
        })
    }

    /// Waits, as long as this agent does not hand over to another: the kubelet calls that one again.
    async fn while_deciding<T>(
        &self,
        waits: impl Future<Output = Result<T, Denied>>,
    ) -> Result<T, Denied> {
        tokio::select! {
            biased;
            done = waits => done,
            () = self.inputs.decisions.over() => Err(Denied::Stopping),
        }
    }

    /// Returns a slot of each device for a claim. Waits while others hold them all: the scheduler may know that a Pod has ended before
    /// its kubelet does.
    async fn slots_for(
        &self,
        uid: &str,
        devices: &[InstanceName],
        found: &BTreeMap<InstanceName, FoundDevice>,
        until: Instant,
    ) -> Result<Vec<SlotId>, Denied> {
        let is_passing = |e: &ClaimError| e.is_passing() || matches!(e, ClaimError::Full { .. });
        let plan = |slots: &SlotTable| slots.plan_resource_claim(uid, devices);
        let planned = async {
            let planned = self.planned(until, is_passing, plan).await;
            planned.map(drop).map_err(|e| Refusal::from(e).into())
        };
        self.while_deciding(planned).await?;
        let wanted = Wanted::Claimed {
            uid: uid.to_owned(),
            devices: devices.to_vec(),
        };
        let claim = self.written(wanted, connection_digests(found)).await?;
        let slots: Vec<SlotId> = claim.changes().map(|c| c.slot.clone()).collect();
        info!(uid, ?slots, "slots claimed for a ResourceClaim");
        Ok(slots)
    }

    /// Frees the slots of a ResourceClaim that the kubelet does not need any more.
    pub(in crate::agent) async fn release_claim(&self, claim_uid: &str) {
        let held = self.inputs.table.borrow().held().into_iter();
        let its = held.filter(|held| held.owner.is_of_claim(claim_uid));
        let changes: Vec<SlotChange> = its.map(Held::release).collect();
        if changes.is_empty() {
            return;
        }
        let begun = self.inputs.clock.uptime();
        let sent = self
            .requests
            .send(Request::Release { changes, begun })
            .await;
        if sent.is_err() {
            warn!(
                uid = claim_uid,
                "the agent is stopping: the next one frees the slots of a claim"
            );
        }
    }
}
