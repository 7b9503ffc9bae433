//! Plans what is reported of each device. Pure.
use super::world::{PlanOfOne, World};
use crate::{
    agent::device_state::{device_id, observed_slots, pin},
    api::{
        instance::{HEALTHY, Instance, InstanceSpec, UNHEALTHY},
        node_devices::{LEFT, SeenDevice},
        reason::Reason,
    },
    model::{
        budget::{Turn, text_bytes},
        container_edits::{stored, stored_copy},
        container_nodes::connection_digest,
        device::{Device, DeviceId},
        instance_name::{InstanceKey, InstanceName},
        limits,
        slot::holders,
        slot_table::{SlotTable, Use},
        typed_names::ConfigurationKey,
    },
    store::Report,
};
use petiole_base::collect::CollectMap as _;
use std::collections::BTreeMap;

impl PlanOfOne<'_> {
    /// A device that has an Instance. The first node reports the values for containers if the Instance has others.
    pub(super) fn see(&mut self, instance: &Instance, device: &Device, turn: &mut Turn) {
        let nodes = &instance.spec.nodes;
        let is_first = nodes.first().is_none_or(|first| *first == self.world.node);
        let is_other = is_first
            && !self
                .stored_properties(device)
                .eq(&instance.spec.broker_properties);
        let seen = SeenDevice {
            properties: is_other.then(|| own_properties(device, turn)).flatten(),
            pin: noted_pin(device).filter(|_| pin(instance).is_none()),
            ..self.seen_device(device)
        };
        self.report.list(self.accepted.scope).push(seen);
    }

    /// A device that has no Instance yet, with all that one is made of.
    pub(super) fn announce(&mut self, device: &Device, turn: &mut Turn) {
        let of_others = &self.world.instances;
        let is_others = |name: &InstanceName| {
            of_others.contains_key(&InstanceKey::new(&self.key.namespace, name))
        };
        let own = self
            .accepted
            .own_name(device)
            .filter(|name| !is_others(name));
        let candidates = self.digest_names(&device.id);
        let names = own.iter().chain(&candidates);
        let used = names.flat_map(|name| self.used(name));
        let seen = SeenDevice {
            usage: used.collect_map(),
            properties: own_properties(device, turn),
            pin: noted_pin(device),
            ..self.seen_device(device)
        };
        self.report.announced.push(device.id.to_string());
        self.report.list(self.accepted.scope).push(seen);
    }

    fn seen_device(&self, device: &Device) -> SeenDevice {
        let wish = self.accepted.configuration.spec.container_devices.as_ref();
        SeenDevice {
            id: Some(device.id.to_string()),
            connection: Some(connection_digest(device, wish)),
            flapping: self.flapping(&device.id),
            ..SeenDevice::default()
        }
    }

    /// An Instance of this node whose device is missing.
    pub(super) fn miss(
        &mut self,
        key: &InstanceKey,
        instance: &Instance,
        flapping: Option<String>,
    ) {
        self.report.list(instance.spec.scope()).push(SeenDevice {
            state: Some(UNHEALTHY.to_owned()),
            flapping,
            ..of_instance(key, instance)
        });
    }

    /// An Instance whose pinned device another host announces.
    pub(super) fn miss_pinned(&mut self, key: &InstanceKey, instance: &Instance, message: String) {
        self.report.list(instance.spec.scope()).push(SeenDevice {
            state: Some(UNHEALTHY.to_owned()),
            other_host: Some(cut(message)),
            ..of_instance(key, instance)
        });
    }

    /// An Instance of this node of whose device nothing is known yet: it stays as it is.
    pub(super) fn keep(&mut self, key: &InstanceKey, instance: &Instance) {
        let seen = as_it_is(key, instance, &self.world.node);
        self.report.list(instance.spec.scope()).push(seen);
    }

    /// An Instance that this node does not offer: it goes on to be watched until it is certain that no container here has
    /// a slot of it. `is_gone` if its device was missing for the grace period.
    pub(super) fn watch_on(&mut self, key: &InstanceKey, instance: &Instance, is_gone: bool) {
        let left = left(self.world, key, instance).map(|left| SeenDevice {
            gone: is_gone,
            ..left
        });
        self.report.list(instance.spec.scope()).extend(left);
    }

    pub(super) fn digest_names(&self, id: &DeviceId) -> [InstanceName; 2] {
        InstanceName::candidates(&self.key.name, id, self.accepted.scope, &self.world.node)
    }

    /// The slots of a new Instance that containers have already: by one of its name that was deleted.
    fn used(&self, name: &InstanceName) -> BTreeMap<String, String> {
        let node = &self.world.node;
        let uses = self.world.uses.as_deref().unwrap_or_default();
        if !uses.iter().any(|one| one.may_be_of(name)) {
            return BTreeMap::new();
        }
        let spec = InstanceSpec {
            configuration_name: self.key.name.as_str().into(),
            capacity: self.accepted.configuration.spec.capacity,
            nodes: vec![node.clone()],
            ..InstanceSpec::default()
        };
        let (key, new) = (
            InstanceKey::new(&self.key.namespace, name),
            Instance::new(name, spec),
        );
        let all = self.world.instances.iter().map(|(key, i)| (key, &**i));
        let mut table = SlotTable::new(node.clone());
        table.observe(
            all.chain([(&key, &new)])
                .map(|(key, instance)| observed_slots(key, instance, node)),
        );
        let claims = table.adoptions(uses).changes.into_iter();
        let its = claims.filter(|claim| claim.key == key);
        its.filter_map(|claim| Some((claim.slot.to_string(), claim.to?.to_string())))
            .collect_map()
    }

    /// The properties of a device's Instance. They are borrowed: each copy is counted first.
    fn stored_properties<'a>(
        &'a self,
        device: &'a Device,
    ) -> impl Iterator<Item = (&'a String, &'a String)> {
        let broker_properties = &self.accepted.configuration.spec.broker_properties;
        stored(&device.properties, broker_properties)
    }

    /// The bytes of the properties of a device's Instance.
    pub(super) fn stored_bytes(&self, device: &Device) -> usize {
        let properties = self.stored_properties(device);
        properties.map(|(key, value)| key.len() + value.len()).sum()
    }
}

