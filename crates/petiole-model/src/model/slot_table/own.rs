//! Remembers the slots of devices that this node alone has. One kubelet alone gives these out, so this memory says who
//! holds them, and `deviceUsage` of their Instances follows it.
//!
//! | a slot is | because |
//! |---|---|
//! | held | this life of the agent gave it to a container, or the kubelet's records say that a container has it |
//! | held | the Instance said so when it arrived; two looks at the records that miss it release it |
//! | unconfirmed | the Instance arrived after the last look that could be trusted, and a container may have it: nobody gets it |
//! | free | none of these |
//!
//! The kubelet knows nothing of the link between the resource of an Instance and that of its Configuration, so a slot that
//! was given out by one must be refused to the other also by an agent that has just started. What an earlier life gave out
//! and did not write is only in the kubelet's records.
use super::{
    own_slots::OwnSlot,
    table::{InstanceSlots, SlotTable},
    values::{Held, Resource, SlotChange, Use},
};
use crate::model::{
    instance_name::{InstanceKey, InstanceName},
    slot::{SlotId, SlotOwner},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// The time after which a claim that was answered is in the kubelet's records, even on a machine that is overloaded: the
/// kubelet puts it there as soon as it has the answer of Allocate.
pub const SETTLED_AFTER: Duration = Duration::from_secs(30);

impl SlotTable {
    /// Takes over an Instance. `before` is what the table had of the same Instance.
    pub(super) fn take_over(&mut self, slots: &mut InstanceSlots, before: Option<&InstanceSlots>) {
        let name = slots.key.name.clone();
        let before = before.filter(|before| before.is_own || !slots.is_own);
        // Nothing is known yet of the slots of an Instance that waits for its first look.
        let is_known = before.is_some_and(|before| before.is_confirmed);
        match before {
            Some(before) => {
                (slots.arrival, slots.is_confirmed) = (before.arrival, before.is_confirmed);
            }
            None => {
                self.arrivals += 1;
                slots.arrival = self.arrivals;
                slots.is_confirmed = !slots.is_own || self.own.knows(&name);
            }
        }
        for (index, owner) in slots.owners.clone() {
            let slot = SlotId::new(&name, index);
            if *owner.node() != self.node {
                continue;
            }
            if !slots.is_own {
                self.own.forget(&slot); // what the Instance says is what counts
            } else if !is_known {
                let told = slots.told.get(&index).cloned();
                (self.own.held.entry(slot)).or_insert(OwnSlot { owner, told });
            } else if !self.own.remembers(&slot) {
                slots.owners.remove(&index);
            }
        }
        for (slot, own) in self.own.of(&name) {
            let owner = slots.owners.entry(slot.index);
            let owner = owner.or_insert_with(|| own.owner.clone());
            if *owner.node() == self.node {
                owner.clone_from(&own.owner);
            }
        }
    }

    /// Returns whether this node alone has the device of the slot, so that its memory says who holds it.
    pub fn is_own(&self, slot: &SlotId) -> bool {
        let slots = self.instances.get(&slot.instance);
        slots.is_some_and(|slots| slots.is_own)
    }

    /// Returns whether the resource has slots of a device that this node alone has.
    pub fn has_own(&self, resource: &Resource) -> bool {
        let mut own = self.instances.iter().filter(|(_, slots)| slots.is_own);
        own.any(|(instance, slots)| match resource {
            Resource::Instance(name) => name == instance,
            Resource::Configuration(name) => *name == slots.configuration,
        })
    }

    /// Ends the state that [`Self::begin`] started for slots of devices that this node alone had at that time. Nothing was
    /// written for them, so they are remembered even if another node has seen the device since.
    pub fn settle_own(&mut self, changes: &[SlotChange], written: Option<Duration>) {
        self.settle(changes, written);
        if written.is_some() {
            changes.iter().for_each(|change| self.own.settle(change));
        }
    }

    /// Believes what the Instances say of their slots, because nobody can read the kubelet's records. Returns whether an
    /// Instance of the first `arrivals` waited for them.
    pub fn trust(&mut self, arrivals: u64) -> bool {
        let slots = self.instances.values_mut();
        let waiting = slots.filter(|slots| slots.arrival <= arrivals && !slots.is_confirmed);
        waiting.map(|slots| slots.is_confirmed = true).count() > 0
    }

    /// Returns whether an Instance waits for a look at the kubelet's records: see [`Self::confirm`].
    pub fn has_unconfirmed(&self) -> bool {
        self.instances.values().any(|slots| !slots.is_confirmed)
    }

    /// Takes over a look at the kubelet's records that began at the uptime `begun`, when the table had had `arrivals`
    /// Instances. `uses` are all that containers have, or may have by an old checkpoint. What an earlier life answered may be
    /// recorded late. A look that began before the last one says nothing new. Returns whether anything has changed.
    pub fn confirm(&mut self, uses: Vec<Use>, arrivals: u64, begun: Duration) -> bool {
        if begun < self.own.begun {
            return false;
        }
        let due = |is_due: fn(&InstanceSlots, Duration) -> bool| -> BTreeSet<InstanceName> {
            let seen = self.instances.iter();
            seen.filter(|(_, slots)| slots.arrival <= arrivals && is_due(slots, begun))
                .map(|(name, _)| name.clone())
                .collect()
        };
        let unconfirmed = due(|slots, _| !slots.is_confirmed);
        let unsettled = due(|slots, begun| !slots.is_confirmed || begun < SETTLED_AFTER);
        let mut changes = self.outdated(&unconfirmed, &uses);
        self.settle(&changes, Some(begun));
        if !unsettled.is_empty() {
            let mut adopted = self.adoptions(&uses).changes;
            adopted.retain(|change| {
                unsettled.contains(&change.slot.instance)
                    && self.is_own(&change.slot)
                    && !self.is_freed_after(&change.slot, begun)
            });
            self.settle(&adopted, Some(begun));
            changes.extend(adopted);
        }
        for name in &unconfirmed {
            let slots = self.instances.get_mut(name);
            slots
                .into_iter()
                .for_each(|slots| slots.is_confirmed = true);
        }
        let is_forgotten = self.forget_ended(&uses, begun);
        let is_first = self.own.uses.is_none();
        let before = self.own.uses.take().unwrap_or_default();
        let has_other_uses = self.touch_used(&before, &uses);
        self.own.uses = Some(uses);
        self.own.begun = begun;
        // What was listed before the first look may have an id that a container has.
        let listed = self.instances.iter();
        let listed = listed.filter(|(name, _)| is_first || unconfirmed.contains(*name));
        let listed: BTreeSet<_> = listed
            .map(|(_, slots)| slots.configuration.clone())
            .collect();
        self.touched.configurations.extend(listed.iter().cloned());
        self.relist(&listed);
        is_first || has_other_uses || !unconfirmed.is_empty() || !changes.is_empty() || is_forgotten
    }

    /// Forgets slots that no container has, of Instances that are gone or shared with other nodes: nobody releases them. Returns
    /// whether an Instance is there that must be observed again because of that.
    fn forget_ended(&mut self, uses: &[Use], begun: Duration) -> bool {
        let (instances, answered) = (&self.instances, &self.answered);
        let before = self.unobserved.len();
        self.own.held.retain(|slot, _| {
            let answered = answered.get(slot).copied().unwrap_or_default();
            let instance = instances.get(&slot.instance);
            let is_kept = instance.is_some_and(|slots| slots.is_own)
                || answered + SETTLED_AFTER > begun
                || uses.iter().any(|one| one.may_be_of(&slot.instance));
            if !is_kept {
                (self.unobserved).extend(instance.map(|slots| slots.key.clone()));
            }
            is_kept
        });
        self.unobserved.len() != before
    }

    /// Returns the releases of slots whose owners an Instance said when it arrived, and the kubelet says otherwise: an earlier
    /// life gave the slot or the id to another container after it had written the Instance.
    fn outdated(&self, due: &BTreeSet<InstanceName>, uses: &[Use]) -> Vec<SlotChange> {
        let held = self.held().into_iter();
        let held = held.filter(|held| due.contains(&held.slot.instance) && self.is_own(&held.slot));
        let outdated = held.filter(|held| {
            let (id, slot) = (held.id(), &held.slot);
            let has_id = |one: &&Use| one.ids.iter().any(|other| other.to_string() == id);
            let has_slot = |one: &&Use| {
                one.env_slots.contains(slot) || one.ids.iter().any(|id| id.slot() == *slot)
            };
            let of_device = |other: &SlotId| other.instance == slot.instance;
            let is_right = |one: &Use| has_slot(&one) || !one.env_slots.iter().any(of_device);
            uses.iter().any(|one| has_id(&one) || has_slot(&one))
                && !uses.iter().filter(has_id).any(is_right)
        });
        outdated.map(Held::release).collect()
    }

    /// Returns the digest of the connection that the container with a slot of this node was given, as far as it is
    /// remembered.
    pub fn told(&self, slot: &SlotId) -> Option<&String> {
        self.own.held.get(slot)?.told.as_ref()
    }

    /// Returns what Instances are to show and do not: the owners of slots that this node remembers, and the slots that they
    /// show as this node's and that are free. `shown` returns the owners and digests that an Instance shows. Values of others
    /// are never changed, nor is anything that is no slot.
    pub fn unwritten<'a>(
        &'a self,
        shown: impl Fn(&InstanceKey) -> Option<BTreeMap<u32, (SlotOwner, Option<String>)>> + 'a,
    ) -> impl Iterator<Item = (&'a InstanceKey, Vec<SlotChange>)> {
        let confirmed = self
            .instances
            .iter()
            .filter(|(_, slots)| slots.is_confirmed);
        confirmed.filter_map(move |(name, slots)| {
            if !slots.is_own && self.own.of(name).next().is_none() {
                return None;
            }
            let mut shown = shown(&slots.key)?;
            let mut unwritten = vec![];
            for (slot, own) in self.own.of(name) {
                let shown = shown.remove(&slot.index);
                let is_ours = |(owner, _): &(SlotOwner, _)| *owner.node() == self.node;
                let (from, told) = match shown {
                    Some(shown) if !is_ours(&shown) => continue,
                    Some((owner, told)) => (Some(owner), told),
                    None => (None, None),
                };
                if from.as_ref() != Some(&own.owner) || told != own.told {
                    unwritten.push(SlotChange {
                        key: slots.key.clone(),
                        slot: slot.clone(),
                        from,
                        to: Some(own.owner.clone()),
                        connection_digest: own.told.clone(),
                    });
                }
            }
            let freed = (shown.into_iter())
                .filter(|(_, (owner, _))| slots.is_own && *owner.node() == self.node)
                .map(|(index, (owner, _))| SlotChange {
                    key: slots.key.clone(),
                    slot: SlotId::new(name, index),
                    from: Some(owner),
                    to: None,
                    connection_digest: None,
                });
            unwritten.extend(freed);
            (!unwritten.is_empty()).then_some((&slots.key, unwritten))
        })
    }
}
