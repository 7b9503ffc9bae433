//! Names of their own that Instances get by `spec.instanceName`.
use super::{
    merge::{Cluster, sees, world},
    *,
};
use crate::{
    api::node_devices::NodeDevices,
    controller::fixtures::node_devices,
    model::instance_name::{InstanceKey, InstanceName},
};

fn naming(template: &str) -> Cluster {
    let cam = json!({ "spec": { "capacity": 3, "instanceName": template } });
    Cluster::new(world().with_configuration(configuration("cam", cam)))
}

/// Returns a stick of one node, with its serial number and its port.
fn stick(id: &str, serial: &str) -> Value {
    json!({ "id": id, "connection": "x", "properties": { "SERIAL": serial, "PORT": format!("usb-0_{id}") } })
}

/// Returns the report of a node that has looked everywhere for its own devices.
fn has(node: &str, devices: &[Value]) -> NodeDevices {
    let view = json!({ "namespace": "default", "name": "cam", "complete": true, "own": devices });
    node_devices(node, json!([view]))
}

fn missing(id: &str) -> Value {
    json!({ "id": id, "state": "Unhealthy" })
}

impl Cluster {
    /// Returns the names of all Instances, with `DIGEST` for those that have no name of their own.
    fn names(&self) -> Vec<&str> {
        let names = self.world.instances.keys();
        let names = names.map(|key| {
            if key.name.is_own(&"cam".into()) {
                key.name.as_str()
            } else {
                "DIGEST"
            }
        });
        let mut names: Vec<&str> = names.collect();
        names.sort_unstable();
        names
    }

    /// Returns what the Configuration `cam` says, or nothing.
    fn problem(&mut self, seconds: i64) -> String {
        let planned = looked(&self.world, &mut self.memory, seconds);
        let problem = planned.left_out.get(&key("cam"));
        problem.map_or_else(String::new, |problem| {
            format!("{}: {}", problem.reason, problem.message)
        })
    }

    /// A controller that has seen nothing before leads now.
    fn restart(&mut self) -> &mut Self {
        self.memory = NodeMemory::default();
        self
    }
}

#[test]
fn an_instance_is_called_as_its_configuration_says_and_its_variables_end_with_the_digest_of_that() {
    let mut cluster = naming("zigbee-{SERIAL}");
    cluster.says(has("a", &[stick("1", "DE_21")])).settle(0);
    assert_eq!(cluster.names(), ["zigbee-de-21"]);
    let digest = InstanceName::from("zigbee-de-21").digest_in(&"cam".into());
    let cdi_name = format!("akri.sh/cam={digest}");
    assert_eq!(
        (cluster.only().spec.cdi_name.clone(), digest.len()),
        (cdi_name, 10)
    );
    assert_eq!(cluster.problem(1), "");
    // It is found again by its device, not by its name.
    let said = json!({ "id": "1", "connection": "y" });
    cluster.restart().says(has("a", &[said])).settle(1);
    let notes = cluster.only().metadata.annotations.clone().unwrap();
    assert_eq!(notes["akri.sh/connection"], "y");
    cluster.says(has("a", &[missing("1")])).settle(2);
    assert_eq!(cluster.names(), ["zigbee-de-21"]);
    cluster.says(has("a", &[])).settle(3);
    assert!(cluster.world.instances.is_empty());
}

#[test]
fn a_shared_device_has_one_name_on_all_nodes() {
    let mut cluster = naming("hall-{BY}");
    let device = |by: &str| json!({ "id": "camera-1", "properties": { "BY": by } });
    cluster.says(sees("b", &device("b"))).settle(0);
    cluster.says(sees("a", &device("a"))).settle(1);
    assert_eq!(
        (cluster.names(), cluster.nodes()),
        (vec!["hall-b"], vec!["b", "a"])
    );
}

