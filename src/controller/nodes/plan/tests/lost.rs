//! When the slots of lost nodes are free, and what is said while they are not.
use super::*;
use k8s_openapi::jiff::SignedDuration;

/// `cam-1` with nodes `a`, which is ready, and `b`.
fn with_b(b: Option<NodeState>) -> World {
    let mut world = World::default()
        .with_nodes([("a", ready())])
        .with_instance(shared());
    (world.nodes).extend(b.map(|b| ("b".to_owned(), Arc::new(b))));
    world
}

fn releasing_after(seconds: i64) -> Configuration {
    configuration("cam", json!({ "spec": { "slotReleaseSeconds": seconds } }))
}

fn holds(world: &World, node: &str) -> bool {
    let mut holders = slots_in_use(&world.instances[&key("cam-1")]);
    holders.any(|(_, holder)| holder == node)
}

/// Carries out a plan at each second. Returns the one after which `b` holds no slot.
fn freed_at(
    world: &mut World,
    memory: &mut Memory,
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
        let freed = freed_at(&mut world, &mut Memory::default(), (0, 1_000), right);
        assert_eq!(freed, free, "{configuration:?}");
    }
    let mut unreadable = with_b(Some(not_ready(at(0))));
    (unreadable.unreadable).insert(key("cam"), "missing field".to_owned());
    let freed = freed_at(&mut unreadable, &mut Memory::default(), (0, 1_000), right);
    assert_eq!(freed, None);
}

#[test]
fn a_controller_that_begins_later_does_not_wait_anew_but_for_the_agent() {
    for (begins, free) in [(100, 300), (290, 350), (9_000, 9_060)] {
        let mut world = with_b(Some(not_ready(at(0))));
        let looks = (begins, 10_000);
        let freed = freed_at(&mut world, &mut Memory::default(), looks, right);
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
        let mut memory = Memory::default();
        let before = Now {
            clock: at(step),
            ..now(0)
        };
        looked_at(&with_b(Some(ready())), &mut memory, before);
        let freed = freed_at(&mut world(), &mut memory, (0, 10_000), |seconds| {
            seconds + step
        });
        assert_eq!(freed, Some(300), "{step}");
        let freed = freed_at(&mut world(), &mut Memory::default(), (0, 10_000), stepped);
        assert_eq!(freed, Some(300), "{step}");
        // One that begins with a wrong clock watches for itself first.
        let begun = |seconds: i64| seconds + step;
        let freed = freed_at(&mut world(), &mut Memory::default(), (10, 10_000), begun);
        assert_eq!(freed, Some(if step > 0 { 70 } else { 310 }), "{step}");
    }
}

#[test]
fn a_node_that_is_marked_as_shut_down_has_its_slots_taken_at_once_unless_it_is_ready() {
    let never = releasing_after(0);
    let mut lost = with_b(Some(off(at(0)))).with_configuration(never.clone());
    let freed = freed_at(&mut lost, &mut Memory::default(), (0, 0), right);
    assert_eq!(freed, Some(0));
    // The operator forgot to take the taint off.
    let back = NodeState {
        is_ready: true,
        ..off(at(0))
    };
    let back = with_b(Some(back)).with_configuration(never);
    assert_eq!(looked(&back, &mut Memory::default(), 9_000).actions, []);
}

#[test]
fn an_agent_that_joins_again_before_its_marked_node_is_ready_keeps_its_slots() {
    let lost = with_b(Some(off(at(0))));
    let (mut world, mut memory) = (lost.clone(), Memory::default());
    let planned = looked(&world, &mut memory, 0);
    execute(&mut world, &mut memory, &planned, 0);
    assert!(!holds(&world, "b"));
    for seconds in [1, 500] {
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
        let (mut world, mut memory) = (with_b(None), Memory::default());
        assert_eq!(freed_at(&mut world, &mut memory, (0, 19), right), None);
        memory.looked("b", found, now(19).instant);
        let freed = freed_at(&mut world, &mut memory, (20, 1_000), right);
        assert_eq!(freed, free, "{found:?}");
    }
    let mut never = with_b(None).with_configuration(releasing_after(0));
    let mut memory = Memory::default();
    assert_eq!(freed_at(&mut never, &mut memory, (0, 9_000), right), None);
    // The kubelet registered again: what was found before says nothing.
    memory.looked("b", Pods::Deleted, now(9_000).instant);
    let again = NodeState {
        since: Some(at(9_000)),
        ..ready()
    };
    (never.nodes).insert("b".to_owned(), Arc::new(again));
    looked(&never, &mut memory, 9_001);
    never.nodes.remove("b");
    assert_eq!(
        freed_at(&mut never, &mut memory, (9_002, 9_999), right),
        None
    );
}

