//! Holds the owners and the state of all slots, and takes over what is observed and written. Pure.
use super::{
    own_slots::OwnSlots,
    values::{Held, ObservedSlots, Precedence, Resource, SlotChange, Touched},
};
use crate::model::{
    instance_name::{InstanceKey, InstanceName},
    slot::{ListedId, SlotId, SlotOwner, owners},
    typed_names::{ConfigurationName, NodeName},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct InstanceSlots {
    pub(super) key: InstanceKey,
    pub(super) precedence: Precedence,
    pub(super) configuration: ConfigurationName,
    pub(super) capacity: u32,
    pub(super) users_max: u32,
    pub(super) is_offered: bool,
    pub(super) is_by_claims: bool,
    /// See [`ObservedSlots`].
    pub(super) is_own: bool,
    pub(super) told: BTreeMap<u32, String>,
    /// The number of the Instance's arrival, and whether its slots are known since: see [`super::own`].
    pub(super) arrival: u64,
    pub(super) is_confirmed: bool,
    pub(super) owners: BTreeMap<u32, SlotOwner>,
}

/// The numbers of held and free slots of an Instance, on all nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage<'a> {
    pub configuration: &'a ConfigurationName,
    pub instance: &'a InstanceName,
    pub used: i64,
    pub free: i64,
}

/// The slots of all Instances of a node, with their owners.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlotTable {
    pub(super) node: NodeName,
    pub(super) instances: BTreeMap<InstanceName, InstanceSlots>,
    /// Instances of other namespaces whose name one of `instances` has.
    pub(super) beaten: BTreeMap<InstanceName, BTreeMap<InstanceKey, InstanceSlots>>,
    /// The number of Instances that were added to `instances`.
    pub(super) arrivals: u64,
    /// The slots that are being written, with their new owners.
    pub(super) writing: BTreeMap<SlotId, Option<SlotOwner>>,
    /// The time at which the last claim of a slot was answered. Slots adopted at start have no entry.
    pub(super) answered: BTreeMap<SlotId, Duration>,
    /// The time at which each free slot was freed. A look at the kubelet's records that began before it may have seen its holder:
    /// a ResourceClaim ends at any time.
    pub(super) freed: BTreeMap<SlotId, Duration>,
    pub(super) own: OwnSlots,
    /// The ids that each Configuration's resource lists, with their Instances. An id keeps its Instance while listed.
    pub(super) listed: BTreeMap<ConfigurationName, BTreeMap<u32, InstanceName>>,
    /// The Instances to observe again: see [`Self::take_unobserved`].
    pub(super) unobserved: BTreeSet<InstanceKey>,
    pub(super) touched: Touched,
}

