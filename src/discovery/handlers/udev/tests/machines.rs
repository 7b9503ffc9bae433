//! Tests of machines that do not change: the devices that each rule selects.
use super::*;

const HUB: &str = "/devices/pci0000:00/0000:00:14.0/usb1/1-1";

/// Creates a hub with serial adapters in its ports. udev has processed all of them except those that are `new`.
pub(super) fn hub(machine: &Machine, ports: &[(u32, &str)]) {
    let usb = |devpath: &str, number: u32, attributes: &[(&str, &str)]| {
        machine.plug(Part {
            subsystem: "bus/usb",
            devpath,
            uevent: &format!(
                "MAJOR=189\nMINOR={}\nDEVNAME=bus/usb/001/{number:03}\nDEVTYPE=usb_device\nDRIVER=usb\n",
                number - 1
            ),
            attributes,
        });
        machine.udev_says(&format!("c189:{}", number - 1), "E:ID_BUS=usb\n");
    };
    usb(
        "/devices/pci0000:00/0000:00:14.0/usb1",
        1,
        &[("idVendor", "1d6b")],
    );
    usb(HUB, 2, &[("idVendor", "05e3"), ("driver", "usb")]);
    for (port, serial) in ports {
        adapter(machine, &usb, *port, serial);
    }
}

/// Adds a USB device, given its path, its number and its attributes.
type Plug<'a> = dyn Fn(&str, u32, &[(&str, &str)]) + 'a;

fn adapter(machine: &Machine, usb: &Plug<'_>, port: u32, serial: &str) {
    let device = format!("{HUB}/1-1.{port}");
    let ids = [
        ("idVendor", "0403"),
        ("idProduct", "6001"),
        ("serial", serial),
    ];
    usb(&device, 10 + port, &ids);
    let interface = format!("{device}/1-1.{port}:1.0");
    machine.plug(Part {
        subsystem: "bus/usb",
        devpath: &interface,
        uevent: "DEVTYPE=usb_interface\nDRIVER=ftdi_sio\n",
        attributes: &[("driver", "ftdi_sio")],
    });
    machine.plug(Part {
        subsystem: "class/tty",
        devpath: &format!("{interface}/ttyUSB{port}/tty/ttyUSB{port}"),
        uevent: &format!("MAJOR=188\nMINOR={port}\nDEVNAME=ttyUSB{port}\n"),
        attributes: &[],
    });
    let entry = format!(
        "S:serial/by-path/pci-{port}\nS:serial/by-id/usb-FTDI_{serial}-if00\nE:ID_SERIAL=FTDI_{serial}\nE:ID_SERIAL_SHORT={serial}\nE:ID_PATH_TAG=pci-0000_00_14_0-usb-0_1_{port}_1_0\nE:ID_VENDOR_ID=0403\nE:ID_MODEL_ID=6001\nG:systemd\nV:1\n"
    );
    machine.udev_says(&format!("c188:{port}"), &entry);
}

fn tty(port: u32) -> String {
    format!("{HUB}/1-1.{port}/1-1.{port}:1.0/ttyUSB{port}/tty/ttyUSB{port}")
}

