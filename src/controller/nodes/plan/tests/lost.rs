//! Tests of when the slots of lost nodes are free.
mod histories;
mod reports;

use super::*;
use crate::{api::node_devices::NodeDevices, controller::fixtures::node_devices};

/// `cam-1` with nodes `a`, which is ready, and `b`.
fn with_b(b: Option<NodeState>) -> World {
    let mut world = with_cam()
        .with_nodes([("a", ready())])
        .with_instance(shared());
    Arc::make_mut(&mut world.nodes).extend(b.map(|b| ("b".into(), Arc::new(b))));
    world
}

/// The NodeDevices of `b`, as its agent makes them again after they were deleted.
fn anew(n: i64) -> NodeDevices {
    let mut object = node_devices("b", json!([]));
    object.metadata.uid = Some(format!("uid-{n}"));
    object
}

/// Lets `b` be lost at 60 s. It has left `cam-1`, and was asked.
fn asked(world: World) -> (World, NodeMemory) {
    let mut world = world
        .with_nodes([("a", ready()), ("b", not_ready(at(0)))])
        .with_instance(shared());
    let mut memory = NodeMemory::default();
    let planned = looked(&world, &mut memory, 60);
    execute(&mut world, &mut memory, &planned, 60);
    (world, memory)
}

fn releasing_after(seconds: i64) -> Configuration {
    configuration("cam", json!({ "spec": { "slotReleaseSeconds": seconds } }))
}

fn holds(world: &World, node: &str) -> bool {
    let mut held = held_slots(&world.instances[&key("cam-1")]);
    held.any(|(_, holder)| holder == node)
}

/// Carries out a plan at each second. Returns the one after which `b` holds no slot.
fn freed_at(
    world: &mut World,
    memory: &mut NodeMemory,
    (first, last): (i64, i64),
    clock: impl Fn(i64) -> i64,
) -> Option<i64> {
    (first..=last).find(|seconds| {
        let now = Now {
            clock: at(clock(*seconds)),
            ..now(*seconds)
        };
        let planned = looked_at(world, memory, now);
        execute(world, memory, &planned, *seconds);
        !holds(world, "b")
    })
}

fn right(seconds: i64) -> i64 {
    seconds
}

#[test]
fn slots_of_a_node_that_is_not_ready_are_free_when_the_configuration_says() {
    for (configuration, free) in [
        (None, Some(300)),
        (Some(configuration("cam", json!({}))), Some(300)),
        (Some(releasing_after(600)), Some(600)),
        // Its agent has a minute to join again.
        (Some(releasing_after(10)), Some(120)),
        (Some(releasing_after(0)), None),
    ] {
        let mut world = with_b(Some(not_ready(at(0))));
        if let Some(configuration) = configuration.clone() {
            world = world.with_configuration(configuration);
        }
        let freed = freed_at(&mut world, &mut NodeMemory::default(), (0, 1_000), right);
        assert_eq!(freed, free, "{configuration:?}");
    }
    let mut unreadable = with_b(Some(not_ready(at(0))));
    unreadable.configurations.clear();
    (unreadable.unreadable).insert(key("cam"), "missing field".to_owned());
    let freed = freed_at(
        &mut unreadable,
        &mut NodeMemory::default(),
        (0, 1_000),
        right,
    );
    assert_eq!(freed, None);
}

#[test]
fn a_controller_that_begins_later_does_not_wait_anew_but_for_the_agent() {
    for (begins, free) in [(100, 300), (290, 350), (9_000, 9_060)] {
        let mut world = with_b(Some(not_ready(at(0))));
        let looks = (begins, 10_000);
        let freed = freed_at(&mut world, &mut NodeMemory::default(), looks, right);
        assert_eq!(freed, Some(free), "{begins}");
    }
}

#[test]
fn a_clock_that_steps_frees_nothing_early() {
    for step in [-3_600, 3_600] {
        let stepped = |seconds| {
            if seconds < 30 {
                seconds
            } else {
                seconds + step
            }
        };
        let world = || with_b(Some(not_ready(at(0))));
        // One that saw the node while it was ready, by a clock that is wrong then and later.
        let mut memory = NodeMemory::default();
        let before = Now {
            clock: at(step),
            ..now(0)
        };
        looked_at(&with_b(Some(ready())), &mut memory, before);
        let freed = freed_at(&mut world(), &mut memory, (0, 10_000), |seconds| {
            seconds + step
        });
        assert_eq!(freed, Some(300), "{step}");
        let freed = freed_at(
            &mut world(),
            &mut NodeMemory::default(),
            (0, 10_000),
            stepped,
        );
        assert_eq!(freed, Some(300), "{step}");
        // One that begins with a wrong clock watches for itself first.
        let begun = |seconds: i64| seconds + step;
        let freed = freed_at(
            &mut world(),
            &mut NodeMemory::default(),
            (10, 10_000),
            begun,
        );
        assert_eq!(freed, Some(if step > 0 { 70 } else { 310 }), "{step}");
    }
}

