//! Shared devices: what nodes see is merged into Instances.
use super::*;
use crate::{
    controller::fixtures::node_devices,
    model::{
        device::{DeviceId, Scope},
        instance_name::InstanceName,
    },
};

pub(super) const ID: &str = "camera-1";

pub(super) fn sees(node: &str, device: &Value) -> crate::api::node_devices::NodeDevices {
    let configuration =
        json!({ "namespace": "default", "name": "cam", "complete": true, "devices": [device] });
    node_devices(node, json!([configuration]))
}

/// Returns the names that the Instance of the camera may have.
pub(super) fn camera_names() -> [InstanceName; 2] {
    let (of, id) = ("cam".into(), DeviceId::new(ID));
    InstanceName::candidates(&of, &id, Scope::Shared, &NodeName::default())
}

/// Returns the report of a node that has looked everywhere, and sees nothing.
pub(super) fn nothing(node: &str) -> crate::api::node_devices::NodeDevices {
    node_devices(
        node,
        json!([{ "namespace": "default", "name": "cam", "complete": true }]),
    )
}

pub(super) fn says(node: &str) -> crate::api::node_devices::NodeDevices {
    sees(
        node,
        &json!({ "id": ID, "connection": "x", "properties": { "BY": node } }),
    )
}

/// Two nodes that are there, and nothing else.
pub(super) fn world() -> World {
    World::default()
        .with_nodes([("a", ready()), ("b", ready())])
        .with_configuration(configuration("cam", json!({ "spec": { "capacity": 3 } })))
}

pub(super) struct Cluster {
    pub(super) world: World,
    pub(super) memory: NodeMemory,
}

impl Cluster {
    pub(super) fn new(world: World) -> Self {
        let memory = NodeMemory::default();
        Self { world, memory }
    }

    /// Plans and carries out, and checks that this leaves nothing to do.
    pub(super) fn settle(&mut self, seconds: i64) -> &mut Self {
        for _ in 0..2 {
            let planned = looked(&self.world, &mut self.memory, seconds);
            execute(&mut self.world, &mut self.memory, &planned, seconds);
        }
        let again = looked(&self.world, &mut self.memory, seconds);
        assert_eq!(again.actions, vec![]);
        self
    }

    pub(super) fn says(&mut self, object: crate::api::node_devices::NodeDevices) -> &mut Self {
        self.world = std::mem::take(&mut self.world).with_node_devices(object);
        self
    }

    /// Deletes the Configuration, and checks that the only Instance is deleted as its orphan.
    pub(super) fn loses_configuration(&mut self) {
        self.world.configurations.clear();
        let planned = looked(&self.world, &mut self.memory, 1);
        let [Action::Delete { orphan_of, .. }] = planned.actions.as_slice() else {
            panic!("{planned:?}")
        };
        assert_eq!(*orphan_of, Some(key("cam")));
    }

    pub(super) fn only(&self) -> &Instance {
        assert_eq!(self.world.instances.len(), 1);
        self.world.instances.values().next().unwrap()
    }

    pub(super) fn nodes(&self) -> Vec<&str> {
        self.only()
            .spec
            .nodes
            .iter()
            .map(|node| node.as_str())
            .collect()
    }

    pub(super) fn labels(&self) -> Vec<&str> {
        let labels = self.only().metadata.labels.iter().flatten();
        labels.map(|(label, _)| label.as_str()).collect()
    }
}

