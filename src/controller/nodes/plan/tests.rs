mod local;
mod lost;
mod merge;
mod most_nodes;
mod named;
mod parts;
mod properties;
mod room;
mod stolen;

use super::*;
use crate::{
    api::instance::InstanceStatus,
    controller::{
        fixtures::{at, configuration, instance, key, not_ready, off, ready, text},
        nodes::absent_node::Pods,
        world::NodeState,
    },
};
use json_patch::PatchOperation;
use proptest::prelude::*;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use std::sync::{Arc, OnceLock};

fn patched<T: Serialize + DeserializeOwned>(object: &T, patch: &Patch) -> T {
    let mut value = serde_json::to_value(object).unwrap();
    let mut patch = patch.clone();
    // A test for `null` holds of what is not there, and fails in this crate.
    (patch.0).retain(|o| !matches!(o, PatchOperation::Test(test) if test.value.is_null()));
    json_patch::patch(&mut value, &patch).unwrap();
    serde_json::from_value(value).unwrap()
}

/// Returns a world with the Configuration `cam` alone.
fn with_cam() -> World {
    World::default().with_configuration(configuration("cam", json!({})))
}

/// The API server, as far as this plan goes.
fn execute(world: &mut World, memory: &mut NodeMemory, plan: &Plan, seconds: i64) {
    for action in &plan.actions {
        match action {
            Action::Change(change) => {
                let instance = world.instances.get_mut(&change.key).unwrap();
                for patch in [&change.patch, &change.status].into_iter().flatten() {
                    *instance = Arc::new(patched(instance.as_ref(), patch));
                }
                let left = change.absent.iter().chain(&change.gone);
                memory.left(&change.key, left, now(seconds).instant);
            }
            Action::Delete { key, .. } => drop(world.instances.remove(key)),
            Action::Create(instance) => {
                let key = crate::store::instance_key(&instance.metadata);
                let mut made = Instance::clone(instance);
                made.metadata.uid = Some(format!("uid-{}", key.name));
                world.instances.insert(key, Arc::new(made));
            }
            Action::DeleteNodeDevices { node, .. } => world.forget(node),
            Action::Strip { key, patch } => {
                let configuration = world.configurations.get_mut(key).unwrap();
                *configuration = Arc::new(patched(configuration.as_ref(), patch));
            }
        }
    }
}

/// Returns a time that is so many seconds after a fixed one, by all clocks.
fn now(seconds: i64) -> Now {
    static BEGIN: OnceLock<Instant> = OnceLock::new();
    let begin = *BEGIN.get_or_init(Instant::now);
    Now {
        clock: at(seconds),
        instant: begin + Duration::from_secs(u64::try_from(seconds).unwrap()),
    }
}

fn looked_at(world: &World, memory: &mut NodeMemory, now: Now) -> Plan {
    let reported = Reported::new(world);
    memory.notice(&reported, now);
    plan(&reported, memory, now)
}

fn looked(world: &World, memory: &mut NodeMemory, seconds: i64) -> Plan {
    looked_at(world, memory, now(seconds))
}

/// Returns what is left of the Instance `cam-1` after a look by a controller that has just begun.
fn after(world: &World, seconds: i64) -> Instance {
    let (mut world, mut memory) = (world.clone(), NodeMemory::default());
    let planned = looked(&world, &mut memory, seconds);
    execute(&mut world, &mut memory, &planned, seconds);
    world.instances[&key("cam-1")].as_ref().clone()
}

/// Seen by `a`, which is ready, and by `b`; both hold a slot.
fn shared() -> Instance {
    let time = text(at(0));
    instance(
        "cam-1",
        json!({
            "metadata": {
                "labels": { "node.akri.sh/a": "", "node.akri.sh/b": "", "theirs": "kept" },
                "annotations": { "told.akri.sh/0": "x", "told.akri.sh/1": "y", "a.b/theirs": "kept" },
            },
            "spec": {
                "nodes": ["a", "b"],
                "deviceUsage": { "cam-1-0": "a", "cam-1-1": "b", "cam-1-2": "C:cam-3:b", "cam-1-3": "", "cam-1-4": "C:?" },
            },
            "status": { "nodes": [
                { "name": "a", "health": "Healthy", "lastTransitionTime": time },
                { "name": "b", "health": "Healthy", "lastTransitionTime": time },
            ] },
        }),
    )
}

