//! Whatever happens to a node whose agent lives.
use super::*;
use k8s_openapi::jiff::SignedDuration;

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

/// The NodeDevices of `b`, which sees the device.
fn report(made: i64) -> NodeDevices {
    let seen = json!([{ "instance": "cam-1" }]);
    let view =
        json!([{ "namespace": "default", "name": "cam", "complete": true, "devices": seen }]);
    NodeDevices {
        spec: node_devices("b", view).spec,
        ..anew(made)
    }
}

proptest! {
    /// The agent of `b` runs all the time: when its NodeDevices are deleted it makes them again within a minute. Its Node is
    /// deleted at times, and its Pods are there.
    #[test]
    fn a_slot_of_an_agent_that_lives_is_nobody_elses(
        events in proptest::collection::vec(event(), 1..120),
        release in 0..1_000_i64,
    ) {
        let (mut seconds, mut step, mut made) = (10_000, 0, 0);
        let mut world = with_b(Some(ready())).with_configuration(releasing_after(release));
        world = world.with_node_devices(report(made));
        let mut memory = NodeMemory::default();
        let mut out_since = None;
        for event in events {
            match event {
                Event::Passes(by) => seconds += by,
                Event::ClockSteps(by) => step += by,
                Event::NotReady(is) => {
                    let since = Some(at(seconds));
                    let state = NodeState { is_ready: !is, since, is_out_of_service: false, ..NodeState::default() };
                    let changed = world.nodes.get("b").is_none_or(|node| node.is_ready == is);
                    if changed { Arc::make_mut(&mut world.nodes).insert("b".into(), Arc::new(state)); }
                }
                Event::OthersReady(is) => {
                    for name in ["c", "d"] {
                        let state = if is { ready() } else { not_ready(at(seconds)) };
                        Arc::make_mut(&mut world.nodes).insert(name.into(), Arc::new(state));
                    }
                }
                Event::Deleted(true) => drop(Arc::make_mut(&mut world.nodes).remove("b")),
                Event::Deleted(false) if !world.nodes.contains_key("b") => {
                    let state = not_ready(at(seconds));
                    Arc::make_mut(&mut world.nodes).insert("b".into(), Arc::new(state));
                }
                Event::Deleted(false) => {}
                Event::NewController => memory = NodeMemory::default(),
            }
            if out_since.is_some_and(|since| seconds - since >= 50) {
                made += 1;
                world = world.with_node_devices(report(made));
                out_since = None;
            }
            let time = Now { clock: at(seconds) + SignedDuration::from_secs(step), ..now(seconds) };
            let reported = Reported::new(&world);
            memory.notice(&reported, time);
            for node in memory.looks(time.instant) {
                memory.looked(&node, Pods::Remain, time.instant);
            }
            let planned = plan(&reported, &memory, time);
            execute(&mut world, &mut memory, &planned, seconds);
            prop_assert!(holds(&world, "b"), "taken at {}", seconds);
            if !world.node_devices.contains_key("b") { out_since = out_since.or(Some(seconds)); }
        }
    }
}