#[test]
fn a_device_gets_one_instance_that_names_all_who_see_it() {
    let mut cluster = Cluster::new(world());
    cluster.says(says("b")).says(says("a")).settle(0);
    let made = cluster.only();
    assert_eq!(made.spec.nodes, ["a", "b"]);
    assert_eq!((made.spec.capacity, made.spec.shared), (3, true));
    assert_eq!(made.spec.broker_properties["BY"], "a");
    assert_eq!(
        made.metadata.annotations.as_ref().unwrap()["akri.sh/device-id"],
        ID
    );
    assert_eq!(
        made.metadata.owner_references.as_ref().unwrap()[0].uid,
        "uid-cam"
    );
    assert_eq!(made.status, None, "all is well");
    let [short, _] = camera_names();
    assert_eq!(made.metadata.name.as_deref(), Some(short.as_str()));
    // Who comes later is the last, and who goes leaves with its label.
    let mut late = Cluster::new(world());
    late.says(says("b")).settle(0).says(says("a")).settle(1);
    assert_eq!(late.nodes(), ["b", "a"]);
    assert_eq!(late.only().spec.broker_properties["BY"], "b");
    late.says(nothing("b")).settle(2);
    assert_eq!(
        (late.nodes(), late.labels()),
        (vec!["a"], vec!["node.akri.sh/a"])
    );
    assert_eq!(late.only().spec.broker_properties["BY"], "a");
}

#[test]
fn a_device_that_nobody_describes_waits() {
    let mut cluster = Cluster::new(world());
    cluster
        .says(sees("a", &json!({ "id": ID, "connection": "x" })))
        .settle(0);
    assert!(cluster.world.instances.is_empty());
    let silent = world().with_node_devices(says("elsewhere"));
    let made = looked(&silent, &mut NodeMemory::default(), 0).actions;
    assert!(
        !made.iter().any(|a| matches!(a, Action::Create(_))),
        "{made:?}"
    );
}

#[test]
fn only_what_is_not_well_is_written_and_reported_once_for_all_nodes() {
    let gone = |node: &str| sees(node, &json!({ "id": ID, "state": "Unhealthy" }));
    let mut cluster = Cluster::new(world());
    cluster.says(says("a")).says(says("b")).settle(0);
    cluster.says(gone("a")).says(gone("b"));
    let planned = looked(&cluster.world, &mut cluster.memory, 5);
    let [Action::Change(change)] = planned.actions.as_slice() else {
        panic!("{planned:?}")
    };
    assert_eq!(change.patch, None);
    assert_eq!(
        change.events[0].note,
        "nodes a, b do not see the device any more"
    );
    cluster.settle(5);
    let status = cluster.only().status.clone().unwrap();
    assert_eq!(status.nodes.len(), 2);
    assert_eq!(status.conditions[0].reason, "DeviceGone");
    assert_eq!(cluster.nodes(), ["a", "b"], "for the grace period");
    cluster.says(says("b")).settle(9);
    let status = cluster.only().status.clone().unwrap();
    assert_eq!(
        (status.nodes.len(), status.conditions[0].is_true()),
        (1, true)
    );
}

#[test]
fn an_instance_that_all_nodes_have_left_goes_when_its_device_was_gone_for_long_enough() {
    let mut cluster = Cluster::new(world());
    cluster.says(says("a")).settle(0);
    cluster
        .says(sees("a", &json!({ "id": ID, "state": "Unhealthy" })))
        .settle(10);
    cluster.says(nothing("a")).settle(69);
    assert!(cluster.nodes().is_empty());
    cluster.settle(70);
    assert!(cluster.world.instances.is_empty());
}

#[test]
fn a_node_without_an_object_is_left_as_it_is() {
    let mut seen = instance(
        "cam-1",
        json!({ "spec": { "shared": true, "nodes": ["b"] } }),
    );
    seen.metadata.labels = Some([("node.akri.sh/b".to_owned(), String::new())].into());
    seen.metadata.annotations = Some([("akri.sh/device-id".to_owned(), ID.to_owned())].into());
    seen.spec.capacity = 3;
    let mut cluster = Cluster::new(world().with_instance(seen));
    cluster.settle(0).says(says("a")).settle(1);
    assert_eq!(cluster.nodes(), ["b", "a"]);
    // One that has not looked everywhere yet may see it.
    let looking = json!([{ "namespace": "default", "name": "cam" }]);
    cluster.says(node_devices("b", looking)).settle(1);
    assert_eq!(cluster.nodes(), ["b", "a"]);
    cluster.says(nothing("b")).settle(2);
    assert_eq!(cluster.nodes(), ["a"]);
}

