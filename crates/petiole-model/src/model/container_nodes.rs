//! Decides at which paths, and with which rights, the device nodes of a container's devices appear in it. Pure.
//!
//! A mode and an owner can only be given by the Container Device Interface (CDI): the container gets the names of CDI devices
//! instead of device nodes, and a file on its node says what they are. There is one file for each Instance.
use super::{
    container_devices::ContainerDevices,
    device::{Device, DeviceNode},
    names::digest_32,
};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// The kind of the CDI devices that agents describe.
pub const CDI_KIND: &str = "akri.sh/petiole";
/// The first version with `hostPath`, and with names that begin with a digit.
pub const CDI_VERSION: &str = "0.5.0";

/// One device of a container. Its Instance has its name.
#[derive(Debug, Clone, Copy)]
pub struct NamedDevice<'a> {
    pub instance: &'a str,
    pub device: &'a Device,
}

/// What a container gets for its device nodes: one of both.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ContainerNodes {
    pub device_nodes: Vec<DeviceNode>,
    pub cdi_devices: Vec<String>,
}

/// The reason why a container cannot have its devices as its Configuration says.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NodesRefused {
    #[error(
        "the device of Instance {0} has no device node, which containerDevices of its Configuration needs: remove that field, or let the Configuration find devices with a node"
    )]
    NoNode(String),
    #[error(
        "the container would have two devices at {path}, {first} and {second}: {}",
        .cause.remedy()
    )]
    Clash {
        path: String,
        first: String,
        second: String,
        cause: Cause,
    },
    #[error(
        "the container would have {first} at {folder}, and {second} in it at {path}, but a device is no folder: {}",
        .cause.remedy()
    )]
    Inside {
        folder: String,
        first: String,
        path: String,
        second: String,
        cause: Cause,
    },
}

/// Why a device node is at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    OwnName,
    Path,
    /// The same, and another node of the same Instance is there.
    PathOfOneDevice,
    PathInFolder,
    Link,
}

impl Cause {
    fn remedy(self) -> &'static str {
        match self {
            Self::OwnName => {
                "that is their own name, so ask for one of them, or remove containerDevices of the Configuration"
            }
            Self::Path => {
                "ask for one device, or end containerDevices.path of the Configuration with a slash, so that it is a folder in which each has a name"
            }
            Self::PathOfOneDevice => {
                "end containerDevices.path of the Configuration with a slash, so that it is a folder in which each has a name"
            }
            Self::PathInFolder => "set another containerDevices.path in the Configuration",
            Self::Link => "set containerDevices.links of the Configuration to false",
        }
    }
}

/// What names the device nodes in a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Naming {
    /// The last part of the node's own path.
    Node,
    Instance,
}

impl Naming {
    /// Returns the name of an Instance's CDI device with these paths. No name of an Instance has an underscore.
    fn cdi_device(self, instance: &str) -> String {
        match self {
            Self::Node => instance.to_owned(),
            Self::Instance => format!("{instance}_named"),
        }
    }
}

/// Decides about all devices of a container. They are of one Configuration, which has these wishes.
pub fn container_nodes(
    devices: &[NamedDevice<'_>],
    wish: &ContainerDevices,
) -> Result<ContainerNodes, NodesRefused> {
    let (device_nodes, naming) = match placed(devices, wish, Naming::Node) {
        Err(NodesRefused::Clash {
            cause: Cause::PathInFolder,
            ..
        }) => (placed(devices, wish, Naming::Instance)?, Naming::Instance),
        nodes => (nodes?, Naming::Node),
    };
    if wish.rights().is_none() {
        return Ok(ContainerNodes {
            device_nodes,
            ..ContainerNodes::default()
        });
    }
    let instances: BTreeSet<&str> = devices.iter().map(|named| named.instance).collect();
    let cdi_device = |instance| format!("{CDI_KIND}={}", naming.cdi_device(instance));
    Ok(ContainerNodes {
        cdi_devices: instances.into_iter().map(cdi_device).collect(),
        ..ContainerNodes::default()
    })
}

/// Returns the text of the CDI file of one device; `None` if its nodes get no mode and no owner. It has an entry for each of
/// the names that [`container_nodes`] may give.
pub fn cdi_file(named: NamedDevice<'_>, wish: &ContainerDevices) -> Option<String> {
    let rights = wish.rights()?;
    let node = |node: &DeviceNode| {
        let mut entry = json!({
            "path": node.container_path,
            "hostPath": node.host_path,
            "permissions": node.permissions,
            "fileMode": rights.mode,
        });
        for (field, id) in [("uid", rights.uid), ("gid", rights.gid)] {
            if let Some(id) = id {
                entry[field] = id.into();
            }
        }
        entry
    };
    let namings = match wish.folder() {
        Some(_) => &[Naming::Node, Naming::Instance][..],
        None => &[Naming::Node],
    };
    let entries = namings.iter().filter_map(|naming| {
        let nodes = placed(&[named], wish, *naming).ok()?;
        Some(json!({
            "name": naming.cdi_device(named.instance),
            "containerEdits": {"deviceNodes": nodes.iter().map(node).collect::<Vec<Value>>()},
        }))
    });
    let entries: Vec<Value> = entries.collect();
    let file = json!({"cdiVersion": CDI_VERSION, "kind": CDI_KIND, "devices": entries});
    (!entries.is_empty()).then(|| file.to_string())
}

/// Returns whether a text is a CDI file that agents write.
pub fn is_own_cdi_file(text: &str) -> bool {
    let file: Option<Value> = serde_json::from_str(text).ok();
    file.is_some_and(|file| file["kind"] == CDI_KIND)
}

/// Returns a digest of all values that a container got for reaching the device, as [`Device::connection_digest`] does. With
/// wishes it depends on them too, and on the links if they are wished.
pub fn connection_digest(device: &Device, wish: Option<&ContainerDevices>) -> String {
    let digest = device.connection_digest();
    let Some(wish) = wish else { return digest };
    let nodes = (device.device_nodes.iter()).filter(|_| wish.links);
    let links = nodes.map(|node| format!("links {:?} {:?}\n", node.container_path, node.links));
    let rights = (wish.rights()).map(|rights| (rights.mode, rights.uid, rights.gid));
    let wishes = format!("{digest}\npath {:?}\nrights {rights:?}\n", wish.path);
    digest_32(&(wishes + &links.collect::<String>()))
}

/// A device node of a container, at one of its paths.
struct Place<'a> {
    cause: Cause,
    path: String,
    node: &'a DeviceNode,
    instance: &'a str,
}

