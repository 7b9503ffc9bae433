//! The rules of udev, and what sysfs, udev's database and netlink say. An input is `discoveryDetails`, then devices of three
//! texts each: a path, a `uevent` file and an entry of the database. A NUL stands between all of them.
use crate::device;
use petiole::discovery::handlers::udev::fuzzing::{NODES_MAX, devices, is_event};

/// The device nodes and links of each device, and the four properties beside them.
const PROPERTIES: usize = 2 * NODES_MAX + 4;

pub fn run(input: &[u8]) {
    is_event(input);
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    let (details, rest) = text.split_once('\0').unwrap_or((text, ""));
    let parts: Vec<&str> = rest.split('\0').collect();
    let texts: Vec<(&str, &str, &str)> = (parts.chunks_exact(3))
        .map(|part| (part[0], part[1], part[2]))
        .collect();
    let Some(set) = devices(details, &texts) else {
        return;
    };
    assert!(set.complete && !set.left_out);
    assert!(set.devices.len() <= texts.len());
    for device in set.devices.values() {
        // Each text is there as often as a device node, at most.
        device::check(device, PROPERTIES, (input.len() + 64) * (NODES_MAX + 1));
        for node in &device.device_nodes {
            assert!(node.host_path.starts_with("/dev/"), "{node:?}");
            assert!(!node.host_path.contains("/../"), "{node:?}");
        }
    }
    assert_eq!(
        devices(details, &texts),
        Some(set),
        "a second look is the same"
    );
}