impl SlotTable {
    pub fn new(node: impl Into<NodeName>) -> Self {
        Self {
            node: node.into(),
            instances: BTreeMap::new(),
            beaten: BTreeMap::new(),
            arrivals: 0,
            writing: BTreeMap::new(),
            answered: BTreeMap::new(),
            freed: BTreeMap::new(),
            own: OwnSlots::default(),
            listed: BTreeMap::new(),
            unobserved: BTreeSet::new(),
            touched: Touched::default(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.instances.is_empty()
    }

    /// Returns whether the table has slots of a Configuration.
    pub fn has_slots_of(&self, configuration: &ConfigurationName) -> bool {
        let mut instances = self.instances.values();
        instances.any(|slots| slots.configuration == *configuration)
    }

    /// Returns the number of Instances that were added to the table.
    pub fn arrivals(&self) -> u64 {
        self.arrivals
    }

    /// Returns whether this is the Instance that has the slots of its name.
    pub fn has_slots(&self, key: &InstanceKey) -> bool {
        let slots = self.instances.get(key.name.as_str());
        slots.is_some_and(|slots| slots.key == *key)
    }

    /// Takes over the present values of all Instances. Slots that are being written stay until they are settled.
    pub fn observe(&mut self, observed: impl IntoIterator<Item = ObservedSlots>) {
        let observed: Vec<_> = observed.into_iter().collect();
        let keys: BTreeSet<&InstanceKey> = observed.iter().map(|o| &o.key).collect();
        let known = (self.instances.values())
            .chain(self.beaten.values().flat_map(BTreeMap::values))
            .map(|slots| &slots.key);
        let gone: Vec<InstanceKey> = known.filter(|key| !keys.contains(key)).cloned().collect();
        self.observe_changes(observed, gone);
    }

    /// Takes over the Instances that changed, and removes those that are gone.
    pub fn observe_changes(
        &mut self,
        changed: impl IntoIterator<Item = ObservedSlots>,
        gone: impl IntoIterator<Item = InstanceKey>,
    ) {
        let mut configurations = BTreeSet::new();
        let changed = changed
            .into_iter()
            .map(|o| (o.key.clone(), Some(InstanceSlots::from(o))));
        for (key, slots) in changed.chain(gone.into_iter().map(|key| (key, None))) {
            let name = key.name.clone();
            let before = self.instances.get(&name).map(|s| s.configuration.clone());
            configurations.extend(before);
            self.replace(key, slots);
            let after = self.instances.get(&name).map(|s| s.configuration.clone());
            configurations.extend(after);
            self.touched.instances.insert(name);
        }
        self.touched
            .configurations
            .extend(configurations.iter().cloned());
        let (instances, node, own) = (&self.instances, &self.node, &self.own);
        self.answered.retain(|slot, _| {
            (instances
                .get(&slot.instance)
                .and_then(|i| i.owners.get(&slot.index)))
            .is_some_and(|owner| owner.node() == node)
                || self.writing.contains_key(slot)
                || own.remembers(slot)
        });
        self.freed
            .retain(|slot, _| self.instances.contains_key(&slot.instance));
        self.relist(&configurations);
    }

    /// Takes over one Instance or its removal, and selects the Instance of that name that has the slots now.
    fn replace(&mut self, key: InstanceKey, slots: Option<InstanceSlots>) {
        let name = key.name.clone();
        let mut all = self.beaten.remove(&name).unwrap_or_default();
        let before = self.instances.remove(&name);
        all.extend(before.clone().map(|slots| (slots.key.clone(), slots)));
        match slots {
            Some(slots) => drop(all.insert(key, slots)),
            None => drop(all.remove(&key)),
        }
        let first = all
            .values()
            .min_by_key(|slots| (slots.precedence, &slots.key));
        let Some(first) = first.map(|slots| slots.key.clone()) else {
            return;
        };
        if let Some(mut slots) = all.remove(&first) {
            let same = before.filter(|before| before.key == first);
            self.take_over(&mut slots, same.as_ref());
            self.instances.insert(name.clone(), slots);
        }
        if !all.is_empty() {
            self.beaten.insert(name, all);
        }
    }

    /// Returns what may list other slots than at the last call.
    pub fn take_touched(&mut self) -> Touched {
        std::mem::take(&mut self.touched)
    }

    /// Returns the Configuration of the Instance that has the slots of its name.
    pub(super) fn configuration_of(&self, instance: &InstanceName) -> Option<&ConfigurationName> {
        let slots = self.instances.get(instance)?;
        Some(&slots.configuration)
    }

    /// Takes the Instances to observe again: a value observed during the write of a slot may be newer than the write.
    pub fn take_unobserved(&mut self) -> BTreeSet<InstanceKey> {
        std::mem::take(&mut self.unobserved)
    }

    /// Returns whether an Instance must be observed again.
    pub fn has_unobserved(&self) -> bool {
        !self.unobserved.is_empty()
    }

    /// Marks the slots of a claim or a release as being written.
    pub fn begin(&mut self, changes: &[SlotChange]) {
        for change in changes {
            self.writing.insert(change.slot.clone(), change.to.clone());
        }
        self.relist_of(changes);
    }

    /// Ends the state that [`Self::begin`] started. `written` is the uptime at which the Instances had the new owners;
    /// without it the observed owners count.
    pub fn settle(&mut self, changes: &[SlotChange], written: Option<Duration>) {
        for change in changes {
            self.writing.remove(&change.slot);
            if let Some(now) = written {
                self.settle_written(change, now);
                if self.is_own(&change.slot) {
                    self.own.settle(change);
                } else {
                    self.own.forget(&change.slot);
                    self.unobserved.insert(change.key.clone());
                }
            }
        }
        self.relist_of(changes);
    }

    fn settle_written(&mut self, change: &SlotChange, now: Duration) {
        let slots = self.instances.get_mut(&change.slot.instance);
        let slots = slots.filter(|slots| slots.key == change.key);
        match &change.to {
            Some(owner) => {
                self.answered.insert(change.slot.clone(), now);
                self.freed.remove(&change.slot);
                slots.map(|slots| slots.owners.insert(change.slot.index, owner.clone()));
            }
            None => {
                self.answered.remove(&change.slot);
                self.freed.insert(change.slot.clone(), now);
                slots.map(|slots| slots.owners.remove(&change.slot.index));
            }
        }
    }

    /// Returns the slot that this node holds as `id` of `resource`.
    pub fn held_as(&self, resource: &Resource, id: &str) -> Option<Held> {
        let id: ListedId = id.parse().ok()?;
        let slot = match resource {
            Resource::Instance(_) => id.slot(),
            Resource::Configuration(name) if id.plugin == *name => {
                self.slot_in_use(name, id.index)?
            }
            Resource::Configuration(_) => return None,
        };
        let slots = self.instances.get(&slot.instance)?;
        let owner = slots.owners.get(&slot.index)?;
        let is_by_configuration = matches!(resource, Resource::Configuration(_));
        let is_its = owner.configuration_index().is_some() == is_by_configuration;
        (is_its && self.is_held(&slot, owner)).then(|| self.held_slot(slots, slot, owner))
    }

    /// Returns the slots that this node holds and is not writing to now.
    pub fn held(&self) -> Vec<Held> {
        let mut held = vec![];
        for (name, slots) in &self.instances {
            for (index, owner) in &slots.owners {
                let slot = SlotId::new(name, *index);
                if self.is_held(&slot, owner) {
                    held.push(self.held_slot(slots, slot, owner));
                }
            }
        }
        held
    }

    /// Returns whether this node holds a slot with this owner, and is not writing to it.
    fn is_held(&self, slot: &SlotId, owner: &SlotOwner) -> bool {
        *owner.node() == self.node && !self.writing.contains_key(slot)
    }

    fn held_slot(&self, slots: &InstanceSlots, slot: SlotId, owner: &SlotOwner) -> Held {
        Held {
            key: slots.key.clone(),
            answered: self.answered.get(&slot).copied().unwrap_or_default(),
            owner: owner.clone(),
            slot,
        }
    }

    /// Iterates over the usage of each Instance, as it was observed.
    pub fn usage(&self) -> impl Iterator<Item = Usage<'_>> {
        self.instances.iter().map(|(instance, slots)| {
            let used = i64::try_from(slots.owners.len()).unwrap_or(i64::MAX);
            Usage {
                configuration: &slots.configuration,
                instance,
                // Slots beyond the capacity are in use until their containers end.
                used,
                free: (i64::from(slots.users_max) - used).max(0),
            }
        })
    }

    pub(super) fn capacity(&self, instance: &InstanceName) -> u32 {
        self.instances
            .get(instance)
            .map_or(0, |slots| slots.capacity)
    }

    /// Returns the owner after all pending writes.
    pub(super) fn owner(&self, slot: &SlotId) -> Option<&SlotOwner> {
        match self.writing.get(slot) {
            Some(to) => to.as_ref(),
            None => self.observed_owner(slot),
        }
    }

    pub(super) fn observed_owner(&self, slot: &SlotId) -> Option<&SlotOwner> {
        self.instances.get(&slot.instance)?.owners.get(&slot.index)
    }

    /// Returns whether this node is the one that holds a slot after the change, or that frees it.
    pub fn is_mine(&self, change: &SlotChange) -> bool {
        let owner = change.to.as_ref().or(change.from.as_ref());
        owner.is_none_or(|owner| *owner.node() == self.node)
    }

    /// Returns whether the slot was freed after this uptime.
    pub fn is_freed_after(&self, slot: &SlotId, begun: Duration) -> bool {
        self.freed.get(slot).is_some_and(|freed| *freed > begun)
    }

    /// Returns how many more containers may have a slot of the Instance. Those whose slot is beyond the capacity, which was larger
    /// before, count: a device has at most as many users as its capacity, or none more until some have ended.
    pub(super) fn left(&self, instance: &InstanceName) -> usize {
        let Some(slots) = self.instances.get(instance) else {
            return 0;
        };
        let from = SlotId::new(instance, 0);
        let writing = self.writing.range(from..);
        let writing = writing.take_while(|(slot, _)| slot.instance == *instance);
        let mut used = slots.owners.len();
        for (slot, to) in writing {
            let is_owned = slots.owners.contains_key(&slot.index);
            used = used + usize::from(to.is_some()) - usize::from(is_owned);
        }
        (slots.users_max as usize).saturating_sub(used)
    }

    /// Returns the slots that containers may get.
    pub(super) fn free_slots(&self, instance: &InstanceName) -> impl Iterator<Item = SlotId> {
        self.unowned(instance).take(self.left(instance))
    }

    /// Returns the slots without an owner, of which not all may be given out.
    pub(super) fn unowned(&self, instance: &InstanceName) -> impl Iterator<Item = SlotId> {
        (0..self.capacity(instance))
            .map(move |index| SlotId::new(instance, index))
            .filter(|slot| self.owner(slot).is_none())
    }
}

impl From<ObservedSlots> for InstanceSlots {
    fn from(observed: ObservedSlots) -> Self {
        Self {
            owners: owners(&observed.key.name, &observed.usage).collect(),
            key: observed.key,
            precedence: observed.precedence,
            configuration: observed.configuration,
            capacity: observed.capacity,
            users_max: observed.users_max,
            is_offered: observed.is_offered,
            is_by_claims: observed.is_by_claims,
            is_own: observed.is_own,
            told: observed.told,
            arrival: 0,
            is_confirmed: false,
        }
    }
}

impl Touched {
    /// Adds Instances whose device came or went, and their Configurations.
    pub fn add<'a>(
        &mut self,
        instances: impl IntoIterator<Item = &'a InstanceName>,
        slots: &SlotTable,
    ) {
        for name in instances {
            (self.configurations).extend(slots.configuration_of(name).cloned());
            self.instances.insert(name.clone());
        }
    }
}
