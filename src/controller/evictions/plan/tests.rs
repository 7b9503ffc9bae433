use super::*;
use crate::{
    api::node_devices::NodeDevices,
    controller::fixtures::{configuration, instance, key, node_devices, not_ready, ready},
};
use serde_json::{Value, json};

/// What a node says of the devices of `cam`.
fn says(node: &str, devices: Value) -> NodeDevices {
    node_devices(
        node,
        json!([{
            "namespace": "default", "name": "cam", "complete": true, "generation": 1, "devices": devices,
        }]),
    )
}

fn gone(name: &str) -> Value {
    json!({"instance": name, "state": "Left", "gone": true})
}

fn seen(device: &str, connection: &str) -> Value {
    json!({"id": device, "connection": connection})
}

/// The Configuration `cam`, whose shared devices `cam-1` and `cam-2` two nodes may see.
fn world(when_gone: &str) -> World {
    let device = |name: &str, usage: Value| {
        instance(
            name,
            json!({
                "metadata": {"annotations": {"akri.sh/device-id": name, "told.akri.sh/0": "at ttyUSB0"}},
                "spec": {"shared": true, "nodes": ["a", "b"], "deviceUsage": usage},
            }),
        )
    };
    World::default()
        .with_nodes([("a", ready()), ("b", ready())])
        .with_configuration(configuration(
            "cam",
            json!({"spec": {"whenGone": when_gone}}),
        ))
        .with_instance(device(
            "cam-1",
            json!({"cam-1-0": "a", "cam-1-1": "C:cam-0:b"}),
        ))
        .with_instance(device("cam-2", json!({"cam-2-0": "C:cam-1:b"})))
}

struct Planned {
    /// Each node, with what it has lost and the due ids of each resource.
    due: Vec<String>,
    actions: Vec<Action>,
    waits: Waits,
}

fn planned_after(world: &World, evicted: &Evicted, now: Instant) -> Planned {
    let input = Input {
        resource_prefix: &"akri.sh".parse().unwrap(),
        evicted,
        now,
    };
    let (actions, waits) = plan(&Reported::new(world), &input);
    let words = |action: &Action| {
        let held = action.held.iter();
        let held = held.map(|(resource, h)| {
            let due: Vec<_> = h.due.keys().collect();
            format!(
                "{resource}: {due:?} of {:?}",
                h.ids.keys().collect::<BTreeSet<_>>()
            )
        });
        let held: Vec<_> = held.collect();
        let lost = action.lost.iter();
        let lost: Vec<_> =
            (lost.map(|(key, lost)| format!("{} {:?}", key.name, lost.cause))).collect();
        format!("{}: {}, {}", action.node, lost.join(", "), held.join("; "))
    };
    Planned {
        due: actions.iter().map(words).collect(),
        actions,
        waits,
    }
}

fn due(world: &World) -> Vec<String> {
    planned_after(world, &Evicted::new(), Instant::now()).due
}

#[test]
fn the_pod_on_the_node_that_lost_the_device_is_evicted_and_the_one_on_the_other_node_stays() {
    let here = world("Evict")
        .with_node_devices(says("a", json!([gone("cam-1")])))
        .with_node_devices(says("b", json!([seen("cam-1", "at ttyUSB0")])));
    let of_instance = r#"a: cam-1 Gone, akri.sh/cam-1: ["cam-1-0"] of {"cam-1-0"}"#;
    assert_eq!(due(&here), [of_instance]);
    let neither = here.with_node_devices(says(
        "b",
        json!([gone("cam-1"), seen("cam-2", "at ttyUSB0")]),
    ));
    let of_configuration = r#"b: cam-1 Gone, akri.sh/cam: ["cam-0"] of {"cam-0", "cam-1"}"#;
    assert_eq!(due(&neither), [of_instance, of_configuration]);
}

