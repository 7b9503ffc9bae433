//! Lists the slots that each resource offers to the kubelet, and their ids there.
use super::{
    table::SlotTable,
    values::{Resource, SlotChange, Use},
};
use crate::model::{
    instance_name::InstanceName,
    plugin_name::PluginName,
    resource_name::ResourceName,
    slot::{INDEX_LIMIT, ListedId, SlotId, SlotOwner},
    typed_names::ConfigurationName,
};
use std::collections::{BTreeMap, BTreeSet};

/// A slot as a resource lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedSlot {
    /// The device id of the kubelet.
    pub id: ListedId,
    /// The Instance of the slot.
    pub instance: InstanceName,
    /// True if a container on this node may get the slot through this resource. Only slots and their owners are
    /// considered here.
    pub is_usable: bool,
}

impl SlotTable {
    /// Returns the slots of an Instance in the list of its own resource: its whole capacity, and slots beyond it that
    /// are in use, because the kubelet takes a missing slot for a healthy one. Of an Instance that this node does not
    /// offer, only slots that containers here hold are usable.
    pub fn instance_list(&self, instance: &InstanceName) -> Vec<ListedSlot> {
        let Some(slots) = self.instances.get(instance) else {
            return vec![];
        };
        let own = SlotOwner::Node(self.node.clone());
        let capacity = slots.capacity.min(INDEX_LIMIT);
        let beyond = slots.owners.range(capacity..INDEX_LIMIT);
        let held_beyond = beyond.filter(|(_, owner)| **owner == own);
        let mut left = self.left(instance);
        (0..capacity)
            .chain(held_beyond.map(|(index, _)| *index))
            .map(|index| {
                let slot = SlotId::new(instance, index);
                let is_ours = match self.owner(&slot) {
                    None => {
                        let is_left = left > 0;
                        left = left.saturating_sub(1);
                        is_left && slots.is_offered
                    }
                    Some(owner) => *owner == own,
                };
                ListedSlot {
                    id: (&slot).into(),
                    instance: slot.instance,
                    is_usable: index < slots.capacity && is_ours && !slots.is_by_claims,
                }
            })
            .collect()
    }

    /// Returns the slots of a Configuration's resource: those in use through it on this node, and one free id for each
    /// Instance with a free slot.
    pub fn configuration_list(&self, configuration: &ConfigurationName) -> Vec<ListedSlot> {
        let ids = self.listed.get(configuration).into_iter().flatten();
        ids.map(|(n, instance)| {
            let in_use = self.slot_in_use(configuration, *n);
            ListedSlot {
                id: ListedId::new(configuration, *n),
                instance: instance.clone(),
                is_usable: in_use.is_none_or(|slot| slot.index < self.capacity(instance))
                    && !self.is_by_claims(instance),
            }
        })
        .collect()
    }

    /// Returns the ids whose slots containers hold by another full name, which the resource had before. The kubelet takes that for
    /// another resource, and the ids of this one for free.
    pub fn held_by_former_name(
        &self,
        resource: &Resource,
        name: &ResourceName,
    ) -> BTreeSet<&ListedId> {
        let plugin = resource.plugin();
        let ids = (self.own.uses().iter()).filter(|one| one.has_other_name(name));
        let ids = ids.flat_map(|one| &one.ids);
        let ids = ids.filter(|id| id.plugin == plugin);
        ids.filter(|id| self.held_as(resource, &id.to_string()).is_some())
            .collect()
    }

    /// Touches the resources whose ids containers have since the last look at the kubelet's records, or have no more. Returns whether
    /// there are any.
    pub(super) fn touch_used(&mut self, before: &[Use], now: &[Use]) -> bool {
        if before == now {
            return false;
        }
        let (before, now): (BTreeSet<_>, BTreeSet<_>) =
            (before.iter().collect(), now.iter().collect());
        let ids = before.symmetric_difference(&now).flat_map(|one| &one.ids);
        for id in ids {
            self.touched.instances.insert(id.plugin.as_instance());
            (self.touched.configurations).insert(id.plugin.as_configuration());
        }
        before != now
    }

    /// Returns whether no resource gives slots of an Instance, because ResourceClaims do.
    pub fn is_by_claims(&self, instance: &InstanceName) -> bool {
        let slots = self.instances.get(instance);
        slots.is_some_and(|slots| slots.is_by_claims)
    }

    /// Returns the slot that this node uses through id `n` of the Configuration's resource.
    pub(super) fn slot_in_use(&self, configuration: &ConfigurationName, n: u32) -> Option<SlotId> {
        let instance = self.listed.get(configuration)?.get(&n)?;
        self.used_by_configuration(instance)
            .find(|(used, _)| *used == n)
            .map(|(_, slot)| slot)
    }

