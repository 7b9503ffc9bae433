//! Defines discovered devices, and complete sets of them.
//!
//! A device knows nothing of Kubernetes: names, slots and Instances are made from it elsewhere.
use super::{names::digest_32, pin::Pin};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

const PROBLEMS_SHOWN: usize = 5;

/// A handler's own name for a device. Equal ids are one device; ids survive restarts of the agent.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceId(Arc<str>);

impl DeviceId {
    pub fn new(id: impl AsRef<str>) -> Self {
        Self(Arc::from(id.as_ref()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A thing that discovery found, and what a container needs to use it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    pub id: DeviceId,
    /// Become the environment of a container that is given the device.
    pub properties: BTreeMap<String, String>,
    /// The names of those properties that say how to reach the device, such as its address and port.
    /// A running container cannot outlive a change of them; all others may change at any time.
    pub connection: BTreeSet<String>,
    pub mounts: Vec<Mount>,
    pub device_nodes: Vec<DeviceNode>,
    /// Fully qualified CDI names, `vendor/class=name`.
    pub cdi_devices: Vec<String>,
    /// The identity that is remembered when the device is found first, and compared from then on.
    pub pin: Option<Pin>,
}

impl Device {
    /// A device with an id and nothing else.
    pub fn new(id: impl AsRef<str>) -> Self {
        Self {
            id: DeviceId::new(id),
            properties: BTreeMap::new(),
            connection: BTreeSet::new(),
            mounts: Vec::new(),
            device_nodes: Vec::new(),
            cdi_devices: Vec::new(),
            pin: None,
        }
    }

    /// A digest of all that a container was told about reaching the device. While it stays the same, a container
    /// that was given the device can be started again with what it was given.
    pub fn connection_digest(&self) -> String {
        let properties = (self.properties.iter())
            .filter(|(key, _)| self.connection.contains(*key))
            .map(|(key, value)| format!("property {key:?} {value:?}\n"));
        let mounts = self.mounts.iter().map(|m| {
            format!(
                "mount {:?} {:?} {}\n",
                m.container_path, m.host_path, m.read_only
            )
        });
        let nodes = self.device_nodes.iter().map(|n| {
            format!(
                "node {:?} {:?} {}\n",
                n.container_path, n.host_path, n.permissions
            )
        });
        let cdi = self.cdi_devices.iter().map(|name| format!("cdi {name}\n"));
        digest_32(
            &properties
                .chain(mounts)
                .chain(nodes)
                .chain(cdi)
                .collect::<String>(),
        )
    }
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mount {
    pub container_path: String,
    pub host_path: String,
    pub read_only: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeviceNode {
    pub container_path: String,
    pub host_path: String,
    /// Any of `r`, `w` and `m` (mknod).
    pub permissions: String,
}

/// Who sees the device: that decides what its identity is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Every node that can reach it finds the same device: one Instance for all of them.
    Shared,
    /// Each node finds a device of its own, whatever its id: one Instance a node.
    Node,
}

/// All that a running discovery sees now.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeviceSet {
    pub devices: BTreeMap<DeviceId, Arc<Device>>,
    /// Whether the handler has looked everywhere once. Until then a missing device may only be late.
    pub complete: bool,
    /// Whether devices are there and left out: a missing one may be among them.
    pub left_out: bool,
    /// What could not be used, each with its place and the reason: the devices above are all the others.
    pub problems: Vec<String>,
    /// What is wrong with the handler, where it is another process.
    pub troubles: Vec<HandlerTrouble>,
}

/// Why a handler in another process says nothing of its devices just now.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum HandlerTrouble {
    /// It says that the details are wrong. They must change before it is asked again.
    RefusedDetails(String),
    /// It cannot be reached, or has ended. It is tried again.
    Failed(String),
}

impl HandlerTrouble {
    pub fn message(&self) -> &str {
        let (Self::RefusedDetails(message) | Self::Failed(message)) = self;
        message
    }
}

impl DeviceSet {
    /// The set of a handler that has looked everywhere.
    pub fn complete(devices: impl IntoIterator<Item = Device>) -> Self {
        Self {
            devices: (devices.into_iter())
                .map(|d| (d.id.clone(), Arc::new(d)))
                .collect(),
            complete: true,
            left_out: false,
            problems: Vec::new(),
            troubles: Vec::new(),
        }
    }

    /// Whether a device that is not in it is not there.
    pub fn is_whole(&self) -> bool {
        self.complete && !self.left_out
    }

    /// The first problems, for a condition, which has room for some kilobytes; `None` where there are none.
    pub fn problems_in_short(&self) -> Option<String> {
        let (shown, rest) = self
            .problems
            .split_at(self.problems.len().min(PROBLEMS_SHOWN));
        let more = (!rest.is_empty()).then(|| format!("; and {} more", rest.len()));
        (!shown.is_empty()).then(|| shown.join("; ") + &more.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_problems_a_few_are_shown_and_the_rest_is_counted() {
        let set = |n: usize| DeviceSet {
            problems: (0..n).map(|n| n.to_string()).collect(),
            ..DeviceSet::default()
        };
        assert_eq!(set(0).problems_in_short(), None);
        assert_eq!(set(2).problems_in_short().unwrap(), "0; 1");
        assert_eq!(
            set(7).problems_in_short().unwrap(),
            "0; 1; 2; 3; 4; and 2 more"
        );
    }

    #[test]
    fn the_connection_digest_follows_the_address_and_the_mounts_and_nothing_else() {
        let mut device = Device::new("printer");
        device
            .properties
            .insert("ADDR".to_owned(), "10.0.0.1".to_owned());
        device
            .properties
            .insert("PAGES".to_owned(), "17".to_owned());
        device.connection.insert("ADDR".to_owned());
        let told = device.connection_digest();

        device
            .properties
            .insert("PAGES".to_owned(), "18".to_owned());
        assert_eq!(device.connection_digest(), told);

        let mut moved = device.clone();
        moved
            .properties
            .insert("ADDR".to_owned(), "10.0.0.2".to_owned());
        assert_ne!(moved.connection_digest(), told);

        let mut mounted = device.clone();
        mounted.mounts.push(Mount {
            container_path: "/a".to_owned(),
            host_path: "/b".to_owned(),
            read_only: false,
        });
        assert_ne!(mounted.connection_digest(), told);
    }
}