#[test]
fn of_two_sticks_with_one_serial_number_the_first_has_its_name_and_the_port_tells_them_apart() {
    for (template, names) in [
        ("zigbee-{SERIAL}", ["DIGEST", "zigbee-a1"]),
        ("{PORT}", ["usb-0-1", "usb-0-2"]),
    ] {
        let mut cluster = naming(template);
        let both = [stick("1", "A1"), stick("2", "A1")];
        cluster.says(has("a", &both)).settle(0).restart().settle(1);
        assert_eq!(cluster.names(), names);
        let problem = cluster.problem(2);
        assert_eq!(problem.is_empty(), template == "{PORT}");
        for part in [
            "zigbee-a1 is the name of Instance default/zigbee-a1",
            "UDEV_ID_PATH_TAG",
        ] {
            assert!(problem.is_empty() || problem.contains(part), "{problem}");
        }
    }
}

#[test]
fn of_two_nodes_with_a_device_of_one_name_the_first_has_it_and_the_second_is_told() {
    let mut cluster = naming("zigbee");
    cluster.says(has("b", &[stick("1", "B1")])).settle(0);
    // The same id on another node is another device.
    cluster
        .says(has("a", &[stick("1", "A1")]))
        .settle(1)
        .restart()
        .settle(2);
    assert_eq!(cluster.names(), ["DIGEST", "zigbee"]);
    assert_eq!(cluster.world.instances[&key("zigbee")].spec.nodes, ["b"]);
    assert!(
        cluster
            .problem(3)
            .starts_with("InstanceNameNotGiven: Instance cam-")
    );
    // The name is free, and Pods may ask for the one that it has.
    cluster.says(has("b", &[])).settle(4);
    assert_eq!(cluster.names(), ["DIGEST"]);
    let problem = cluster.problem(5);
    assert!(problem.contains("zigbee is free"), "{problem}");
    assert!(
        problem.contains("kubectl -n default delete instance cam-"),
        "{problem}"
    );
    cluster.world.instances.clear();
    cluster.settle(6);
    assert_eq!(cluster.names(), ["zigbee"]);
    assert_eq!(cluster.problem(7), "");
}

#[test]
fn a_stick_that_moves_to_another_node_gets_its_name_there_when_its_instance_is_gone_here() {
    let mut cluster = naming("zigbee-{SERIAL}");
    cluster.says(has("a", &[stick("1", "A1")])).settle(0);
    cluster
        .says(has("a", &[missing("1")]))
        .says(has("b", &[stick("7", "A1")]))
        .settle(1);
    assert_eq!(cluster.world.instances[&key("zigbee-a1")].spec.nodes, ["a"]);
    assert_eq!(cluster.names(), ["zigbee-a1"]);
    let problem = cluster.problem(2);
    assert!(
        problem.contains("gets no Instance yet") && problem.contains("\"7\""),
        "{problem}"
    );
    cluster.restart().settle(3);
    assert_eq!(cluster.names(), ["zigbee-a1"]);
    cluster.says(has("a", &[])).settle(61);
    assert_eq!(cluster.only().spec.nodes, ["b"]);
    assert_eq!(cluster.names(), ["zigbee-a1"]);
    assert_eq!(cluster.problem(62), "");
    // Its first node is lost: nobody says that the device is gone.
    let mut lost = naming("zigbee-{SERIAL}");
    lost.says(has("a", &[stick("1", "A1")])).settle(0);
    lost.world = std::mem::take(&mut lost.world).with_nodes([("b", ready())]);
    lost.world.forget("a");
    lost.says(has("b", &[stick("7", "A1")])).settle(1);
    assert!(lost.problem(2).contains("gets no Instance yet"));
    lost.settle(1000);
    assert_eq!(lost.only().spec.nodes, ["b"]);
}

