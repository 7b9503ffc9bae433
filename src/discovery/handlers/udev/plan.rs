//! Decides which devices to offer, and the environment and nodes that their containers get. Pure.
use super::{
    details::{Details, Identity},
    identity,
    record::{Chain, is_at_or_below, parents},
    subsystems::Subsystems,
};
use crate::model::{
    container_devices::is_below_dev,
    device::{Device, DeviceNode, DeviceSet},
    limits,
};
use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet},
};
use tokio::time::Instant;

/// The most devices of a Configuration of `udev`. An agent takes 1,000 Instances by default. Beyond it: devices are
/// left out (`DiscoveryIncomplete`).
pub(super) const DEVICES_MAX: usize = 4096;
/// The most device nodes of a group. Each needs one or two properties, and an Instance has at most 256. Beyond it:
/// containers get the first ones, and the node reports it.
pub(super) const NODES_MAX: usize = 64;
/// The longest value from udev's database that a container gets, in bytes. Beyond it: the container does not get it.
const VALUE_MAX: usize = 1024;
const DEVNODE: &str = "UDEV_DEVNODE";
const DEVLINK: &str = "UDEV_DEVLINK";
const DEVPATH: &str = "UDEV_DEVPATH";

/// Properties of udev's database, and the variables that give them to a container.
const DATABASE_PROPERTIES: [(&str, &str); 5] = [
    ("ID_PATH_TAG", "UDEV_ID_PATH_TAG"),
    ("ID_SERIAL", "UDEV_ID_SERIAL"),
    ("ID_SERIAL_SHORT", "UDEV_ID_SERIAL_SHORT"),
    ("ID_VENDOR_ID", "UDEV_ID_VENDOR_ID"),
    ("ID_MODEL_ID", "UDEV_ID_MODEL_ID"),
];

/// The devices that rules select, by their paths in sysfs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Tree {
    pub(super) taken: BTreeMap<String, Chain>,
    /// The devices of subsystems that are not allowed, by their paths, with the subsystem.
    pub(super) refused: BTreeMap<String, String>,
    /// The devices that udev has not processed, and until when it has the time for it: so long rules are not applied to them.
    /// A device whose time is over is read without udev's entry, and does not wait again while it is there.
    pub(super) unprocessed: BTreeMap<String, Option<Instant>>,
    /// The errors of devices that could not be read.
    pub(super) problems: Vec<String>,
}

impl Tree {
    /// Removes a device and all devices below it.
    pub(super) fn forget(&mut self, top: &str) {
        self.taken.retain(|path, _| !is_at_or_below(path, top));
        self.refused.retain(|path, _| !is_at_or_below(path, top));
        self.end_time_of(top);
    }

    /// Forgets whether udev had its time for a device, or for one below it.
    pub(super) fn end_time_of(&mut self, top: &str) {
        self.unprocessed
            .retain(|path, _| !is_at_or_below(path, top));
    }

    pub(super) fn has_at_or_below(&self, top: &str) -> bool {
        let taken = self.taken.keys().chain(self.refused.keys());
        let mut all = taken.chain(self.unprocessed.keys());
        all.any(|path| is_at_or_below(path, top))
    }

    /// Returns when the time of the next device is over.
    pub(super) fn waits_until(&self) -> Option<Instant> {
        self.unprocessed.values().flatten().min().copied()
    }

    /// Returns the devices whose time is over now.
    pub(super) fn end_waits(&mut self, now: Instant) -> BTreeSet<String> {
        let due = self.unprocessed.iter_mut().filter_map(|(path, until)| {
            let due = until.take_if(|until| *until <= now);
            due.map(|_| path.clone())
        });
        due.collect()
    }
}

