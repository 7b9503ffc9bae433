//! Converts a list of a handler in another process into devices within bounds, and problems for the rest. Pure.
use super::host_paths::{HandlerPaths, HostPaths};
use crate::{
    model::{
        container_devices::{is_below_dev, is_plain},
        device::{Device, DeviceNode, DeviceSet, Mount},
        limits::{self, DEVICE_PROPERTIES_MAX},
        pin::{NotAPin, Pin},
        printable::printable,
    },
    proto::discovery::{
        self as v0, DEVICE_BYTES_MAX, DEVICES_MAX, DeviceList, PATH_MAX, PATHS_MAX, PROBLEMS_MAX,
    },
};

/// The longest id of a device, in bytes. It stands in an annotation. Beyond it: `DiscoveryIncomplete` without the device.
const ID_MAX: usize = 256;
/// The most bytes of a device's properties, with their names. Beyond it: `DiscoveryIncomplete` without the device.
const PROPERTY_BYTES_MAX: usize = 32 * 1024;
/// The longest pin and problem of a handler, in bytes. Beyond it: the problem is cut; a device with such a pin is left out.
const TEXT_MAX: usize = 512;
/// The characters of a foreign text in a message.
const SHOWN_MAX: usize = 100;

/// The devices of a list. One that cannot be used is left out with all that it has: a container with half a device would
/// fail later, and elsewhere.
pub(super) fn devices(list: DeviceList, allowed: &HandlerPaths) -> DeviceSet {
    let mut set = DeviceSet {
        complete: !list.incomplete,
        left_out: list.left_out,
        problems: (list.problems.iter())
            .map(|problem| one_line(problem, TEXT_MAX))
            .collect(),
        ..DeviceSet::default()
    };
    let mut more = 0_usize;
    let mut tell = |problem: &dyn Fn() -> String| {
        if set.problems.len() < PROBLEMS_MAX {
            set.problems.push(problem())
        } else {
            more += 1
        }
    };
    for device in list.devices {
        let id = device.id.clone();
        match device_of(device, allowed) {
            Ok(device) if set.devices.contains_key(&device.id) => {
                tell(&|| format!("{} is twice in the list: the first one counts", shown(&id)));
            }
            Ok(device) => drop(set.devices.insert(device.id.clone(), device.into())),
            Err(why) => tell(&|| format!("device {} is left out: {why}", shown(&id))),
        }
    }
    if more > 0 {
        set.problems.push(format!("and {more} more such devices"));
    }
    if list.too_large > 0 {
        set.problems.push(format!(
            "{} devices are left out: a device may have {DEVICE_BYTES_MAX} bytes, {PATHS_MAX} mounts and {PATHS_MAX} \
             deviceSpecs",
            list.too_large
        ));
    }
    if list.beyond > 0 {
        set.left_out = true;
        set.problems.push(format!(
            "{} devices are left out: {DEVICES_MAX} are the most of a handler; let discoveryDetails ask for fewer",
            list.beyond
        ));
    }
    set
}