#[test]
fn a_node_that_is_marked_as_shut_down_has_its_slots_taken_at_once_unless_it_is_ready() {
    let never = releasing_after(0);
    let mut lost = with_b(Some(off(at(0)))).with_configuration(never.clone());
    let freed = freed_at(&mut lost, &mut NodeMemory::default(), (0, 0), right);
    assert_eq!(freed, Some(0));
    // The operator forgot to take the taint off.
    let back = NodeState {
        is_ready: true,
        ..off(at(0))
    };
    let back = with_b(Some(back)).with_configuration(never);
    assert_eq!(looked(&back, &mut NodeMemory::default(), 9_000).actions, []);
}

#[test]
fn a_node_whose_agent_joins_again_keeps_its_place_and_its_slots() {
    let (world, mut memory) = asked(with_cam());
    assert_ne!(*world.instances[&key("cam-1")], shared());
    let joined = world.clone().with_instance(shared());
    let mut joined = joined.with_node_devices(anew(61));
    // It is asked again and again, and answers.
    for answered in [61, 361, 661] {
        for seconds in [answered, answered + 299] {
            assert_eq!(looked(&joined, &mut memory, seconds).actions, []);
        }
        let planned = looked(&joined, &mut memory, answered + 300);
        assert!(
            matches!(&planned.actions[..], [Action::DeleteNodeDevices { .. }]),
            "{planned:?}"
        );
        execute(&mut joined, &mut memory, &planned, answered + 300);
        assert_eq!(looked(&joined, &mut memory, answered + 300).actions, []);
        joined = joined.with_node_devices(anew(answered + 300));
    }
    assert_eq!(looked(&joined, &mut memory, 961).actions, []);
    assert_eq!(*joined.instances[&key("cam-1")], shared());
    // Not ready again: another time.
    let again = joined.with_nodes([("a", ready()), ("b", not_ready(at(10_000)))]);
    assert_eq!(looked(&again, &mut memory, 10_000).actions, []);
    assert_eq!(looked(&again, &mut memory, 10_060).actions.len(), 2);
}

#[test]
fn an_agent_that_has_answered_once_and_then_ends_keeps_its_slots_for_their_time_alone() {
    let (world, mut memory) = asked(with_cam());
    let mut world = world.with_instance(shared()).with_node_devices(anew(61));
    // Asked at 361, and given the time to answer and to join again.
    let freed = freed_at(&mut world, &mut memory, (61, 1_000), right);
    assert_eq!(freed, Some(482));
}

#[test]
fn a_node_that_may_not_join_again_keeps_its_slots_while_it_is_asked_again() {
    let one_node = configuration("cam", json!({ "spec": { "maxNodes": 1 } }));
    let (world, mut memory) = asked(with_cam().with_configuration(one_node));
    assert_eq!(world.instances[&key("cam-1")].spec.nodes, ["a"]);
    let reporting = |n: i64| {
        let device = json!([{ "instance": "cam-1" }]);
        let view = json!({ "namespace": "default", "name": "cam", "devices": device });
        let mut object = node_devices("b", json!([view]));
        object.metadata.uid = Some(format!("uid-{n}"));
        object
    };
    let mut world = world.with_node_devices(reporting(61));
    assert_eq!(freed_at(&mut world, &mut memory, (61, 400), right), None);
    assert!(world.node_devices.is_empty(), "it was asked");
    let mut world = world.with_node_devices(reporting(401));
    assert_eq!(freed_at(&mut world, &mut memory, (401, 700), right), None);
}

#[test]
fn an_agent_that_joins_again_before_its_marked_node_is_ready_keeps_its_slots() {
    let lost = with_b(Some(off(at(0))));
    let (mut world, mut memory) = (lost.clone(), NodeMemory::default());
    let planned = looked(&world, &mut memory, 0);
    execute(&mut world, &mut memory, &planned, 0);
    assert!(!holds(&world, "b"));
    let lost = lost.with_node_devices(anew(1));
    for seconds in [1, 300] {
        assert_eq!(looked(&lost, &mut memory, seconds).actions, []);
    }
}

