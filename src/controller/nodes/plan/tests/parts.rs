//! Tests that other parts' passes keep what is remembered of a part.
use super::*;
use crate::controller::fixtures::cluster;

fn part(world: &World, name: &str) -> World {
    cluster(world).part(name)
}

#[test]
fn a_deleted_node_is_remembered_while_the_parts_without_its_slots_are_looked_at() {
    let held = json!({ "spec": { "nodes": ["a"], "deviceUsage": { "cam-1-0": "b" } } });
    let world = World::default()
        .with_nodes([("a", ready())])
        .with_configuration(configuration("cam", json!({})))
        .with_instance(instance("cam-1", held));
    let mut memory = NodeMemory::default();
    memory.notice(&Reported::new(&world), now(0));
    memory.notice(&Reported::new(&part(&world, "tv")), now(1));
    assert!(memory.absent.contains_key("b"));
    let mut free = world.clone();
    free = free.with_instance(instance("cam-1", json!({ "spec": { "nodes": ["a"] } })));
    memory.notice(&Reported::new(&part(&free, "cam")), now(2));
    assert!(memory.absent.is_empty());
}

#[test]
fn the_grace_period_begins_when_a_device_was_seen_last_at_any_look() {
    let gone = abandoned(json!({}));
    let mut seen = gone.clone();
    seen.spec.nodes = vec!["a".into()];
    let world = |device: Instance| {
        World::default()
            .with_nodes([("a", ready())])
            .with_configuration(configuration("cam", json!({})))
            .with_instance(device)
    };
    let mut memory = NodeMemory::default();
    memory.notice(&Reported::new(&world(seen.clone())), now(1_000));
    memory.notice(&Reported::new(&part(&world(seen), "tv")), now(2_000));
    let world = world(gone);
    let deleted = |memory: &mut NodeMemory, seconds| {
        let planned = looked(&part(&world, "cam"), memory, seconds);
        let mut actions = planned.actions.iter();
        actions.any(|action| matches!(action, Action::Delete { .. }))
    };
    let grace = configuration("cam", json!({})).spec.grace_period_seconds;
    assert!(!deleted(&mut memory, 2_001));
    assert!(!deleted(&mut memory, 2_000 + grace - 1));
    assert!(deleted(&mut memory, 2_000 + grace));
}