#[test]
fn each_serial_adapter_of_a_hub_is_a_device_with_its_node_and_what_udev_knows_of_it() {
    let machine = Machine::with_udev();
    hub(&machine, &[(1, "A1"), (2, "A2"), (10, "A10")]);
    let found = machine.devices(&rule(r#"KERNEL=="ttyUSB*", ATTRS{idVendor}=="0403""#));
    assert_eq!(ids(&found), [tty(1), tty(10), tty(2)]);
    let first = &found[0];
    assert_eq!(nodes(first), ["/dev/ttyUSB1"]);
    assert_eq!(first.device_nodes[0].permissions, "rwm");
    assert_eq!(
        first.device_nodes[0].links,
        [
            "/dev/serial/by-id/usb-FTDI_A1-if00",
            "/dev/serial/by-path/pci-1"
        ]
    );
    let properties: Vec<String> = first
        .properties
        .iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    assert_eq!(
        properties,
        [
            "UDEV_DEVLINK=/dev/serial/by-id/usb-FTDI_A1-if00".to_owned(),
            "UDEV_DEVNODE=/dev/ttyUSB1".to_owned(),
            format!("UDEV_DEVPATH={}", tty(1)),
            "UDEV_ID_MODEL_ID=6001".to_owned(),
            "UDEV_ID_PATH_TAG=pci-0000_00_14_0-usb-0_1_1_1_0".to_owned(),
            "UDEV_ID_SERIAL=FTDI_A1".to_owned(),
            "UDEV_ID_SERIAL_SHORT=A1".to_owned(),
            "UDEV_ID_VENDOR_ID=0403".to_owned(),
        ]
    );
    let connection: Vec<&String> = first.connection.iter().collect();
    assert_eq!(connection, ["UDEV_DEVNODE", "UDEV_DEVPATH"]);
}

#[test]
fn every_field_and_both_operators_choose() {
    let machine = Machine::with_udev();
    hub(&machine, &[(1, "A1"), (2, "A2")]);
    for (text, ports) in [
        (r#"SUBSYSTEM=="tty""#, &[1, 2][..]),
        (r#"SUBSYSTEM=="tty", KERNEL!="ttyUSB1""#, &[2]),
        (r#"SUBSYSTEM=="tty", ENV{ID_SERIAL_SHORT}=="A1""#, &[1]),
        (r#"SUBSYSTEM=="tty", ENV{ID_SERIAL_SHORT}!="A1""#, &[2]),
        (r#"SUBSYSTEM=="tty", ENV{DEVNAME}=="/dev/ttyUSB2""#, &[2]),
        (r#"SUBSYSTEM=="tty", ATTRS{serial}=="A1|B1""#, &[1]),
        (r#"SUBSYSTEM=="tty", ATTRS{serial}!="A1""#, &[2]),
        (r#"SUBSYSTEM=="tty", ATTR{serial}!="A1""#, &[1, 2]),
        (r#"SUBSYSTEM=="tty", TAG=="systemd""#, &[1, 2]),
        (r#"SUBSYSTEM=="tty", TAGS!="systemd""#, &[]),
        (r#"SUBSYSTEM=="tty", DRIVERS=="ftdi_.*""#, &[1, 2]),
        (r#"SUBSYSTEM=="tty", DRIVER=="ftdi_sio""#, &[]),
        (r#"SUBSYSTEM=="tty", KERNELS=="1-1.2""#, &[2]),
        (r#"SUBSYSTEMS=="usb", KERNEL=="ttyUSB*""#, &[1, 2]),
        (r#"DEVPATH=="*/1-1.1/*tty*", SUBSYSTEM!="usb""#, &[1]),
        (r#"SUBSYSTEM=="tty", DEVPATH!=".*/1-1.1/.*""#, &[2]),
    ] {
        let found = machine.devices(&rule(text));
        let expected: Vec<String> = ports.iter().map(|port| tty(*port)).collect();
        assert_eq!(ids(&found), expected, "{text}");
    }
    let any = machine.devices("udevRules: ['KERNEL==\"ttyUSB1\"', 'KERNEL==\"ttyUSB2\"']");
    assert_eq!(any.len(), 2, "one rule is enough");
}

#[test]
fn a_group_is_a_device_with_all_that_are_below_it_and_no_other_port() {
    let machine = Machine::with_udev();
    hub(&machine, &[(1, "A1"), (10, "A10")]);
    let details = format!(
        "groupRecursive: true\npermissions: rw\n{}",
        rule(r#"ATTRS{idVendor}=="0403", SUBSYSTEM=="usb|tty", ENV{MAJOR}=="?*""#)
    );
    // `|` in SUBSYSTEM belongs to udev's syntax.
    let found = machine.devices(&details);
    assert_eq!(
        ids(&found),
        [format!("{HUB}/1-1.1"), format!("{HUB}/1-1.10")]
    );
    assert_eq!(nodes(&found[0]), ["/dev/bus/usb/001/011", "/dev/ttyUSB1"]);
    assert_eq!(
        found[0].properties["UDEV_DEVNODE_0"],
        "/dev/bus/usb/001/011"
    );
    assert_eq!(found[0].properties["UDEV_DEVNODE_1"], "/dev/ttyUSB1");
    assert_eq!(found[0].properties["UDEV_DEVPATH"], format!("{HUB}/1-1.1"));
    assert!(!found[0].properties.contains_key("UDEV_DEVNODE"));
    assert_eq!(found[0].device_nodes[0].permissions, "rw");
}

#[test]
fn a_device_without_a_node_has_the_nearest_one_above_it() {
    let machine = Machine::with_udev();
    hub(&machine, &[(1, "A1")]);
    let found = machine.devices(&rule(r#"ENV{DEVTYPE}=="usb_interface""#));
    assert_eq!(ids(&found), [format!("{HUB}/1-1.1/1-1.1:1.0")]);
    assert_eq!(nodes(&found[0]), ["/dev/bus/usb/001/011"]);
}

#[test]
fn a_stick_keeps_its_identity_in_another_port() {
    let serial = |ports: &[(u32, &str)], details: &str| {
        let machine = Machine::with_udev();
        hub(&machine, ports);
        let details = format!("identity: serial\n{details}");
        let set = set_of(&machine.look(&details));
        let ids: Vec<String> = set.devices.keys().map(ToString::to_string).collect();
        (ids, set.problems)
    };
    let ttys = rule(r#"KERNEL=="ttyUSB*""#);
    let (here, _) = serial(&[(1, "A1"), (2, "A2")], &ttys);
    assert_eq!(
        here,
        ["usb-0403:6001-A1/1.0/tty", "usb-0403:6001-A2/1.0/tty"]
    );
    let (there, problems) = serial(&[(4, "A1"), (3, "A2")], &ttys);
    assert_eq!((there, problems), (here, vec![]));
    let whole = rule(r#"ATTR{idProduct}=="6001""#);
    assert_eq!(serial(&[(4, "A1")], &whole).0, ["usb-0403:6001-A1"]);
    // Without a serial number, or with a duplicate one, only the path identifies a device.
    let (none, problems) = serial(&[(1, "")], &ttys);
    assert_eq!((none, problems), (vec![tty(1)], vec![]));
    let (twins, problems) = serial(&[(1, "A1"), (2, "A1")], &ttys);
    assert_eq!(twins, [tty(1), tty(2)]);
    assert!(
        problems[0].contains("2 devices have the serial number usb-0403:6001-A1"),
        "{problems:?}"
    );
}

#[test]
fn a_webcam_with_four_nodes_is_found_by_akris_rule_and_as_one_device_by_its_group() {
    let machine = Machine::with_udev();
    let camera = "/devices/pci0000:00/0000:00:14.0/usb1/1-3";
    machine.plug(Part {
        subsystem: "bus/usb",
        devpath: camera,
        uevent: "MAJOR=189\nMINOR=5\nDEVNAME=bus/usb/001/006\nDEVTYPE=usb_device\n",
        attributes: &[
            ("idVendor", "046d"),
            ("idProduct", "0825"),
            ("serial", "C920"),
        ],
    });
    machine.udev_says("c189:5", "E:ID_VENDOR_ID=046d\n");
    for n in 0..4 {
        machine.plug(Part {
            subsystem: "class/video4linux",
            devpath: &format!("{camera}/1-3:1.0/video4linux/video{n}"),
            uevent: &format!("MAJOR=81\nMINOR={n}\nDEVNAME=video{n}\n"),
            attributes: &[("index", &n.to_string())],
        });
        let capabilities = if n % 2 == 0 { ":capture:" } else { ":" };
        machine.udev_says(
            &format!("c81:{n}"),
            &format!("E:ID_V4L_CAPABILITIES={capabilities}\n"),
        );
    }
    let akri = r#"KERNEL=="video[0-9]*", ENV{ID_V4L_CAPABILITIES}==":capture:""#;
    let found = machine.devices(&rule(akri));
    assert_eq!(found.len(), 2);
    assert_eq!(nodes(&found[1]), ["/dev/video2"]);
    let whole = machine.devices(
        "groupRecursive: true\nudevRules: ['ATTR{idVendor}==\"046d\"', 'KERNEL==\"video[0-9]*\"']",
    );
    assert_eq!(ids(&whole), [camera]);
    let expected = [
        "/dev/bus/usb/001/006",
        "/dev/video0",
        "/dev/video1",
        "/dev/video2",
        "/dev/video3",
    ];
    assert_eq!(nodes(&whole[0]), expected);
    let serial = format!("identity: serial\n{}", rule(r#"KERNEL=="video*""#));
    let found = machine.devices(&serial);
    let one = "usb-046d:0825-C920/video4linux";
    assert_eq!(
        ids(&found),
        [
            one,
            &format!("{one}/2"),
            &format!("{one}/3"),
            &format!("{one}/4")
        ]
    );
}

#[test]
fn equal_parts_of_a_device_keep_their_order_when_the_kernel_counts_on() {
    let found = |first: u32, second: u32| {
        let machine = Machine::new();
        let camera = machine.camera("1-3");
        for n in [first, second] {
            machine.video(&camera, n);
        }
        let rules = format!("identity: serial\n{}", rule(r#"KERNEL=="video*""#));
        let devices = machine.devices(&rules);
        devices
            .iter()
            .map(|device| nodes(device).join(" "))
            .collect::<Vec<_>>()
    };
    assert_eq!(found(0, 2), ["/dev/video0", "/dev/video2"]);
    assert_eq!(found(8, 10), ["/dev/video8", "/dev/video10"]);
}

#[test]
fn a_gpu_is_given_by_vfio_and_kubevirt_gets_its_address() {
    let machine = Machine::new();
    let gpu = "/devices/pci0000:00/0000:00:01.0/0000:01:00.0";
    machine.plug(Part {
        subsystem: "bus/pci",
        devpath: gpu,
        uevent: "DRIVER=vfio-pci\nPCI_ID=10DE:1FF0\nPCI_SLOT_NAME=0000:01:00.0\n",
        attributes: &[
            ("vendor", "0x10de"),
            ("driver", "vfio-pci"),
            ("iommu_group", "13"),
        ],
    });
    let details = rule(r#"SUBSYSTEM=="pci", ATTR{vendor}=="0x10de", DRIVER=="vfio-pci""#);
    let properties = [
        ("devicePluginResourceName", "akri.sh/udev-gpu"),
        ("vfioPassthrough", "true"),
    ];
    let found = devices_of(&machine.look_with(&details, &properties));
    assert_eq!(ids(&found), [gpu]);
    assert_eq!(
        found[0].properties["PCI_RESOURCE_AKRI_SH_UDEV-GPU"],
        "0000:01:00.0"
    );
    assert_eq!(nodes(&found[0]), ["/dev/vfio/13", "/dev/vfio/vfio"]);
    assert_eq!(found[0].device_nodes[0].permissions, "rw");
    // Without the properties there is no node to give.
    assert_eq!(nodes(&machine.devices(&details)[0]), Vec::<&str>::new());
}

#[test]
fn vfio_needs_its_own_subsystem_on_the_allow_list() {
    let passthrough = Properties::from([("vfioPassthrough".to_owned(), "true".to_owned())]);
    let prepared = |allowed: &[&str]| {
        let allowed = allowed.iter().map(|name| name.parse().unwrap()).collect();
        let details = rule(r#"SUBSYSTEM=="pci""#);
        let prepared = Udev::new("/", allowed).prepare(&details, &passthrough);
        prepared.map(drop).map_err(|e| e.to_string())
    };
    let refused = prepared(&["pci"]).unwrap_err();
    assert!(
        refused.contains("`vfio`, which is not allowed") && refused.contains("--udev-subsystems"),
        "{refused}"
    );
    assert_eq!(prepared(&["pci", "vfio"]), Ok(()));
    assert_eq!(prepared(&["*"]), Ok(()));
}

#[test]
fn a_usb_device_for_kubevirt_has_its_bus_and_number() {
    let machine = Machine::with_udev();
    hub(&machine, &[(1, "A1")]);
    let details = rule(r#"ATTR{idVendor}=="0403""#);
    let properties = [("devicePluginResourceName", "akri.sh/stick")];
    let found = devices_of(&machine.look_with(&details, &properties));
    assert_eq!(found[0].properties["USB_RESOURCE_AKRI_SH_STICK"], "1:11");
    assert!(
        !found[0]
            .properties
            .keys()
            .any(|key| key.starts_with("PCI_"))
    );
}

#[test]
fn the_cameras_of_a_jetson_are_found_without_udev() {
    let machine = Machine::new();
    for n in 0..2 {
        machine.plug(Part {
            subsystem: "class/video4linux",
            devpath: &format!("/devices/platform/tegra-capture-vi/video4linux/video{n}"),
            uevent: &format!("MAJOR=81\nMINOR={n}\nDEVNAME=video{n}\n"),
            attributes: &[("name", &format!("vi-output, imx219 {n}"))],
        });
    }
    let found = machine.devices(&rule(r#"KERNEL=="video[0-9]*", ATTR{name}=="vi-output*""#));
    assert_eq!(found.len(), 2);
    assert_eq!(nodes(&found[0]), ["/dev/video0"]);
}

#[test]
fn only_devices_and_nodes_of_allowed_subsystems_are_offered_and_the_others_are_counted() {
    let machine = Machine::with_udev();
    hub(&machine, &[(1, "A1")]);
    let offered = |allowed: &[&str], details: &str| {
        let allowed = allowed.iter().map(|name| name.parse().unwrap()).collect();
        let udev = Udev::new(machine.root.path(), allowed);
        let look = udev.parameters(details, &Properties::new()).unwrap();
        let set = set_of(&look);
        assert!(!set.left_out, "a device that is not allowed is not there");
        (set.devices.into_values().collect::<Vec<_>>(), set.problems)
    };
    let all = rule(r#"DEVPATH=="*""#);
    let (found, problems) = offered(&["tty"], &all);
    assert_eq!(found.len(), 1);
    assert_eq!(nodes(&found[0]), ["/dev/ttyUSB1"]);
    assert!(
        problems[0].contains("4 devices of subsystems that are not allowed on this node: usb."),
        "{problems:?}"
    );
    assert!(problems[0].contains("--udev-subsystems"));
    let none = Udev::new(machine.root.path(), Subsystems::from_iter([]));
    let refused = none
        .prepare(&all, &Properties::new())
        .err()
        .unwrap()
        .to_string();
    assert!(
        refused.contains("no device of udev is allowed"),
        "{refused}"
    );
}

#[test]
fn a_thousand_devices_and_more_are_bounded_and_that_is_said() {
    let machine = Machine::new();
    for n in 0..plan::DEVICES_MAX + 1 {
        machine.plug(Part {
            subsystem: "class/tty",
            devpath: &format!("/devices/virtual/tty/tty{n}"),
            uevent: &format!("MAJOR=4\nMINOR={n}\nDEVNAME=tty{n}\n"),
            attributes: &[],
        });
    }
    let set = set_of(&machine.look(&rule(r#"SUBSYSTEM=="tty""#)));
    assert_eq!(set.devices.len(), plan::DEVICES_MAX);
    assert!(set.left_out && set.problems[0].contains("4097 devices; 4096 are the most"));
    let group = "groupRecursive: true\nudevRules: ['DEVPATH==\"/devices/virtual/tty*\"']";
    machine.plug(Part {
        subsystem: "class/tty",
        devpath: "/devices/virtual/tty",
        uevent: "",
        attributes: &[],
    });
    let set = set_of(&machine.look(group));
    let device = set.devices.values().next().unwrap();
    assert_eq!(device.device_nodes.len(), plan::NODES_MAX);
    assert!(
        set.problems[0].contains("the group has 4097 device nodes"),
        "{:?}",
        set.problems
    );
}