#[test]
fn a_device_without_the_property_is_named_by_a_digest_and_the_status_names_the_property() {
    let mut cluster = naming("zigbee-{SERIAL}");
    let nameless = json!({ "id": "2", "properties": {} });
    let signs = json!({ "id": "3", "properties": { "SERIAL": "--" } });
    cluster
        .says(has("a", &[stick("1", "A1"), nameless, signs]))
        .settle(0);
    assert_eq!(cluster.names(), ["DIGEST", "DIGEST", "zigbee-a1"]);
    let problem = cluster.problem(1);
    assert!(
        problem.contains("SERIAL") && problem.ends_with("; and 1 more Instances"),
        "{problem}"
    );
}

#[test]
fn an_instance_keeps_its_name_while_it_lives_whatever_is_edited() {
    let mut cluster = naming("zigbee-{SERIAL}");
    cluster.says(has("a", &[stick("1", "A1")])).settle(0);
    for (seconds, fields, says) in [
        (1, json!({ "instanceName": "{PORT}" }), "usb-0-1 is free"),
        (2, json!({}), ""),
        (3, json!({ "instanceName": "{NONE}" }), "no property NONE"),
        (4, json!({ "instanceName": "zigbee-{SERIAL}" }), ""),
        (5, json!({ "instanceName": "Not a template" }), ""),
    ] {
        let cam = configuration("cam", json!({ "spec": fields }));
        cluster.world = std::mem::take(&mut cluster.world).with_configuration(cam);
        cluster.restart().settle(seconds);
        assert_eq!(cluster.names(), ["zigbee-a1"]);
        let problem = cluster.problem(seconds);
        assert_eq!(problem.is_empty(), says.is_empty(), "{problem}");
        assert!(problem.contains(says), "{problem}");
    }
    let cam = json!({ "spec": { "instanceName": "zigbee-{SERIAL}" } });
    cluster.world =
        std::mem::take(&mut cluster.world).with_configuration(configuration("cam", cam));
    let other = json!({ "id": "1", "connection": "x", "properties": { "SERIAL": "A2" } });
    cluster.says(has("a", &[other])).settle(6);
    assert_eq!(cluster.names(), ["zigbee-a1"]);
    assert!(cluster.problem(7).contains("zigbee-a2 is free"));
}

#[test]
fn a_name_that_others_have_or_may_get_is_not_given() {
    let other = |name: &str, resource: Option<&str>| {
        let metadata = json!({ "namespace": "other" });
        let fields = json!({ "metadata": metadata, "spec": { "resourceName": resource } });
        configuration(name, fields)
    };
    let theirs = instance(
        "taken",
        json!({ "metadata": { "namespace": "other" }, "spec": { "configurationName": "tv" } }),
    );
    let world = world()
        .with_configuration(other("tv", Some("example.com/screen")))
        .with_instance(theirs);
    for (template, says) in [
        ("cam", "the resource of Configuration default/cam"),
        ("tv", "the resource of Configuration other/tv"),
        ("screen", "the resource of Configuration other/tv"),
        (
            "tv-8120fe",
            "an Instance that Configuration other/tv may get",
        ),
        (
            "tv-0123456789",
            "an Instance that Configuration other/tv may get",
        ),
        ("taken", "Instance other/taken"),
        (
            "cam-8120fe",
            "an Instance that Configuration default/cam may get",
        ),
        ("tv-hall", ""),
    ] {
        let cam = json!({ "spec": { "instanceName": template } });
        let mut cluster = Cluster::new(world.clone());
        cluster.world = cluster.world.with_configuration(configuration("cam", cam));
        cluster.says(has("a", &[stick("1", "A1")])).settle(0);
        let problem = cluster.problem(1);
        assert!(problem.contains(says), "{template}: {problem}");
        assert_eq!(problem.is_empty(), says.is_empty(), "{template}: {problem}");
        let has_it = cluster.world.instances.contains_key(&key(template));
        assert_eq!(has_it, says.is_empty(), "{template}");
    }
}