#[test]
fn slots_of_a_deleted_node_are_free_when_its_pods_are_gone_or_after_the_time() {
    for (found, free) in [
        (Pods::Deleted, Some(20)),
        (Pods::Remain, Some(300)),
        (Pods::Unknown, Some(300)),
    ] {
        let (mut world, mut memory) = (with_b(None), NodeMemory::default());
        assert_eq!(freed_at(&mut world, &mut memory, (0, 19), right), None);
        memory.looked(&"b".into(), found, now(19).instant);
        let freed = freed_at(&mut world, &mut memory, (20, 1_000), right);
        assert_eq!(freed, free, "{found:?}");
    }
    let mut never = with_b(None).with_configuration(releasing_after(0));
    let mut memory = NodeMemory::default();
    assert_eq!(freed_at(&mut never, &mut memory, (0, 9_000), right), None);
    // The kubelet registered again: what was found before says nothing.
    memory.looked(&"b".into(), Pods::Deleted, now(9_000).instant);
    let again = NodeState {
        since: Some(at(9_000)),
        ..ready()
    };
    Arc::make_mut(&mut never.nodes).insert("b".into(), Arc::new(again));
    looked(&never, &mut memory, 9_001);
    Arc::make_mut(&mut never.nodes).remove("b");
    assert_eq!(
        freed_at(&mut never, &mut memory, (9_002, 9_999), right),
        None
    );
}

#[test]
fn the_time_of_a_node_that_was_not_ready_counts_when_it_is_deleted() {
    let mut memory = NodeMemory::default();
    let mut world = with_b(Some(not_ready(at(0))));
    assert_eq!(freed_at(&mut world, &mut memory, (0, 200), right), None);
    Arc::make_mut(&mut world.nodes).remove("b");
    let freed = freed_at(&mut world, &mut memory, (201, 1_000), right);
    assert_eq!(freed, Some(300));
}

#[test]
fn the_pods_of_a_deleted_node_are_looked_for_less_and_less_often() {
    let (world, mut memory) = (with_b(None), NodeMemory::default());
    let mut looks = vec![];
    for seconds in 0..=400 {
        memory.notice(&Reported::new(&world), now(seconds));
        if memory.looks(now(seconds).instant) == ["b"] {
            looks.push(seconds);
            memory.looked(&"b".into(), Pods::Remain, now(seconds).instant);
            assert!(memory.look_in(now(seconds).instant).is_some());
        }
    }
    assert_eq!(looks[6..12], [6, 7, 8, 10, 12, 14]);
    assert_eq!(looks[looks.len() - 2..], [315, 360]);
    // The next look is due: 52 s since the last one are more than an eighth of 412 s.
    assert_eq!(memory.look_in(now(412).instant), Some(Duration::ZERO));
    memory.looked(&"b".into(), Pods::Deleted, now(400).instant);
    assert_eq!(memory.looks(now(9_000).instant), [""; 0]);
}

/// Returns so many nodes that are ready, not ready since second 0, and marked as shut down; `b` is the first that is not ready.
fn cluster(ready_ones: usize, absent: usize, off_ones: usize) -> World {
    let mut world = with_cam().with_instance(shared());
    let nodes = std::iter::repeat_n(not_ready(at(0)), absent)
        .chain(std::iter::repeat_n(off(at(0)), off_ones))
        .chain(std::iter::repeat_n(ready(), ready_ones));
    let names = ["b", "c", "d", "e", "f", "g", "h", "i"].into_iter();
    let nodes = names
        .zip(nodes)
        .map(|(name, node)| (name.into(), Arc::new(node)));
    Arc::make_mut(&mut world.nodes).extend(nodes);
    Arc::make_mut(&mut world.nodes).insert("a".into(), Arc::new(NodeState::default()));
    world
}

#[test]
fn time_takes_nothing_from_nodes_while_more_than_half_are_away() {
    for (ready, absent, off, is_freed) in [
        (1, 1, 0, true),
        (2, 2, 0, true),
        (2, 3, 0, false),
        (0, 1, 0, false),
        // What the operator knows of is no sign of an outage.
        (1, 1, 3, true),
        (1, 2, 3, false),
    ] {
        let (mut world, mut memory) = (cluster(ready, absent, off), NodeMemory::default());
        let freed = freed_at(&mut world, &mut memory, (0, 2_000), right);
        assert_eq!(freed.is_some(), is_freed, "{ready} {absent} {off}");
        if !is_freed {
            let planned = looked(&world, &mut memory, 2_001);
            execute(&mut world, &mut memory, &planned, 2_001);
            assert_eq!(world.instances[&key("cam-1")].spec.nodes, ["a", "b"]);
        }
    }
    // These are the operator's word.
    let mut marked = cluster(1, 0, 4);
    assert!(freed_at(&mut marked, &mut NodeMemory::default(), (0, 0), right).is_some());
    let (mut deleted, mut memory) = (cluster(1, 4, 0), NodeMemory::default());
    Arc::make_mut(&mut deleted.nodes).remove("b");
    assert_eq!(freed_at(&mut deleted, &mut memory, (0, 9_000), right), None);
    memory.looked(&"b".into(), Pods::Deleted, now(9_000).instant);
    let freed = freed_at(&mut deleted, &mut memory, (9_000, 9_000), right);
    assert!(freed.is_some());
}

