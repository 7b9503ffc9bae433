//! Describes each device of a cluster: where it is, who uses it, and how it is. Pure.
use super::{
    claims::gives_out,
    pods::{is_ready, label, phase},
    slots::{Holders, UsedSlot},
    snapshot::Snapshot,
    words::listed,
};
use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
use petiole_model::{
    api::{
        condition::ConditionType,
        instance::{Instance, InstanceStatus, is_seen},
        names::INSTANCE_LABEL,
    },
    model::{address::address, instance_name::InstanceKey, limits::cut},
};
use serde::Serialize;
use std::{collections::BTreeMap, time::Duration};

/// Properties that name a device. The handlers of this repository set them.
const NAMES: &[&str] = &[
    "AKRI_ZEROCONF_DEVICE_NAME",
    "UDEV_DEVNODE",
    "DEVICE_PATH",
    "DEBUG_ECHO_DESCRIPTION",
    "ONVIF_DEVICE_NAME",
    "ONVIF_DEVICE_MODEL",
    "OPCUA_APPLICATION_NAME",
    "MQTT_NAME",
    "PROBE_HOST",
];
/// The most bytes of a message. Its condition has all of it.
const MESSAGE_MAX: usize = 500;

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
    /// The further path of its device node in containers, or its folder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container_path: Option<String>,
    pub configuration: String,
    pub resource: String,
    /// The nodes that offer it, and whether each of them sees it.
    pub nodes: Vec<DeviceOnNode>,
    pub health: String,
    pub capacity: i32,
    pub used: Vec<UsedSlot>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub brokers: Option<Brokers>,
    /// Why somebody should look at it: its health, or else the problem of its brokers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// The problem in a sentence, as its condition has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The time of the last change of that condition.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    #[serde(skip)]
    pub age: Option<Duration>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DeviceOnNode {
    pub name: String,
    pub healthy: bool,
}

/// The broker Pods of a device, without those that have done their work.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Brokers {
    pub ready: usize,
    pub all: usize,
}

/// Returns all devices of the snapshot by namespace and name.
pub fn devices(snapshot: &Snapshot, now: Timestamp) -> Vec<Device> {
    let mut brokers = brokers(snapshot);
    let holders = Holders::new(snapshot);
    let instances = snapshot.instances.iter();
    let devices = instances.map(|(key, instance)| {
        let counted = brokers.remove(&(key.namespace.as_str(), key.name.as_str()));
        device(&holders, key, instance, counted, now)
    });
    devices.collect()
}

/// Counts the broker Pods of each Instance, by namespace and name.
fn brokers(snapshot: &Snapshot) -> BTreeMap<(&str, &str), Brokers> {
    let mut counted: BTreeMap<(&str, &str), Brokers> = BTreeMap::new();
    for (key, pod) in &snapshot.pods {
        let instance = label(pod, INSTANCE_LABEL).filter(|_| phase(pod) != "Succeeded");
        if let Some(instance) = instance {
            let brokers = counted.entry((&key.namespace, instance)).or_default();
            brokers.all += 1;
            brokers.ready += usize::from(is_ready(pod));
        }
    }
    counted
}