#[test]
fn the_time_of_a_node_that_was_not_ready_counts_when_it_is_deleted() {
    let mut memory = Memory::default();
    let mut world = with_b(Some(not_ready(at(0))));
    assert_eq!(freed_at(&mut world, &mut memory, (0, 200), right), None);
    world.nodes.remove("b");
    let freed = freed_at(&mut world, &mut memory, (201, 1_000), right);
    assert_eq!(freed, Some(300));
}

#[test]
fn the_pods_of_a_deleted_node_are_looked_for_less_and_less_often() {
    let (world, mut memory) = (with_b(None), Memory::default());
    let mut looks = vec![];
    for seconds in 0..=400 {
        memory.notice(&world, now(seconds));
        if memory.looks(now(seconds).instant) == ["b"] {
            looks.push(seconds);
            memory.looked("b", Pods::Remain, now(seconds).instant);
            assert!(memory.wake_in(now(seconds).instant).is_some());
        }
    }
    assert_eq!(looks[..8], [0, 1, 2, 3, 4, 6, 8, 11]);
    assert_eq!(looks[looks.len() - 2..], [326, 386]);
    memory.looked("b", Pods::Deleted, now(400).instant);
    assert_eq!(memory.looks(now(9_000).instant), [""; 0]);
}

/// So many nodes that are ready, not ready since second 0, and marked as shut down; `b` is the first that is not ready.
fn cluster(ready_ones: usize, away: usize, off_ones: usize) -> World {
    let mut world = World::default().with_instance(shared());
    let nodes = std::iter::repeat_n(not_ready(at(0)), away)
        .chain(std::iter::repeat_n(off(at(0)), off_ones))
        .chain(std::iter::repeat_n(ready(), ready_ones));
    let names = ["b", "c", "d", "e", "f", "g", "h", "i"].into_iter();
    let nodes = names
        .zip(nodes)
        .map(|(name, node)| (name.to_owned(), Arc::new(node)));
    world.nodes.extend(nodes);
    (world.nodes).insert("a".to_owned(), Arc::new(NodeState::default()));
    world
}

#[test]
fn time_takes_nothing_from_nodes_while_more_than_half_are_away() {
    for (ready, away, off, is_freed) in [
        (1, 1, 0, true),
        (2, 2, 0, true),
        (2, 3, 0, false),
        (0, 1, 0, false),
        // What the operator knows of is no sign of an outage.
        (1, 1, 3, true),
        (1, 2, 3, false),
    ] {
        let (mut world, mut memory) = (cluster(ready, away, off), Memory::default());
        let freed = freed_at(&mut world, &mut memory, (0, 2_000), right);
        assert_eq!(freed.is_some(), is_freed, "{ready} {away} {off}");
        if !is_freed {
            let planned = looked(&world, &mut memory, 2_001);
            execute(&mut world, &mut memory, &planned, 2_001);
            assert_eq!(world.instances[&key("cam-1")].spec.nodes, ["a", "b"]);
        }
    }
    // These are the operator's word.
    let mut marked = cluster(1, 0, 4);
    assert!(freed_at(&mut marked, &mut Memory::default(), (0, 0), right).is_some());
    let (mut deleted, mut memory) = (cluster(1, 4, 0), Memory::default());
    deleted.nodes.remove("b");
    assert_eq!(freed_at(&mut deleted, &mut memory, (0, 9_000), right), None);
    memory.looked("b", Pods::Deleted, now(9_000).instant);
    let freed = freed_at(&mut deleted, &mut memory, (9_000, 9_000), right);
    assert!(freed.is_some());
}

#[test]
fn no_instance_is_deleted_while_more_than_half_of_the_nodes_are_away() {
    let mut world = cluster(1, 2, 0);
    world = world.with_instance(abandoned(json!({})));
    let mut memory = Memory::default();
    assert_eq!(looked(&world, &mut memory, 9_000).actions, []);
    world.nodes.insert("b".to_owned(), Arc::new(ready()));
    let actions = looked(&world, &mut memory, 9_001).actions;
    assert!(
        matches!(actions[..], [Action::Delete { .. }]),
        "{actions:?}"
    );
}

#[test]
fn the_time_begins_anew_when_an_outage_ends() {
    let (mut over, mut memory) = (cluster(1, 2, 0), Memory::default());
    assert_eq!(freed_at(&mut over, &mut memory, (0, 1_000), right), None);
    // `c` is back, and `b` will be in a moment.
    over.nodes.insert("c".to_owned(), Arc::new(ready()));
    let planned = looked(&over, &mut memory, 1_500);
    assert_eq!(planned.actions, []);
    assert_eq!(planned.wake_in, Some(Duration::from_secs(60)));
    let freed = freed_at(&mut over, &mut memory, (1_500, 9_000), right);
    assert_eq!(freed, Some(1_800));
}

