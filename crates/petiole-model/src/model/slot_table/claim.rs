//! Selects the slots that answer an Allocate call, and those that the kubelet should prefer.
use super::{
    table::{InstanceSlots, SlotTable},
    values::{Resource, SlotChange},
};
use crate::model::{
    instance_name::InstanceName,
    plugin_name::PluginName,
    slot::{ListedId, SlotId, SlotOwner},
    typed_names::ConfigurationName,
};
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

/// The slots that answer an Allocate call, one list for each container request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    pub requests: Vec<Vec<SlotChange>>,
}

impl Claim {
    pub fn changes(&self) -> impl Iterator<Item = &SlotChange> {
        self.requests.iter().flatten()
    }
}

/// The reason that a claim is refused. The kubelet shows it on the Pod.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClaimError {
    #[error(
        "{id:?} is no slot of {resource:?} any more: other containers took the slots after this Pod was scheduled; \
         delete the Pod, and the next one waits for a free slot"
    )]
    Unknown { id: String, resource: PluginName },
    #[error("slot {slot} is beyond the capacity of its Instance, {capacity}")]
    BeyondCapacity { slot: SlotId, capacity: u32 },
    #[error("slot {slot} is in use by {owner}")]
    HeldElsewhere { slot: SlotId, owner: SlotOwner },
    #[error("slot {slot} is in use on this node by the other resource of its device, as {owner}")]
    HeldHere { slot: SlotId, owner: SlotOwner },
    #[error("every slot of Instance {instance} is in use")]
    Full { instance: InstanceName },
    #[error("one container asks for two slots of one device, Instance {instance}; it can have one")]
    SameDevice { instance: InstanceName },
    #[error("slot {slot} is asked for twice in one call")]
    Twice { slot: SlotId },
    #[error(
        "Instance {instance} is of a Configuration with allocation: DRA, whose slots ResourceClaims have; ask for it by a claim"
    )]
    ByClaims { instance: InstanceName },
    #[error("slot {slot} is being written to its Instance")]
    Busy { slot: SlotId },
    #[error(
        "which slots of Instance {instance} containers have is not known yet: the agent has just started or just learned of \
         the Instance, and has not read the kubelet's records since; the next try may find it done"
    )]
    Unconfirmed { instance: InstanceName },
}

impl ClaimError {
    /// Returns whether the same claim may succeed in a moment: a slot is just being released, say, or the agent has just started.
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Busy { .. } | Self::Unconfirmed { .. } => true,
            Self::Unknown { .. }
            | Self::BeyondCapacity { .. }
            | Self::HeldElsewhere { .. }
            | Self::HeldHere { .. }
            | Self::Full { .. }
            | Self::SameDevice { .. }
            | Self::Twice { .. }
            | Self::ByClaims { .. } => false,
        }
    }
}

impl SlotTable {
    /// Decides an Allocate call, all or nothing. The kubelet is authoritative on its own node, so a slot that this
    /// resource already holds here is claimed again. Slots in `gone` are held by this node's other resource for a
    /// container that no longer exists.
    pub fn plan_claim(
        &self,
        resource: &Resource,
        requests: &[Vec<String>],
        gone: &BTreeSet<SlotId>,
    ) -> Result<Claim, ClaimError> {
        let mut taken = BTreeSet::new();
        let mut claim = Claim { requests: vec![] };
        for ids in requests {
            let mut slots: Vec<SlotChange> = vec![];
            for id in ids {
                let change = match resource {
                    Resource::Instance(name) => self.claim_of_instance(name, id, gone, &taken)?,
                    Resource::Configuration(name) => {
                        let change = self.claim_of_configuration(name, id, gone, &taken)?;
                        let instance = &change.slot.instance;
                        if slots.iter().any(|s| s.slot.instance == *instance) {
                            let instance = change.slot.instance;
                            return Err(ClaimError::SameDevice { instance });
                        }
                        change
                    }
                };
                if !taken.insert(change.slot.clone()) {
                    return Err(ClaimError::Twice { slot: change.slot });
                }
                slots.push(change);
            }
            claim.requests.push(slots);
        }
        Ok(claim)
    }

    /// Returns the ids of `available` that a container should get, as [`preferred_of`] has it. An Instance's resource has no
    /// preference.
    pub fn preferred(
        &self,
        resource: &Resource,
        available: &[String],
        must: &[String],
        size: usize,
    ) -> Vec<String> {
        let listed = match resource {
            Resource::Instance(_) => vec![],
            Resource::Configuration(name) => self.configuration_list(name),
        };
        let mut free: BTreeMap<&InstanceName, usize> = BTreeMap::new();
        let of = listed.iter().map(|slot| {
            let free = free.entry(&slot.instance);
            let free = free.or_insert_with(|| self.free_slots(&slot.instance).count());
            (slot.id.to_string(), (&slot.instance, *free))
        });
        let of: BTreeMap<String, (&InstanceName, usize)> = of.collect();
        preferred_of(available, must, size, |id| of.get(id).copied())
    }

