//! Devices that one node alone has: its report makes their Instances.
use super::{
    merge::{Cluster, says, world},
    *,
};
use crate::{
    api::node_devices::NodeDevices,
    controller::fixtures::node_devices,
    model::{
        device::{DeviceId, Scope},
        instance_name::InstanceName,
    },
};

const ID: &str = "ttyUSB0";

/// Returns the report of a node that has looked everywhere for its own devices.
fn reports(node: &str, devices: &[Value]) -> NodeDevices {
    let view = json!({
        "namespace": "default", "name": "cam", "complete": true, "own": devices,
    });
    node_devices(node, json!([view]))
}

fn device(connection: &str) -> Value {
    json!({ "id": ID, "connection": connection, "properties": { "FILE": "/dev/ttyUSB0" } })
}

fn sees(node: &str) -> NodeDevices {
    reports(node, &[device("x")])
}

fn misses(node: &str) -> NodeDevices {
    reports(node, &[json!({ "id": ID, "state": "Unhealthy" })])
}

fn name_on(node: &str) -> InstanceName {
    let [name, _] =
        InstanceName::candidates(&"cam".into(), &DeviceId::new(ID), Scope::Node, &node.into());
    name
}

/// Returns a cluster in which `a` has a device.
fn with_device() -> Cluster {
    let mut cluster = Cluster::new(world());
    cluster.says(sees("a")).settle(0);
    cluster
}

impl Cluster {
    /// A container of `node` holds the first slot.
    fn hold(&mut self, node: Option<&str>) {
        let name = key(self.only().metadata.name.clone().unwrap().as_str());
        let held = Arc::make_mut(self.world.instances.get_mut(&name).unwrap());
        held.spec.device_usage = node
            .map(|node| (format!("{}-0", name.name), node.to_owned()))
            .into_iter()
            .collect();
    }
}

#[test]
fn each_node_has_an_instance_of_its_own_device_named_after_both() {
    let mut cluster = Cluster::new(world());
    cluster.says(sees("a")).says(sees("b")).settle(0);
    assert_eq!(cluster.world.instances.len(), 2);
    for node in ["a", "b"] {
        let made = &cluster.world.instances[&key(&name_on(node))];
        assert_eq!(
            (&*made.spec.nodes, made.spec.shared),
            (&[node.into()][..], false)
        );
        assert_eq!((made.spec.capacity, &made.status), (3, &None));
        assert_eq!(made.spec.broker_properties["FILE"], "/dev/ttyUSB0");
        let digest = name_on(node).digest().unwrap().to_owned();
        assert_eq!(made.spec.cdi_name, format!("akri.sh/cam={digest}"));
        let labels = made.metadata.labels.as_ref().unwrap();
        assert_eq!(*labels, [(names::node_label(node), String::new())].into());
        let notes = made.metadata.annotations.clone().unwrap();
        let expected = [("akri.sh/connection", "x"), ("akri.sh/device-id", ID)];
        let expected = expected.map(|(key, value)| (key.to_owned(), value.to_owned()));
        assert_eq!(notes, expected.into());
    }
    cluster.says(reports("a", &[device("y")])).settle(1);
    let changed = &cluster.world.instances[&key(&name_on("a"))];
    assert_eq!(
        changed.metadata.annotations.as_ref().unwrap()["akri.sh/connection"],
        "y"
    );
}

#[test]
fn a_device_that_is_back_within_its_grace_period_keeps_its_instance_and_its_slots() {
    let mut cluster = with_device();
    cluster.hold(Some("a"));
    cluster.says(misses("a")).settle(1);
    let status = cluster.only().status.clone().unwrap();
    assert_eq!(status.conditions[0].reason, "DeviceGone");
    assert_eq!(cluster.nodes(), ["a"]);
    cluster.says(sees("a")).settle(50);
    let back = cluster.only();
    assert!(back.status.as_ref().unwrap().conditions[0].is_true());
    assert_eq!(back.spec.device_usage.len(), 1);
}

