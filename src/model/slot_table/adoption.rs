//! Finds the slots that containers of this node use although no Instance shows it, and decides what to do about them.
//!
//! The kubelet is authoritative on its own node: an id that a container has is in use, even if its Instance was created
//! again or its slots were freed meanwhile.
use super::{SlotChange, SlotTable};
use crate::model::{
    names::ObjectKey,
    slot::{SlotId, SlotOwner},
    typed_names::NodeName,
};
use std::collections::BTreeSet;

/// The ids of one resource that one container holds, by the pod resources API and the checkpoint.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Use {
    /// The device ids of the kubelet.
    pub ids: BTreeSet<SlotId>,
    /// The slots in the container's environment; empty if they are not known.
    pub env_slots: BTreeSet<SlotId>,
    /// The suffixes of variables that may be digests of the container's devices.
    pub digests: BTreeSet<String>,
}

/// An id that a container has although no slot shows it.
struct Unshown {
    id: SlotId,
    /// The Instance of the slot. It may not exist.
    instance: String,
    /// The index of the slot, if the container's environment or the id contains it.
    index: Option<u32>,
}

/// A slot that a container of this node uses, and whose Instance shows another owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldTwice {
    pub key: ObjectKey,
    pub slot: SlotId,
    /// The id under which this node's container holds it.
    pub id: SlotId,
    pub owner: SlotOwner,
}

/// The actions for uses that no slot shows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Adoptions {
    /// Claims of free slots.
    pub changes: Vec<SlotChange>,
    pub twice: Vec<HeldTwice>,
}

impl Use {
    /// Returns whether the use may be of a slot of this Instance.
    pub fn may_be_of(&self, instance: &str) -> bool {
        let is_its = |slot: &SlotId| slot.name == instance;
        let digest = instance.rsplit_once('-').map(|(_, digest)| digest);
        self.ids.iter().any(is_its)
            || self.env_slots.iter().any(is_its)
            || digest.is_some_and(|digest| self.digests.contains(digest))
    }
}

/// Returns the owner that records the use.
fn owner(unshown: &Unshown, node: &NodeName) -> SlotOwner {
    match unshown.id.name == unshown.instance {
        true => SlotOwner::Node(node.clone()),
        false => SlotOwner::Configuration {
            slot: unshown.id.to_string(),
            node: node.clone(),
        },
    }
}

impl SlotTable {
    /// Decides what to do about `uses` that no slot shows: free slots are claimed, and slots of other owners are
    /// reported as held twice. Slots that are being written wait for the next look.
    pub fn adoptions(&self, uses: &[Use]) -> Adoptions {
        let mut unshown: Vec<Unshown> = uses.iter().flat_map(|one| self.unshown(one)).collect();
        // An id that contains its slot can have no other slot, so it comes first.
        unshown.sort_by_key(|one| one.id.name != one.instance);
        let mut adoptions = Adoptions::default();
        let mut taken = BTreeSet::new();
        for one in &unshown {
            let Some(slots) = self.instances.get(&one.instance) else {
                continue;
            };
            // An id of another Configuration's resource would never be found in use, and each look would claim another
            // slot for it.
            if ![&slots.key.name, &slots.configuration].contains(&&one.id.name) {
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
                }),
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
        if unshown.id.name == unshown.instance || env_slots.as_ref().is_some_and(is_free) {
            return env_slots;
        }
        let mut free = self.free_slots(&unshown.instance);
        let free = free.find(|slot| !taken.contains(slot));
        let first = || Some(SlotId::new(&unshown.instance, 0));
        free.or(env_slots).or_else(first)
    }

    /// Returns whether a container uses the slot as its owner states.
    fn is_used(&self, slot: &SlotId, owner: &SlotOwner, uses: &[Use]) -> bool {
        let id = match (owner, owner.configuration_index()) {
            (SlotOwner::Configuration { .. }, Some(n)) => {
                let instance = self.instances.get(&slot.name);
                instance.map(|instance| SlotId::new(&instance.configuration, n))
            }
            _ => Some(slot.clone()),
        };
        id.is_some_and(|id| uses.iter().any(|one| one.ids.contains(&id)))
    }

    fn unshown(&self, one: &Use) -> Vec<Unshown> {
        let own = SlotOwner::Node(self.node.clone());
        let mut unshown = vec![];
        // These are ids of a Configuration's resource, and the slots in the container's environment for them.
        let (mut ids, mut shown): (Vec<&SlotId>, BTreeSet<String>) = (vec![], BTreeSet::new());
        let mut env_slots: BTreeSet<&SlotId> = one.env_slots.iter().collect();
        for id in &one.ids {
            let is_slot = one.env_slots.contains(id) || self.instances.contains_key(&id.name);
            let in_use = self.slot_in_use(&id.name, id.index);
            if is_slot || in_use.is_none() && one.env_slots.is_empty() && one.digests.is_empty() {
                env_slots.remove(id);
                if self.owner(id) != Some(&own) {
                    unshown.push(Unshown {
                        id: id.clone(),
                        instance: id.name.clone(),
                        index: Some(id.index),
                    });
                }
            } else if let Some(slot) = in_use {
                // The claimed slot may differ from the slot of that device in the container's environment.
                env_slots.retain(|env_slots| env_slots.name != slot.name);
                shown.insert(slot.name);
            } else {
                ids.push(id);
            }
        }
        let by_environment = env_slots
            .iter()
            .map(|slot| (slot.name.clone(), Some(slot.index)));
        let by_digest = ids.first().into_iter().flat_map(|id| {
            let instance = |digest: &String| (format!("{}-{digest}", id.name), None);
            let is_there = |(name, _): &(String, _)| {
                self.instances.contains_key(name) && !shown.contains(name)
            };
            one.digests.iter().map(instance).filter(is_there)
        });
        let devices: Vec<(String, Option<u32>)> = match one.env_slots.is_empty() {
            true => by_digest.collect(),
            false => by_environment.collect(),
        };
        let pairs = ids.into_iter().zip(devices);
        unshown.extend(pairs.map(|(id, (instance, index))| Unshown {
            id: id.clone(),
            instance,
            index,
        }));
        unshown
    }
}