/// Returns the devices to offer.
pub(super) fn devices(tree: &Tree, details: &Details, allowed: &Subsystems) -> DeviceSet {
    let taken: Vec<&Chain> = tree.taken.values().collect();
    let mut problems = tree.problems.clone();
    problems.extend(not_allowed(tree, allowed));
    let groups = groups(&taken, details);
    let left_out = groups.len() > DEVICES_MAX;
    if left_out {
        problems.push(format!(
            "the rules take {} devices; {DEVICES_MAX} are the most, and the others are left out: narrow the rules",
            groups.len()
        ));
    }
    let kept = || groups.iter().take(DEVICES_MAX);
    let ids = match details.identity {
        Identity::Path => kept().map(|group| group[0].devpath().to_owned()).collect(),
        Identity::Serial => {
            let tops: Vec<&Chain> = kept().map(|group| group[0]).collect();
            identity::by_serial(&tops, &mut problems)
        }
    };
    let offered = kept().zip(ids).map(|(group, id)| {
        let nodes = nodes(group, allowed);
        if nodes.len() > NODES_MAX {
            problems.push(format!(
                "{}: the group has {} device nodes; containers get the first {NODES_MAX}: narrow the rules",
                group[0].devpath(),
                nodes.len()
            ));
        }
        device(id, group, &nodes[..nodes.len().min(NODES_MAX)], details)
    });
    let mut set = DeviceSet::complete(offered.collect::<Vec<_>>());
    set.left_out = left_out || !tree.problems.is_empty();
    set.problems = problems;
    set
}

fn not_allowed(tree: &Tree, allowed: &Subsystems) -> Option<String> {
    let count = tree.refused.len();
    let names: BTreeSet<&str> = tree.refused.values().map(String::as_str).collect();
    let names: Vec<&str> = names.into_iter().take(10).collect();
    (count > 0).then(|| {
        format!(
            "the rules take {count} devices of subsystems that are not allowed on this node: {}. {}",
            names.join(", "),
            allowed.remedy()
        )
    })
}

/// Returns the groups of devices that are offered as one. With `groupRecursive` each selected device, which comes first,
/// has all selected devices below it in its group.
fn groups<'a>(taken: &[&'a Chain], details: &Details) -> Vec<Vec<&'a Chain>> {
    let paths: BTreeSet<&str> = taken.iter().map(|chain| chain.devpath()).collect();
    let mut groups: BTreeMap<&str, Vec<&Chain>> = BTreeMap::new();
    for chain in taken {
        let highest = || {
            parents(chain.devpath())
                .filter(|path| paths.contains(path))
                .last()
        };
        let top = details.group_recursive.then(highest).flatten();
        groups
            .entry(top.unwrap_or(chain.devpath()))
            .or_default()
            .push(chain);
    }
    let mut groups: Vec<Vec<&Chain>> = groups.into_values().collect();
    for group in &mut groups {
        group.sort_by(|a, b| in_numeric_order(a.devpath(), b.devpath()));
    }
    // The kernel counts on, so equal parts of a device keep their order when it has other numbers.
    groups.sort_by(|a, b| in_numeric_order(a[0].devpath(), b[0].devpath()));
    groups
}

/// Compares paths so that `video2` comes before `video10`, and a device before those below it.
pub(super) fn in_numeric_order(a: &str, b: &str) -> Ordering {
    fn chunks(text: &str) -> Vec<(u128, &str)> {
        let mut chunks = vec![];
        let mut rest = text;
        while !rest.is_empty() {
            let digits = rest
                .find(|c: char| !c.is_ascii_digit())
                .unwrap_or(rest.len());
            let end = match digits {
                0 => rest
                    .find(|c: char| c.is_ascii_digit())
                    .unwrap_or(rest.len()),
                some => some,
            };
            let (chunk, after) = rest.split_at(end);
            chunks.push((chunk.parse().unwrap_or(0), chunk));
            rest = after;
        }
        chunks
    }
    chunks(a).cmp(&chunks(b)).then_with(|| a.cmp(b))
}

/// A device node, and the device that owns it.
struct Node<'a> {
    path: String,
    chain: &'a Chain,
}

/// Returns the device nodes of a group, each once. A device without a node has that of its nearest ancestor.
fn nodes<'a>(group: &[&'a Chain], allowed: &Subsystems) -> Vec<Node<'a>> {
    let mut seen = BTreeSet::new();
    let of_chain = |chain: &'a Chain| {
        let (record, path) =
            (chain.links()).find_map(|(_, record)| Some((record, record.devnode()?)))?;
        let subsystem = record.subsystem.as_deref().unwrap_or_default();
        (allowed.allow(subsystem) && seen.insert(path.clone())).then_some(Node { path, chain })
    };
    group.iter().copied().filter_map(of_chain).collect()
}