#[test]
fn no_instance_is_deleted_while_more_than_half_of_the_nodes_are_away() {
    let mut world = cluster(1, 2, 0);
    world = world.with_instance(abandoned(json!({})));
    let mut memory = NodeMemory::default();
    assert_eq!(looked(&world, &mut memory, 9_000).actions, []);
    Arc::make_mut(&mut world.nodes).insert("b".into(), Arc::new(ready()));
    let actions = looked(&world, &mut memory, 9_001).actions;
    assert!(
        matches!(actions[..], [Action::Delete { .. }]),
        "{actions:?}"
    );
}

#[test]
fn the_time_begins_anew_when_an_outage_ends() {
    let (mut over, mut memory) = (cluster(1, 2, 0), NodeMemory::default());
    assert_eq!(freed_at(&mut over, &mut memory, (0, 1_000), right), None);
    // `c` is back, and `b` will be in a moment.
    Arc::make_mut(&mut over.nodes).insert("c".into(), Arc::new(ready()));
    let planned = looked(&over, &mut memory, 1_500);
    assert_eq!(planned.actions, []);
    assert_eq!(planned.waits.first(), Some(Duration::from_secs(60)));
    let freed = freed_at(&mut over, &mut memory, (1_500, 9_000), right);
    assert_eq!(freed, Some(1_800));
}

#[test]
fn the_next_look_is_when_a_node_is_given_up_or_slots_are_free() {
    let mut memory = NodeMemory::default();
    let mut world = with_b(Some(not_ready(at(0))));
    for (seconds, wake) in [(10, 50), (60, 0), (61, 239), (299, 1)] {
        let planned = looked(&world, &mut memory, seconds);
        execute(&mut world, &mut memory, &planned, seconds);
        let wake_in = looked(&world, &mut memory, seconds).waits.first();
        let expected = if seconds == 60 { 240 } else { wake };
        assert_eq!(wake_in, Some(Duration::from_secs(expected)), "{seconds}");
    }
}

#[test]
fn an_agent_that_joins_again_without_a_node_object_keeps_its_slots_and_the_operators_newer_word_counts()
 {
    let (mut world, mut memory) = (with_b(None), NodeMemory::default());
    for seconds in (0..2_000).step_by(50) {
        assert_eq!(
            freed_at(&mut world, &mut memory, (seconds, seconds + 49), right),
            None
        );
        // What was found before it joined again says nothing.
        memory.looked(&"b".into(), Pods::Deleted, now(seconds).instant);
        world = (world.with_instance(shared())).with_node_devices(anew(seconds));
    }
    Arc::make_mut(&mut world.nodes).insert("b".into(), Arc::new(not_ready(at(2_000))));
    assert_eq!(
        freed_at(&mut world, &mut memory, (2_000, 2_060), right),
        None
    );
    world = (world.with_instance(shared())).with_node_devices(anew(2_061));
    for seconds in (2_061..9_000).step_by(300) {
        let freed = freed_at(&mut world, &mut memory, (seconds, seconds + 299), right);
        assert_eq!(freed, None);
        world = world.with_node_devices(anew(seconds + 300));
    }
    // The machine died afterwards, and the operator says so.
    Arc::make_mut(&mut world.nodes).insert("b".into(), Arc::new(off(at(2_000))));
    let freed = freed_at(&mut world, &mut memory, (9_261, 9_261), right);
    assert_eq!(freed, Some(9_261));
}

#[test]
fn a_node_that_has_said_nothing_yet_is_no_lost_one() {
    let new = NodeState::default();
    let world = with_cam()
        .with_nodes([("a", ready()), ("b", new)])
        .with_instance(shared());
    assert_eq!(
        looked(&world, &mut NodeMemory::default(), 9_000).actions,
        []
    );
}

#[test]
fn what_was_remembered_with_a_freed_slot_goes_with_it() {
    let world = with_cam()
        .with_nodes([("a", ready()), ("b", off(at(0)))])
        .with_instance(shared());
    let annotations = after(&world, 0).metadata.annotations.unwrap();
    let kept: Vec<&str> = annotations.keys().map(String::as_str).collect();
    assert_eq!(kept, ["a.b/theirs", "told.akri.sh/0"]);
}
