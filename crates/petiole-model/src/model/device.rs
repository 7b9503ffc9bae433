//! Defines discovered devices, and complete sets of them.
//!
//! A device does not depend on Kubernetes: names, slots and Instances are derived from it elsewhere.
use super::{names::digest_32, pin::Pin};
use petiole_base::collect::CollectMap as _;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::IpAddr,
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

/// A device that discovery found, and the values that a container needs to use it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    pub id: DeviceId,
    /// The variables in the environment of a container that gets the device.
    pub properties: BTreeMap<String, String>,
    /// The names of the properties that are needed to reach the device, such as its address and port. If one of them
    /// changes, running containers must be replaced. All other properties may change at any time.
    pub connection: BTreeSet<String>,
    pub mounts: Vec<Mount>,
    pub device_nodes: Vec<DeviceNode>,
    /// The fully qualified CDI names, `vendor/class=name`.
    pub cdi_devices: Vec<String>,
    /// The identity that is recorded when the device is first found, and compared from then on.
    pub pin: Option<Pin>,
    /// The host of the LAN that announces the device. Anyone there can announce devices, and each host has a part of the
    /// Instances.
    pub announcer: Option<IpAddr>,
}

impl Device {
    /// Creates a device that has only an id.
    pub fn new(id: impl AsRef<str>) -> Self {
        Self {
            id: DeviceId::new(id),
            properties: BTreeMap::new(),
            connection: BTreeSet::new(),
            mounts: Vec::new(),
            device_nodes: Vec::new(),
            cdi_devices: Vec::new(),
            pin: None,
            announcer: None,
        }
    }

    #[must_use]
    pub fn announced_by(self, host: IpAddr) -> Self {
        let announcer = Some(host);
        Self { announcer, ..self }
    }

    /// Returns a digest of all values that a container got for reaching the device. While the digest stays the same,
    /// the container can be started again with the same values.
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
    /// Any combination of `r`, `w` and `m` (mknod).
    pub permissions: String,
    /// The links that udev made for it, which are further paths of it in a container if its Configuration wishes so. They are no
    /// part of [`Device::connection_digest`].
    pub links: Vec<String>,
}

/// The nodes that see one device. The scope determines how its identity is formed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Every node that can reach the device sees the same one: one Instance for all nodes.
    Shared,
    /// Each node sees its own device, also if the ids are equal: one Instance for each node.
    Node,
}

/// All devices that a running discovery sees now.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeviceSet {
    pub devices: BTreeMap<DeviceId, Arc<Device>>,
    /// True if the handler has completed its first look. Until then a missing device may only be late.
    pub complete: bool,
    /// True if devices may be present that are not in `devices`, as when a file could not be read or a bound was reached. What the
    /// handler refuses for good is not one of them.
    pub left_out: bool,
    /// The devices and files that could not be used, each with its place and the reason. They are not in `devices`.
    pub problems: Vec<String>,
    /// The troubles of the handler, if it is another process.
    pub troubles: Vec<HandlerTrouble>,
}

/// The reason why a handler in another process does not report its devices now.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum HandlerTrouble {
    /// The handler reports that the details are wrong. They must change before the handler is asked again.
    RefusedDetails(String),
    /// The handler is unreachable, or has ended. The call is repeated.
    Failed(String),
}

impl HandlerTrouble {
    pub fn message(&self) -> &str {
        let (Self::RefusedDetails(message) | Self::Failed(message)) = self;
        message
    }
}

impl DeviceSet {
    /// Creates the set of a handler that has completed its first look.
    pub fn complete(devices: impl IntoIterator<Item = Device>) -> Self {
        Self {
            devices: (devices.into_iter())
                .map(|d| (d.id.clone(), Arc::new(d)))
                .collect_map(),
            complete: true,
            left_out: false,
            problems: Vec::new(),
            troubles: Vec::new(),
        }
    }

    /// Returns whether a device that is not in the set is certainly absent.
    pub fn is_whole(&self) -> bool {
        self.complete && !self.left_out
    }

    /// Returns the first problems, for a condition of some kilobytes; `None` if there are no problems.
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
        let digest = device.connection_digest();

        device
            .properties
            .insert("PAGES".to_owned(), "18".to_owned());
        assert_eq!(device.connection_digest(), digest);

        let mut moved = device.clone();
        moved
            .properties
            .insert("ADDR".to_owned(), "10.0.0.2".to_owned());
        assert_ne!(moved.connection_digest(), digest);

        let mut mounted = device.clone();
        mounted.mounts.push(Mount {
            container_path: "/a".to_owned(),
            host_path: "/b".to_owned(),
            read_only: false,
        });
        assert_ne!(mounted.connection_digest(), digest);
    }
}