#[test]
fn a_configuration_that_comes_later_is_told_that_an_instance_has_its_resource() {
    let mut cluster = naming("zigbee");
    cluster.says(has("a", &[stick("1", "A1")])).settle(0);
    let of = |name: &str, fields: Value| {
        let mut later = configuration(name, fields);
        later.metadata.namespace = Some("other".to_owned());
        later
    };
    let view =
        |name: &str| json!({ "namespace": "other", "name": name, "complete": true, "own": [] });
    cluster.world = std::mem::take(&mut cluster.world)
        .with_configuration(of("zigbee", json!({})))
        .with_configuration(of(
            "named",
            json!({ "spec": { "resourceName": "akri.sh/zigbee" } }),
        ))
        .with_configuration(of(
            "free",
            json!({ "spec": { "resourceName": "a.b/zigbee" } }),
        ))
        .with_node_devices(node_devices(
            "b",
            json!([view("zigbee"), view("named"), view("free")]),
        ));
    cluster.settle(1);
    assert_eq!(cluster.names(), ["zigbee"]);
    let planned = looked(&cluster.world, &mut cluster.memory, 2);
    let told: Vec<_> = planned
        .left_out
        .iter()
        .filter(|(_, p)| p.reason == "ResourceTaken")
        .collect();
    let names: Vec<&str> = told.iter().map(|(of, _)| of.name.as_str()).collect();
    assert_eq!(names, ["named", "zigbee"]);
    assert!(told[0].1.message.contains("Instance default/zigbee"));
    assert_eq!(cluster.problem(3), "");
}

#[test]
fn no_node_gets_the_named_instance_of_another_by_the_id_of_its_device() {
    let mut cluster = naming("zigbee-{SERIAL}");
    cluster.says(has("a", &[stick("1", "A1")])).settle(0);
    cluster.says(has("b", &[stick("1", "A1")])).settle(1);
    assert_eq!(cluster.world.instances[&key("zigbee-a1")].spec.nodes, ["a"]);
    assert_eq!(cluster.names(), ["DIGEST", "zigbee-a1"]);
    // Nor while its node is away.
    cluster
        .says(has("a", &[missing("1")]))
        .says(has("b", &[]))
        .settle(2);
    cluster.says(has("b", &[missing("1")])).settle(3);
    assert_eq!(cluster.only().spec.nodes, ["a"]);
}

proptest! {
    #[test]
    fn each_device_has_one_instance_and_each_name_one_device(events in prop::collection::vec((any::<bool>(), 0..3_usize, any::<bool>()), 1..12)) {
        let mut cluster = naming("s-{SERIAL}");
        let mut there = std::collections::BTreeMap::<&str, Vec<usize>>::new();
        let mut before: std::collections::BTreeMap<String, String> = [].into();
        for (seconds, (is_a, port, restarts)) in (0..).zip(events) {
            let node = if is_a { "a" } else { "b" };
            let ports = there.entry(node).or_default();
            match ports.iter().position(|p| *p == port) {
                Some(place) => drop(ports.remove(place)),
                None => ports.push(port),
            }
            // Two ports have sticks of one serial number.
            let devices: Vec<Value> = ports.iter().map(|p| stick(&p.to_string(), &format!("{}", p / 2))).collect();
            if restarts {
                cluster.restart();
            }
            cluster.says(has(node, &devices)).settle(seconds);
            let count: usize = there.values().map(Vec::len).sum();
            prop_assert_eq!(cluster.world.instances.len(), count);
            let of = |(key, instance): (&InstanceKey, &Arc<Instance>)| {
                let id = instance.metadata.annotations.as_ref().unwrap()["akri.sh/device-id"].clone();
                (format!("{} {id}", instance.spec.nodes[0]), key.name.to_string())
            };
            let now: std::collections::BTreeMap<String, String> = cluster.world.instances.iter().map(of).collect();
            prop_assert_eq!(now.len(), count);
            for (device, name) in &now {
                prop_assert_eq!(before.get(device).unwrap_or(name), name);
            }
            before = now;
        }
    }
}
