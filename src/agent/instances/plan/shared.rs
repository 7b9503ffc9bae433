//! Plans this node's reports of shared devices. A controller makes their Instances of all nodes' reports. Pure.
use super::{PlanOfOne, World};
use crate::{
    agent::device_state::{device_id, pin},
    api::{
        instance::{HEALTHY, Instance, UNHEALTHY},
        names,
        node_devices::{LEFT, SeenDevice},
        reason::Reason,
    },
    model::{
        budget::{Turn, text_bytes},
        container_edits::stored_copy,
        device::Device,
        instance_name::{InstanceKey, InstanceName},
        limits,
        slot::holders,
        slot_table::Use,
        typed_names::ConfigurationKey,
    },
    store::{Health, Report},
};
use std::collections::BTreeMap;

/// Returns whether the controller alone writes what an Instance says of nodes.
pub(super) fn is_merged(world: &World<'_>, instance: &Instance) -> bool {
    world.merges && instance.spec.shared
}

pub(super) fn is_named(instance: &Instance, node: &str) -> bool {
    instance.spec.names_node(node)
}

/// Returns how the device is reached, as it is noted beside the Instance of a device that one node has.
pub(super) fn noted(instance: &Instance) -> Option<&String> {
    let annotations = instance.metadata.annotations.as_ref()?;
    annotations.get(names::CONNECTION)
}

impl PlanOfOne<'_> {
    /// A device that has an Instance. The first node reports the values for containers if the Instance has others.
    pub(super) fn see(&mut self, instance: &Instance, device: &Device, turn: &mut Turn) {
        let nodes = &instance.spec.nodes;
        let is_first = nodes.first().is_none_or(|first| first == self.world.node);
        let is_other = is_first
            && !self
                .stored_properties(device)
                .eq(&instance.spec.broker_properties);
        let seen = SeenDevice {
            properties: is_other.then(|| own_properties(device, turn)).flatten(),
            pin: noted_pin(device).filter(|_| pin(instance).is_none()),
            ..self.seen_device(device)
        };
        self.report.devices.push(seen);
    }

    /// A device that has no Instance yet, with all that one is made of.
    pub(super) fn announce(
        &mut self,
        device: &Device,
        candidates: &[InstanceName; 2],
        turn: &mut Turn,
    ) {
        let used = candidates.iter().filter(|name| self.may_be_used(name));
        let usage = used.flat_map(|name| self.new_instance(name, device).spec.device_usage);
        let seen = SeenDevice {
            usage: usage.collect(),
            properties: own_properties(device, turn),
            pin: noted_pin(device),
            ..self.seen_device(device)
        };
        self.report.announced.push(device.id.to_string());
        self.report.devices.push(seen);
    }

    fn seen_device(&self, device: &Device) -> SeenDevice {
        SeenDevice {
            id: Some(device.id.to_string()),
            connection: Some(device.connection_digest()),
            flapping: self
                .flapping(&device.id)
                .map(|trouble| cut(trouble.message)),
            ..SeenDevice::default()
        }
    }

    /// An Instance that names this node, and whose device is missing.
    pub(super) fn miss(&mut self, key: &InstanceKey, instance: &Instance, health: &Health) {
        self.report.devices.push(SeenDevice {
            state: (!health.is_healthy).then(|| UNHEALTHY.to_owned()),
            flapping: trouble_of(health, Reason::Flapping),
            other_host: trouble_of(health, Reason::IdentityChanged),
            ..of_instance(key, instance)
        });
    }

    /// An Instance that names this node, and of whose device nothing is known yet: it stays as it is.
    pub(super) fn keep(&mut self, key: &InstanceKey, instance: &Instance) {
        let seen = as_it_is(key, instance, self.world.node);
        self.report.devices.push(seen);
    }

    /// An Instance that this node does not offer: it goes on to be watched until it is certain that no container here has
    /// a slot of it.
    pub(super) fn watch_on(&mut self, key: &InstanceKey, instance: &Instance) {
        let left = left(self.world, key, instance);
        self.report.devices.extend(left);
    }
}