/// The device's own properties, without those of its Configuration: the controller adds these. `None` if they are more than
/// this turn has room for. Those that are described now have their Instances in a next turn, and leave the room to others.
fn own_properties(device: &Device, turn: &mut Turn) -> Option<BTreeMap<String, String>> {
    let bytes = text_bytes(&device.properties);
    (turn.take(bytes)).then(|| stored_copy(&device.properties, &BTreeMap::new()))
}

fn left(world: &World, key: &InstanceKey, instance: &Instance) -> Option<SeenDevice> {
    let is_holder = holders(&instance.spec.device_usage).contains(&world.node);
    let name = key.name.clone();
    let is_unused = |uses: &[Use]| !uses.iter().any(|one| one.may_be_of(&name));
    let is_free = !is_holder && world.uses.as_deref().is_some_and(is_unused);
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
    // A node that the Instance does not name joins again when it sees the device.
    let is_unhealthy =
        entry.is_some_and(|entry| entry.health != HEALTHY) || !instance.spec.names_node(node);
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

pub(super) fn cut(text: String) -> String {
    limits::cut(text, limits::PROBLEM_MESSAGE_MAX)
}

/// Adds to the reports the Instances of Configurations that this node does not work with just now, and that are
/// there: nothing is known of their devices. Every Configuration gets a report.
pub(super) fn keep_the_rest(world: &World, reports: &mut BTreeMap<ConfigurationKey, Report>) {
    for (key, instance) in world.instances.iter() {
        let of = instance.spec.configuration_key(&key.namespace);
        let is_accepted = world.validated.accepted.contains_key(&of);
        if is_accepted || !world.configurations.may_have(&of) {
            continue;
        }
        let seen = if instance.is_of(&world.node) {
            Some(as_it_is(key, instance, &world.node))
        } else {
            left(world, key, instance)
        };
        let report = reports.entry(of).or_default();
        report.list(instance.spec.scope()).extend(seen);
    }
    for report in reports.values_mut() {
        let place = |device: &SeenDevice| (device.id.clone(), device.instance.clone());
        for devices in [&mut report.devices, &mut report.own] {
            devices.sort_by_cached_key(place);
            // Where one device has two Instances, both are of it.
            devices.dedup_by_key(|device| place(device));
        }
    }
}

/// Returns whether all Configurations are known and validated. Otherwise a report would leave out devices that are
/// there.
pub(super) fn is_whole(world: &World) -> bool {
    let validated = &world.validated;
    let is_validated = |key: &ConfigurationKey| {
        validated.accepted.contains_key(key) || validated.problems.contains_key(key)
    };
    world.configurations.is_complete && world.configurations.objects.keys().all(is_validated)
}
