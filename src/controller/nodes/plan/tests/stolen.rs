//! What somebody with the token of one node's agent can write, and what becomes of it.
use super::{
    merge::{Cluster, ID, camera_names, says, sees, world},
    *,
};
use crate::{
    controller::fixtures::node_devices,
    model::{
        device::{DeviceId, Scope},
        instance_name::InstanceName,
    },
};

/// Returns a world in which `spec.nodeSelector` selects `a` alone.
fn selecting_a() -> World {
    let selected = NodeState {
        labels: [("zone".to_owned(), "a".to_owned())].into(),
        ..ready()
    };
    let spec = json!({ "spec": { "nodeSelector": { "zone": "a" } } });
    world()
        .with_nodes([("a", selected), ("b", ready())])
        .with_configuration(configuration("cam", spec))
}

fn made(plan: &Plan) -> Vec<&[NodeName]> {
    let made = plan.actions.iter().filter_map(|action| match action {
        Action::Create(instance) => Some(&*instance.spec.nodes),
        Action::Change(_)
        | Action::Delete { .. }
        | Action::DeleteNodeDevices { .. }
        | Action::Strip { .. } => None,
    });
    made.collect()
}

#[test]
fn a_node_that_the_node_selector_leaves_out_gets_no_instance() {
    let mut memory = NodeMemory::default();
    let alone = selecting_a().with_node_devices(says("b"));
    assert!(made(&looked(&alone, &mut memory, 0)).is_empty());
    let both = alone.with_node_devices(says("a"));
    let a: NodeName = "a".into();
    assert_eq!(made(&looked(&both, &mut memory, 0)), [[a]]);
}

#[test]
fn a_node_that_the_node_selector_leaves_out_joins_no_instance_and_leaves_those_that_name_it() {
    let [name, _] = camera_names();
    for (shared, nodes, left) in [
        (true, json!(["a"]), vec!["a"]),
        (true, json!(["a", "b"]), vec!["a"]),
        (false, json!(["b"]), vec![]),
    ] {
        let spec = json!({ "shared": shared, "nodes": nodes });
        let annotations = json!({ "akri.sh/device-id": ID });
        let there = if shared {
            instance(
                &name,
                json!({ "spec": spec, "metadata": { "annotations": annotations } }),
            )
        } else {
            instance("cam-1", json!({ "spec": spec }))
        };
        let key = crate::store::instance_key(&there.metadata);
        let mut world = selecting_a()
            .with_node_devices(says("a"))
            .with_node_devices(says("b"))
            .with_instance(there);
        let mut memory = NodeMemory::default();
        let planned = looked(&world, &mut memory, 0);
        execute(&mut world, &mut memory, &planned, 0);
        assert_eq!(world.instances[&key].spec.nodes, left, "{shared} {nodes}");
    }
}

#[test]
fn a_node_that_the_node_selector_leaves_out_gets_no_label_by_a_device_that_it_has_left() {
    let [name, _] = camera_names();
    for (node, is_labelled) in [("a", true), ("b", false)] {
        let annotations = json!({ "akri.sh/device-id": ID });
        let spec = json!({ "shared": true, "nodes": ["c"] });
        let there = instance(
            &name,
            json!({ "spec": spec, "metadata": { "annotations": annotations } }),
        );
        let key = crate::store::instance_key(&there.metadata);
        let left = json!({ "id": ID, "state": "Left" });
        let mut world = selecting_a()
            .with_node_devices(sees(node, &left))
            .with_instance(there);
        let mut memory = NodeMemory::default();
        let planned = looked(&world, &mut memory, 0);
        execute(&mut world, &mut memory, &planned, 0);
        let labels = world.instances[&key].metadata.labels.clone();
        let label = crate::api::names::node_label(node);
        let has_label = labels.is_some_and(|labels| labels.contains_key(&label));
        assert_eq!(has_label, is_labelled, "{node}");
    }
}

/// Returns the Instance of a device of one node, called `name`, which says that it is of `id` on `node`.
fn local(name: &str, id: &str, node: &str) -> Instance {
    let metadata = json!({ "annotations": { "akri.sh/device-id": id } });
    instance(
        name,
        json!({ "metadata": metadata, "spec": { "nodes": [node] } }),
    )
}

#[test]
fn a_device_whose_names_are_taken_has_no_instance_and_its_configuration_says_so() {
    let mut world = world().with_node_devices(says("a"));
    for name in camera_names() {
        world = world.with_instance(local(&name, "tty", "b"));
    }
    let planned = looked(&world, &mut NodeMemory::default(), 0);
    assert!(made(&planned).is_empty());
    let problem = &planned.left_out[&key("cam")];
    assert_eq!(problem.reason, "InstanceNameTaken");
    let [short, long] = camera_names();
    assert!(problem.message.contains("its id is \"camera-1\""));
    let shows = format!("get akrii {short} {long} shows");
    assert!(problem.message.contains(&shows), "{}", problem.message);
}

/// Returns the Instance of a camera that node a reports with these slots in use.
fn made_with(usage: Value) -> Arc<Instance> {
    let device = json!({ "id": ID, "properties": {}, "usage": usage });
    let mut world = world().with_node_devices(sees("a", &device));
    let mut memory = NodeMemory::default();
    let planned = looked(&world, &mut memory, 0);
    execute(&mut world, &mut memory, &planned, 0);
    world.instances.values().next().unwrap().clone()
}

