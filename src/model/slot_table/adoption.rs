//! Which slots containers of this node use without that any Instance shows it, and what is to be done about them.
//!
//! The kubelet is right on its own node: an id that a container has is in use, whoever made its Instance anew or freed
//! its slots meanwhile.
use super::{SlotChange, SlotTable};
use crate::model::{
    names::ObjectKey,
    slot::{SlotId, SlotOwner},
};
use std::collections::BTreeSet;

/// The ids of one resource that one container holds, by the kubelet's books.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Use {
    /// What the kubelet calls it.
    pub ids: BTreeSet<SlotId>,
    /// The slots that the container was told it holds; none where that is not known.
    pub told: BTreeSet<SlotId>,
    /// Ends of the names of variables that may be digests of the container's devices.
    pub digests: BTreeSet<String>,
}

/// An id that a container has, and no slot shows.
struct Unshown {
    id: SlotId,
    /// The Instance it is a slot of. It may not exist.
    instance: String,
    /// The slot's index, where the container was told it or the id says it.
    index: Option<u32>,
}

/// A slot that a container of this node uses, and whose Instance shows another owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldTwice {
    pub key: ObjectKey,
    pub slot: SlotId,
    /// What this node's container has it as.
    pub id: SlotId,
    pub owner: SlotOwner,
}

/// What follows from the uses that no slot shows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Adoptions {
    /// Claims of free slots.
    pub changes: Vec<SlotChange>,
    pub twice: Vec<HeldTwice>,
}

impl Use {
    /// Whether it may be of a slot of this Instance.
    pub fn may_be_of(&self, instance: &str) -> bool {
        let is_its = |slot: &SlotId| slot.name == instance;
        let digest = instance.rsplit_once('-').map(|(_, digest)| digest);
        self.ids.iter().any(is_its)
            || self.told.iter().any(is_its)
            || digest.is_some_and(|digest| self.digests.contains(digest))
    }
}

/// The owner that says so.
fn owner(unshown: &Unshown, node: &str) -> SlotOwner {
    match unshown.id.name == unshown.instance {
        true => SlotOwner::Node(node.to_owned()),
        false => SlotOwner::Configuration {
            slot: unshown.id.to_string(),
            node: node.to_owned(),
        },
    }
}

impl SlotTable {
    /// Decides what to do about `uses` that no slot shows: free slots are claimed, those of others are held twice.
    /// Slots that are being written are left to the next look.
    pub fn adoptions(&self, uses: &[Use]) -> Adoptions {
        let mut unshown: Vec<Unshown> = uses.iter().flat_map(|one| self.unshown(one)).collect();
        // An id that says its slot can have no other.
        unshown.sort_by_key(|one| one.id.name != one.instance);
        let mut adoptions = Adoptions::default();
        let mut taken = BTreeSet::new();
        for one in &unshown {
            let Some(slots) = self.instances.get(&one.instance) else {
                continue;
            };
            // An id of another Configuration's resource would never be found in use, and another slot be claimed for
            // it at each look.
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
                // The other resource of this node has it, and its container is gone: it is released in a moment.
                Some(other) if other.node() == self.node && !self.is_used(&slot, other, uses) => {}
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

    /// The slot to claim: the one that the container was told, or for the Configuration's resource another free one;
    /// where there is none, one that somebody else holds.
    fn slot_for(&self, unshown: &Unshown, taken: &BTreeSet<SlotId>) -> Option<SlotId> {
        let told = (unshown.index).map(|index| SlotId::new(&unshown.instance, index));
        let is_free = |slot: &SlotId| self.owner(slot).is_none() && !taken.contains(slot);
        if unshown.id.name == unshown.instance || told.as_ref().is_some_and(is_free) {
            return told;
        }
        let mut free = self.free_slots(&unshown.instance);
        let free = free.find(|slot| !taken.contains(slot));
        let first = || Some(SlotId::new(&unshown.instance, 0));
        free.or(told).or_else(first)
    }

    /// Whether a container has the slot as its owner says.
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
        // Ids of a Configuration's resource, and the slots that the container was told for them, in pairs.
        let (mut ids, mut shown): (Vec<&SlotId>, BTreeSet<String>) = (vec![], BTreeSet::new());
        let mut told: BTreeSet<&SlotId> = one.told.iter().collect();
        for id in &one.ids {
            let is_slot = one.told.contains(id) || self.instances.contains_key(&id.name);
            let in_use = self.slot_in_use(&id.name, id.index);
            if is_slot || in_use.is_none() && one.told.is_empty() && one.digests.is_empty() {
                told.remove(id);
                if self.owner(id) != Some(&own) {
                    unshown.push(Unshown {
                        id: id.clone(),
                        instance: id.name.clone(),
                        index: Some(id.index),
                    });
                }
            } else if let Some(slot) = in_use {
                // The claim may have been of another slot of the device than the container was told.
                told.retain(|told| told.name != slot.name);
                shown.insert(slot.name);
            } else {
                ids.push(id);
            }
        }
        let by_told = told
            .iter()
            .map(|slot| (slot.name.clone(), Some(slot.index)));
        let by_digest = ids.first().into_iter().flat_map(|id| {
            let instance = |digest: &String| (format!("{}-{digest}", id.name), None);
            let is_there = |(name, _): &(String, _)| {
                self.instances.contains_key(name) && !shown.contains(name)
            };
            one.digests.iter().map(instance).filter(is_there)
        });
        let devices: Vec<(String, Option<u32>)> = match one.told.is_empty() {
            true => by_digest.collect(),
            false => by_told.collect(),
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
