//! Decides what is offered of the devices without Instances, and which slots containers get. Pure.
use crate::{
    agent::{
        device_state::{DeviceState, state_of},
        values::{AcceptedConfiguration, Selection, Slot, ValidatedConfigurations},
    },
    api::{configuration::Problem, reason::Reason},
    discovery::session::Discoveries,
    model::{
        device::{DeviceId, Scope},
        division::Division,
        instance_name::{InstanceKey, InstanceName},
        limits::SlotLimits,
        plugin_name::PluginName,
        slot::{ListedId, SlotId},
        slot_table::{Claim, ClaimError, Resource, SlotChange, Use, preferred_of},
        typed_names::{ConfigurationKey, ConfigurationName, NodeName},
    },
    store::Instances,
};
use petiole_base::collect::CollectMap as _;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

/// What the Configurations without Instances offer. No two that are accepted have one name.
pub(crate) type NodeOnly = BTreeMap<ConfigurationName, Arc<Offer>>;

/// What one of these Configurations offers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Offer {
    pub(crate) key: ConfigurationKey,
    capacity: i32,
    grace: Duration,
    devices: BTreeMap<InstanceName, OfferedDevice>,
    /// The slots that containers hold by another name that the resource had: by this one the kubelet takes them for free.
    held: BTreeSet<SlotId>,
    /// The devices that are there and not offered.
    left_out: usize,
}

/// A device that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
struct OfferedDevice {
    id: DeviceId,
    /// The uptime since when the device has been missing. Its slots stay for the grace period and as long as a container has one,
    /// unhealthy: the kubelet takes a slot that is missing from a list for a healthy one.
    missing_since: Option<Duration>,
    /// True if it comes and goes: its slots stay until it is steady.
    is_held_back: bool,
}

/// The inputs.
#[derive(Clone, Copy)]
pub(crate) struct World<'a> {
    pub(crate) validated: &'a ValidatedConfigurations,
    pub(crate) discoveries: &'a Discoveries,
    pub(crate) node: &'a NodeName,
    /// The most devices of all these Configurations together.
    pub(crate) max_devices: usize,
    /// What containers have; `None` while nobody can say it.
    pub(crate) uses: Option<&'a [Use]>,
    pub(crate) uptime: Duration,
}

impl World<'_> {
    /// Returns whether a container may have a slot of the device with this name.
    fn may_use(&self, name: &InstanceName) -> bool {
        (self.uses).is_none_or(|uses| uses.iter().any(|one| one.may_be_of(name)))
    }

    /// Returns the slots that containers have by other names than that of the resource; `None` while nobody can say it.
    fn held_by_other_names(&self, of: &ConfigurationName) -> Option<BTreeSet<SlotId>> {
        let name = (self.validated.names).of(&Resource::Configuration(of.clone()))?;
        let ids = (self.uses?.iter()).filter(|one| one.has_other_name(&name));
        Some(ids.flat_map(|one| &one.ids).map(ListedId::slot).collect())
    }
}

/// Returns what is offered after `before`. What is offered stays, whoever else comes.
pub(crate) fn follow(world: World<'_>, before: &NodeOnly) -> NodeOnly {
    let accepted = world.validated.accepted.iter();
    let is_here = |a: &AcceptedConfiguration| a.selection == Selection::Selected;
    let accepted = accepted.filter(|(_, a)| !a.has_instances() && is_here(a));
    let accepted: Vec<_> = accepted.collect();
    let before_of = |key: &ConfigurationKey| {
        let offer = before.get(&key.name);
        offer.filter(|offer| offer.key == *key)
    };
    let count_before =
        |key: &ConfigurationKey| before_of(key).map_or(0, |offer| offer.devices.len());
    let mut division = Division::new(world.max_devices);
    for (key, _) in &accepted {
        division.join(key);
        division.take(key, count_before(key));
    }
    let offer = |(key, accepted): (&ConfigurationKey, &AcceptedConfiguration)| {
        let limit = accepted.configuration.spec.most_instances();
        let most = limit.min(division.most(key));
        let of = Of {
            key,
            accepted,
            most,
        };
        let offer = Offer::after(before_of(key).map(Arc::as_ref), world, of);
        division.give_back(key, count_before(key));
        division.take(key, offer.devices.len());
        (key.name.clone(), Arc::new(offer))
    };
    accepted.into_iter().map(offer).collect_map()
}