/// Returns every node of these devices at each of its paths: at its own, at that of the Configuration, and at its links.
fn placed(
    devices: &[NamedDevice<'_>],
    wish: &ContainerDevices,
    naming: Naming,
) -> Result<Vec<DeviceNode>, NodesRefused> {
    let mut places = vec![];
    for named in devices {
        if named.device.device_nodes.is_empty() {
            return Err(NodesRefused::NoNode(named.instance.to_owned()));
        }
        let of_node = |node| places_of(node, *named, wish, naming);
        places.extend(named.device.device_nodes.iter().flat_map(of_node));
    }
    // Own names come first: none is given to another device.
    places.sort_by_key(|place| place.cause);
    let mut taken: BTreeMap<&str, &Place<'_>> = BTreeMap::new();
    let mut nodes = vec![];
    for place in &places {
        match taken.insert(&place.path, place) {
            None => nodes.push(DeviceNode {
                container_path: place.path.clone(),
                host_path: place.node.host_path.clone(),
                permissions: place.node.permissions.clone(),
                links: vec![],
            }),
            Some(first) if first.node.host_path == place.node.host_path => {}
            Some(first) => return Err(clash(first, place)),
        }
    }
    match taken.values().find_map(|place| inside(&taken, place)) {
        Some(refused) => Err(refused),
        None => Ok(nodes),
    }
}

/// Returns why a path cannot be: one of its folders is a device of the container, too.
fn inside(taken: &BTreeMap<&str, &Place<'_>>, place: &Place<'_>) -> Option<NodesRefused> {
    let mut folders = place.path.match_indices('/').map(|(n, _)| &place.path[..n]);
    let first = folders.find_map(|folder| taken.get(folder))?;
    let is_wished = |cause| matches!(cause, Cause::Path | Cause::PathInFolder);
    let cause = if is_wished(first.cause) || is_wished(place.cause) {
        Cause::PathInFolder
    } else {
        first.cause.max(place.cause)
    };
    Some(NodesRefused::Inside {
        folder: first.path.clone(),
        first: shown(first),
        path: place.path.clone(),
        second: shown(place),
        cause,
    })
}

fn places_of<'a>(
    node: &'a DeviceNode,
    named: NamedDevice<'a>,
    wish: &ContainerDevices,
    naming: Naming,
) -> Vec<Place<'a>> {
    let NamedDevice { instance, device } = named;
    let own = &node.container_path;
    let own_last = own.rsplit('/').next().unwrap_or_default();
    let mut paths = vec![(Cause::OwnName, own.clone())];
    match (wish.folder(), &wish.path) {
        (Some(folder), _) => {
            let name = match naming {
                Naming::Node => own_last.to_owned(),
                Naming::Instance if device.device_nodes.len() == 1 => instance.to_owned(),
                Naming::Instance => format!("{instance}-{own_last}"),
            };
            paths.push((Cause::PathInFolder, format!("{folder}{name}")));
        }
        (None, Some(path)) => paths.push((Cause::Path, path.clone())),
        (None, None) => {}
    }
    let links = node.links.iter().filter(|_| wish.links);
    paths.extend(links.map(|link| (Cause::Link, link.clone())));
    let place = |(cause, path)| Place {
        cause,
        path,
        node,
        instance,
    };
    paths.into_iter().map(place).collect()
}

fn clash(first: &Place<'_>, second: &Place<'_>) -> NodesRefused {
    let is_of_one_device = second.cause == Cause::Path && first.instance == second.instance;
    let cause = if is_of_one_device {
        Cause::PathOfOneDevice
    } else {
        second.cause
    };
    NodesRefused::Clash {
        path: second.path.clone(),
        first: shown(first),
        second: shown(second),
        cause,
    }
}

fn shown(place: &Place<'_>) -> String {
    format!("{} of Instance {}", place.node.host_path, place.instance)
}

#[cfg(test)]
#[path = "container_nodes_tests.rs"]
mod tests;
