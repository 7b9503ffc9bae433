//! The text of the lists.
use super::*;
use crate::controller::fixtures::{configuration, instance, key};

/// Returns an Instance with these properties.
fn with(name: &str, properties: Value) -> Instance {
    let fields = json!({
        "metadata": { "annotations": { "akri.sh/device-id": format!("id of {name}") } },
        "spec": { "nodes": ["a", "b"], "brokerProperties": properties },
    });
    instance(name, fields)
}

fn service(name: &str, address: &str) -> Instance {
    let properties = json!({
        "AKRI_ZEROCONF_DEVICE_ADDR": address, "AKRI_ZEROCONF_DEVICE_PORT": "80", "größe/1": "7", "größe/2": "8",
    });
    with(name, properties)
}

fn devices(instances: Vec<Instance>) -> Devices {
    let world = World::default().with_configuration(configuration("cam", json!({})));
    let world = instances.into_iter().fold(world, World::with_instance);
    Devices::new(&world, &key("cam")).unwrap()
}

fn parsed(text: &Text) -> Value {
    serde_json::from_str(&text.text).unwrap()
}

#[test]
fn a_list_has_the_devices_of_its_configuration_alone_with_address_health_and_the_nodes_that_see_them()
 {
    let mut gone = service("cam-2", "2001:db8::1");
    let status = json!({
        "conditions": [{ "type": "Available", "status": "False", "reason": "NoNode", "lastTransitionTime": "" }],
        "nodes": [{ "name": "a", "health": "Unhealthy", "lastTransitionTime": "" }],
    });
    gone.status = Some(serde_json::from_value(status).unwrap());
    let other = instance("tv-1", json!({ "spec": { "configurationName": "tv" } }));
    let elsewhere = instance("cam-3", json!({ "metadata": { "namespace": "other" } }));
    let ending = json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } });
    let ending = instance("cam-4", ending);
    let first = with("cam-1", json!({ "UDEV_DEVNODE": "/dev/video0" }));
    let list = devices(vec![first, gone, other, elsewhere, ending]).json(10_000);
    let properties = json!({
        "AKRI_ZEROCONF_DEVICE_ADDR": "2001:db8::1", "AKRI_ZEROCONF_DEVICE_PORT": "80", "größe/1": "7", "größe/2": "8",
    });
    let expected = json!({
        "namespace": "default", "configuration": "cam", "leftOut": 0, "devices": [
            {
                "instance": "cam-1", "device": "id of cam-1", "healthy": true, "nodes": ["a", "b"],
                "properties": { "UDEV_DEVNODE": "/dev/video0" },
            },
            {
                "instance": "cam-2", "device": "id of cam-2", "address": "[2001:db8::1]:80", "healthy": false,
                "nodes": ["b"], "properties": properties,
            },
        ],
    });
    assert_eq!(parsed(&list), expected);
    assert!(Devices::new(&World::default(), &key("cam")).is_none());
}

#[test]
fn targets_are_devices_with_an_address_and_their_labels_have_names_that_prometheus_takes() {
    let local = service("cam-2", "fe80::1%eth0");
    let node = with("cam-3", json!({ "UDEV_DEVNODE": "/dev/video0" }));
    let targets = devices(vec![service("cam-1", "10.0.0.7"), local, node]).http_sd(10_000);
    let expected = json!([{
        "targets": ["10.0.0.7:80"],
        "labels": {
            "__meta_petiole_namespace": "default",
            "__meta_petiole_configuration": "cam",
            "__meta_petiole_instance": "cam-1",
            "__meta_petiole_device": "id of cam-1",
            "__meta_petiole_healthy": "true",
            "__meta_petiole_nodes": ",a,b,",
            "__meta_petiole_property_AKRI_ZEROCONF_DEVICE_ADDR": "10.0.0.7",
            "__meta_petiole_property_AKRI_ZEROCONF_DEVICE_PORT": "80",
            // Of two that get one name, the first counts.
            "__meta_petiole_property_gr__e_1": "7",
            "__meta_petiole_property_gr__e_2": "8",
        },
    }]);
    assert_eq!(parsed(&targets), expected);
    assert_eq!(targets.left_out, 0);
}

#[test]
fn of_two_properties_with_one_label_the_first_counts() {
    let both = with(
        "cam-1",
        json!({ "AKRI_ZEROCONF_DEVICE_ADDR": "10.0.0.7", "a.b": "1", "a/b": "2" }),
    );
    let targets = parsed(&devices(vec![both]).http_sd(10_000));
    assert_eq!(targets[0]["labels"]["__meta_petiole_property_a_b"], "1");
}

#[test]
fn the_largest_devices_are_left_out_of_a_list_that_is_too_long_and_it_says_how_many() {
    let sized = |name: &str, size| with(name, json!({ "A": "\u{1}".repeat(size) }));
    let all = [
        ("cam-1", 300),
        ("cam-2", 2_000),
        ("cam-3", 10),
        ("cam-4", 200),
    ];
    let devices = devices(all.map(|(name, size)| sized(name, size)).into());
    let names = |most| -> Vec<String> {
        let list = devices.json(most);
        let json = parsed(&list);
        assert_eq!(json["leftOut"], list.left_out);
        let listed = json["devices"].as_array().unwrap();
        let bytes: usize = listed.iter().map(|d| d.to_string().len() + 1).sum();
        assert!(bytes <= most, "{bytes}");
        assert_eq!(listed.len() + list.left_out, 4);
        let name = |device: &Value| device["instance"].as_str().unwrap().to_owned();
        listed.iter().map(name).collect()
    };
    // Each character is six in JSON.
    assert_eq!(names(100_000), ["cam-1", "cam-2", "cam-3", "cam-4"]);
    assert_eq!(names(5_000), ["cam-1", "cam-3", "cam-4"]);
    assert_eq!(names(2_000), ["cam-3", "cam-4"]);
    // Of few bytes that are many in JSON, those after them are left out no more than others.
    let wide = with("cam-1", json!({ "A": "\u{1}".repeat(100) }));
    let plain = with("cam-2", json!({ "A": "a".repeat(200) }));
    let list = self::devices(vec![wide, plain]).json(500);
    assert_eq!(parsed(&list)["devices"][0]["instance"], "cam-2");
    assert_eq!(names(0), [""; 0]);
}

#[test]
fn a_target_is_the_same_host_for_everybody_who_reads_the_list() {
    for address in [
        "",
        "127.0.0.1",
        "0.0.0.0",
        "169.254.169.254",
        "::1",
        "fe80::1",
        "fe80::1%eth0",
        "::ffff:127.0.0.1",
        "localhost",
    ] {
        let targets = devices(vec![service("cam-1", address)]).http_sd(10_000);
        assert_eq!(targets.text, "[]", "{address}");
    }
    for (url, target) in [
        ("http://cam:/", None),
        ("http://:80/", None),
        ("http://[fe80::1]/", None),
        ("http://cam/", Some("cam:80")),
        ("urn://[2001:db8::1]", Some("[2001:db8::1]")),
    ] {
        let device = with("cam-1", json!({ "ONVIF_DEVICE_SERVICE_URL": url }));
        let targets = parsed(&devices(vec![device]).http_sd(10_000));
        assert_eq!(targets[0]["targets"][0].as_str(), target, "{url}");
    }
}
