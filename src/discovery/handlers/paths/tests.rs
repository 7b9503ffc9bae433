//! Tests with a folder in the place of `/dev`, in which each file counts as a device node.
use super::*;
use crate::model::device::DeviceId;
use std::{fs, os::unix::fs::symlink, path::Path};
use tempfile::TempDir;

/// Returns a folder with these files; `a -> b` is a link.
fn dev(files: &[&str]) -> TempDir {
    let dev = tempfile::tempdir().unwrap();
    for file in files {
        add(dev.path(), file);
    }
    dev
}

fn add(dev: &Path, file: &str) {
    let (path, target) = file.split_once(" -> ").unwrap_or((file, ""));
    let path = dev.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    match target {
        "" => fs::write(path, "").unwrap(),
        target => symlink(target, path).unwrap(),
    }
}

fn discovery(dev: &TempDir, groups: &str, allowed: &[&str]) -> PathsDiscovery {
    PathsDiscovery {
        dev: dev.path().to_owned(),
        details: Arc::new(Details::parse(&format!("groups: {groups}")).unwrap()),
        allowed: Arc::new(allowed.iter().map(|path| path.parse().unwrap()).collect()),
        is_node: Metadata::is_file,
    }
}

fn set_of(dev: &TempDir, groups: &str, allowed: &[&str]) -> DeviceSet {
    discovery(dev, groups, allowed).look_now().unwrap().0
}

/// Returns each device with its nodes, and the links to them.
fn devices(set: &DeviceSet) -> Vec<String> {
    let devices = set.devices.values().map(|device| {
        let nodes = device.device_nodes.iter().map(|node| {
            assert_eq!(node.host_path, node.container_path);
            let links = node.links.iter().map(|link| format!(" ({link})"));
            format!("{}{}", node.host_path, links.collect::<String>())
        });
        format!("{}: {}", device.id, nodes.collect::<Vec<_>>().join(" "))
    });
    devices.collect()
}

const MACHINE: [&str; 12] = [
    "kvm",
    "null",
    "net/tun",
    "dri/card0",
    "dri/renderD128",
    "dri/by-path/pci-0-card -> ../card0",
    "video0",
    "video1",
    "video10",
    "snd/controlC0",
    "serial/by-id/zigbee -> ../../ttyUSB0",
    "ttyUSB0",
];

#[test]
fn a_group_is_one_device_with_all_that_it_names_and_each_match_is_one_where_that_is_said() {
    let dev = dev(&MACHINE);
    for (groups, expected) in [
        ("[/dev/kvm]", &["/dev/kvm: /dev/kvm"][..]),
        (
            "[/dev/kvm, /dev/net/tun]",
            &["/dev/kvm: /dev/kvm", "/dev/net/tun: /dev/net/tun"],
        ),
        // One of two is missing, and so is the device.
        ("[[/dev/dri/card0, /dev/dri/renderD129]]", &[]),
        (
            "[{paths: [/dev/dri/card0, '/dev/dri/render*'], optional: [/dev/kfd, /dev/kvm]}]",
            &["/dev/dri/card0: /dev/dri/card0 /dev/dri/renderD128 /dev/kvm"],
        ),
        (
            "['/dev/video[0-9]']",
            &["/dev/video[0-9]: /dev/video0 /dev/video1"],
        ),
        (
            "[{paths: '/dev/video*', optional: /dev/kvm, each: true}]",
            &[
                "/dev/video0: /dev/video0 /dev/kvm",
                "/dev/video1: /dev/video1 /dev/kvm",
                "/dev/video10: /dev/video10 /dev/kvm",
            ],
        ),
        (
            "['/dev/*/*0']",
            &["/dev/*/*0: /dev/dri/card0 /dev/snd/controlC0"],
        ),
        // A link gives the node that it leads to, which a container can have at the link, too.
        (
            "[{paths: '/dev/serial/by-id/*', each: true}]",
            &["/dev/serial/by-id/zigbee: /dev/ttyUSB0 (/dev/serial/by-id/zigbee)"],
        ),
        (
            "[[/dev/dri/card0, '/dev/dri/by-path/*']]",
            &["/dev/dri/card0: /dev/dri/card0 (/dev/dri/by-path/pci-0-card)"],
        ),
        // A folder is no device node, and /dev/null is every container's.
        ("[/dev/dri, '/dev/nul?']", &[]),
    ] {
        let set = set_of(&dev, groups, &["/dev"]);
        assert!(
            set.is_whole() && set.problems.is_empty(),
            "{groups}: {set:?}"
        );
        assert_eq!(devices(&set), expected, "{groups}");
    }
    let set = set_of(&dev, "[[/dev/dri/card0, /dev/dri/renderD128]]", &["/dev"]);
    let device = &set.devices[&DeviceId::new("/dev/dri/card0")];
    let variables: Vec<_> = device.properties.iter().collect();
    let of = |name: &str, path: &str| (name.to_owned(), path.to_owned());
    let expected = [
        of("DEVICE_PATH", "/dev/dri/card0"),
        of("DEVICE_PATH_1", "/dev/dri/renderD128"),
    ];
    assert_eq!(
        variables,
        expected.iter().map(|(a, b)| (a, b)).collect::<Vec<_>>()
    );
    assert!(device.connection.iter().eq(device.properties.keys()));
}