#[test]
fn the_next_look_is_when_a_node_is_given_up_or_slots_are_free() {
    let mut memory = Memory::default();
    let mut world = with_b(Some(not_ready(at(0))));
    for (seconds, wake) in [(10, 50), (60, 0), (61, 239), (299, 1)] {
        let planned = looked(&world, &mut memory, seconds);
        execute(&mut world, &mut memory, &planned, seconds);
        let wake_in = looked(&world, &mut memory, seconds).wake_in;
        let expected = if seconds == 60 { 240 } else { wake };
        assert_eq!(wake_in, Some(Duration::from_secs(expected)), "{seconds}");
    }
}

/// `cam-1`, whose only slot `b` holds, with what is reported of it.
fn notes(
    b: Option<NodeState>,
    configuration: Configuration,
    pods: Pods,
) -> Vec<(&'static str, String)> {
    let mut held = shared();
    held.spec.capacity = 1;
    held.spec.device_usage = BTreeMap::from([("cam-1-0".to_owned(), "b".to_owned())]);
    let world = with_b(b)
        .with_instance(held)
        .with_configuration(configuration);
    let mut memory = Memory::default();
    memory.notice(&world, now(0));
    memory.looked("b", pods, now(0).instant);
    let planned = looked(&world, &mut memory, 110);
    let notices = planned.notices.iter();
    notices
        .map(|notice| (notice.reason(), notice.note().to_owned()))
        .collect()
}

#[test]
fn a_device_that_nobody_else_can_have_says_why_and_what_to_do() {
    let by_default = || configuration("cam", json!({}));
    let note = |b, configuration, pods| {
        let notes = notes(b, configuration, pods);
        let [(reason, note)] = &notes[..] else {
            panic!("{notes:?}")
        };
        assert_eq!(*reason, "SlotsHeldByLostNode");
        assert!(note.len() < 1_000, "{note}");
        note.clone()
    };
    let lost = || Some(not_ready(at(0)));
    let text = note(lost(), by_default(), Pods::Unknown);
    assert_eq!(
        text,
        format!(
            "cam-1-0: still held by b, which is not ready since {} and may run its containers. free for other nodes in 190 s \
             (spec.slotReleaseSeconds of the Configuration); at once when its containers have ended for sure: if the machine \
             is off, give the Node the taint node.kubernetes.io/out-of-service, or delete the Node and its Pods",
            at(0)
        )
    );
    let text = note(lost(), releasing_after(0), Pods::Unknown);
    assert!(text.contains("never by time"), "{text}");
    let text = note(None, by_default(), Pods::Remain);
    assert!(text.contains("at the latest in 190 s"), "{text}");
    let text = note(None, releasing_after(0), Pods::Remain);
    assert!(!text.contains("at the latest"), "{text}");
    assert_eq!(notes(None, by_default(), Pods::Unknown), []);
    assert_eq!(notes(Some(ready()), by_default(), Pods::Unknown), []);
}

#[test]
fn a_device_with_a_free_slot_and_a_node_that_may_be_back_soon_are_no_trouble() {
    // Five of its six slots are in use.
    let mut free = shared();
    free.spec.capacity = 6;
    let world = with_b(Some(not_ready(at(0)))).with_instance(free);
    assert_eq!(looked(&world, &mut Memory::default(), 110).notices, []);
    let world = with_b(Some(not_ready(at(0))));
    assert_eq!(looked(&world, &mut Memory::default(), 59).notices, []);
    assert_eq!(looked(&world, &mut Memory::default(), 60).notices.len(), 1);
}

#[test]
fn a_trouble_is_reported_once() {
    let (world, mut memory) = (with_b(Some(not_ready(at(0)))), Memory::default());
    memory.notice(&world, now(0));
    let mut tell = |wait| memory.tell("b", &key("cam-1"), wait);
    use crate::controller::nodes::lost::Wait;
    assert!(tell(Wait::Time) && tell(Wait::Operator));
    assert!(!tell(Wait::Time));
    assert!(!memory.tell("a", &key("cam-1"), Wait::Time));
}

#[test]
fn an_outage_is_reported_on_the_configuration_once_it_lasts() {
    let (world, mut memory) = (cluster(1, 2, 0), Memory::default());
    assert_eq!(looked(&world, &mut memory, 10).notices, []);
    let planned = looked(&world, &mut memory, 70);
    let [notice @ Notice::Outage { configuration, .. }] = &planned.notices[..] else {
        panic!("{:?}", planned.notices)
    };
    assert_eq!(notice.reason(), "MostNodesNotReady");
    let note = notice.note();
    assert!(note.starts_with("2 of 3 nodes are not ready"), "{note}");
    assert!(note.len() < 1_000);
    assert!(memory.tell_outage(configuration) && !memory.tell_outage(configuration));
}