    /// Iterates over the slots of an Instance that this node uses through its Configuration's resource, with their ids
    /// there.
    fn used_by_configuration(
        &self,
        instance: &InstanceName,
    ) -> impl Iterator<Item = (u32, SlotId)> {
        let observed = (self.instances.get(instance).into_iter())
            .flat_map(|slots| slots.owners.keys().copied());
        let writing = (self.writing.keys())
            .filter(|slot| slot.instance == *instance)
            .map(|slot| slot.index);
        let indexes: BTreeSet<u32> = observed.chain(writing).collect();
        let name = instance.clone();
        indexes.into_iter().filter_map(move |index| {
            let slot = SlotId::new(&name, index);
            let owner = self
                .owner(&slot)
                .filter(|owner| *owner.node() == self.node)?;
            Some((owner.configuration_index()?, slot))
        })
    }

    /// Updates the ids of the Configurations whose slots changed.
    pub(super) fn relist_of(&mut self, changes: &[SlotChange]) {
        let configurations: BTreeSet<ConfigurationName> = changes
            .iter()
            .filter_map(|c| Some(self.instances.get(&c.slot.instance)?.configuration.clone()))
            .collect();
        let touched = changes.iter().map(|c| c.slot.instance.clone());
        self.touched.instances.extend(touched);
        self.touched
            .configurations
            .extend(configurations.iter().cloned());
        self.relist(&configurations);
    }

    /// Updates the ids of `configurations`.
    pub(super) fn relist(&mut self, configurations: &BTreeSet<ConfigurationName>) {
        let mut instances: BTreeMap<&ConfigurationName, Vec<&InstanceName>> = BTreeMap::new();
        for (instance, slots) in &self.instances {
            if configurations.contains(&slots.configuration) {
                instances
                    .entry(&slots.configuration)
                    .or_default()
                    .push(instance);
            }
        }
        let relisted: BTreeMap<ConfigurationName, BTreeMap<u32, InstanceName>> = instances
            .iter()
            .map(|(configuration, instances)| {
                (
                    (*configuration).clone(),
                    self.ids_of(configuration, instances),
                )
            })
            .collect();
        // A Configuration without an Instance has no resource.
        self.listed
            .retain(|configuration, _| !configurations.contains(configuration));
        self.listed.extend(relisted);
    }

    /// Assigns ids. Those in use stay, and so do free ones whose Instance still has a free slot. Each Instance without
    /// an id gets the smallest free one that no container has of a device that is gone, or is another node's now: to the kubelet that
    /// id is in use, and its container would be taken for the user of the other device.
    fn ids_of(
        &self,
        configuration: &ConfigurationName,
        instances: &[&InstanceName],
    ) -> BTreeMap<u32, InstanceName> {
        let mut ids: BTreeMap<u32, InstanceName> = instances
            .iter()
            .flat_map(|instance| {
                self.used_by_configuration(instance)
                    .map(|(n, _)| (n, (*instance).clone()))
            })
            .collect();
        let mut without_free_id: BTreeSet<&InstanceName> = (instances.iter().copied())
            .filter(|instance| self.instances[*instance].is_offered && !self.is_by_claims(instance))
            .filter(|instance| self.free_slots(instance).next().is_some())
            .collect();
        let lost = self.lost_ids(configuration);
        for (n, instance) in self.listed.get(configuration).into_iter().flatten() {
            let is_free = !ids.contains_key(n) && !lost.contains(n);
            if is_free && without_free_id.remove(instance) {
                ids.insert(*n, instance.clone());
            }
        }
        let mut next = 0;
        for instance in without_free_id {
            while ids.contains_key(&next) || lost.contains(&next) {
                next += 1;
            }
            ids.insert(next, instance.clone());
        }
        ids
    }

    /// Returns the ids of containers whose slots are no longer this node's.
    fn lost_ids(&self, configuration: &ConfigurationName) -> BTreeSet<u32> {
        let plugin = PluginName::from(configuration);
        let is_lost = |slot: &SlotId| {
            let owner = self.owner(slot);
            !self.instances.contains_key(&slot.instance)
                || owner.is_some_and(|owner| *owner.node() != self.node)
        };
        let uses = self.own.uses().iter();
        let lost = uses.filter(|one| one.claim.is_none() && one.env_slots.iter().any(is_lost));
        let ids = lost.flat_map(|one| &one.ids);
        ids.filter(|id| id.plugin == plugin)
            .map(|id| id.index)
            .collect()
    }
}