    /// Returns those of `available` that a Configuration's resource lists, beginning with another device on each node, whose place
    /// among the nodes of a device is `place`. Nodes that prefer the same device race for it, and a Pod of one of them is refused.
    pub fn in_turn(
        &self,
        configuration: &ConfigurationName,
        available: &[String],
        place: usize,
    ) -> Vec<String> {
        let listed = self.configuration_list(configuration).into_iter();
        let listed = listed.map(|slot| (slot.instance, slot.id.to_string()));
        let mut listed: Vec<_> = listed.filter(|(_, id)| available.contains(id)).collect();
        listed.sort();
        let count = listed.len().max(1);
        listed.rotate_left(place % count);
        listed.into_iter().map(|(_, id)| id).collect()
    }

    /// Decides which slots a ResourceClaim gets, all or nothing: one for each of `devices`, in their order. A claim that has
    /// some gets the same ones again. Pods of several nodes may have one claim: one node holds its slots, and the others use them.
    pub fn plan_resource_claim(
        &self,
        uid: &str,
        devices: &[InstanceName],
    ) -> Result<Claim, ClaimError> {
        let me = SlotOwner::of_claim(uid, &self.node);
        let (mut taken, mut changes) = (BTreeSet::new(), vec![]);
        for instance in devices {
            let unknown = || unknown(instance, instance.into());
            let slots = self.instances.get(instance).ok_or_else(unknown)?;
            confirmed(slots)?;
            let indexes = slots.owners.iter();
            let its = indexes.filter(|(_, owner)| owner.is_of_claim(uid));
            let mut its: Vec<_> = its.map(|(index, owner)| (*owner != me, *index)).collect();
            its.sort_unstable();
            let its = its.into_iter().map(|(_, n)| SlotId::new(instance, n));
            let mut slots_of = its.chain(self.free_slots(instance));
            let slot = slots_of.find(|slot| !taken.contains(slot));
            let slot = slot.ok_or_else(|| self.why_none(instance))?;
            let from = self.settled_owner(&slot)?.cloned();
            changes.push(SlotChange {
                key: slots.key.clone(),
                to: Some(from.clone().unwrap_or_else(|| me.clone())),
                from,
                slot: slot.clone(),
                connection_digest: None,
            });
            taken.insert(slot);
        }
        Ok(Claim {
            requests: vec![changes],
        })
    }

    /// Returns the error for an Instance of which a ResourceClaim gets no slot: one that is being written may become free.
    fn why_none(&self, instance: &InstanceName) -> ClaimError {
        let mut writing = self.writing.keys();
        match writing.find(|slot| slot.instance == *instance) {
            Some(slot) => ClaimError::Busy { slot: slot.clone() },
            None => ClaimError::Full {
                instance: instance.clone(),
            },
        }
    }

    fn claim_of_instance(
        &self,
        instance: &InstanceName,
        id: &str,
        gone: &BTreeSet<SlotId>,
        taken: &BTreeSet<SlotId>,
    ) -> Result<SlotChange, ClaimError> {
        let unknown = || unknown(id, instance.into());
        let listed: ListedId = id.parse().map_err(|_| unknown())?;
        let slot = listed.slot();
        let slots = (self.instances.get(instance))
            .filter(|_| slot.instance == *instance)
            .ok_or_else(unknown)?;
        confirmed(slots)?;
        let me = SlotOwner::Node(self.node.clone());
        let from = self.settled_owner(&slot)?;
        match from {
            Some(owner) if *owner == me => {}
            _ if slots.is_by_claims => return Err(by_claims(slots)),
            Some(owner) if *owner.node() != self.node => {
                let owner = owner.clone();
                return Err(ClaimError::HeldElsewhere { slot, owner });
            }
            Some(owner) if !gone.contains(&slot) => {
                let owner = owner.clone();
                return Err(ClaimError::HeldHere { slot, owner });
            }
            None | Some(_) if slot.index >= slots.capacity => {
                let capacity = slots.capacity;
                return Err(ClaimError::BeyondCapacity { slot, capacity });
            }
            None if !taken.contains(&slot)
                && self.left(instance) <= self.free_of(instance, taken) =>
            {
                return Err(ClaimError::Full {
                    instance: instance.clone(),
                });
            }
            None | Some(_) => {}
        }
        Ok(SlotChange {
            key: slots.key.clone(),
            from: from.cloned(),
            to: Some(me),
            slot,
            connection_digest: None,
        })
    }

