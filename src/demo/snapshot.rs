//! Holds the values that the demo shows. Those of the node come from the kubelet's sockets, and Instances come from the
//! agent's state folder.
use crate::model::typed_names::NodeName;
use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime},
};

/// Why a Configuration's resource offers nothing while its devices are there.
pub(super) const HELD: &str = "brokers hold them";

/// The node and its devices at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Snapshot {
    /// The kubelet answers.
    pub(super) is_kubelet_up: bool,
    /// The time at which the kubelet created its registration socket. It differs for each kubelet.
    pub(super) kubelet_since: Option<SystemTime>,
    pub(super) instances: BTreeMap<String, Instance>,
    /// The file names of the plugins' sockets in the kubelet's folder, each with the time of its creation.
    pub(super) sockets: BTreeMap<String, SystemTime>,
    /// The node's resources by name.
    pub(super) resources: BTreeMap<String, Resource>,
    /// The brokers by the name of their Pod.
    pub(super) brokers: BTreeMap<String, Broker>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Instance {
    pub(super) configuration: String,
    pub(super) device: String,
    pub(super) is_shared: bool,
    pub(super) nodes: Vec<NodeName>,
    pub(super) age: Duration,
    /// The time at which its file was written.
    pub(super) written: SystemTime,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Resource {
    pub(super) capacity: u64,
    pub(super) allocatable: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Broker {
    pub(super) instance: String,
    pub(super) phase: String,
    pub(super) restarts: i32,
    /// The reason that the broker does not run; empty if it runs.
    pub(super) reason: String,
    /// The `AKRI_ZEROCONF_*` variables that the broker printed.
    pub(super) printed: BTreeMap<String, String>,
}

impl Snapshot {
    /// Returns the resource of an Instance.
    pub(super) fn resource_of(&self, instance: &str) -> Option<Resource> {
        self.resources.get(&format!("akri.sh/{instance}")).copied()
    }

    pub(super) fn broker_of(&self, instance: &str) -> Option<&Broker> {
        self.brokers
            .values()
            .find(|broker| broker.instance == instance)
    }

    /// Returns whether a Configuration's resource has nothing left to offer because each of its devices has a broker.
    pub(super) fn is_held_by_brokers(&self, resource: &str) -> bool {
        let instances = self.instances.iter();
        let mut its = instances.filter(|(_, instance)| {
            resource.strip_prefix("akri.sh/") == Some(&instance.configuration)
        });
        let is_empty = self
            .resources
            .get(resource)
            .is_some_and(|its| its.allocatable == 0);
        let has_devices = its.clone().next().is_some();
        is_empty && has_devices && its.all(|(name, _)| self.broker_of(name).is_some())
    }

    /// Returns the socket of a resource. `resource` is the name without the prefix.
    pub(super) fn socket_of(&self, resource: &str) -> Option<&str> {
        let is_its = |socket: &&String| {
            (socket
                .strip_prefix(resource)
                .and_then(|rest| rest.strip_prefix('-')))
            .is_some_and(|rest| {
                rest.trim_end_matches(".sock")
                    .bytes()
                    .all(|b| b.is_ascii_digit())
            })
        };
        self.sockets.keys().find(is_its).map(String::as_str)
    }
}