#[test]
fn an_instance_goes_as_soon_as_its_node_reports_without_it_and_no_container_has_a_slot() {
    let mut cluster = with_device();
    // A new run of the agent has not looked everywhere yet, and its controller is new, too.
    let looking = json!([{ "namespace": "default", "name": "cam", "own": [] }]);
    cluster.memory = NodeMemory::default();
    cluster.says(node_devices("a", looking)).settle(9_000);
    assert_eq!(cluster.nodes(), ["a"]);
    cluster.hold(Some("a"));
    let left = json!({ "instance": name_on("a").as_str(), "state": "Left" });
    cluster.says(reports("a", &[left])).settle(9_001);
    let status = cluster.only().status.clone().unwrap();
    assert_eq!(status.conditions[0].reason, "DeviceGoneInUse");
    assert_eq!((cluster.nodes().len(), cluster.labels().len()), (0, 1));
    // The agent may have given a slot away while no API server answered.
    cluster.hold(None);
    cluster.settle(20_000);
    assert_eq!(cluster.world.instances.len(), 1);
    // A claim that is newer than the report keeps it.
    cluster.hold(Some("a"));
    cluster.says(reports("a", &[])).settle(20_001);
    assert_eq!(cluster.world.instances.len(), 1);
    cluster.hold(None);
    cluster.settle(20_002);
    assert!(cluster.world.instances.is_empty());
}

#[test]
fn a_configuration_that_is_being_deleted_gets_no_new_instance() {
    let deleting = json!({ "metadata": { "deletionTimestamp": text(at(0)) } });
    let deleted = world().with_configuration(configuration("cam", deleting));
    let mut cluster = Cluster::new(deleted);
    cluster.says(sees("a")).settle(0);
    assert!(cluster.world.instances.is_empty());
}

#[test]
fn a_lost_node_joins_no_instance_by_its_old_report() {
    let mut cluster = Cluster::new(world());
    cluster.says(says("a")).settle(0);
    let nodes = [("a", ready()), ("b", not_ready(at(0)))];
    cluster.world = cluster.world.with_nodes(nodes);
    cluster.says(says("b"));
    let planned = looked(&cluster.world, &mut NodeMemory::default(), 75);
    let silence = Action::DeleteNodeDevices {
        node: "b".into(),
        uid: "uid-of-b".to_owned(),
    };
    assert_eq!(planned.actions, [silence]);
}

#[test]
fn a_device_of_one_node_is_that_of_its_node_whoever_else_reports_it() {
    let mut cluster = with_device();
    let name = name_on("a");
    for state in [None, Some("Unhealthy"), Some("Left")] {
        let device = json!({ "instance": name.as_str(), "state": state, "connection": "evil" });
        cluster.says(reports("b", &[device])).settle(1);
        assert_eq!((cluster.nodes(), cluster.labels().len()), (vec!["a"], 1));
        assert_eq!(cluster.only().status, None);
    }
    // Also while the node is not ready.
    let nodes = [("a", not_ready(at(0))), ("b", ready()), ("c", ready())];
    cluster.world = std::mem::take(&mut cluster.world).with_nodes(nodes);
    let device = json!({ "instance": name.as_str(), "connection": "evil" });
    cluster.says(reports("b", &[device]));
    for seconds in [10, 70] {
        let planned = looked(&cluster.world, &mut cluster.memory, seconds);
        execute(&mut cluster.world, &mut cluster.memory, &planned, seconds);
    }
    assert_eq!(cluster.nodes(), [""; 0]);
}

#[test]
fn a_node_that_was_deleted_and_is_registered_again_keeps_its_devices_until_its_agent_has_reported()
{
    let mut cluster = with_device();
    let node = Arc::make_mut(&mut cluster.world.nodes).remove("a").unwrap();
    cluster.settle(10);
    assert_eq!((cluster.nodes().len(), cluster.labels().len()), (0, 1));
    assert!(cluster.world.node_devices.is_empty());
    // The agent of the node does not reach an API server.
    Arc::make_mut(&mut cluster.world.nodes).insert("a".into(), node);
    cluster.settle(140).settle(600);
    assert_eq!(cluster.world.instances.len(), 1);
    let late = world().with_instance(cluster.only().clone());
    let mut late = Cluster::new(late);
    cluster.says(sees("a")).settle(601);
    assert_eq!(
        (cluster.nodes(), cluster.labels()),
        (vec!["a"], vec!["node.akri.sh/a"])
    );
    // One that never reports has no agent.
    late.settle(10).settle(700);
    assert!(late.world.instances.is_empty());
}

#[test]
fn an_instance_of_an_earlier_agent_stays_until_an_agent_that_reports_such_devices_takes_it_over() {
    let name = name_on("a");
    let metadata = json!({
        "annotations": { "akri.sh/device-id": ID }, "labels": { "node.akri.sh/a": "" },
    });
    let spec =
        json!({ "nodes": ["a"], "capacity": 3, "deviceUsage": { format!("{name}-0"): "a" } });
    let earlier = instance(&name, json!({ "metadata": metadata, "spec": spec }));
    let mut cluster = Cluster::new(world().with_instance(earlier));
    let shared_alone = json!([{ "namespace": "default", "name": "cam", "complete": true }]);
    cluster.says(node_devices("a", shared_alone)).settle(9_000);
    assert_eq!(cluster.nodes(), ["a"]);
    cluster.says(sees("a")).settle(9_001);
    assert_eq!(cluster.only().spec.device_usage.len(), 1);
    assert_eq!(cluster.only().spec.broker_properties.len(), 1);
    // Akri's has no note of its device.
    let akris = instance(&name, json!({ "spec": { "nodes": ["a"], "capacity": 3 } }));
    let mut cluster = Cluster::new(world().with_instance(akris));
    cluster.says(sees("a")).settle(0);
    let annotations = cluster.only().metadata.annotations.clone().unwrap();
    assert_eq!(annotations["akri.sh/device-id"], ID);
}