/// A Configuration, and the most devices with which it may get others.
struct Of<'a> {
    key: &'a ConfigurationKey,
    accepted: &'a AcceptedConfiguration,
    most: usize,
}

impl Offer {
    fn after(before: Option<&Self>, world: World<'_>, of: Of<'_>) -> Self {
        let spec = &of.accepted.configuration.spec;
        let grace = spec.grace();
        let discovery = world.discoveries.get(of.key);
        let mut offer = Self {
            key: of.key.clone(),
            capacity: spec.capacity,
            grace,
            devices: BTreeMap::new(),
            held: (world.held_by_other_names(&of.key.name))
                .or_else(|| Some(before?.held.clone()))
                .unwrap_or_default(),
            left_out: 0,
        };
        for (name, known) in before.iter().flat_map(|before| &before.devices) {
            let is_missing = discovery.is_some_and(|seen| seen.is_missing(&known.id));
            // Whoever was held back has been there.
            let since = known.missing_since.filter(|_| !known.is_held_back);
            let since = since.unwrap_or(world.uptime);
            let missing_since = is_missing.then_some(since);
            let is_held_back = discovery.is_some_and(|seen| seen.is_held_back(&known.id));
            let is_over = missing_since.is_some_and(|since| since + grace <= world.uptime);
            if is_held_back || !is_over || world.may_use(name) {
                let known = OfferedDevice {
                    id: known.id.clone(),
                    missing_since,
                    is_held_back,
                };
                offer.devices.insert(name.clone(), known);
            }
        }
        for id in discovery.iter().flat_map(|seen| seen.set.devices.keys()) {
            let names = InstanceName::candidates(&of.key.name, id, Scope::Node, world.node);
            let is_its = |name| offer.devices.get(name).is_some_and(|known| known.id == *id);
            if names.iter().any(is_its) {
                continue;
            }
            let free = (names.into_iter()).find(|name| !offer.devices.contains_key(name));
            match free.filter(|_| offer.devices.len() < of.most) {
                Some(name) => drop(offer.devices.insert(
                    name,
                    OfferedDevice {
                        id: id.clone(),
                        missing_since: None,
                        is_held_back: false,
                    },
                )),
                None => offer.left_out += 1,
            }
        }
        (offer.held).retain(|slot| offer.devices.contains_key(&slot.instance));
        offer
    }

    pub(crate) fn namespace(&self) -> &str {
        &self.key.namespace
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.devices.is_empty()
    }