#[test]
fn of_two_instances_of_one_device_the_older_has_the_nodes() {
    let of = |name: &str, created: i64| {
        let metadata = json!({
            "annotations": { "akri.sh/device-id": ID }, "creationTimestamp": text(at(created)),
        });
        instance(
            name,
            json!({ "metadata": metadata, "spec": { "shared": true, "nodes": ["a"], "capacity": 3 } }),
        )
    };
    let world = world()
        .with_instance(of("cam-2", 5))
        .with_instance(of("cam-9", 0));
    let mut cluster = Cluster::new(world);
    cluster.says(says("a")).settle(10);
    let nodes = |name: &str| cluster.world.instances[&key(name)].spec.nodes.clone();
    assert_eq!((nodes("cam-9"), nodes("cam-2")), (vec!["a".into()], vec![]));
}

#[test]
fn an_instance_of_akris_is_adopted_by_its_name() {
    let [short, _] = camera_names();
    let akris = json!({ "spec": { "shared": true, "nodes": ["a"], "capacity": 3 } });
    let mut cluster = Cluster::new(world().with_instance(instance(short.as_str(), akris)));
    cluster
        .says(sees("a", &json!({ "instance": short.as_str() })))
        .settle(0);
    assert_eq!(cluster.nodes(), ["a"]);
    cluster.says(says("a")).settle(1);
    let annotations = cluster.only().metadata.annotations.clone().unwrap();
    assert_eq!(annotations["akri.sh/device-id"], ID);
}

#[test]
fn a_lost_node_is_asked_and_one_that_answers_stays_with_its_slots() {
    let mut cluster = Cluster::new(world());
    cluster.world = cluster
        .world
        .with_nodes([("a", ready()), ("b", ready()), ("c", ready())]);
    cluster.says(says("a")).says(says("b")).settle(0);
    let name = key(cluster.only().metadata.name.clone().unwrap().as_str());
    let held = Arc::make_mut(cluster.world.instances.get_mut(&name).unwrap());
    (held.spec.device_usage).insert(format!("{}-0", name.name), "b".to_owned());
    let nodes = |b| [("a", ready()), ("b", b), ("c", ready())];
    cluster.world = cluster.world.with_nodes(nodes(not_ready(at(10))));
    cluster.settle(11);
    let planned = looked(&cluster.world, &mut cluster.memory, 75);
    let silence = Action::DeleteNodeDevices {
        node: "b".into(),
        uid: "uid-of-b".to_owned(),
    };
    assert!(planned.actions.contains(&silence), "{planned:?}");
    let mut silent = Cluster {
        world: cluster.world.clone(),
        memory: NodeMemory::default(),
    };
    execute(&mut cluster.world, &mut cluster.memory, &planned, 75);
    assert_eq!(cluster.nodes(), ["a"]);
    assert_eq!(
        cluster.labels().len(),
        2,
        "a container that runs on finds it"
    );
    // Its agent lives, and makes the object again.
    let mut answer = says("b");
    answer.metadata.uid = Some("another".to_owned());
    cluster.says(answer).settle(76);
    assert_eq!(cluster.nodes(), ["a", "b"]);
    cluster.settle(4_000);
    assert_eq!(cluster.only().spec.device_usage.len(), 1);
    // One that does not answer loses its slot when its time is over.
    silent.settle(75).settle(500);
    assert_eq!(silent.only().spec.device_usage.len(), 0);
}

#[test]
fn an_instance_goes_with_its_configuration_and_only_then() {
    let mut cluster = Cluster::new(world());
    cluster.says(says("a")).settle(0);
    cluster.loses_configuration();
}

#[test]
fn an_instance_that_is_made_again_begins_with_the_slots_that_containers_have() {
    let [short, long] = camera_names();
    let usage = json!({
        format!("{short}-0"): "a", format!("{short}-1"): "b", format!("{long}-0"): "a", "other-0": "a",
    });
    let device = json!({ "id": ID, "properties": {}, "usage": usage });
    let mut cluster = Cluster::new(world());
    cluster.says(sees("a", &device)).settle(0);
    let usage: Vec<_> = cluster
        .only()
        .spec
        .device_usage
        .clone()
        .into_iter()
        .collect();
    assert_eq!(usage, [(format!("{short}-0"), "a".to_owned())]);
}

