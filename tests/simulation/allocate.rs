//! Answers Allocate and PreStartContainer: the steps of `agent::plugins::allocate`, in its order.
use super::{
    agent::Agent,
    slots_task::{ClaimRequest, Request},
};
use crate::{
    agent::{
        connections::given,
        device_state::{DeviceState, device_state},
        kubelet_records::Look,
        slots::plan::is_listed,
    },
    model::{
        instance_name::InstanceKey,
        instance_name::InstanceName,
        slot::SlotId,
        slot_table::{Claim, ClaimError, Held, Resource, SETTLED_AFTER},
    },
};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};
use tokio::sync::oneshot;

const ALLOCATE_TIMEOUT: Duration = Duration::from_secs(3);
const SEEN_TIMEOUT: Duration = Duration::from_millis(2500);

/// The connection digest of each Instance.
type Seen = BTreeMap<InstanceName, String>;

impl Agent {
    /// Returns the slots that a container gets.
    pub(super) async fn allocate(
        &self,
        resource: &Resource,
        ids: Vec<String>,
    ) -> Result<Vec<SlotId>, String> {
        let claim = Box::pin(self.claim(resource, ids, false));
        let answer = self.machine().timeout(ALLOCATE_TIMEOUT, claim).await;
        let claim = answer.unwrap_or_else(|| Err("no claim within 3 s".to_owned()))?;
        Ok(claim.changes().map(|change| change.slot.clone()).collect())
    }

    async fn claim(
        &self,
        resource: &Resource,
        ids: Vec<String>,
        is_replayed: bool,
    ) -> Result<Claim, String> {
        let containers = vec![ids.clone()];
        self.learn().await;
        let (gone, expected) = self.expected(resource, &containers).await?;
        let keys = expected
            .changes()
            .map(|change| change.key.clone())
            .collect();
        let digests = self.seen(keys).await?;
        let connection_digest: Vec<(String, String)> = (ids.into_iter())
            .zip(
                expected
                    .changes()
                    .map(|change| digests[&change.slot.instance].clone()),
            )
            .collect();
        if is_replayed
            && connection_digest
                .iter()
                .any(|(id, now)| self.has_other_connection(id, now))
        {
            return Err("the device is reached differently now".to_owned());
        }
        let (reply, answer) = oneshot::channel();
        let request = ClaimRequest {
            resource: resource.clone(),
            containers,
            gone,
            connection_digest: digests,
            reply,
        };
        self.requests.send(Request::Claim(request)).ok();
        let claim = answer
            .await
            .unwrap_or_else(|_| Err("stopping".to_owned()))?;
        self.connection_digest
            .borrow_mut()
            .extend(connection_digest);
        Ok(claim)
    }

    pub(super) async fn pre_start(
        &self,
        resource: &Resource,
        ids: Vec<String>,
    ) -> Result<(), String> {
        let (mut held, mut lost) = (vec![], vec![]);
        for id in ids {
            let slot = self.slots.borrow().held_as(resource, &id);
            match slot {
                Some(slot) => held.push(slot),
                None => lost.push(id),
            }
        }
        if !lost.is_empty() {
            self.claim(resource, lost, true).await?;
        }
        let keys = held.iter().map(|held| held.key.clone()).collect();
        let digests = self.seen(keys).await?;
        let moved = held.iter().any(|held| !self.has_connection(held, &digests));
        match moved {
            true => Err("the device is reached differently now".to_owned()),
            false => Ok(()),
        }
    }

    fn has_connection(&self, held: &Held, digests: &Seen) -> bool {
        let instances = self.store.instances.borrow().clone();
        let now = digests.get(&held.slot.instance);
        match given(&self.slots.borrow(), &instances, &held.key, &held.slot) {
            Some(connection_digest) => now == Some(&connection_digest),
            None => now.is_none_or(|now| !self.has_other_connection(&held.id(), now)),
        }
    }

    /// Implements `agent::plugins::allocate::check_replayed`.
    fn has_other_connection(&self, id: &str, now: &str) -> bool {
        let connection_digest = self.connection_digest.borrow();
        connection_digest
            .get(id)
            .is_some_and(|connection_digest| connection_digest != now)
    }

    async fn expected(
        &self,
        resource: &Resource,
        containers: &[Vec<String>],
    ) -> Result<(BTreeSet<SlotId>, Claim), String> {
        let mut slots = self.slots.subscribe();
        let mut gone = BTreeSet::new();
        loop {
            let planned = (slots.borrow_and_update()).plan_claim(resource, containers, &gone);
            match planned {
                Ok(claim) => return Ok((gone, claim)),
                Err(ClaimError::Busy { .. } | ClaimError::Unconfirmed { .. }) => {
                    slots.changed().await.map_err(|e| e.to_string())?;
                }
                Err(ClaimError::HeldHere { .. }) if gone.is_empty() => {
                    gone = self.not_held().await;
                    if gone.is_empty() {
                        return planned
                            .map(|claim| (gone, claim))
                            .map_err(|e| e.to_string());
                    }
                }
                Err(e) => return Err(e.to_string()),
            }
        }
    }

    /// Implements `agent::plugins::allocate::learn`.
    async fn learn(&self) {
        let begun = self.uptime();
        if begun >= SETTLED_AFTER {
            return;
        }
        let arrivals = self.slots.borrow().arrivals();
        let Some(records) = self.read().await else {
            return;
        };
        if let Some(all) = records.kept_uses() {
            (self.slots).send_if_modified(|slots| slots.confirm(all, arrivals, begun));
        }
    }

    /// Implements `agent::plugins::allocate::gone`.
    async fn not_held(&self) -> BTreeSet<SlotId> {
        let begun = self.uptime();
        let held = self.slots.borrow().held();
        let records = self.look(&held, &mut None).await;
        let records = records.and_then(Look::trusted);
        let Some(listed) = records.and_then(|records| records.held()) else {
            return BTreeSet::new();
        };
        let held = self.slots.borrow().held();
        let is_free = |held: &Held| held.answered <= begun && !is_listed(held, &listed);
        held.into_iter()
            .filter(is_free)
            .map(|held| held.slot)
            .collect()
    }

    async fn seen(&self, keys: BTreeSet<InstanceKey>) -> Result<Seen, String> {
        let mut discoveries = self.discoveries.subscribe();
        let waiting = Box::pin(async {
            loop {
                discoveries.mark_unchanged();
                let found = self.find(&keys)?;
                if found.len() == keys.len() || discoveries.changed().await.is_err() {
                    return Ok(found);
                }
            }
        });
        let found = self.machine().timeout(SEEN_TIMEOUT, waiting).await;
        found.unwrap_or_else(|| Err("not seen since the agent started".to_owned()))
    }

    fn find(&self, keys: &BTreeSet<InstanceKey>) -> Result<Seen, String> {
        let instances = self.store.instances.borrow().clone();
        let discoveries = self.discoveries.borrow().clone();
        let mut found = Seen::new();
        for key in keys {
            let instance = instances.get(key).ok_or("the Instance is gone")?;
            match device_state(instance, &discoveries) {
                DeviceState::Adopted => {}
                DeviceState::Gone => return Err("the device is gone".to_owned()),
                DeviceState::Seen(device) => {
                    found.insert(InstanceName::new(&key.name), device.connection_digest());
                }
            }
        }
        Ok(found)
    }
}