#[test]
fn slots_of_another_node_in_a_report_are_not_taken_over() {
    let [name, _] = camera_names();
    let usage = json!({ format!("{name}-0"): "b", format!("{name}-1"): "a", format!("{name}-10000"): "a", "g-0": "a" });
    let expected = [(format!("{name}-1"), "a".to_owned())];
    assert_eq!(made_with(usage).spec.device_usage, expected.into());
}

#[test]
fn slots_beyond_a_lowered_capacity_are_taken_over_and_not_many() {
    let [name, _] = camera_names();
    for (slots, expected) in [(3_i32, 3), (200, 67)] {
        let usage = (5..5 + slots).map(|n| (format!("{name}-{n}"), "a".into()));
        let usage: serde_json::Map<String, Value> = usage.collect();
        let instance = made_with(usage.into());
        assert_eq!(instance.spec.capacity, 3);
        assert_eq!(instance.spec.device_usage.len(), expected);
    }
}

#[test]
fn keys_that_are_no_slots_are_removed_also_where_a_lost_node_holds_them() {
    let usage = json!({ "g0": "", "cam-2-0": "gone", "cam-1-0": "a" });
    let annotations = json!({ "told.akri.sh/0": "x", "told.akri.sh/1": "x" });
    let spec = json!({ "shared": true, "nodes": ["a"], "deviceUsage": usage });
    let there = instance(
        "cam-1",
        json!({ "metadata": { "annotations": annotations }, "spec": spec }),
    );
    let mut world = world().with_instance(there);
    let mut memory = NodeMemory::default();
    for seconds in [0, 1000, 2000] {
        let there = world.instances.get_mut(&key("cam-1")).unwrap();
        let usage = &mut Arc::make_mut(there).spec.device_usage;
        usage.insert("cam-2-0".to_owned(), "gone".to_owned());
        let planned = looked(&world, &mut memory, seconds);
        execute(&mut world, &mut memory, &planned, seconds);
    }
    let instance = &world.instances[&key("cam-1")];
    let expected = [("cam-1-0".to_owned(), "a".to_owned())];
    assert_eq!(instance.spec.device_usage, expected.into());
    let annotations = instance.metadata.annotations.as_ref().unwrap();
    assert_eq!(annotations.keys().collect::<Vec<_>>(), ["told.akri.sh/0"]);
}

#[test]
fn no_node_takes_an_instance_of_akris_that_was_made_for_another() {
    let (of, id) = ("cam".into(), DeviceId::new("tty"));
    let [name, _] = InstanceName::candidates(&of, &id, Scope::Node, &"b".into());
    // A slot that it holds is no proof either.
    for usage in [json!({}), json!({ format!("{name}-0"): "b" })] {
        let spec = json!({ "nodes": ["a"], "deviceUsage": usage });
        let akris = instance(&name, json!({ "spec": spec }));
        let mut cluster = Cluster::new(world().with_instance(akris));
        let device = json!({ "id": "tty", "properties": { "BY": "b" } });
        let view = json!({
            "namespace": "default", "name": "cam", "complete": true, "own": [device],
        });
        cluster.says(node_devices("b", json!([view]))).settle(0);
        let left = &cluster.world.instances[&key(&name)];
        assert_eq!(left.spec.nodes, ["a"]);
        assert_eq!(left.metadata.annotations, None);
        assert!(left.spec.broker_properties.is_empty());
    }
}

/// Returns the report of a node of these shared devices.
fn sees_all(
    node: &str,
    ids: impl Iterator<Item = String>,
) -> crate::api::node_devices::NodeDevices {
    let devices: Vec<Value> = ids
        .map(|id| json!({ "id": id, "properties": {} }))
        .collect();
    let of = json!({ "namespace": "default", "name": "cam", "complete": true, "devices": devices });
    node_devices(node, json!([of]))
}

#[test]
fn a_node_that_invents_devices_has_half_of_the_places_and_those_of_others_have_theirs() {
    let honest = || (0..20).map(|n| format!("camera-{n}"));
    let mut cluster = Cluster::new(world());
    let limited = configuration("cam", json!({ "spec": { "maxInstances": 100 } }));
    cluster.world = cluster.world.with_configuration(limited);
    let invented = (0..1000).map(|n| format!("!{n}")).chain(honest());
    cluster.says(sees_all("a", invented)).settle(0);
    let of = |cluster: &Cluster, beginning: &str| {
        let ids = cluster.world.instances.values().filter_map(|instance| {
            let annotations = instance.metadata.annotations.as_ref()?;
            annotations.get("akri.sh/device-id")
        });
        ids.filter(|id| id.starts_with(beginning)).count()
    };
    assert_eq!(of(&cluster, "!"), 50);
    cluster.says(sees_all("b", honest())).settle(1);
    assert_eq!((of(&cluster, "!"), of(&cluster, "camera")), (50, 20));
    let planned = looked(&cluster.world, &mut cluster.memory, 2);
    let problem = &planned.left_out[&key("cam")];
    assert_eq!(problem.reason, "TooManyDevices");
    assert!(
        problem.message.contains("a alone reports"),
        "{}",
        problem.message
    );
    // What two nodes see has all places that are left.
    let many = || (0..200).map(|n| format!("camera-{n}"));
    cluster
        .says(sees_all("a", many()))
        .says(sees_all("b", many()))
        .settle(3);
    assert_eq!(of(&cluster, "camera"), 50);
    let planned = looked(&cluster.world, &mut cluster.memory, 4);
    let problem = &planned.left_out[&key("cam")];
    assert!(
        problem.message.contains("maxInstances says"),
        "{}",
        problem.message
    );
}