fn device(id: String, group: &[&Chain], nodes: &[Node<'_>], details: &Details) -> Device {
    let mut device = Device::new(id);
    let top = group[0].devpath();
    let mut connection = vec![(DEVPATH.to_owned(), top.to_owned())];
    for (n, node) in nodes.iter().enumerate() {
        let suffix = if details.group_recursive {
            format!("_{n}")
        } else {
            String::new()
        };
        connection.push((format!("{DEVNODE}{suffix}"), node.path.clone()));
        if let (Some(resource), Some(address)) = (&details.resource, usb_address(&node.path)) {
            connection.push((format!("USB_RESOURCE_{resource}{suffix}"), address));
        }
        let links = &node.chain.own().links;
        let is_name = |link: &&String| link.contains("by-id/") && link.len() <= VALUE_MAX;
        if let Some(link) = links.iter().find(is_name) {
            (device.properties).insert(format!("{DEVLINK}{suffix}"), format!("/dev/{link}"));
        }
        let links = links.iter().map(|link| format!("/dev/{link}"));
        let links = links.filter(|link| is_below_dev(link) && *link != node.path);
        device.device_nodes.push(DeviceNode {
            links: links.take(limits::NODE_LINKS_MAX).collect(),
            ..node_of(&node.path, details.permissions)
        });
    }
    let pci = pci_address(top);
    if let (Some(resource), Some(address)) = (&details.resource, pci) {
        connection.push((format!("PCI_RESOURCE_{resource}"), address.to_owned()));
    }
    if let Some(group) = (group[0].own().iommu_group.as_ref()).filter(|_| details.has_vfio) {
        for path in [format!("/dev/vfio/{group}"), "/dev/vfio/vfio".to_owned()] {
            device.device_nodes.push(node_of(&path, "rw"));
        }
    }
    for (name, variable) in DATABASE_PROPERTIES {
        let value = group.iter().find_map(|chain| chain.property(name));
        if let Some(value) = value.filter(|value| value.len() <= VALUE_MAX) {
            device
                .properties
                .insert(variable.to_owned(), value.into_owned());
        }
    }
    device
        .connection
        .extend(connection.iter().map(|(name, _)| name.clone()));
    device.properties.extend(connection);
    device
}

fn node_of(path: &str, permissions: &str) -> DeviceNode {
    DeviceNode {
        container_path: path.to_owned(),
        host_path: path.to_owned(),
        permissions: permissions.to_owned(),
        links: vec![],
    }
}

/// Returns `1:4` for `/dev/bus/usb/001/004`, the form that KubeVirt reads.
fn usb_address(devnode: &str) -> Option<String> {
    let (bus, number) = devnode.strip_prefix("/dev/bus/usb/")?.split_once('/')?;
    let (bus, number) = (bus.parse::<u32>().ok()?, number.parse::<u32>().ok()?);
    Some(format!("{bus}:{number}"))
}

/// Returns the PCI address of a device that is not a USB device: the last one in its path.
fn pci_address(devpath: &str) -> Option<&str> {
    let is_address = |part: &&str| {
        let numbers: Vec<&str> = part.split([':', '.']).collect();
        let is_hex = |n: &&str| !n.is_empty() && n.bytes().all(|b| b.is_ascii_hexdigit());
        numbers.len() == 4 && part.matches(':').count() == 2 && numbers.iter().all(is_hex)
    };
    let is_usb = devpath.split('/').any(|part| part.starts_with("usb"));
    devpath.split('/').rfind(is_address).filter(|_| !is_usb)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_those_of_kubevirt() {
        assert_eq!(usb_address("/dev/bus/usb/001/010").unwrap(), "1:10");
        assert_eq!(usb_address("/dev/bus/usb/abc/1"), None);
        assert_eq!(usb_address("/dev/video0"), None);
        let gpu = "/devices/pci0000:00/0000:00:01.0/0000:01:00.0";
        assert_eq!(pci_address(gpu), Some("0000:01:00.0"));
        assert_eq!(
            pci_address("/devices/pci0000:00/0000:00:14.0/usb1/1-1"),
            None
        );
        assert_eq!(pci_address("/devices/platform/x"), None);
    }

    #[test]
    fn paths_are_in_the_order_of_their_numbers() {
        let mut paths = ["/d/video10", "/d/video2", "/d/video2/x", "/d"];
        paths.sort_by(|a, b| in_numeric_order(a, b));
        assert_eq!(paths, ["/d", "/d/video2", "/d/video2/x", "/d/video10"]);
    }
}
