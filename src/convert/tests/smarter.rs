//! Tests of what smarter-device-manager was told.
use super::*;

fn smarter(entries: &str, offered: &str) -> Converted {
    of(&format!(
        "{{kind: ConfigMap, metadata: {{name: c}}, data: {{conf.yaml: '[{entries}]'}}}}\n---\n{{kind: Node, status: {{capacity: {{cpu: 2, {offered}}}}}}}"
    ))
}

#[test]
fn an_entry_of_smarter_device_manager_is_a_configuration_for_each_device() {
    let converted = smarter(
        "{devicematch: ^kvm$, nummaxdevices: 10}, {devicematch: ^net/tun$, nummaxdevices: 5}, \
         {devicematch: ^snd$, nummaxdevices: 20}, {devicematch: \"^gpiochip[0-9]*$\", nummaxdevices: 2}, \
         {devicematch: ^dri/.*$, nummaxdevices: 3}",
        "smarter-devices/kvm: 10, smarter-devices/gpiochip0: 2, smarter-devices/gpiochip1: 0, smarter-devices/dri_card0: 3",
    );
    assert_eq!(refused(&converted), [""; 0]);
    let expected = [
        "kvm smarter-devices/kvm",
        "net-tun smarter-devices/net_tun",
        "snd smarter-devices/snd",
        "gpiochip0 smarter-devices/gpiochip0",
        "gpiochip1 smarter-devices/gpiochip1",
        "dri-card0 smarter-devices/dri_card0",
    ];
    assert_eq!(names(&converted), expected);
    let groups: Vec<Value> = specs(&converted).iter().map(details).collect();
    let paths = [
        "/dev/kvm",
        "/dev/net/tun",
        "/dev/snd/*",
        "/dev/gpiochip0",
        "/dev/gpiochip1",
        "/dev/dri/card0",
    ];
    let expected = paths.map(|path| json!({"groups": [path], "permissions": "rw"}));
    assert_eq!(groups, expected);
    let capacities = specs(&converted);
    let capacities = capacities.iter().map(|spec| spec["capacity"].as_u64());
    assert!(capacities.flatten().eq([10, 5, 20, 2, 2, 3]));
    assert_eq!(
        values(&converted)[0],
        "'resourcePrefixes={akri.sh,smarter-devices}'"
    );
}

#[test]
fn an_entry_of_smarter_device_manager_that_cannot_be_told_apart_is_refused() {
    for (entries, offered, place) in [
        ("{devicematch: nvidia-gpu, nummaxdevices: 1}", "", "NVIDIA"),
        ("{devicematch: kvm, nummaxdevices: 1}", "", "add the nodes"),
        ("{devicematch: ^a.$, nummaxdevices: 1}", "", "^a.$"),
        ("{devicematch: \"^[$\", nummaxdevices: 1}", "", "^[$"),
        ("{devicematch: ^a$, nummaxdevices: 0}", "", "capacity is 0"),
        ("{devicematch: ^a$}", "", "nummaxdevices"),
        (
            "{devicematch: ^a$, nummaxdevices: 1, x: 1}",
            "",
            "unknown field",
        ),
        (
            "{devicematch: ^a$, nummaxdevices: 1}, {devicematch: ^a$, nummaxdevices: 2}",
            "",
            "another is to be the Configuration a",
        ),
        (
            "{devicematch: ^.*$, nummaxdevices: 1}",
            "smarter-devices/a_b: 1",
            "another is to be the Configuration a-b",
        ),
        (
            "{devicematch: ^a$, nummaxdevices: 1}",
            "smarter-devices/iio_device0: 1",
            "smarter-devices/iio_device0: a node offers it",
        ),
    ] {
        let converted = smarter(entries, offered);
        let why = refused(&converted).join("\n");
        assert!(why.contains(place), "{entries}\n said {why}");
    }
    let alone = of(
        "{kind: Pod, metadata: {name: p}, spec: {containers: [{image: ghcr.io/x/smarter-device-manager}]}}",
    );
    assert!(
        refused(&alone)[0].contains("the file of its image"),
        "{alone:?}"
    );
}
