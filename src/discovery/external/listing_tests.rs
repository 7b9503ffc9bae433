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
        links: vec![],
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
    device.device_specs = vec![v0::DeviceSpec {
        links: vec!["/dev/v4l/by-id/cam".to_owned()],
        ..node("/dev/video3", "rw")
    }];
    device.mounts = vec![mount("/dev/cam")];
    let set = list(vec![device]);
    assert!(set.is_whole() && set.problems.is_empty());
    let device = set.devices.values().next().unwrap();
    assert_eq!(device.id.as_str(), "cam");
    assert_eq!(device.properties["URL"], "rtsp://a");
    assert_eq!(device.device_nodes[0].host_path, "/dev/video3");
    assert_eq!(device.device_nodes[0].permissions, "rw");
    assert_eq!(device.device_nodes[0].links, ["/dev/v4l/by-id/cam"]);
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
    let linked = |links: Vec<String>| v0::DeviceSpec {
        links,
        ..node("/dev/a", "r")
    };
    for link in [
        "",
        "cam",
        "/etc/passwd",
        "/dev/../etc",
        "/dev/shm/a",
        "/dev/null",
    ] {
        let refused = refusal(|d| d.device_specs = vec![linked(vec![link.to_owned()])]);
        assert!(refused.contains(&format!("the link {link:?}")), "{refused}");
    }
    let many = (0..33).map(|n| format!("/dev/cam/{n}")).collect();
    let refused = refusal(|device| device.device_specs = vec![linked(many)]);
    assert!(
        refused.contains("has 33 links; 32 are the most"),
        "{refused}"
    );
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