#[test]
fn as_many_nodes_as_wanted_offer_a_device_and_the_next_steps_in() {
    let mut cluster = Cluster::new(world());
    let limited = json!({ "spec": { "capacity": 3, "maxNodes": 1 } });
    cluster.world = cluster
        .world
        .with_configuration(configuration("cam", limited));
    cluster.says(says("a")).says(says("b")).settle(0);
    let first = cluster.nodes()[0].to_owned();
    assert_eq!(cluster.nodes().len(), 1);
    let other = if first == "a" { "b" } else { "a" };
    cluster
        .says(sees(&first, &json!({ "id": ID, "state": "Unhealthy" })))
        .settle(1);
    assert_eq!(cluster.nodes(), [&first, other], "it steps in at once");
    let name = key(cluster.only().metadata.name.clone().unwrap().as_str());
    let held = Arc::make_mut(cluster.world.instances.get_mut(&name).unwrap());
    (held.spec.device_usage).insert(format!("{}-0", name.name), other.to_owned());
    cluster.says(says(&first)).settle(2);
    assert_eq!(cluster.nodes(), [other], "who holds a slot stays");
    assert_eq!(cluster.labels().len(), 2);
    cluster.says(nothing(other)).settle(3);
    assert_eq!(cluster.nodes(), [&first]);
}

fn pinned(node: &str, pin: &str) -> crate::api::node_devices::NodeDevices {
    let device = json!({ "id": ID, "connection": "x", "pin": pin, "properties": { "BY": node } });
    sees(node, &device)
}

#[test]
fn the_pin_of_a_device_is_that_of_the_first_node_and_stays() {
    const FIRST: &str = "10.0.0.0/24 porch.local";
    const OTHER: &str = "10.0.0.0/24 gate.local";
    let pin = |cluster: &Cluster| {
        let annotations = cluster.only().metadata.annotations.clone().unwrap();
        annotations.get("akri.sh/pin").cloned()
    };
    let mut cluster = Cluster::new(world());
    cluster.says(pinned("a", FIRST)).says(pinned("b", OTHER));
    let planned = looked(&cluster.world, &mut cluster.memory, 0);
    let [Action::Create(made)] = planned.actions.as_slice() else {
        panic!("{planned:?}")
    };
    assert_eq!(made.spec.nodes, ["a"], "the other sees another host");
    let moved = json!({ "id": ID, "state": "Unhealthy", "otherHost": "it is elsewhere" });
    cluster.settle(0).says(sees("b", &moved)).settle(1);
    assert_eq!(pin(&cluster).as_deref(), Some(FIRST));
    cluster.says(sees("a", &moved));
    let planned = looked(&cluster.world, &mut cluster.memory, 2);
    let [Action::Change(change)] = planned.actions.as_slice() else {
        panic!("{planned:?}")
    };
    assert_eq!(
        change.events[0].reason,
        crate::api::reason::Reason::IdentityChanged
    );
    assert_eq!(change.events[0].note, "node a: it is elsewhere");
    cluster.settle(2);
    let conditions = cluster.only().status.clone().unwrap().conditions;
    let said: Vec<_> = conditions
        .iter()
        .map(|c| (c.type_.as_str(), c.reason.as_str()))
        .collect();
    assert_eq!(
        said,
        [
            ("Available", "IdentityChanged"),
            ("IdentityChanged", "OtherHost")
        ]
    );
    cluster.says(pinned("a", OTHER)).settle(3);
    assert_eq!(
        pin(&cluster).as_deref(),
        Some(FIRST),
        "it is not overwritten"
    );
    assert_eq!(cluster.only().status.clone().unwrap().conditions.len(), 1);
    // A Configuration that begins to pin.
    let mut late = Cluster::new(world());
    late.says(says("a")).settle(0);
    assert_eq!(pin(&late), None);
    late.says(pinned("a", OTHER)).settle(1);
    assert_eq!(pin(&late).as_deref(), Some(OTHER));
}