fn device_of(device: v0::Device, allowed: &HandlerPaths) -> Result<Device, String> {
    let v0::Device {
        id,
        properties,
        mounts,
        device_specs,
        connection,
        pin,
        announcer,
    } = device;
    if id.is_empty() || id.len() > ID_MAX || id.chars().any(char::is_control) {
        return Err(format!(
            "its id must have 1 to {ID_MAX} bytes and no control characters"
        ));
    }
    let bytes = |(name, value): (&String, &String)| name.len() + value.len();
    let bytes: usize = properties.iter().map(bytes).sum();
    if properties.len() > DEVICE_PROPERTIES_MAX || bytes > PROPERTY_BYTES_MAX {
        return Err(format!(
            "it has {} properties of {bytes} bytes; {DEVICE_PROPERTIES_MAX} of {PROPERTY_BYTES_MAX} bytes are the most",
            properties.len()
        ));
    }
    let unfit = |(name, value): &(&String, &String)| {
        name.len() > limits::NAME_MAX || name.chars().any(char::is_control) || value.contains('\0')
    };
    if let Some((name, _)) = properties.iter().find(unfit) {
        return Err(format!(
            "its property {} must have a name of at most {} bytes and a value without NUL",
            shown(name),
            limits::NAME_MAX
        ));
    }
    let mut found = Device::new(&id);
    found.properties = properties;
    let is_known = |name: &String| found.properties.contains_key(name);
    found.connection = connection.into_iter().filter(is_known).collect();
    (found.pin, found.announcer) = (pin_of(&pin)?, announcer.parse().ok());
    for mount in mounts {
        let (inside, host) = (&mount.container_path, &mount.host_path);
        check_paths("mounts", inside, host, &allowed.mounts)?;
        found.mounts.push(Mount {
            container_path: mount.container_path,
            host_path: mount.host_path,
            read_only: mount.read_only,
        });
    }
    for node in device_specs {
        let (inside, host) = (&node.container_path, &node.host_path);
        check_paths("deviceSpecs", inside, host, &allowed.device_nodes)?;
        check_permissions(&node.permissions)?;
        check_links(&node.links)?;
        found.device_nodes.push(DeviceNode {
            container_path: node.container_path,
            host_path: node.host_path,
            permissions: node.permissions,
            links: node.links,
        });
    }
    Ok(found)
}

fn pin_of(text: &str) -> Result<Option<Pin>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    let is_text = text.len() <= TEXT_MAX && !text.chars().any(char::is_control);
    let pin = text.parse().ok().filter(|_| is_text).map(Some);
    pin.ok_or_else(|| format!("its pin {} {NotAPin}", shown(text)))
}

fn check_paths(field: &str, inside: &str, host: &str, allowed: &HostPaths) -> Result<(), String> {
    if allowed.is_empty() {
        return Err(format!(
            "it has {field}: a handler that is isolated, or reached over the network, may not give them: \
             use a Unix socket in the agents' --handlers-dir"
        ));
    }
    let is_path = |path: &str| path.len() <= PATH_MAX && is_plain(path);
    if !is_path(inside) {
        return Err(format!(
            "the container path {} in its {field} must be absolute, without `.` and `..`, and have at most {PATH_MAX} bytes",
            shown(inside)
        ));
    }
    if !is_path(host) || !allowed.allow(host) {
        return Err(format!(
            "the host path {} in its {field} is not allowed; allowed are {}: add it to the agents' --handler-host-paths \
             (the chart's handlers.hostPaths) if you trust the handler with it",
            shown(host),
            allowed.list()
        ));
    }
    Ok(())
}

fn check_permissions(permissions: &str) -> Result<(), String> {
    let is_one = |c: char| "rwm".contains(c) && permissions.matches(c).count() == 1;
    if !permissions.is_empty() && permissions.chars().all(is_one) {
        return Ok(());
    }
    Err(format!(
        "the permissions {} in its deviceSpecs must be some of r, w and m",
        shown(permissions)
    ))
}

fn check_links(links: &[String]) -> Result<(), String> {
    if links.len() > limits::NODE_LINKS_MAX {
        return Err(format!(
            "one of its deviceSpecs has {} links; {} are the most",
            links.len(),
            limits::NODE_LINKS_MAX
        ));
    }
    match links.iter().find(|link| !is_below_dev(link)) {
        Some(link) => Err(format!(
            "the link {} in its deviceSpecs must be below /dev, without `.` and `..`, no path that container runtimes make, and have at most {} characters",
            shown(link),
            limits::CONTAINER_PATH_MAX
        )),
        None => Ok(()),
    }
}

/// A text of a handler, for a message: quoted, in one line and not long.
pub(super) fn shown(text: &str) -> String {
    format!("\"{}\"", one_line(text, SHOWN_MAX))
}

/// A text of a handler in one line of at most `limit` bytes.
pub(super) fn one_line(text: &str, limit: usize) -> String {
    // What is cut off is not escaped first: a text may have millions of characters.
    let begin = limits::cut(
        text.get(..text.floor_char_boundary(limit + 1))
            .unwrap_or_default()
            .to_owned(),
        limit,
    );
    limits::cut(printable(begin.trim()), limit)
}

#[cfg(test)]
#[path = "listing_tests.rs"]
mod tests;