fn names_of(instance: &Instance) -> (Vec<&str>, Vec<&str>, Vec<&str>, Vec<&str>) {
    let status = instance.status.iter().flat_map(|status| &status.nodes);
    let labels = instance.metadata.labels.iter().flatten();
    (
        instance
            .spec
            .nodes
            .iter()
            .map(|node| node.as_str())
            .collect(),
        labels.map(|(key, _)| key.as_str()).collect(),
        status.map(|entry| entry.name.as_str()).collect(),
        (instance.spec.device_usage.keys())
            .map(String::as_str)
            .collect(),
    )
}

const BOTH: (&[&str], &[&str]) = (&["a", "b"], &["node.akri.sh/a", "node.akri.sh/b", "theirs"]);
/// The nodes and labels after the agent of `b` was lost: when it is back it finds the Instance by the label, and
/// leaves.
const LEFT: (&[&str], &[&str]) = (&["a"], &["node.akri.sh/a", "node.akri.sh/b", "theirs"]);
const ONLY_A: (&[&str], &[&str]) = (&["a"], &["node.akri.sh/a", "theirs"]);
const OTHERS_SLOTS: &[&str] = &["cam-1-0", "cam-1-3", "cam-1-4"];
const ALL_SLOTS: &[&str] = &["cam-1-0", "cam-1-1", "cam-1-2", "cam-1-3", "cam-1-4"];

#[test]
fn a_node_leaves_its_instances_by_what_became_of_it() {
    for (b, seconds, (nodes, labels), slots) in [
        (Some(ready()), 0, BOTH, ALL_SLOTS),
        (Some(not_ready(at(0))), 59, BOTH, ALL_SLOTS),
        (Some(not_ready(at(0))), 60, LEFT, ALL_SLOTS),
        // It may have joined again: only a controller that saw it stay absent frees its slots.
        (Some(not_ready(at(0))), 9_000, LEFT, ALL_SLOTS),
        // Pods of it may be there yet.
        (None, 0, ONLY_A, ALL_SLOTS),
        (Some(off(at(0))), 0, LEFT, OTHERS_SLOTS),
    ] {
        let mut world = with_cam()
            .with_nodes([("a", ready())])
            .with_instance(shared());
        Arc::make_mut(&mut world.nodes).extend(b.clone().map(|b| ("b".into(), Arc::new(b))));
        let left = after(&world, seconds);
        let expected = (nodes, labels, nodes, slots);
        let names = names_of(&left);
        assert_eq!(
            (&*names.0, &*names.1, &*names.2, &*names.3),
            expected,
            "{b:?}"
        );
    }
}

#[test]
fn a_change_is_tried_again_until_it_is_carried_out() {
    let world = with_cam()
        .with_nodes([("a", ready()), ("b", not_ready(at(0)))])
        .with_instance(shared());
    let mut memory = NodeMemory::default();
    let refused = looked(&world, &mut memory, 60);
    assert_eq!(looked(&world, &mut memory, 61).actions, refused.actions);
}

#[test]
fn a_change_holds_only_for_what_was_seen() {
    let world = with_cam()
        .with_nodes([("a", ready())])
        .with_instance(shared());
    let planned = looked(&world, &mut NodeMemory::default(), 0);
    let [Action::Change(change)] = planned.actions.as_slice() else {
        panic!("{planned:?}")
    };
    assert_eq!(change.gone, BTreeSet::from(["b".into()]));
    let mut claimed = serde_json::to_value(shared()).unwrap();
    // A claim of another slot is no reason to look again; another node is, and so is another Instance.
    claimed["metadata"]["resourceVersion"] = json!("2");
    claimed["spec"]["deviceUsage"]["cam-1-5"] = json!("a");
    let patch = change.patch.as_ref().unwrap();
    assert!(json_patch::patch(&mut claimed.clone(), patch).is_ok());
    let mut joined = claimed.clone();
    joined["spec"]["nodes"] = json!(["a", "b", "c"]);
    assert!(json_patch::patch(&mut joined, patch).is_err());
    claimed["metadata"]["uid"] = json!("another");
    for patch in [patch, change.status.as_ref().unwrap()] {
        assert!(json_patch::patch(&mut claimed.clone(), patch).is_err());
    }
}