#[test]
fn a_claim_that_has_lost_its_device_is_known_by_its_uid() {
    let world = world("Evict").with_instance(instance(
        "cam-1",
        json!({
            "metadata": {"annotations": {"akri.sh/device-id": "cam-1", "told.akri.sh/0": "at ttyUSB0"}},
            "spec": {"shared": true, "nodes": ["a", "b"], "deviceUsage": {"cam-1-0": "claim:u-1:a", "cam-1-1": "claim:u-2:b"}},
        }),
    ));
    let here = world
        .with_node_devices(says("a", json!([gone("cam-1")])))
        .with_node_devices(says("b", json!([seen("cam-1", "at ttyUSB0")])));
    let due_claim = |cause| format!(r#"a: cam-1 {cause}, akri.sh/cam: ["u-1"] of {{"u-1"}}"#);
    assert_eq!(due(&here), [due_claim("Gone")]);
    let moved = here.with_node_devices(says("a", json!([seen("cam-1", "at ttyUSB1")])));
    assert_eq!(due(&moved), [due_claim("Moved")]);
}

#[test]
fn a_claim_counts_as_many_slots_as_it_has_of_all_instances() {
    let of = |name: &str, device_usage: Value| {
        let spec = json!({"shared": true, "nodes": ["a"], "deviceUsage": device_usage});
        let metadata = json!({"annotations": {"akri.sh/device-id": name}});
        instance(name, json!({"metadata": metadata, "spec": spec}))
    };
    let world = world("Evict")
        .with_instance(of("cam-1", json!({"cam-1-0": "claim:u-1:a"})))
        .with_instance(of(
            "cam-2",
            json!({"cam-2-0": "claim:u-1:a", "cam-2-1": "claim:u-2:a"}),
        ))
        .with_node_devices(says("a", json!([gone("cam-2"), seen("cam-1", "x")])));
    let planned = planned_after(&world, &Evicted::new(), Instant::now());
    let held = planned.actions[0].held.values().next().unwrap();
    let slots: Vec<_> = held.ids.iter().map(|(id, slots)| (&**id, *slots)).collect();
    assert_eq!(slots, [("u-1", 2), ("u-2", 1)]);
    let due: Vec<_> = held.due.iter().map(|(id, of)| (&**id, of.len())).collect();
    assert_eq!(due, [("u-1", 1), ("u-2", 1)]);
}

#[test]
fn without_the_field_every_pod_stays() {
    let both = [
        says("a", json!([gone("cam-1")])),
        says("b", json!([gone("cam-1")])),
    ];
    let keep = both
        .into_iter()
        .fold(world("Keep"), World::with_node_devices);
    assert_eq!(due(&keep), [""; 0]);
}

#[test]
fn a_device_within_its_grace_period_and_one_that_nobody_speaks_of_keep_their_pods() {
    let missing = json!([{"id": "cam-1", "state": "Unhealthy"}]);
    let not_looked = json!([{"instance": "cam-1", "state": "Left"}]);
    for said in [missing, not_looked, json!([])] {
        let world = world("Evict").with_node_devices(says("a", said));
        assert_eq!(due(&world), [""; 0]);
    }
    assert_eq!(due(&world("Evict")), [""; 0], "no agent says anything");
}

#[test]
fn of_a_node_that_is_lost_nothing_is_known() {
    let mut world = world("Evict").with_node_devices(says("a", json!([gone("cam-1")])));
    assert_eq!(due(&world).len(), 1);
    let since = crate::controller::fixtures::at(0);
    world = world.with_nodes([("a", not_ready(since)), ("b", ready())]);
    assert_eq!(due(&world), [""; 0]);
    world = world.with_nodes([("b", ready())]);
    assert_eq!(due(&world), [""; 0], "its Node is deleted");
}

#[test]
fn a_pod_that_was_told_another_way_to_the_device_is_evicted() {
    let at =
        |place: &str| world("Evict").with_node_devices(says("a", json!([seen("cam-1", place)])));
    assert_eq!(due(&at("at ttyUSB0")), [""; 0]);
    let moved = r#"a: cam-1 Moved, akri.sh/cam-1: ["cam-1-0"] of {"cam-1-0"}"#;
    assert_eq!(due(&at("at ttyUSB1")), [moved]);
    // Of a slot without a note it is not known what its container was told.
    let other = at("at ttyUSB0").with_node_devices(says("b", json!([seen("cam-1", "at ttyUSB1")])));
    assert_eq!(due(&other), [""; 0]);
}

#[test]
fn what_is_being_deleted_takes_no_pod_with_it() {
    let deleting = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    let lost = || world("Evict").with_node_devices(says("a", json!([gone("cam-1")])));
    let mut fields = json!({"spec": {"whenGone": "Evict"}});
    json_patch::merge(&mut fields, &deleting);
    assert_eq!(
        due(&lost().with_configuration(configuration("cam", fields))),
        [""; 0]
    );
    let mut orphan = lost();
    orphan.configurations.remove(&key("cam"));
    assert_eq!(due(&orphan), [""; 0]);
}

#[test]
fn all_devices_that_a_node_loses_at_once_are_in_one_action() {
    let lost = json!([gone("cam-1"), gone("cam-2")]);
    let world = world("Evict").with_node_devices(says("b", lost));
    let both =
        r#"b: cam-1 Gone, cam-2 Gone, akri.sh/cam: ["cam-0", "cam-1"] of {"cam-0", "cam-1"}"#;
    let planned = planned_after(&world, &Evicted::new(), Instant::now());
    assert_eq!(planned.due, [both]);
    let [action] = &planned.actions[..] else {
        panic!("{:?}", planned.actions);
    };
    let of = |names: &[&str]| action.why(&names.iter().map(|name| key(name)).collect());
    let one = "node b does not see the device of Instance default/cam-2 any more";
    assert_eq!(of(&["cam-2"]), one);
    let two = "node b does not see the device of Instance default/cam-1 and of 1 more any more";
    assert_eq!(of(&["cam-1", "cam-2"]), two);
}

#[test]
fn a_pod_must_have_begun_before_the_grace_period_of_what_is_gone_and_of_what_moved_no_such_time_is_known()
 {
    let lost_for = |said: Value| {
        let world = world("Evict").with_node_devices(says("a", json!([said])));
        let [action] = &planned_after(&world, &Evicted::new(), Instant::now()).actions[..] else {
            panic!("one action");
        };
        action
            .held
            .values()
            .map(|held| held.lost_for)
            .collect::<Vec<_>>()
    };
    let grace = configuration("cam", json!({})).spec.grace_period_seconds;
    assert!(grace > 0);
    assert_eq!(
        lost_for(gone("cam-1")),
        [Duration::from_secs(grace.unsigned_abs())]
    );
    assert_eq!(lost_for(seen("cam-1", "at ttyUSB1")), [Duration::ZERO]);
}

#[test]
fn a_device_that_goes_again_and_again_ends_pods_once_a_minute_and_no_other_node_waits_for_it() {
    let world = world("Evict")
        .with_node_devices(says("a", json!([gone("cam-1")])))
        .with_node_devices(says("b", json!([gone("cam-1"), gone("cam-2")])));
    let now = Instant::now();
    let first = planned_after(&world, &Evicted::new(), now);
    assert_eq!(first.due.len(), 2);
    let Action {
        configuration,
        node,
        ..
    } = first.actions[0].clone();
    let evicted = Evicted::from([((configuration, node), now)]);
    let later = planned_after(&world, &evicted, now + Duration::from_secs(50));
    assert_eq!(later.due, first.due[1..]);
    assert_eq!(later.waits.first(), Some(Duration::from_secs(10)));
    assert_eq!(planned_after(&world, &evicted, now + APART).due, first.due);
}

#[test]
fn a_resource_of_another_name_is_found_and_instances_of_others_are_not() {
    let fields = json!({"spec": {"whenGone": "Evict", "resourceName": "example.com/lens"}});
    let usage = json!({"spec": {"configurationName": "tv", "deviceUsage": {"tv-1-0": "C:tv-0:b"}}});
    let world = world("Evict")
        .with_configuration(configuration("cam", fields))
        .with_instance(instance("tv-1", usage))
        .with_node_devices(says("b", json!([gone("cam-2")])));
    let expected = r#"b: cam-2 Gone, example.com/lens: ["cam-1"] of {"cam-0", "cam-1"}"#;
    assert_eq!(due(&world), [expected]);
}