/// The device's own properties, without those of its Configuration: the controller adds these. `None` if they are more than
/// this turn has room for. Those that are described now have their Instances in a next turn, and leave the room to others.
fn own_properties(device: &Device, turn: &mut Turn) -> Option<BTreeMap<String, String>> {
    let bytes = text_bytes(&device.properties);
    (turn.take(bytes)).then(|| stored_copy(&device.properties, &BTreeMap::new()))
}

fn left(world: &World<'_>, key: &InstanceKey, instance: &Instance) -> Option<SeenDevice> {
    let is_holder = holders(&instance.spec.device_usage).contains(world.node);
    let name = key.name.clone();
    let is_unused = |uses: &[Use]| !uses.iter().any(|one| one.may_be_of(&name));
    let is_free = !is_holder && world.uses.is_some_and(is_unused);
    // By its name: the device may have another Instance, which this node offers.
    (!is_free).then(|| SeenDevice {
        instance: Some(key.name.clone().into()),
        state: Some(LEFT.to_owned()),
        ..SeenDevice::default()
    })
}

fn of_instance(key: &InstanceKey, instance: &Instance) -> SeenDevice {
    let id = device_id(instance).map(|id| id.to_string());
    SeenDevice {
        instance: id.is_none().then(|| key.name.clone().into()),
        id,
        ..SeenDevice::default()
    }
}

fn as_it_is(key: &InstanceKey, instance: &Instance, node: &str) -> SeenDevice {
    let entries = instance.status.iter().flat_map(|status| &status.nodes);
    let entry = entries.clone().find(|entry| entry.name == node);
    let is_unhealthy = entry.is_some_and(|entry| entry.health != HEALTHY);
    let said = |reason: Reason| {
        let such = entry.filter(|entry| entry.reason.as_deref() == Some(reason.as_str()));
        such.and_then(|entry| entry.message.clone())
    };
    SeenDevice {
        state: is_unhealthy.then(|| UNHEALTHY.to_owned()),
        flapping: said(Reason::Flapping),
        other_host: said(Reason::IdentityChanged),
        connection: entry.and_then(|entry| entry.connection.clone()),
        ..of_instance(key, instance)
    }
}

/// The pin as an Instance has it.
fn noted_pin(device: &Device) -> Option<String> {
    let pin = device.pin.as_ref()?.to_string();
    (pin.len() <= limits::PIN_MAX).then_some(pin)
}

fn trouble_of(health: &Health, reason: Reason) -> Option<String> {
    let such = health
        .trouble
        .as_ref()
        .filter(|trouble| trouble.reason == reason);
    such.map(|trouble| cut(trouble.message.clone()))
}

fn cut(text: String) -> String {
    limits::cut(text, limits::PROBLEM_MESSAGE_MAX)
}

/// Adds to the reports the shared Instances of Configurations that this node does not work with just now, and that are
/// there: nothing is known of their devices. Every Configuration gets a report.
pub(super) fn keep_the_rest(world: &World<'_>, reports: &mut BTreeMap<ConfigurationKey, Report>) {
    if !world.merges {
        return;
    }
    for (key, instance) in world.instances {
        let of = instance.spec.configuration_key(&key.namespace);
        let is_accepted = world.validated.accepted.contains_key(&of);
        if is_accepted || !is_merged(world, instance) || !world.configurations.may_have(&of) {
            continue;
        }
        let seen = match is_named(instance, world.node) {
            true => Some(as_it_is(key, instance, world.node)),
            false => left(world, key, instance),
        };
        let report = reports.entry(of).or_default();
        report.devices.extend(seen);
    }
    for report in reports.values_mut() {
        let place = |device: &SeenDevice| (device.id.clone(), device.instance.clone());
        (report.devices).sort_by_cached_key(place);
        // Where one device has two Instances, both are of it.
        report.devices.dedup_by_key(|device| place(device));
    }
}

/// Returns whether all Configurations are known and validated. Otherwise a report would leave out devices that are
/// there.
pub(super) fn is_whole(world: &World<'_>) -> bool {
    let validated = world.validated;
    let is_validated = |key: &ConfigurationKey| {
        validated.accepted.contains_key(key) || validated.problems.contains_key(key)
    };
    world.configurations.is_complete && world.configurations.objects.keys().all(is_validated)
}