    fn claim_of_configuration(
        &self,
        configuration: &ConfigurationName,
        id: &str,
        gone: &BTreeSet<SlotId>,
        taken: &BTreeSet<SlotId>,
    ) -> Result<SlotChange, ClaimError> {
        let unknown = || unknown(id, configuration.into());
        let n = id
            .parse::<ListedId>()
            .ok()
            .filter(|id| id.plugin == *configuration)
            .map(|id| id.index);
        let instance =
            (n.and_then(|n| self.listed.get(configuration)?.get(&n))).ok_or_else(unknown)?;
        let slots = self.instances.get(instance).ok_or_else(unknown)?;
        confirmed(slots)?;
        let slot = match n.and_then(|n| self.slot_in_use(configuration, n)) {
            Some(slot) => slot,
            None if slots.is_by_claims => return Err(by_claims(slots)),
            // The highest index is taken, because the Instance's own resource usually gets low slots.
            None => self
                .free_slots(instance)
                .chain(gone.iter().filter(|s| s.instance == *instance).cloned())
                .filter(|slot| !taken.contains(slot) && slot.index < slots.capacity)
                .max_by_key(|slot| (!gone.contains(slot), slot.index))
                .ok_or_else(|| self.why_full(instance))?,
        };
        let from = self.settled_owner(&slot)?.cloned();
        Ok(SlotChange {
            key: slots.key.clone(),
            from,
            to: Some(SlotOwner::Configuration {
                slot: id.to_owned(),
                node: self.node.clone(),
            }),
            slot,
            connection_digest: None,
        })
    }

    /// Returns how many slots of an Instance are free that one call has taken so far.
    fn free_of(&self, instance: &InstanceName, taken: &BTreeSet<SlotId>) -> usize {
        let its = taken.iter().filter(|slot| slot.instance == *instance);
        its.filter(|slot| self.owner(slot).is_none()).count()
    }

    /// Returns the error for an Instance without a free slot: its slots are held by this node's other resource, whose
    /// container may be gone, or by others.
    fn why_full(&self, instance: &InstanceName) -> ClaimError {
        let own = SlotOwner::Node(self.node.clone());
        let held_here = (self.instances.get(instance).into_iter())
            .flat_map(|slots| &slots.owners)
            .find(|(_, owner)| **owner == own);
        match held_here {
            Some((index, owner)) => ClaimError::HeldHere {
                slot: SlotId::new(instance, *index),
                owner: owner.clone(),
            },
            None => ClaimError::Full {
                instance: instance.clone(),
            },
        }
    }

    /// Returns the owner, if no write is pending.
    pub fn settled_owner(&self, slot: &SlotId) -> Result<Option<&SlotOwner>, ClaimError> {
        if self.writing.contains_key(slot) {
            return Err(ClaimError::Busy { slot: slot.clone() });
        }
        Ok(self.observed_owner(slot))
    }

    /// Returns whether the slot has no owner, and none is being written.
    pub fn is_free(&self, slot: &SlotId) -> bool {
        matches!(self.settled_owner(slot), Ok(None))
    }
}

/// Returns the ids of `available` that a container should get: `must` first, then those of distinct devices while there are, and
/// those of devices with most free slots before others; of equal ones the first. `of` returns the device of an id, and how many of its slots are free.
pub fn preferred_of<D: Ord>(
    available: &[String],
    must: &[String],
    size: usize,
    of: impl Fn(&str) -> Option<(D, usize)>,
) -> Vec<String> {
    let mut given: BTreeMap<D, usize> = BTreeMap::new();
    for (device, _) in must.iter().filter_map(|id| of(id)) {
        *given.entry(device).or_default() += 1;
    }
    let known: BTreeSet<&String> = must.iter().collect();
    let others = available.iter().filter(|id| !known.contains(id));
    let mut others: Vec<_> = others
        .filter_map(|id| of(id).map(|(device, free)| (Reverse(free), id, device)))
        .collect();
    others.sort_by_key(|(free, ..)| *free);
    let mut ranked: Vec<_> = others
        .into_iter()
        .map(|(free, id, device)| {
            let before = given.entry(device).or_default();
            *before += 1;
            (*before, free, id)
        })
        .collect();
    ranked.sort_by_key(|(before, free, _)| (*before, *free));
    let chosen = must.iter().chain(ranked.into_iter().map(|(_, _, id)| id));
    chosen.take(size).cloned().collect()
}

fn by_claims(slots: &InstanceSlots) -> ClaimError {
    let instance = slots.key.name.clone();
    ClaimError::ByClaims { instance }
}

fn confirmed(slots: &InstanceSlots) -> Result<(), ClaimError> {
    let instance = slots.key.name.clone();
    (slots.is_confirmed)
        .then_some(())
        .ok_or(ClaimError::Unconfirmed { instance })
}

fn unknown(id: &str, resource: PluginName) -> ClaimError {
    ClaimError::Unknown {
        id: id.to_owned(),
        resource,
    }
}
