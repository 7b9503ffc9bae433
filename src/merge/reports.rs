//! Sorts the reports of all nodes by device, and finds the Instance of each device. Pure.
use crate::{
    api::{
        instance::Instance,
        node_devices::{ConfigurationView, SeenDevice},
    },
    model::{
        device::{DeviceId, Scope},
        instance_name::{InstanceKey, InstanceName},
        names::digest_32,
        pin::Pin,
        typed_names::{ConfigurationKey, ConfigurationName, NodeName},
    },
};
use petiole_base::collect::CollectMap as _;
use std::{collections::BTreeMap, sync::Arc};

/// The identity of a device in the cluster.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Identity {
    pub(crate) configuration: ConfigurationKey,
    pub(crate) device: String,
    /// The node of a device that it alone has.
    pub(crate) node: Option<NodeName>,
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
    /// What each node says of each Configuration.
    views: BTreeMap<ConfigurationKey, BTreeMap<&'a NodeName, &'a ConfigurationView>>,
}

impl<'a> DeviceReports<'a> {
    pub(crate) fn new(
        views: impl Iterator<Item = (&'a NodeName, &'a ConfigurationView)>,
        instances: &BTreeMap<InstanceKey, Arc<Instance>>,
    ) -> Self {
        let mut device_reports = Self::default();
        for (node, report) in views {
            let of = ConfigurationKey::new(&report.namespace, report.name.as_str());
            let of_nodes = device_reports.views.entry(of.clone()).or_default();
            of_nodes.insert(node, report);
            let shared = report.devices.iter().map(|device| (device, None));
            let own = report.own.iter().flatten();
            for (device, owner) in shared.chain(own.map(|device| (device, Some(node)))) {
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
                            node: owner.cloned(),
                        };
                        device_reports.by_device.entry(device).or_default()
                    }
                    (None, None) => continue,
                };
                reports.insert(node, device);
            }
        }
        device_reports.find_shared(instances);
        device_reports.find_by_node(instances);
        device_reports.find_by_name(instances);
        let pairs = device_reports.instances.iter();
        device_reports.devices = pairs.map(|(d, key)| (key.clone(), d.clone())).collect();
        device_reports
    }

    /// Finds the Instance of each shared device. If a device has two, the older one counts, and of equal ones the first by name.
    fn find_shared(&mut self, instances: &BTreeMap<InstanceKey, Arc<Instance>>) {
        let mut ages = BTreeMap::new();
        for (key, instance) in instances.iter().filter(|(_, i)| i.spec.shared) {
            let Some(id) = instance.device_id() else {
                continue;
            };
            let device = Identity {
                configuration: instance.spec.configuration_key(&key.namespace),
                device: id.clone(),
                node: None,
            };
            let created = instance.metadata.creation_timestamp.as_ref();
            let age = (created.map(|time| time.0), key);
            if ages.get(&device).is_none_or(|first| age < *first) {
                ages.insert(device.clone(), age);
                self.instances.insert(device, key.clone());
            }
        }
    }

    /// Finds the Instances of the other devices by their names: those of devices that one node has, and those that Akri
    /// made. These have no annotation of their device, but their names are made of the device's id as the first of ours is; of
    /// a device that one node has, the short name alone is no proof against a node that chooses its ids.
    fn find_by_name(&mut self, instances: &BTreeMap<InstanceKey, Arc<Instance>>) {
        let unknown = self.by_device.keys();
        let unknown = unknown.filter(|device| !self.instances.contains_key(*device));
        let mut found = vec![];
        for device in unknown {
            let node = device.node.as_ref();
            let is_of = |instance: &Instance| node.is_none_or(|node| instance.is_of(node));
            for (n, name) in names_of(device).iter().enumerate() {
                let key = InstanceKey::new(&device.configuration.namespace, name);
                let is_its = |instance: &Instance| {
                    instance.spec.shared == device.node.is_none()
                        && instance.spec.configuration_name == device.configuration.name
                        && match instance.device_id() {
                            Some(id) => *id == device.device,
                            None => n == 0 && is_of(instance),
                        }
                };
                if instances.get(&key).is_some_and(|instance| is_its(instance)) {
                    found.push((device.clone(), key));
                    break;
                }
            }
        }
        self.instances.extend(found);
    }

    /// Finds the Instances of devices that one node has, where they have names of their own: an Instance is of the node that it
    /// names, or that had its device last.
    fn find_by_node(&mut self, instances: &BTreeMap<InstanceKey, Arc<Instance>>) {
        let mut own: BTreeMap<(ConfigurationKey, &String), Vec<_>> = BTreeMap::new();
        for (key, instance) in instances.iter().filter(|(_, i)| !i.spec.shared) {
            if let Some(id) = instance.device_id()
                && key.name.is_own(&instance.spec.configuration_name)
            {
                let of = instance.spec.configuration_key(&key.namespace);
                own.entry((of, id)).or_default().push((key, instance));
            }
        }
        for device in self.by_device.keys().filter(|_| !own.is_empty()) {
            let named = own.get(&(device.configuration.clone(), &device.device));
            let its = device.node.as_ref().zip(named).and_then(|(node, named)| {
                let mut named = named.iter();
                named.find(|(_, instance)| instance.is_of(node))
            });
            let its = its.map(|(key, _)| (device.clone(), (*key).clone()));
            self.instances.extend(its);
        }
    }

    /// Returns the Configurations that nodes report on.
    pub(crate) fn configurations(&self) -> impl Iterator<Item = &ConfigurationKey> {
        self.views.keys()
    }

    /// Returns whether the node has looked everywhere for the devices of this Instance's Configuration. If so, it does not see a
    /// device that its report leaves out. If not, the Instance keeps what it says of the node.
    pub(crate) fn has_complete_report(
        &self,
        instance: &Instance,
        of: &ConfigurationKey,
        node: &NodeName,
    ) -> bool {
        let view = self.views.get(of).and_then(|nodes| nodes.get(node));
        view.is_some_and(|view| view.complete && (view.own.is_some() || instance.spec.shared))
    }

    /// Returns whether the node's agent is of an earlier version, which does not report the devices that its node alone has.
    pub(crate) fn says_nothing_of_own(&self, of: &ConfigurationKey, node: &NodeName) -> bool {
        let view = self.views.get(of).and_then(|nodes| nodes.get(node));
        view.is_some_and(|view| view.own.is_none())
    }

    /// Returns the reports about an Instance's device. A second Instance of the same device has none.
    pub(crate) fn of(&self, key: &InstanceKey, instance: &Instance) -> NodeReports<'a> {
        let device = self.devices.get(key);
        let by_device = device.and_then(|device| self.by_device.get(device));
        let named = (key.clone(), instance.spec.configuration_name.clone());
        let by_instance = self.by_instance.get(&named).into_iter().flatten();
        // Of a device that one node has, another node has nothing to say.
        let by_instance =
            by_instance.filter(|(node, _)| instance.spec.shared || instance.is_known_to(node));
        let all = by_instance.chain(by_device.into_iter().flatten());
        all.map(|(node, device)| (*node, *device)).collect_map()
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

/// Returns the names that the Instance of a device may have.
pub(crate) fn names_of(identity: &Identity) -> [InstanceName; 2] {
    let of = &identity.configuration.name;
    let id = DeviceId::new(&identity.device);
    match &identity.node {
        None => InstanceName::candidates(of, &id, Scope::Shared, &NodeName::default()),
        Some(node) => InstanceName::candidates(of, &id, Scope::Node, node),
    }
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