#[test]
fn an_agent_that_joins_again_without_a_node_object_keeps_its_slots_and_the_operators_newer_word_counts()
 {
    let (mut world, mut memory) = (with_b(None), Memory::default());
    for seconds in (0..2_000).step_by(50) {
        assert_eq!(
            freed_at(&mut world, &mut memory, (seconds, seconds + 49), right),
            None
        );
        // What was found before it joined again says nothing.
        memory.looked("b", Pods::Deleted, now(seconds).instant);
        world = world.with_instance(shared());
    }
    world
        .nodes
        .insert("b".to_owned(), Arc::new(not_ready(at(2_000))));
    assert_eq!(
        freed_at(&mut world, &mut memory, (2_000, 2_060), right),
        None
    );
    world = world.with_instance(shared());
    assert_eq!(
        freed_at(&mut world, &mut memory, (2_061, 9_000), right),
        None
    );
    // The machine died afterwards, and the operator says so.
    world.nodes.insert("b".to_owned(), Arc::new(off(at(2_000))));
    let freed = freed_at(&mut world, &mut memory, (9_001, 9_001), right);
    assert_eq!(freed, Some(9_001));
}

#[derive(Debug, Clone)]
enum Event {
    Passes(i64),
    ClockSteps(i64),
    NotReady(bool),
    OthersReady(bool),
    Deleted(bool),
    NewController,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => (0..59_i64).prop_map(Event::Passes),
        1 => (-4_000..4_000_i64).prop_map(Event::ClockSteps),
        2 => any::<bool>().prop_map(Event::NotReady),
        1 => any::<bool>().prop_map(Event::OthersReady),
        1 => any::<bool>().prop_map(Event::Deleted),
        1 => Just(Event::NewController),
    ]
}

proptest! {
    /// The agent of `b` runs all the time: when its node is taken out it joins again within a minute. Its
    /// Node is deleted at times, and its Pods are there.
    #[test]
    fn a_slot_of_an_agent_that_lives_is_nobody_elses(
        events in proptest::collection::vec(event(), 1..120),
        release in 0..1_000_i64,
    ) {
        let (mut seconds, mut step) = (10_000, 0);
        let mut world = with_b(Some(ready())).with_configuration(releasing_after(release));
        let mut memory = Memory::default();
        let mut out_since = None;
        for event in events {
            match event {
                Event::Passes(by) => seconds += by,
                Event::ClockSteps(by) => step += by,
                Event::NotReady(is) => {
                    let since = Some(at(seconds));
                    let state = NodeState { is_ready: !is, since, is_out_of_service: false, ..NodeState::default() };
                    let changed = world.nodes.get("b").is_none_or(|node| node.is_ready == is);
                    if changed { world.nodes.insert("b".to_owned(), Arc::new(state)); }
                }
                Event::OthersReady(is) => {
                    for name in ["c", "d"] {
                        let state = if is { ready() } else { not_ready(at(seconds)) };
                        world.nodes.insert(name.to_owned(), Arc::new(state));
                    }
                }
                Event::Deleted(true) => drop(world.nodes.remove("b")),
                Event::Deleted(false) if !world.nodes.contains_key("b") => {
                    let state = not_ready(at(seconds));
                    world.nodes.insert("b".to_owned(), Arc::new(state));
                }
                Event::Deleted(false) => {}
                Event::NewController => memory = Memory::default(),
            }
            if out_since.is_some_and(|since| seconds - since >= 50) {
                let device = Arc::make_mut(world.instances.get_mut(&key("cam-1")).unwrap());
                *device = Instance { spec: crate::api::instance::InstanceSpec {
                    device_usage: device.spec.device_usage.clone(), ..shared().spec
                }, ..shared() };
                out_since = None;
            }
            let time = Now { clock: at(seconds) + SignedDuration::from_secs(step), ..now(seconds) };
            memory.notice(&world, time);
            for node in memory.looks(time.instant) {
                memory.looked(&node, Pods::Remain, time.instant);
            }
            let planned = plan(&world, &memory, time);
            execute(&mut world, &mut memory, &planned, seconds);
            prop_assert!(holds(&world, "b"), "taken at {}", seconds);
            let is_named = world.instances[&key("cam-1")].spec.nodes.contains(&"b".to_owned());
            if !is_named && out_since.is_none() { out_since = Some(seconds); }
            if is_named { out_since = None; }
        }
    }
}
