//! Converts a list of a handler in another process into devices within bounds, and problems for the rest. Pure.
use super::host_paths::{HandlerPaths, HostPaths, is_plain};
use crate::{
    model::{
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
    let mut tell = |problem: &dyn Fn() -> String| match set.problems.len() < PROBLEMS_MAX {
        true => set.problems.push(problem()),
        false => more += 1,
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
        found.device_nodes.push(DeviceNode {
            container_path: node.container_path,
            host_path: node.host_path,
            permissions: node.permissions,
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
mod tests {
    use super::*;
    use prost::Message as _;
    use std::collections::BTreeMap;

    fn dev() -> HostPaths {
        ["/dev".parse().unwrap()].into_iter().collect()
    }

    fn mount(host: &str) -> v0::Mount {
        v0::Mount {
            container_path: "/cam".to_owned(),
            host_path: host.to_owned(),
            read_only: true,
        }
    }

    fn camera(id: &str) -> v0::Device {
        v0::Device {
            id: id.to_owned(),
            properties: BTreeMap::from([("URL".to_owned(), "rtsp://a".to_owned())]),
            ..v0::Device::default()
        }
    }

    fn node(host: &str, permissions: &str) -> v0::DeviceSpec {
        v0::DeviceSpec {
            container_path: "/dev/video0".to_owned(),
            host_path: host.to_owned(),
            permissions: permissions.to_owned(),
        }
    }

    fn list(devices: Vec<v0::Device>) -> DeviceSet {
        list_with(devices, &dev().into())
    }

    fn list_with(devices: Vec<v0::Device>, allowed: &HandlerPaths) -> DeviceSet {
        let sent = DeviceList {
            devices,
            ..DeviceList::default()
        };
        let list = DeviceList::decode(sent.encode_to_vec().as_slice()).unwrap();
        super::devices(list, allowed)
    }

    fn refusal(change: impl FnOnce(&mut v0::Device)) -> String {
        let mut device = camera("cam");
        change(&mut device);
        let mut set = list(vec![device, camera("other")]);
        assert_eq!(set.devices.len(), 1, "the other one stays");
        assert!(set.is_whole());
        set.problems.pop().unwrap()
    }

    #[test]
    fn a_device_is_taken_with_all_that_it_has() {
        let mut device = camera("cam");
        device.device_specs = vec![node("/dev/video3", "rw")];
        device.mounts = vec![mount("/dev/cam")];
        let set = list(vec![device]);
        assert!(set.is_whole() && set.problems.is_empty());
        let device = set.devices.values().next().unwrap();
        assert_eq!(device.id.as_str(), "cam");
        assert_eq!(device.properties["URL"], "rtsp://a");
        assert_eq!(device.device_nodes[0].host_path, "/dev/video3");
        assert_eq!(device.device_nodes[0].permissions, "rw");
        assert!(device.mounts[0].read_only && device.mounts[0].host_path == "/dev/cam");
        assert!(device.connection.is_empty());
    }

    #[test]
    fn foreign_paths_are_refused_and_the_message_says_what_to_do() {
        for path in [
            "/etc/shadow",
            "/dev/../etc/shadow",
            "/",
            "",
            "dev/null",
            "/device",
        ] {
            let refused = refusal(|device| device.device_specs = vec![node(path, "rw")]);
            assert!(refused.contains("--handler-host-paths"), "{refused}");
            assert!(refused.contains(&format!("{path:?}")), "{refused}");
            let refused = refusal(|device| device.mounts = vec![mount(path)]);
            assert!(
                refused.contains("in its mounts is not allowed"),
                "{refused}"
            );
        }
    }

    #[test]
    fn what_no_container_runtime_takes_is_refused() {
        for permissions in ["", "x", "rr", "rwm "] {
            let refused = refusal(|d| d.device_specs = vec![node("/dev/a", permissions)]);
            assert!(refused.contains("must be some of r, w and m"), "{refused}");
        }
        let inside = |path: &str| v0::DeviceSpec {
            container_path: path.to_owned(),
            ..node("/dev/a", "r")
        };
        for path in ["", "dev", "/../etc"] {
            let refused = refusal(|device| device.device_specs = vec![inside(path)]);
            assert!(refused.contains("container path"), "{refused}");
        }
        let property = |name: &str, value: &str| {
            let entry = (name.to_owned(), value.to_owned());
            refusal(|device| device.properties.extend([entry]))
        };
        assert!(property("A", "\0").contains("\"A\""));
        assert!(property("A\nB", "x").contains("\"A\\nB\""));
        assert!(property(&"A".repeat(254), "x").contains("at most 253 bytes"));
        assert!(property("A", &"x".repeat(33_000)).contains("32768 bytes are the most"));
        for id in [
            String::new(),
            "x".repeat(257),
            "a\nb".to_owned(),
            "\0".to_owned(),
        ] {
            let refused = refusal(|device| device.id = id);
            assert!(
                refused.contains("1 to 256 bytes and no control"),
                "{refused}"
            );
        }
    }

    #[test]
    fn many_properties_and_many_paths_are_refused() {
        let many = |n: usize| (0..n).map(|n| (format!("K{n}"), "v".to_owned()));
        let refused = refusal(|device| device.properties.extend(many(200)));
        assert!(
            refused.contains("192 of 32768 bytes are the most"),
            "{refused}"
        );
        let refused = refusal(|d| d.device_specs = vec![node("/dev/a", "r"); PATHS_MAX + 1]);
        assert!(refused.starts_with("1 devices are left out"), "{refused}");
    }

    #[test]
    fn a_flood_is_cut_and_said_in_one_line() {
        let devices = (0..100_000).map(|n| camera(&format!("cam-{n}"))).collect();
        let set = list(devices);
        assert_eq!(set.devices.len(), DEVICES_MAX);
        assert!(set.complete && set.left_out);
        let [problem] = set.problems.as_slice() else {
            panic!("{} problems", set.problems.len())
        };
        assert!(
            problem.starts_with("95904 devices are left out"),
            "{problem}"
        );
    }

    #[test]
    fn of_many_devices_that_are_left_out_a_few_are_named_and_the_others_counted() {
        let bad = |n: usize| camera(&format!("{n}\n"));
        let set = list((0..100).map(bad).collect());
        assert_eq!(set.problems.len(), PROBLEMS_MAX + 1);
        assert_eq!(set.problems[PROBLEMS_MAX], "and 68 more such devices");
    }

    #[test]
    fn a_handler_in_the_network_gives_properties_and_no_path_of_the_node() {
        let mut thief = camera("thief");
        thief.device_specs = vec![node("/dev/video0", "rw")];
        let set = list_with(vec![thief, camera("door")], &HostPaths::none().into());
        assert!(set.devices.len() == 1 && set.devices.keys().all(|id| id.as_str() == "door"));
        let problem = &set.problems[0];
        assert!(problem.contains("use a Unix socket"), "{problem}");
    }

    #[test]
    fn a_handler_without_the_right_to_mounts_gives_device_nodes() {
        let (mut thief, mut disk) = (camera("thief"), camera("disk"));
        thief.mounts = vec![mount("/dev/sda")];
        disk.device_specs = vec![node("/dev/sda", "r")];
        let mut allowed = HandlerPaths::from(dev());
        allowed.mounts = HostPaths::none().into();
        let set = list_with(vec![thief, disk], &allowed);
        assert!(set.devices.len() == 1 && set.devices.keys().all(|id| id.as_str() == "disk"));
        assert!(set.problems[0].contains("it has mounts"), "{set:?}");
    }

    #[test]
    fn a_list_that_ends_within_a_device_is_an_error() {
        let sent = DeviceList {
            devices: vec![camera("cam")],
            ..DeviceList::default()
        };
        let bytes = sent.encode_to_vec();
        for end in 1..bytes.len() {
            assert!(DeviceList::decode(&bytes[..end]).is_err(), "{end}");
        }
    }

    #[test]
    fn a_name_in_a_message_is_one_line_and_short() {
        let text = "a\x1b[2J\n".repeat(1_000_000);
        let shown = shown(&text);
        assert!(shown.len() <= SHOWN_MAX + 2, "{shown}");
        assert!(!shown.contains(['\n', '\x1b']), "{shown:?}");
        assert_eq!(one_line("  short \n", 100), "short");
    }
}
