//! The bytes that Instances have in memory: who has room for devices and properties.
use super::{merge::world, *};
use crate::{
    cluster::watch::Objects,
    controller::{
        fixtures::{node_devices, shown},
        news::News,
        parts,
    },
    merge::kept_bytes,
    model::division::Division,
};

/// Returns the report of a node about as many cameras, each with so long a property.
fn reports(count: usize, text: usize) -> crate::api::node_devices::NodeDevices {
    let device = |n: usize| json!({ "id": format!("camera-{n}"), "properties": { "TEXT": "x".repeat(text) } });
    let devices: Vec<Value> = (0..count).map(device).collect();
    let view =
        json!({ "namespace": "default", "name": "cam", "complete": true, "devices": devices });
    node_devices("a", json!([view]))
}

/// Returns a world with room for so many bytes, which counts what its Instances have.
fn with_room(world: World, bytes: usize) -> World {
    let mut instance_bytes = Division::new(bytes);
    (world.configurations.keys()).for_each(|of| instance_bytes.join(of));
    for (key, instance) in &world.instances {
        let of = instance.spec.configuration_key(&key.namespace);
        instance_bytes.take(&of, kept_bytes(instance));
    }
    let room = (world.configurations.keys()).map(|of| (of.clone(), instance_bytes.room(of)));
    World {
        room: room.collect(),
        ..world
    }
}

/// Has a controller plan and act until nothing changes. Returns the problem of the Configuration.
fn settled(world: &mut World, bytes: usize) -> Option<String> {
    let mut memory = NodeMemory::default();
    loop {
        *world = with_room(std::mem::take(world), bytes);
        let planned = looked(world, &mut memory, 0);
        if planned.actions.is_empty() {
            let problem = planned.left_out.get(&key("cam"));
            return problem.map(|problem| format!("{}: {}", problem.reason, problem.message));
        }
        execute(world, &mut memory, &planned, 0);
    }
}

fn bytes_of(world: &World) -> usize {
    world.instances.values().map(|it| kept_bytes(it)).sum()
}

#[test]
fn devices_without_room_in_memory_have_no_instance_and_their_configuration_says_so() {
    let mut world = world().with_node_devices(reports(20, 10_000));
    let problem = settled(&mut world, 200_000).unwrap();
    assert!(problem.starts_with("TooManyDevices: devices get no Instance"));
    assert!(problem.contains("raise the controller's memory limit"));
    // A namespace has half of what the others leave, and its only Configuration all of that.
    assert_eq!(world.instances.len(), 100_000 / 11_300);
    assert!(bytes_of(&world) <= 100_000);
    // Another Configuration may give up room at any time.
    let planned = looked(&world, &mut NodeMemory::default(), 0);
    assert_eq!(planned.waits.first(), Some(Duration::from_secs(15)));
    assert_eq!(settled(&mut world, 2_000_000), None);
    assert_eq!(world.instances.len(), 20);
}

#[test]
fn new_properties_without_room_are_not_written_and_shorter_ones_are() {
    let mut world = world().with_node_devices(reports(10, 100));
    assert_eq!(settled(&mut world, 200_000), None);
    let long =
        json!({ "spec": { "capacity": 3, "brokerProperties": { "LONG": "y".repeat(30_000) } } });
    world = world.with_configuration(configuration("cam", long));
    let problem = settled(&mut world, 200_000).unwrap();
    assert!(problem.starts_with("TooManyDevices: "), "{problem}");
    let grown = |world: &World| {
        let all = world.instances.values();
        all.filter(|it| it.spec.broker_properties.contains_key("LONG"))
            .count()
    };
    assert_eq!((grown(&world), world.instances.len()), (2, 10));
    assert!(bytes_of(&world) <= 100_000);
    // The device's own are as they are now.
    let device = json!({ "id": "camera-9", "properties": { "TEXT": "moved" } });
    let view = json!({ "namespace": "default", "name": "cam", "devices": [device] });
    world = world.with_node_devices(node_devices("a", json!([view])));
    settled(&mut world, 100_000);
    let own = |of: &Instance| of.spec.broker_properties["TEXT"] == "moved";
    assert_eq!(world.instances.values().filter(|it| own(it)).count(), 1);
    world = world.with_node_devices(reports(10, 100));
    let short = json!({ "spec": { "capacity": 3, "brokerProperties": { "SHORT": "y" } } });
    world = world.with_configuration(configuration("cam", short));
    assert_eq!(settled(&mut world, 200_000), None);
    assert_eq!(grown(&world), 0);
}

#[test]
fn a_plan_gives_a_part_of_the_room_and_the_next_plans_the_rest() {
    let world = world().with_node_devices(reports(300, 10_000));
    let mut world = with_room(world, 100 << 20);
    let planned = looked(&world, &mut NodeMemory::default(), 0);
    let made = planned.actions.len();
    assert!((50..100).contains(&made), "{made}");
    assert!(planned.left_out.is_empty());
    assert_eq!(settled(&mut world, 100 << 20), None);
    assert_eq!(world.instances.len(), 300);
}

#[test]
fn the_bytes_of_instances_are_counted_as_they_come_change_and_go() {
    let mut world = world().with_node_devices(reports(3, 1_000));
    settled(&mut world, usize::MAX);
    let mut cluster = parts::Cluster::with_room(1_000_000);
    let mut before = World::default();
    let mut room = |now: &World| {
        shown(&before, now, |news: News| drop(cluster.see(news)));
        let listed = Objects {
            objects: now.configurations.clone(),
            ..Objects::default()
        };
        cluster.list_configurations(&listed);
        before = now.clone();
        cluster.part("cam").room.get(&key("cam")).copied()
    };
    assert_eq!(room(&World::default()), None);
    assert_eq!(room(&world), Some(500_000 - bytes_of(&world)));
    for instance in world.instances.values_mut() {
        let mut now = Instance::clone(instance);
        (now.spec.broker_properties).insert("MORE".to_owned(), "z".repeat(5_000));
        *instance = Arc::new(now);
    }
    assert_eq!(room(&world), Some(500_000 - bytes_of(&world)));
    assert!(bytes_of(&world) > 15_000);
    world.instances.clear();
    assert_eq!(room(&world), Some(500_000));
}
