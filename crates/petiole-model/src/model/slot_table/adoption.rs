//! Finds the slots that containers of this node use although no Instance shows it, and decides what to do about them.
//!
//! The kubelet is authoritative on its own node: an id that a container has is in use, even if its Instance was created
//! again or its slots were freed meanwhile.
use super::{
    table::SlotTable,
    values::{SlotChange, Use},
};
use crate::model::{
    instance_name::{InstanceKey, InstanceName},
    slot::{ListedId, SlotId, SlotOwner},
    typed_names::NodeName,
};
use std::collections::BTreeSet;

/// An id that a container has although no slot shows it.
struct Unshown {
    id: ListedId,
    /// The Instance of the slot. It may not exist.
    instance: InstanceName,
    /// The index of the slot, if the container's environment or the id contains it.
    index: Option<u32>,
    claim: Option<String>,
}

/// A slot that a container of this node uses, and whose Instance shows another owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldTwice {
    pub key: InstanceKey,
    pub slot: SlotId,
    /// The id under which this node's container holds it.
    pub id: ListedId,
    pub owner: SlotOwner,
}

/// The actions for uses that no slot shows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Adoptions {
    /// Claims of free slots.
    pub changes: Vec<SlotChange>,
    pub twice: Vec<HeldTwice>,
}

/// Returns the owner that records the use.
fn owner(unshown: &Unshown, node: &NodeName) -> SlotOwner {
    if let Some(uid) = &unshown.claim {
        return SlotOwner::of_claim(uid, node);
    }
    if unshown.id.plugin == unshown.instance {
        SlotOwner::Node(node.clone())
    } else {
        SlotOwner::Configuration {
            slot: unshown.id.to_string(),
            node: node.clone(),
        }
    }
}

impl SlotTable {
    /// Decides what to do about `uses` that no slot shows: free slots are claimed, and slots of other owners are
    /// reported as held twice. Slots that are being written wait for the next look.
    pub fn adoptions(&self, uses: &[Use]) -> Adoptions {
        let mut unshown: Vec<Unshown> = uses.iter().flat_map(|one| self.unshown(one)).collect();
        // An id that contains its slot can have no other slot, so it comes first.
        unshown.sort_by_key(|one| one.id.plugin != one.instance);
        let mut adoptions = Adoptions::default();
        let mut taken = BTreeSet::new();
        for one in &unshown {
            let Some(slots) = self.instances.get(&one.instance) else {
                continue;
            };
            // An id of another Configuration's resource would never be found in use, and each look would claim another
            // slot for it.
            if one.id.plugin != one.instance && one.id.plugin != slots.configuration {
                continue;
            }
            let Some(slot) = self.slot_for(one, &taken) else {
                continue;
            };
            if self.writing.contains_key(&slot) || !taken.insert(slot.clone()) {
                continue;
            }
            match self.observed_owner(&slot) {
                None => adoptions.changes.push(SlotChange {
                    key: slots.key.clone(),
                    from: None,
                    to: Some(owner(one, &self.node)),
                    slot,
                    connection_digest: None,
                }),
                // Another node holds the slot for the same claim.
                Some(other) if one.claim.as_ref().is_some_and(|uid| other.is_of_claim(uid)) => {}
                // The other resource of this node holds the slot, and its container is gone: the slot is released soon.
                Some(other) if *other.node() == self.node && !self.is_used(&slot, other, uses) => {}
                Some(other) => adoptions.twice.push(HeldTwice {
                    key: slots.key.clone(),
                    id: one.id.clone(),
                    owner: other.clone(),
                    slot,
                }),
            }
        }
        adoptions
    }

