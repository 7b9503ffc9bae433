//! Sorts the reports in all NodeDevices by device, and finds the Instance of each device. Pure.
use crate::{
    api::{
        instance::{HEALTHY, Instance, InstanceStatus, NodeHealth, UNHEALTHY},
        names,
        node_devices::SeenDevice,
    },
    controller::world::World,
    model::{
        device::{DeviceId, Scope},
        instance_name::{InstanceKey, InstanceName},
        names::digest_32,
        pin::Pin,
        typed_names::{ConfigurationKey, ConfigurationName, NodeName},
    },
};
use std::collections::{BTreeMap, BTreeSet};

/// The identity of a device in the cluster.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Identity {
    pub(crate) configuration: ConfigurationKey,
    pub(crate) device: String,
}

/// An Instance, and the Configuration whose Instance a report says that it is.
type Named = (InstanceKey, ConfigurationName);

/// The reports of all nodes about one device.
pub(crate) type NodeReports<'a> = BTreeMap<&'a NodeName, &'a SeenDevice>;

/// The reports of all nodes by device, and the Instance of each device.
#[derive(Debug, Default)]
pub(crate) struct DeviceReports<'a> {
    by_device: BTreeMap<Identity, NodeReports<'a>>,
    /// The reports that name an Instance of their Configuration instead of a device.
    by_instance: BTreeMap<Named, NodeReports<'a>>,
    /// The Instance of each device that has one.
    instances: BTreeMap<Identity, InstanceKey>,
    /// The device of each Instance in `instances`.
    devices: BTreeMap<InstanceKey, Identity>,
    /// The nodes that have looked everywhere for the devices of each Configuration.
    complete: BTreeMap<ConfigurationKey, BTreeSet<&'a NodeName>>,
}

impl<'a> DeviceReports<'a> {
    pub(crate) fn new(world: &'a World) -> Self {
        let mut device_reports = Self::default();
        for (node, report) in world.views() {
            let of = ConfigurationKey::new(&report.namespace, report.name.as_str());
            if report.complete {
                let nodes = device_reports.complete.entry(of.clone()).or_default();
                nodes.insert(node);
            }
            for device in &report.devices {
                let reports = match (&device.id, &device.instance) {
                    (_, Some(name)) => {
                        let key = InstanceKey::new(&report.namespace, name.as_str());
                        let named = (key, of.name.clone());
                        device_reports.by_instance.entry(named).or_default()
                    }
                    (Some(id), None) => {
                        let device = Identity {
                            configuration: of.clone(),
                            device: id.clone(),
                        };
                        device_reports.by_device.entry(device).or_default()
                    }
                    (None, None) => continue,
                };
                reports.insert(node, device);
            }
        }
        device_reports.find_instances(world);
        device_reports
    }

    /// Finds the Instance of each device. If a device has two, the older one counts, and of equal ones the first by
    /// name. An Instance that Akri made has no annotation of its device, but its name is derived from the device's id
    /// as ours is.
    fn find_instances(&mut self, world: &World) {
        let shared = world.instances.iter().filter(|(_, i)| i.spec.shared);
        let mut ages = BTreeMap::new();
        for (key, instance) in shared {
            let Some(device) = identity(key, instance) else {
                continue;
            };
            let created = instance.metadata.creation_timestamp.as_ref();
            let age = (created.map(|time| time.0), key);
            if ages.get(&device).is_none_or(|first| age < *first) {
                ages.insert(device.clone(), age);
                self.instances.insert(device, key.clone());
            }
        }
        let unknown: Vec<Identity> = (self.by_device.keys())
            .filter(|device| !self.instances.contains_key(*device))
            .cloned()
            .collect();
        for device in unknown {
            let [short, _] = names_of(&device);
            let key = InstanceKey::new(&device.configuration.namespace, short);
            let there = world.instances.get(&key);
            let is_akris = |instance: &Instance| {
                instance.spec.shared
                    && instance.spec.configuration_name == device.configuration.name
                    && identity(&key, instance).is_none()
            };
            if there.is_some_and(|instance| is_akris(instance)) {
                self.instances.insert(device, key);
            }
        }
        let pairs = self.instances.iter();
        self.devices = pairs.map(|(d, key)| (key.clone(), d.clone())).collect();
    }