#[test]
fn only_paths_on_the_allow_list_are_offered_and_links_lead_to_no_other() {
    let dev = dev(&["mem", "kvm", "mine -> mem", "out -> /etc/passwd", "shm/a"]);
    let groups = "['/dev/*', /dev/mine, /dev/out, '/dev/shm*/a']";
    let set = set_of(&dev, groups, &["/dev/kvm"]);
    assert_eq!(devices(&set), ["/dev/*: /dev/kvm"]);
    let [problem] = &set.problems[..] else {
        panic!("{set:?}");
    };
    for part in [
        "1 device nodes",
        "the first is /dev/mem;",
        "allowed are /dev/kvm.",
        "--device-paths",
    ] {
        assert!(problem.contains(part), "{problem}");
    }
    let none = Paths::new(dev.path(), HostPaths::from_iter([]));
    let refused = none.prepare("groups: /dev/kvm", &Properties::new());
    let refused = refused.err().unwrap().to_string();
    assert!(
        refused.contains("no path is allowed on this node"),
        "{refused}"
    );
}

#[test]
fn a_look_that_cannot_tell_what_is_there_is_an_error_and_declares_nothing_gone() {
    let dev = dev(&["kvm"]);
    let fails = |groups: &str| {
        let looked = discovery(&dev, groups, &["/dev"]).look_now();
        looked.unwrap_err()
    };
    for n in 0..5000 {
        fs::write(dev.path().join(format!("a{n}")), "").unwrap();
    }
    let message = fails("[{paths: '/dev/a*', each: true}]");
    assert!(message.contains("8192 names and paths"), "{message}");
    // What is named without a glob needs no such look.
    let set = set_of(&dev, "[/dev/kvm]", &["/dev"]);
    assert!(set.is_whole() && set.devices.len() == 1, "{set:?}");
    for n in 200..5000 {
        fs::remove_file(dev.path().join(format!("a{n}"))).unwrap();
    }
    let message = fails("[{paths: '/dev/a*', optional: '/dev/a?*', each: true}]");
    assert!(message.contains("8192 device nodes in all"), "{message}");
    let set = set_of(
        &dev,
        "['/dev/a*', {paths: '/dev/a1*', each: true}, {paths: '/dev/a1?', each: true}]",
        &["/dev"],
    );
    assert_eq!(set.devices.len(), 112);
    for (problem, part) in set.problems.iter().zip([
        "1 devices, the first is /dev/a*, have more than 64",
        "10 devices, the first is /dev/a10, have a second group",
    ]) {
        assert!(problem.contains(part), "{problem}");
    }
    assert_eq!(set.problems.len(), 2, "{:?}", set.problems);
    // A name that is too long for the machine: it is not known whether something is there.
    symlink("n".repeat(300), dev.path().join("broken")).unwrap();
    let message = fails("[/dev/broken]");
    assert!(message.contains("/broken: "), "{message}");
}

#[test]
fn folders_in_which_everybody_may_write_are_not_read() {
    let dev = dev(&["dri/card0"]);
    for folder in ["shm", "mqueue", "pts", "fd"] {
        fs::create_dir(dev.path().join(folder)).unwrap();
        for n in 0..2100 {
            fs::write(dev.path().join(format!("{folder}/card{n}")), "").unwrap();
        }
    }
    let discovery = discovery(&dev, "['/dev/*/card*']", &["/dev"]);
    let (set, folders) = discovery.look_now().unwrap();
    assert_eq!(devices(&set), ["/dev/*/card*: /dev/dri/card0"]);
    let dev = fs::canonicalize(dev.path()).unwrap();
    assert!(folders.into_iter().eq([dev.clone(), dev.join("dri")]));
}

#[test]
fn a_device_node_has_as_many_links_as_a_container_gets() {
    let dev = dev(&["sda"]);
    for n in 0..40 {
        add(dev.path(), &format!("by-id/{n} -> ../sda"));
    }
    let set = set_of(&dev, "[[/dev/sda, '/dev/by-id/*']]", &["/dev"]);
    let links = &set.devices[&DeviceId::new("/dev/sda")].device_nodes[0].links;
    assert_eq!(links.len(), 32);
}

#[tokio::test]
async fn what_comes_and_goes_is_seen_at_once_also_in_folders_that_come_later() {
    let dev = dev(&["kvm"]);
    let discovery = discovery(&dev, "[/dev/kvm, /dev/net/tun, '/dev/snd/pcm*']", &["/dev"]);
    let (found, mut seen) = watch::channel(DeviceSet::default());
    let changes = async {
        let mut sees = async |count: usize| {
            let is_seen = |set: &DeviceSet| set.complete && set.devices.len() == count;
            drop(seen.wait_for(is_seen).await.unwrap());
        };
        sees(1).await;
        add(dev.path(), "net/tun");
        sees(2).await;
        add(dev.path(), "snd/pcmC0D0p");
        sees(3).await;
        fs::remove_dir_all(dev.path().join("net")).unwrap();
        sees(2).await;
        add(dev.path(), "net/tun");
        sees(3).await;
        fs::remove_file(dev.path().join("kvm")).unwrap();
        sees(2).await;
    };
    tokio::select! {
        ended = discovery.follow(&found) => panic!("it ended: {ended:?}"),
        () = changes => {}
        () = sleep(Duration::from_secs(20)) => panic!("it was not seen: {:?}", found.borrow()),
    }
}