fn device(
    holders: &Holders<'_>,
    key: &InstanceKey,
    instance: &Instance,
    brokers: Option<Brokers>,
    now: Timestamp,
) -> Device {
    let snapshot = holders.snapshot;
    let created = instance.metadata.creation_timestamp.as_ref();
    let age = created.map(|Time(at)| now.duration_since(*at));
    let health = health(instance);
    let cause = if health == Device::HEALTHY {
        let ready = instance.condition(ConditionType::BrokersReady);
        ready.filter(|condition| !condition.is_true())
    } else {
        instance.trouble()
    };
    let problem = if health == Device::HEALTHY {
        cause.map(|condition| condition.reason.clone())
    } else {
        Some(health.clone())
    };
    let configuration = snapshot.configuration_of(key, instance);
    let given_out = configuration.as_ref().filter(|(_, its)| gives_out(its));
    let resource = match given_out {
        Some((of, its)) => snapshot.configuration_resource(of, its),
        None => snapshot.instance_resource(key),
    };
    let wish = configuration.and_then(|(_, its)| its.spec.container_devices.as_ref());
    let message = cause.map(|condition| cut(condition.message.clone(), MESSAGE_MAX));
    Device {
        namespace: key.namespace.clone(),
        instance: key.name.clone().into(),
        device: device_name(instance),
        address: address(&instance.spec.broker_properties),
        container_path: wish.and_then(|wish| wish.path.clone()),
        configuration: instance.spec.configuration_name.clone().into(),
        resource: resource.into(),
        nodes: nodes(instance),
        health,
        capacity: instance.spec.capacity,
        used: holders.used(key, instance),
        brokers,
        problem,
        message: message.filter(|message| !message.is_empty()),
        since: cause.and_then(|condition| condition.last_transition_time.parse().ok()),
        age: age.map(|age| Duration::try_from(age).unwrap_or_default()),
    }
}

/// Returns a name for people: what the device calls itself, or its id.
pub fn device_name(instance: &Instance) -> String {
    let properties = &instance.spec.broker_properties;
    let mut named = NAMES.iter().filter_map(|name| properties.get(*name));
    let own = || instance.metadata.name.clone().unwrap_or_default();
    named
        .next()
        .or_else(|| instance.device_id())
        .cloned()
        .unwrap_or_else(own)
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
    if let Some(trouble) = instance.trouble() {
        return if trouble.is_true() {
            trouble.type_.clone()
        } else {
            trouble.reason.clone()
        };
    }
    let nodes = nodes(instance);
    let unseen = nodes.iter().filter(|node| !node.healthy);
    let unseen: Vec<_> = unseen.map(|node| node.name.as_str()).collect();
    match unseen.as_slice() {
        [] => Device::HEALTHY.to_owned(),
        some => format!("Unhealthy on {}", listed(some)),
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
    pub const WIDE_COLUMNS: [&str; 5] = ["SLOTS", "ADDRESS", "PATH", "RESOURCE", "AGE"];

    /// Returns what is shown of a device whose Instance was deleted since `cells` were shown.
    pub fn deleted(namespace: &str, instance: &str, cells: &[String]) -> Self {
        Self {
            namespace: namespace.to_owned(),
            instance: instance.to_owned(),
            device: cells[1].clone(),
            address: None,
            container_path: None,
            configuration: cells[5].clone(),
            resource: String::new(),
            nodes: vec![],
            health: "Deleted".to_owned(),
            capacity: 0,
            used: vec![],
            brokers: None,
            problem: Some("Deleted".to_owned()),
            message: None,
            since: None,
            age: None,
        }
    }

    pub fn cells(&self) -> [String; 6] {
        let nodes: Vec<&str> = self.nodes.iter().map(|node| node.name.as_str()).collect();
        let mut used: BTreeMap<String, usize> = BTreeMap::new();
        for slot in &self.used {
            *used.entry(slot.cell()).or_default() += 1;
        }
        let used = used.into_iter().map(|(holder, slots)| match slots {
            1 => holder,
            slots => format!("{holder} ({slots} slots)"),
        });
        [
            self.instance.clone(),
            self.device.clone(),
            or_none(listed(&nodes)),
            or_none(listed(&used.collect::<Vec<_>>())),
            self.health.clone(),
            self.configuration.clone(),
        ]
    }

    pub fn wide_cells(&self) -> [String; 5] {
        let age = self.age.map(petiole_model::model::age::short);
        [
            format!("{}/{}", self.used.len(), self.capacity),
            or_none(self.address.clone().unwrap_or_default()),
            or_none(self.container_path.clone().unwrap_or_default()),
            self.resource.clone(),
            age.unwrap_or_default(),
        ]
    }
}

/// Returns what kubectl prints for an empty cell.
fn or_none(text: String) -> String {
    if text.is_empty() {
        "<none>".to_owned()
    } else {
        text
    }
}