#[test]
fn akris_instances_get_labels_and_lose_finalizers() {
    let long = format!("{}.example", "n".repeat(60));
    let akris = instance(
        "cam-1",
        json!({
            "metadata": { "finalizers": ["a", "gone", "foregroundDeletion", "orphan", "who/theirs"] },
            "spec": { "nodes": ["a", long] },
        }),
    );
    let nodes = [("a", ready()), (long.as_str(), ready())];
    let world = with_cam()
        .with_nodes(nodes)
        .with_instance(akris.clone())
        .with_configuration(configuration(
            "cam",
            json!({ "metadata": { "finalizers": ["a"] } }),
        ));
    let adopted = after(&world, 0);
    let labels = adopted.metadata.labels.clone().unwrap();
    assert_eq!(labels.len(), 2);
    assert!(labels.contains_key("node.akri.sh/a"));
    assert!(
        labels
            .keys()
            .all(|key| key.len() <= "node.akri.sh/".len() + 63)
    );
    assert_eq!(
        adopted.metadata.finalizers.unwrap(),
        ["foregroundDeletion", "orphan", "who/theirs"]
    );
    assert_eq!(adopted.spec, akris.spec);

    let planned = looked(&world, &mut NodeMemory::default(), 0);
    let [_, Action::Strip { patch, .. }] = planned.actions.as_slice() else {
        panic!("{planned:?}")
    };
    let stripped = patched(world.configurations[&key("cam")].as_ref(), patch);
    assert_eq!(stripped.metadata.finalizers, Some(vec![]));
}

#[test]
fn an_instance_that_is_being_deleted_only_loses_finalizers() {
    let mut going = shared();
    going.metadata.finalizers = Some(vec!["b".to_owned()]);
    going.metadata.deletion_timestamp =
        Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at(0)));
    let world = with_cam().with_instance(going.clone());
    let left = after(&world, 0);
    assert_eq!(left.metadata.finalizers, Some(vec![]));
    assert_eq!(left.spec, going.spec);
}

/// Returns an Instance without nodes, not seen since second 0.
fn abandoned(usage: Value) -> Instance {
    let mut abandoned = instance("cam-1", json!({ "spec": { "deviceUsage": usage } }));
    let status = crate::merge::status::with_conditions(
        InstanceStatus::default(),
        &abandoned.spec,
        &text(at(0)),
    );
    abandoned.status = Some(status);
    abandoned
}

#[test]
fn an_instance_without_nodes_is_deleted_after_the_grace_period() {
    let grace =
        |seconds: i64| configuration("cam", json!({ "spec": { "gracePeriodSeconds": seconds } }));
    let delete = || Action::Delete {
        key: key("cam-1"),
        of: key("cam"),
        uid: "uid-cam-1".to_owned(),
        resource_version: "1".to_owned(),
        orphan_of: None,
        why: "no node sees its device",
    };
    for (configuration, seconds, actions, wake) in [
        (Some(grace(90)), 89, vec![], Some(1)),
        (Some(grace(90)), 90, vec![delete()], None),
        (Some(grace(0)), 0, vec![delete()], None),
        (None, 59, vec![], Some(1)),
        (None, 60, vec![delete()], None),
    ] {
        let mut world = with_cam()
            .with_nodes([("a", ready())])
            .with_instance(abandoned(json!({})));
        match configuration {
            Some(configuration) => world = world.with_configuration(configuration),
            None => {
                world.configurations.clear();
                world
                    .unreadable
                    .insert(key("cam"), "missing field".to_owned());
            }
        }
        let planned = looked(&world, &mut NodeMemory::default(), seconds);
        assert_eq!(planned.actions, actions, "{seconds}");
        assert_eq!(
            planned.waits.first(),
            wake.map(Duration::from_secs),
            "{seconds}"
        );
    }
}

