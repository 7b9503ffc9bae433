//! Describes each device of a cluster: where it is, who uses it, and how it is. Pure.
use super::{
    slots::{self, UsedSlot},
    snapshot::Snapshot,
};
use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
use petiole_model::{
    api::{
        condition::{Condition, ConditionType},
        instance::{Instance, InstanceStatus, is_seen},
        names,
    },
    model::instance_name::InstanceKey,
};
use serde::Serialize;
use std::time::Duration;

/// Properties that name a device, and those that say how to reach it. The handlers of this repository set them.
const NAMES: &[&str] = &[
    "AKRI_ZEROCONF_DEVICE_NAME",
    "UDEV_DEVNODE",
    "DEBUG_ECHO_DESCRIPTION",
];
const ADDRESS: &str = "AKRI_ZEROCONF_DEVICE_ADDR";
const PORT: &str = "AKRI_ZEROCONF_DEVICE_PORT";

/// A device, as `petiole devices -o json` prints it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Device {
    pub namespace: String,
    /// The name of its Instance.
    pub instance: String,
    /// A name for people.
    pub device: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    pub configuration: String,
    pub resource: String,
    /// The nodes that offer it, and whether each of them sees it.
    pub nodes: Vec<DeviceOnNode>,
    pub health: String,
    pub capacity: i32,
    pub used: Vec<UsedSlot>,
    #[serde(skip)]
    pub age: Option<Duration>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DeviceOnNode {
    pub name: String,
    pub healthy: bool,
}

/// Returns all devices of the snapshot by namespace and name.
pub fn devices(snapshot: &Snapshot, now: Timestamp) -> Vec<Device> {
    let instances = snapshot.instances.iter();
    let devices = instances.map(|(key, instance)| device(snapshot, key, instance, now));
    devices.collect()
}

fn device(snapshot: &Snapshot, key: &InstanceKey, instance: &Instance, now: Timestamp) -> Device {
    let created = instance.metadata.creation_timestamp.as_ref();
    let age = created.map(|Time(at)| now.duration_since(*at));
    Device {
        namespace: key.namespace.clone(),
        instance: key.name.clone().into(),
        device: device_name(instance),
        address: address(instance),
        configuration: instance.spec.configuration_name.clone().into(),
        resource: snapshot.instance_resource(key).into(),
        nodes: nodes(instance),
        health: health(instance),
        capacity: instance.spec.capacity,
        used: slots::used(snapshot, key, instance),
        age: age.map(|age| Duration::try_from(age).unwrap_or_default()),
    }
}

/// Returns a name for people: what the device calls itself, or its id.
pub fn device_name(instance: &Instance) -> String {
    let properties = &instance.spec.broker_properties;
    let mut named = NAMES.iter().filter_map(|name| properties.get(*name));
    let annotations = instance.metadata.annotations.as_ref();
    let id = || annotations.and_then(|annotations| annotations.get(names::DEVICE_ID));
    let own = || instance.metadata.name.clone().unwrap_or_default();
    named.next().or_else(id).cloned().unwrap_or_else(own)
}

fn address(instance: &Instance) -> Option<String> {
    let properties = &instance.spec.broker_properties;
    let address = properties.get(ADDRESS)?;
    let host = match address.contains(':') {
        true => format!("[{address}]"),
        false => address.clone(),
    };
    Some(match properties.get(PORT) {
        Some(port) => format!("{host}:{port}"),
        None => address.clone(),
    })
}

pub fn nodes(instance: &Instance) -> Vec<DeviceOnNode> {
    let none = InstanceStatus::default();
    let status = instance.status.as_ref().unwrap_or(&none);
    let mut nodes: Vec<_> = (instance.spec.nodes.iter())
        .map(|name| DeviceOnNode {
            name: name.to_string(),
            healthy: is_seen(status, name),
        })
        .collect();
    nodes.sort_by(|a, b| a.name.cmp(&b.name));
    nodes
}

/// Returns `Healthy`, or what is wrong: the reason of the condition, or the nodes that do not see the device.
fn health(instance: &Instance) -> String {
    let conditions = instance.status.as_ref().map(|s| s.conditions.as_slice());
    let conditions = conditions.unwrap_or_default();
    let of_type = |type_| Condition::of_type(conditions, type_);
    if let Some(condition) = of_type(ConditionType::Available).filter(|c| !c.is_true()) {
        return condition.reason.clone();
    }
    for trouble in [ConditionType::IdentityChanged, ConditionType::Flapping] {
        if of_type(trouble).is_some_and(Condition::is_true) {
            return trouble.as_str().to_owned();
        }
    }
    let nodes = nodes(instance);
    let unseen = nodes.iter().filter(|node| !node.healthy);
    let unseen: Vec<_> = unseen.map(|node| node.name.as_str()).collect();
    match unseen.as_slice() {
        [] => Device::HEALTHY.to_owned(),
        some => format!("Unhealthy on {}", some.join(",")),
    }
}

impl Device {
    /// The health of a device without a problem.
    pub const HEALTHY: &str = "Healthy";
    pub const COLUMNS: [&str; 6] = [
        "NAME",
        "DEVICE",
        "WHERE",
        "USED BY",
        "HEALTH",
        "CONFIGURATION",
    ];
    pub const WIDE_COLUMNS: [&str; 4] = ["SLOTS", "ADDRESS", "RESOURCE", "AGE"];

    /// Returns what is shown of a device whose Instance was deleted since `cells` were shown.
    pub fn deleted(namespace: &str, instance: &str, cells: &[String; 6]) -> Self {
        Self {
            namespace: namespace.to_owned(),
            instance: instance.to_owned(),
            device: cells[1].clone(),
            address: None,
            configuration: cells[5].clone(),
            resource: String::new(),
            nodes: vec![],
            health: "Deleted".to_owned(),
            capacity: 0,
            used: vec![],
            age: None,
        }
    }

    pub fn cells(&self) -> [String; 6] {
        let nodes = self.nodes.iter().map(|node| node.name.as_str());
        let used = self.used.iter().map(UsedSlot::cell);
        [
            self.instance.clone(),
            self.device.clone(),
            or_none(nodes.collect::<Vec<_>>().join(",")),
            or_none(used.collect::<Vec<_>>().join(", ")),
            self.health.clone(),
            self.configuration.clone(),
        ]
    }

    pub fn wide_cells(&self) -> [String; 4] {
        let age = self.age.map(petiole_model::model::age::short);
        [
            format!("{}/{}", self.used.len(), self.capacity),
            or_none(self.address.clone().unwrap_or_default()),
            self.resource.clone(),
            age.unwrap_or_default(),
        ]
    }
}

/// Returns what kubectl prints for an empty cell.
fn or_none(text: String) -> String {
    match text.is_empty() {
        true => "<none>".to_owned(),
        false => text,
    }
}
