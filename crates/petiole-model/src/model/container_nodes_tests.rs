use super::*;
use serde_json::from_value;

fn wish(fields: Value) -> ContainerDevices {
    from_value(fields).unwrap()
}

/// A device with these nodes, each as `PATH LINK…`.
fn device(nodes: &[&str]) -> Device {
    let mut device = Device::new("a");
    device.device_nodes = (nodes.iter())
        .map(|node| {
            let mut paths = node.split(' ').map(str::to_owned);
            let path = paths.next().unwrap_or_default();
            DeviceNode {
                container_path: path.clone(),
                host_path: path,
                permissions: "rw".to_owned(),
                links: paths.collect(),
            }
        })
        .collect();
    device
}

fn named<'a>(instance: &'a str, device: &'a Device) -> NamedDevice<'a> {
    NamedDevice { instance, device }
}

/// The paths of the nodes in the container, each with the node that is there.
fn paths(devices: &[NamedDevice<'_>], fields: Value) -> Vec<String> {
    let nodes = container_nodes(devices, &wish(fields)).unwrap();
    assert_eq!(nodes.cdi_devices, [""; 0]);
    let nodes = nodes.device_nodes.iter();
    nodes
        .map(|node| format!("{} {}", node.container_path, node.host_path))
        .collect()
}

fn refusal(devices: &[NamedDevice<'_>], fields: Value) -> String {
    container_nodes(devices, &wish(fields))
        .unwrap_err()
        .to_string()
}

#[test]
fn the_wished_path_and_the_links_are_beside_the_devices_own_name() {
    let stick = device(&["/dev/ttyUSB0 /dev/serial/by-id/x /dev/serial/by-path/y"]);
    let stick = [named("zigbee-aaaaaa", &stick)];
    assert_eq!(
        paths(&stick, json!({"path": "/dev/zigbee"})),
        ["/dev/ttyUSB0 /dev/ttyUSB0", "/dev/zigbee /dev/ttyUSB0"]
    );
    assert_eq!(
        paths(&stick, json!({"links": true})),
        [
            "/dev/ttyUSB0 /dev/ttyUSB0",
            "/dev/serial/by-id/x /dev/ttyUSB0",
            "/dev/serial/by-path/y /dev/ttyUSB0"
        ]
    );
    // Its own name, and a link, may be what is wished.
    for same in ["/dev/ttyUSB0", "/dev/serial/by-id/x"] {
        let all = paths(&stick, json!({"path": same, "links": true}));
        assert_eq!(all.len(), 3, "{all:?}");
    }
}

#[test]
fn in_a_folder_each_node_has_its_own_last_name() {
    let (one, two) = (
        device(&["/dev/video0", "/dev/media0"]),
        device(&["/dev/video2"]),
    );
    assert_eq!(
        paths(
            &[named("cam-a", &one), named("cam-b", &two)],
            json!({"path": "/dev/cameras/"})
        ),
        [
            "/dev/video0 /dev/video0",
            "/dev/media0 /dev/media0",
            "/dev/video2 /dev/video2",
            "/dev/cameras/video0 /dev/video0",
            "/dev/cameras/media0 /dev/media0",
            "/dev/cameras/video2 /dev/video2",
        ]
    );
}

#[test]
fn where_two_nodes_have_one_last_name_all_are_named_after_their_instances() {
    let one = device(&["/dev/bus/usb/001/004"]);
    let two = device(&["/dev/bus/usb/002/004", "/dev/video2"]);
    let all = paths(
        &[named("usb-a", &one), named("usb-b", &two)],
        json!({"path": "/dev/usb/"}),
    );
    assert_eq!(
        all[3..],
        [
            "/dev/usb/usb-a /dev/bus/usb/001/004",
            "/dev/usb/usb-b-004 /dev/bus/usb/002/004",
            "/dev/usb/usb-b-video2 /dev/video2",
        ]
    );
}

#[test]
fn two_devices_at_one_path_are_refused_and_both_are_named() {
    let (one, two) = (
        device(&["/dev/ttyUSB0 /dev/serial/by-id/x"]),
        device(&["/dev/ttyUSB1 /dev/serial/by-id/x"]),
    );
    let both = [named("z-a", &one), named("z-b", &two)];
    assert_eq!(
        refusal(&both, json!({"path": "/dev/zigbee"})),
        "the container would have two devices at /dev/zigbee, /dev/ttyUSB0 of Instance z-a and /dev/ttyUSB1 of Instance z-b: ask for one device, or end containerDevices.path of the Configuration with a slash, so that it is a folder in which each has a name"
    );
    let links = refusal(&both, json!({"links": true}));
    assert!(
        links.contains("at /dev/serial/by-id/x, /dev/ttyUSB0 of"),
        "{links}"
    );
    assert!(
        links.ends_with("set containerDevices.links of the Configuration to false"),
        "{links}"
    );
    // The name of one is wished for the other.
    let taken = refusal(&both, json!({"path": "/dev/ttyUSB1"}));
    assert!(
        taken.contains(
            "at /dev/ttyUSB1, /dev/ttyUSB1 of Instance z-b and /dev/ttyUSB0 of Instance z-a"
        ),
        "{taken}"
    );
    // Rights change nothing about it.
    assert!(container_nodes(&both, &wish(json!({"path": "/dev/zigbee", "mode": "0660"}))).is_err());
    assert_eq!(paths(&both, json!({"path": "/dev/z/"})).len(), 4);
    // Two slots of one device are one device.
    assert_eq!(
        paths(&[both[0], both[0]], json!({"path": "/dev/zigbee"})).len(),
        2
    );
}

#[test]
fn handlers_that_give_two_devices_one_name_are_refused_once_it_matters() {
    let (mut one, mut two) = (device(&["/dev/video3"]), device(&["/dev/video4"]));
    for device in [&mut one, &mut two] {
        device.device_nodes[0].container_path = "/dev/video0".to_owned();
    }
    let both = refusal(
        &[named("a", &one), named("b", &two)],
        json!({"path": "/dev/cams/"}),
    );
    assert!(
        both.contains("at /dev/video0, /dev/video3 of Instance a and /dev/video4"),
        "{both}"
    );
    assert!(both.contains("that is their own name"), "{both}");
}

#[test]
fn two_nodes_of_one_device_cannot_have_one_path_and_a_device_needs_a_node() {
    let (two, none) = (device(&["/dev/video0", "/dev/video1"]), device(&[]));
    let refused = refusal(&[named("cam-a", &two)], json!({"path": "/dev/cam"}));
    assert!(
        refused.contains("/dev/video0 of Instance cam-a and /dev/video1 of Instance cam-a: end containerDevices.path"),
        "{refused}"
    );
    assert_eq!(
        paths(&[named("cam-a", &two)], json!({"path": "/dev/cam/"})).len(),
        4
    );
    let refused = refusal(&[named("cam-b", &none)], json!({"mode": "0660"}));
    assert!(
        refused.contains("Instance cam-b has no device node"),
        "{refused}"
    );
}

#[test]
fn a_device_cannot_be_a_folder_of_another_path() {
    let (one, two) = (
        device(&["/dev/ttyUSB0 /dev/serial/by-id/x"]),
        device(&["/dev/ttyUSB1 /dev/ttyUSB0/y"]),
    );
    let fields = json!({"path": "/dev/serial", "links": true});
    assert_eq!(
        refusal(&[named("z-a", &one)], fields),
        "the container would have /dev/ttyUSB0 of Instance z-a at /dev/serial, and /dev/ttyUSB0 of Instance z-a in it at /dev/serial/by-id/x, but a device is no folder: set another containerDevices.path in the Configuration"
    );
    let fields = json!({"path": "/dev/ttyUSB0/a", "mode": "0660"});
    let refused = refusal(&[named("z-a", &one)], fields);
    assert!(
        refused.contains("at /dev/ttyUSB0, and") && refused.contains("set another"),
        "{refused}"
    );
    let both = [named("z-a", &one), named("z-b", &two)];
    let refused = refusal(&both, json!({"links": true}));
    assert!(
        refused.contains("in it at /dev/ttyUSB0/y") && refused.ends_with("to false"),
        "{refused}"
    );
    // A path that only begins like another is beside it.
    for path in ["/dev/serial-x", "/dev/seria", "/dev/serial/by-id/y"] {
        let fields = json!({"path": path, "links": true});
        assert_eq!(paths(&both[..1], fields).len(), 3, "{path}");
    }
}

#[test]
fn with_rights_a_container_gets_cdi_names_that_the_files_describe() {
    let (one, two) = (device(&["/dev/bus/1/4"]), device(&["/dev/bus/2/4"]));
    let wish = wish(json!({"path": "/dev/usb/", "mode": "0660", "uid": 1000}));
    let names = |devices: &[NamedDevice<'_>]| {
        let nodes = container_nodes(devices, &wish).unwrap();
        assert_eq!(nodes.device_nodes, []);
        nodes.cdi_devices
    };
    let both = [named("usb-a", &one), named("usb-b", &two)];
    assert_eq!(names(&both[..1]), ["akri.sh/petiole=usb-a"]);
    assert_eq!(
        names(&both),
        ["akri.sh/petiole=usb-a_named", "akri.sh/petiole=usb-b_named"]
    );
    let text = cdi_file(both[0], &wish).unwrap();
    assert!(is_own_cdi_file(&text));
    let node = |path: &str| json!({"path": path, "hostPath": "/dev/bus/1/4", "permissions": "rw", "fileMode": 0o660, "uid": 1000});
    let entry = |name: &str, path: &str| {
        let nodes = [node("/dev/bus/1/4"), node(path)];
        json!({"name": name, "containerEdits": {"deviceNodes": nodes}})
    };
    let file: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        file,
        json!({
            "cdiVersion": "0.5.0",
            "kind": "akri.sh/petiole",
            "devices": [entry("usb-a", "/dev/usb/4"), entry("usb-a_named", "/dev/usb/usb-a")],
        })
    );
}

#[test]
fn a_device_whose_nodes_have_one_last_name_has_no_file_with_that_name_twice() {
    let twice = device(&["/dev/bus/1/4", "/dev/bus/2/4"]);
    let folder = wish(json!({"path": "/dev/usb/", "mode": "0660"}));
    // `usb-a-4` would be twice as well.
    assert_eq!(cdi_file(named("usb-a", &twice), &folder), None);
    assert!(container_nodes(&[named("usb-a", &twice)], &folder).is_err());
    let plain = wish(json!({"path": "/dev/usb/"}));
    assert_eq!(cdi_file(named("usb-a", &device(&["/dev/a"])), &plain), None);
}

#[test]
fn the_digest_is_that_of_the_device_until_something_is_wished_and_then_follows_it() {
    let stick = device(&["/dev/ttyUSB0 /dev/serial/by-id/x"]);
    let other_link = device(&["/dev/ttyUSB0 /dev/serial/by-id/y"]);
    let moved = device(&["/dev/ttyUSB1 /dev/serial/by-id/x"]);
    let digest = |device, fields| connection_digest(device, Some(&wish(fields)));
    assert_eq!(connection_digest(&stick, None), stick.connection_digest());
    assert_eq!(stick.connection_digest(), other_link.connection_digest());
    let wishes = [
        json!({"path": "/dev/a"}),
        json!({"path": "/dev/a/"}),
        json!({"links": true}),
        json!({"mode": "0660"}),
        json!({"mode": "0666"}),
        json!({"uid": 1}),
        json!({"gid": 1}),
    ];
    let mut all: BTreeSet<String> = wishes.map(|fields| digest(&stick, fields)).into();
    all.insert(stick.connection_digest());
    assert_eq!(all.len(), 8);
    let path = || json!({"path": "/dev/a"});
    assert_eq!(digest(&stick, path()), digest(&other_link, path()));
    assert_ne!(digest(&stick, path()), digest(&moved, path()));
    let links = || json!({"links": true});
    assert_ne!(digest(&stick, links()), digest(&other_link, links()));
}