#[test]
fn a_node_has_at_most_so_many_devices_as_its_configuration_says_and_others_have_theirs() {
    let mut cluster = Cluster::new(world());
    let limited = configuration("cam", json!({ "spec": { "maxInstances": 2 } }));
    cluster.world = cluster.world.with_configuration(limited);
    let device = |n| json!({ "id": format!("tty{n}"), "properties": {} });
    let many: Vec<Value> = (0..5).map(device).collect();
    cluster.says(reports("a", &many)).says(sees("b")).settle(0);
    let of = |node: &str| {
        let instances = cluster.world.instances.values();
        instances.filter(|i| i.spec.names_node(node)).count()
    };
    assert_eq!((of("a"), of("b")), (2, 1));
}

#[test]
fn an_instance_goes_with_its_configuration_also_while_it_is_held() {
    let mut cluster = with_device();
    cluster.hold(Some("a"));
    cluster.loses_configuration();
}

#[test]
fn a_device_that_comes_up_later_than_its_node_keeps_its_instance() {
    let mut cluster = with_device();
    let lost = [("a", not_ready(at(0))), ("b", ready()), ("c", ready())];
    cluster.world = std::mem::take(&mut cluster.world).with_nodes(lost);
    cluster.settle(1).settle(70);
    assert_eq!((cluster.nodes().len(), cluster.labels().len()), (0, 1));
    cluster.world = std::mem::take(&mut cluster.world).with_nodes([("a", ready())]);
    cluster.says(misses("a")).settle(9_000);
    assert_eq!((cluster.nodes().len(), cluster.labels().len()), (0, 1));
    cluster.says(sees("a")).settle(9_001);
    assert_eq!(cluster.nodes(), ["a"]);
}

#[test]
fn an_instance_that_an_agent_cannot_have_found_gets_the_label_of_its_node_first() {
    let mut unlabelled = with_device().only().clone();
    unlabelled.metadata.labels = None;
    unlabelled.spec.nodes = vec![];
    for held in [None, Some("b")] {
        let mut cluster = Cluster::new(world().with_instance(unlabelled.clone()));
        cluster.hold(held);
        cluster.says(reports("a", &[]));
        let planned = looked(&cluster.world, &mut cluster.memory, 0);
        execute(&mut cluster.world, &mut cluster.memory, &planned, 0);
        assert!(cluster.labels().contains(&"node.akri.sh/a"), "{planned:?}");
        cluster.says(misses("a")).settle(9_000);
        assert!(cluster.labels().contains(&"node.akri.sh/a"));
    }
    // A container of another node holds a slot: that is no reason to write the label again and again.
    let mut cluster = Cluster::new(world().with_instance(unlabelled));
    cluster.hold(Some("b"));
    cluster.says(reports("a", &[])).settle(0);
}

#[test]
fn no_time_ends_an_instance_of_a_device_that_an_agent_of_before_may_see() {
    let mut cluster = with_device();
    let lost = [("a", not_ready(at(0))), ("b", ready()), ("c", ready())];
    cluster.world = std::mem::take(&mut cluster.world).with_nodes(lost);
    cluster.settle(1).settle(70);
    cluster.world = std::mem::take(&mut cluster.world).with_nodes([("a", ready())]);
    let shared_alone = json!([{ "namespace": "default", "name": "cam", "complete": true }]);
    cluster.says(node_devices("a", shared_alone)).settle(9_000);
    assert_eq!(cluster.world.instances.len(), 1);
    // With its node, its word is lost.
    let lost = [("a", not_ready(at(9_000))), ("b", ready()), ("c", ready())];
    cluster.world = std::mem::take(&mut cluster.world).with_nodes(lost);
    for seconds in [9_001, 9_070, 20_000] {
        let planned = looked(&cluster.world, &mut cluster.memory, seconds);
        execute(&mut cluster.world, &mut cluster.memory, &planned, seconds);
    }
    assert!(cluster.world.instances.is_empty());
}