    /// Returns the state of the device that has the slots of a name.
    pub(crate) fn state<'a>(
        &self,
        name: &InstanceName,
        discoveries: &'a Discoveries,
    ) -> DeviceState<'a> {
        match self.devices.get(name) {
            Some(known) => state_of(&known.id, discoveries.get(&self.key)),
            None => DeviceState::Gone,
        }
    }

    /// Returns the slots to list, so many of each device at most.
    pub(crate) fn listed(&self, limit: u32) -> Vec<Slot> {
        let capacity = u32::try_from(self.capacity).unwrap_or(0).min(limit);
        let slots = self.devices.iter().flat_map(|(name, known)| {
            (0..capacity).map(move |index| {
                let slot = SlotId::new(name, index);
                Slot {
                    id: slot.to_string(),
                    is_healthy: known.missing_since.is_none() && !self.held.contains(&slot),
                }
            })
        });
        slots.collect()
    }

    /// Returns the slots that containers ask for. The kubelet alone knows which of them are free. The error is an id that is of
    /// no device.
    pub(crate) fn claim(&self, containers: &[Vec<String>]) -> Result<Claim, ClaimError> {
        let change = |id: &String| -> Result<SlotChange, ClaimError> {
            let slot: Option<SlotId> = id.parse().ok();
            let slot = slot.filter(|slot| self.devices.contains_key(&slot.instance));
            let unknown = || ClaimError::Unknown {
                id: id.clone(),
                resource: PluginName::from(&self.key.name),
            };
            let slot = slot.ok_or_else(unknown)?;
            Ok(SlotChange {
                key: InstanceKey::new(&self.key.namespace, &slot.instance),
                from: None,
                to: None,
                slot,
                connection_digest: None,
            })
        };
        let requests = containers.iter();
        let requests = requests.map(|ids| ids.iter().map(change).collect::<Result<Vec<_>, _>>());
        let requests = requests.collect::<Result<_, _>>()?;
        Ok(Claim { requests })
    }

    /// Returns a problem if devices that come and go are held back.
    pub(crate) fn flapping(&self, discoveries: &Discoveries) -> Option<Problem> {
        let seen = discoveries.get(&self.key)?;
        let mut held = self.devices.values().filter(|known| known.is_held_back);
        let id = &held.next()?.id;
        let flapping = seen.flapping.get(id)?;
        let message = format!("{id}: {flapping}; and so it is with {} more", held.count());
        Some(Problem::new(Reason::Flapping, message))
    }

    /// Returns a problem if devices are left out.
    pub(crate) fn problem(&self, max_devices: usize) -> Option<Problem> {
        let message = format!(
            "{} more devices were found and are left out: maxInstances bounds the devices without Instances, too, and of the {max_devices} of a node (--max-instances, agent.maxInstances of the chart) the namespace {:?} may have half of what the others leave, and each of its Configurations half of what the others of them leave",
            self.left_out, self.key.namespace
        );
        (self.left_out > 0).then(|| Problem::new(Reason::TooManyDevices, message))
    }
}

/// Returns the resources of the Configurations that have a device.
pub(crate) fn resources(offers: &NodeOnly) -> BTreeMap<PluginName, Resource> {
    let with_devices = offers.iter().filter(|(_, offer)| !offer.devices.is_empty());
    let resources = with_devices.map(|(name, _)| Resource::Configuration(name.clone()));
    let by_plugin = |resource: Resource| (resource.plugin(), resource);
    resources.map(by_plugin).collect_map()
}

/// Returns the most slots of each device, so that all Instances and all devices without Instances have no more than a node may
/// offer.
pub(crate) fn slot_limits(instances: &Instances, offers: &NodeOnly) -> SlotLimits {
    let with = instances.iter();
    let with = with.map(|(key, instance)| (&*key.namespace, instance.spec.capacity));
    let without = offers.values().flat_map(|offer| {
        let each = offer.devices.keys();
        each.map(|_| (&*offer.key.namespace, offer.capacity))
    });
    SlotLimits::new(with.chain(without))
}

/// Returns the uptime after this one at which the next missing device is no longer listed, unless a container has it.
pub(crate) fn next_end(offers: &NodeOnly, uptime: Duration) -> Option<Duration> {
    let ends = offers.values().flat_map(|offer| {
        let since = offer.devices.values();
        let since = since.filter(|known| !known.is_held_back);
        since.filter_map(|known| Some(known.missing_since? + offer.grace))
    });
    ends.filter(|end| *end > uptime).min()
}

/// Returns the ids of `available` that a container should get, as [`preferred_of`] has it.
pub(crate) fn preferred(available: &[String], must: &[String], size: usize) -> Vec<String> {
    let device = |id: &str| {
        id.rsplit_once('-')
            .map_or(String::new(), |(of, _)| of.to_owned())
    };
    let mut free: BTreeMap<String, usize> = BTreeMap::new();
    for id in available {
        *free.entry(device(id)).or_default() += 1;
    }
    let slot_of = |id: &str| {
        let device = device(id);
        let free = free.get(&device).copied().unwrap_or_default();
        Some((device, free))
    };
    let mut available = available.to_vec();
    available.sort();
    preferred_of(&available, must, size, slot_of)
}

#[cfg(test)]
mod tests;