    /// Returns whether the node has looked everywhere for this Configuration. If so, it does not see a device that its report
    /// leaves out. If not, the Instance keeps what it says of the node.
    pub(crate) fn has_complete_report(&self, of: &ConfigurationKey, node: &NodeName) -> bool {
        let nodes = self.complete.get(of);
        nodes.is_some_and(|nodes| nodes.contains(node))
    }

    /// Returns the reports about an Instance's device. A second Instance of the same device has none.
    pub(crate) fn of(&self, key: &InstanceKey, instance: &Instance) -> NodeReports<'a> {
        let device = self.devices.get(key);
        let by_device = device.and_then(|device| self.by_device.get(device));
        let named = (key.clone(), instance.spec.configuration_name.clone());
        let by_instance = self.by_instance.get(&named);
        let all = by_instance.into_iter().chain(by_device).flatten();
        all.map(|(node, device)| (*node, *device)).collect()
    }

    /// Returns the device of an Instance, if the Instance is the device's only or first one.
    pub(crate) fn device(&self, key: &InstanceKey) -> Option<&Identity> {
        self.devices.get(key)
    }

    /// Returns the devices without an Instance.
    pub(crate) fn without_instance(&self) -> impl Iterator<Item = (&Identity, &NodeReports<'a>)> {
        let all = self.by_device.iter();
        all.filter(|(device, _)| !self.instances.contains_key(*device))
    }
}

/// Returns the device that an Instance was made for.
fn identity(key: &InstanceKey, instance: &Instance) -> Option<Identity> {
    let annotations = instance.metadata.annotations.as_ref()?;
    let id = annotations.get(names::DEVICE_ID)?;
    Some(Identity {
        configuration: instance.spec.configuration_key(&key.namespace),
        device: id.clone(),
    })
}

/// Returns the names that the Instance of a shared device may have.
pub(crate) fn names_of(identity: &Identity) -> [InstanceName; 2] {
    InstanceName::candidates(
        &identity.configuration.name,
        &DeviceId::new(&identity.device),
        Scope::Shared,
        &NodeName::default(),
    )
}

/// Returns whether a node sees the pinned host, as far as is known.
pub(crate) fn is_same_host(report: &SeenDevice, pin: Option<&String>) -> bool {
    let parsed = |text: &String| text.parse::<Pin>().ok();
    let both = pin
        .and_then(parsed)
        .zip(report.pin.as_ref().and_then(parsed));
    both.is_none_or(|(pinned, own)| pinned.is_same(&own))
}

/// Returns the place of a node in the order in which nodes offer the device of an Instance, where not all do. Each device
/// has an order of its own, so that of many devices each node offers some.
pub(crate) fn rank(instance: &str, node: &NodeName) -> String {
    digest_32(&format!("{instance} {node}"))
}

/// Returns the entries of an Instance's status for `nodes`. Only nodes with a problem have an entry.
pub(crate) fn exceptions(
    before: &InstanceStatus,
    nodes: &[NodeName],
    reports: &NodeReports<'_>,
    now: &str,
) -> Vec<NodeHealth> {
    let mut entries = vec![];
    for node in nodes {
        let before = before.nodes.iter().find(|entry| entry.name == *node);
        let Some(report) = reports.get(node) else {
            entries.extend(before.cloned());
            continue;
        };
        let trouble = report.trouble();
        if report.is_healthy() && trouble.is_none() {
            continue;
        }
        let health = match report.is_healthy() {
            true => HEALTHY,
            false => UNHEALTHY,
        };
        let is_same = |entry: &&NodeHealth| entry.health == health;
        let reason = trouble.map(|(reason, _)| reason);
        let is_reported = |entry: &&NodeHealth| entry.reason.as_deref() == reason;
        let reported = before
            .filter(is_reported)
            .and_then(|entry| entry.message.clone());
        entries.push(NodeHealth {
            name: node.clone(),
            health: health.to_owned(),
            last_transition_time: (before.filter(is_same))
                .map_or(now, |entry| &entry.last_transition_time)
                .to_owned(),
            connection: None,
            reason: reason.map(str::to_owned),
            // Another number in the sentence is no reason to write.
            message: trouble.map(|(_, message)| reported.unwrap_or_else(|| message.clone())),
        });
    }
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    entries
}