#[test]
fn an_instance_is_kept_while_a_container_may_use_its_device_or_while_it_is_not_known_to_be_gone() {
    let held = abandoned(json!({ "cam-1-0": "b" }));
    let by_one_that_is_there = abandoned(json!({ "cam-1-0": "C:cam-0:a" }));
    let mut unknown = abandoned(json!({}));
    unknown.status = None;
    let mut seen = abandoned(json!({}));
    seen.status.as_mut().unwrap().conditions[0].status = "True".to_owned();
    for mut kept in [held, by_one_that_is_there, unknown, seen] {
        let labels = ["a", "b"].map(|node| (names::node_label(node), String::new()));
        kept.metadata.labels = Some(labels.into());
        let world = with_cam()
            .with_nodes([("a", ready()), ("b", not_ready(at(0)))])
            .with_instance(kept);
        let planned = looked(&world, &mut NodeMemory::default(), 100);
        let is_deleted = |action: &Action| matches!(action, Action::Delete { .. });
        assert!(!planned.actions.iter().any(is_deleted), "{planned:?}");
    }
}

proptest! {
    #[test]
    fn executing_the_plan_leaves_nothing_to_do(
        nodes in proptest::collection::vec(0..5_u8, 4),
        named in proptest::collection::btree_set(0..5_usize, 0..5),
        labelled in proptest::collection::btree_set(0..5_usize, 0..5),
        reported in proptest::collection::btree_set(0..5_usize, 0..5),
        usage in proptest::collection::btree_map(0..5_usize, 0..5_usize, 0..5),
        finalizers in proptest::collection::vec("[a-d]|x/y|orphan", 0..4),
        seconds in 0..1_000_i64,
    ) {
        let name = |n: usize| format!("n{n}");
        let time = text(at(0));
        let mut device = instance("cam-1", json!({ "metadata": { "finalizers": finalizers } }));
        device.spec.nodes = named.iter().map(|n| name(*n).into()).collect();
        device.spec.device_usage = (usage.iter())
            .map(|(slot, n)| (format!("cam-1-{slot}"), if slot % 2 == 0 { name(*n) } else { format!("C:cam-{slot}:{}", name(*n)) }))
            .collect();
        device.metadata.labels = (!labelled.is_empty())
            .then(|| labelled.iter().map(|n| (names::node_label(&name(*n)), String::new())).collect());
        device.metadata.annotations = (!reported.is_empty())
            .then(|| reported.iter().map(|n| (format!("told.akri.sh/{n}"), String::new())).collect());
        device.status = Some(InstanceStatus {
            nodes: reported.iter().map(|n| crate::api::instance::NodeHealth {
                name: name(*n).into(), health: "Healthy".to_owned(), last_transition_time: time.clone(), ..Default::default()
            }).collect(),
            ..InstanceStatus::default()
        });
        let mut world = with_cam().with_instance(device);
        for (n, state) in nodes.into_iter().enumerate() {
            let state = match state {
                0 => continue,
                1 => not_ready(at(0)),
                2 => not_ready(at(500)),
                3 => off(at(0)),
                _ => ready(),
            };
            Arc::make_mut(&mut world.nodes).insert(name(n).into(), Arc::new(state));
        }
        let mut memory = NodeMemory::default();
        let planned = looked(&world, &mut memory, seconds);
        execute(&mut world, &mut memory, &planned, seconds);
        let again = looked(&world, &mut memory, seconds);
        prop_assert_eq!(again.actions, vec![]);
        for left in world.instances.values() {
            prop_assert!(left.spec.nodes.iter().all(|node| world.nodes.contains_key(node)));
        }
    }
}
