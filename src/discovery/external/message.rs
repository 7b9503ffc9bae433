//! The list that a built-in handler sends as a process of its own. Pure.
use crate::{
    model::device::{Device, DeviceSet},
    proto::discovery::{self as v0, DEVICES_MAX, DeviceList, PROBLEMS_MAX},
};
use prost::Message as _;

/// The most bytes of the devices that `petiole handler` sends in a list. The rest of what a client reads is for
/// problems. Beyond it: devices are left out (`DiscoveryIncomplete`).
const BYTES_MAX: usize = super::stream::LIST_MAX - 64 * 1024;
/// The bytes before each device: its field and its length.
const HEAD: usize = 8;

/// Returns the list of a set. Devices that a client would not read are left out, and a problem says so.
pub(super) fn list(set: &DeviceSet) -> DeviceList {
    let mut list = DeviceList {
        incomplete: !set.complete,
        left_out: set.left_out,
        problems: set
            .problems
            .iter()
            .take(PROBLEMS_MAX - 1)
            .cloned()
            .collect(),
        ..DeviceList::default()
    };
    let mut bytes = 0;
    for device in set.devices.values().map(|device| message(device)) {
        bytes += device.encoded_len() + HEAD;
        if bytes > BYTES_MAX || list.devices.len() >= DEVICES_MAX {
            break;
        }
        list.devices.push(device);
    }
    let more = set.devices.len() - list.devices.len();
    if more > 0 {
        list.left_out = true;
        list.problems.push(format!(
            "{more} devices are left out: {DEVICES_MAX} devices, 4 MiB together, are the most of a handler in a process of its own; \
             let discoveryDetails ask for fewer"
        ));
    }
    list
}

fn message(device: &Device) -> v0::Device {
    let mounts = device.mounts.iter().map(|mount| v0::Mount {
        container_path: mount.container_path.clone(),
        host_path: mount.host_path.clone(),
        read_only: mount.read_only,
    });
    let nodes = device.device_nodes.iter().map(|node| v0::DeviceSpec {
        container_path: node.container_path.clone(),
        host_path: node.host_path.clone(),
        permissions: node.permissions.clone(),
        links: node.links.clone(),
    });
    v0::Device {
        id: device.id.as_str().to_owned(),
        properties: device.properties.clone(),
        mounts: mounts.collect(),
        device_specs: nodes.collect(),
        connection: device.connection.iter().cloned().collect(),
        pin: device
            .pin
            .as_ref()
            .map_or_else(String::new, ToString::to_string),
        announcer: (device.announcer).map_or_else(String::new, |host| host.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::{super::listing, *};
    use crate::{discovery::external::HostPaths, model::device::DeviceNode};

    fn received(set: &DeviceSet) -> DeviceSet {
        let sent = list(set);
        let bytes = sent.encode_to_vec();
        assert_eq!(bytes.len(), sent.encoded_len());
        let read = DeviceList::decode(bytes.as_slice()).unwrap();
        listing::devices(read, &HostPaths::all().into())
    }

    fn camera(id: &str) -> Device {
        let mut device = Device::new(id);
        let property = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        device.properties = [("ADDR", "10.0.0.7"), ("PATH", "/live")]
            .map(property)
            .into();
        device.connection = ["ADDR".to_owned()].into();
        device.announcer = "10.0.0.9".parse().ok();
        device.pin = "10.0.0.0/24 porch.local".parse().ok();
        device.device_nodes = vec![DeviceNode {
            container_path: "/dev/video0".to_owned(),
            host_path: "/dev/video3".to_owned(),
            permissions: "rw".to_owned(),
            links: vec!["/dev/v4l/by-id/cam".to_owned()],
        }];
        device
    }

    #[test]
    fn the_agent_reads_all_that_the_handler_has_found() {
        let whole = DeviceSet::complete([camera("a"), camera("b")]);
        assert_eq!(received(&whole), whole);
        let begun = DeviceSet {
            complete: false,
            left_out: true,
            problems: vec!["1 services are left out".to_owned()],
            ..whole
        };
        assert_eq!(received(&begun), begun);
        assert_eq!(received(&DeviceSet::default()), DeviceSet::default());
    }

    #[test]
    fn what_no_agent_would_read_is_left_out_and_said() {
        let large = |n: usize| {
            let mut device = Device::new(format!("cam-{n:04}"));
            device.properties.insert("TXT".to_owned(), "x".repeat(2000));
            device
        };
        let set = DeviceSet::complete((0..DEVICES_MAX).map(large));
        let sent = list(&set);
        assert!(sent.encoded_len() < super::super::stream::LIST_MAX);
        assert!(sent.devices.len() > 1900, "{}", sent.devices.len());
        let read = received(&set);
        assert!(read.left_out && read.complete);
        assert!(read.problems[0].contains("4 MiB"), "{:?}", read.problems);
    }
}