    /// Returns the slot to claim: the one in the container's environment, or for the Configuration's resource another
    /// free one. If no slot is free, it returns one that another owner holds.
    fn slot_for(&self, unshown: &Unshown, taken: &BTreeSet<SlotId>) -> Option<SlotId> {
        let env_slots = (unshown.index).map(|index| SlotId::new(&unshown.instance, index));
        let is_free = |slot: &SlotId| self.owner(slot).is_none() && !taken.contains(slot);
        if unshown.id.plugin == unshown.instance || env_slots.as_ref().is_some_and(is_free) {
            return env_slots;
        }
        // The kubelet is authoritative: its container has the device, however many others have it.
        let mut free = self.unowned(&unshown.instance);
        let free = free.find(|slot| !taken.contains(slot));
        let first = || Some(SlotId::new(&unshown.instance, 0));
        free.or(env_slots).or_else(first)
    }

    /// Returns whether a container uses the slot as its owner states.
    fn is_used(&self, slot: &SlotId, owner: &SlotOwner, uses: &[Use]) -> bool {
        let id = match (owner, owner.configuration_index()) {
            (SlotOwner::Configuration { .. }, Some(n)) => {
                let instance = self.instances.get(&slot.instance);
                instance.map(|instance| ListedId::new(&instance.configuration, n))
            }
            _ => Some(slot.into()),
        };
        let is_its = |one: &Use| match (owner, &one.claim) {
            (SlotOwner::Claim { uid, .. }, claim) => claim.as_ref() == Some(uid),
            (_, claim) => claim.is_none(),
        };
        id.is_some_and(|id| uses.iter().any(|one| is_its(one) && one.ids.contains(&id)))
    }

    fn unshown(&self, one: &Use) -> Vec<Unshown> {
        let by_claim = |uid: &String| SlotOwner::of_claim(uid, &self.node);
        let by_instance = || SlotOwner::Node(self.node.clone());
        let own = one.claim.as_ref().map_or_else(by_instance, by_claim);
        let mut unshown = vec![];
        // These are ids of a Configuration's resource, and the slots in the container's environment for them.
        let (mut ids, mut shown): (Vec<&ListedId>, BTreeSet<InstanceName>) =
            (vec![], BTreeSet::new());
        let mut env_slots: BTreeSet<&SlotId> = one.env_slots.iter().collect();
        for id in &one.ids {
            let slot = id.slot();
            let is_slot =
                one.env_slots.contains(&slot) || self.instances.contains_key(&slot.instance);
            let in_use = self.slot_in_use(&id.plugin.as_configuration(), id.index);
            if is_slot || in_use.is_none() && one.env_slots.is_empty() && one.digests.is_empty() {
                env_slots.remove(&slot);
                if self.owner(&slot) != Some(&own) {
                    unshown.push(Unshown {
                        id: id.clone(),
                        instance: slot.instance,
                        index: Some(id.index),
                        claim: one.claim.clone(),
                    });
                }
            } else if let Some(slot) = in_use {
                // The claimed slot may differ from the slot of that device in the container's environment.
                env_slots.retain(|env_slots| env_slots.instance != slot.instance);
                shown.insert(slot.instance);
            } else {
                ids.push(id);
            }
        }
        let by_environment = env_slots
            .iter()
            .map(|slot| (slot.instance.clone(), Some(slot.index)));
        let by_digest = ids.first().into_iter().flat_map(|id| {
            let configuration = id.plugin.as_configuration();
            let instance =
                move |digest: &String| (InstanceName::with_digest(&configuration, digest), None);
            let is_there = |(name, _): &(InstanceName, _)| {
                self.instances.contains_key(name) && !shown.contains(name)
            };
            one.digests.iter().map(instance).filter(is_there)
        });
        let devices: Vec<(InstanceName, Option<u32>)> = if one.env_slots.is_empty() {
            by_digest.collect()
        } else {
            by_environment.collect()
        };
        let pairs = ids.into_iter().zip(devices);
        unshown.extend(pairs.map(|(id, (instance, index))| Unshown {
            id: id.clone(),
            instance,
            index,
            claim: None,
        }));
        unshown
    }
}
