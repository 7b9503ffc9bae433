//! Nodes that have not validated the Configuration as it stands.
use super::*;

/// Tools that apply a Configuration take it for well once the status is about its generation and `Ready` is true.
#[test]
fn ready_waits_until_every_node_that_works_has_validated_this_generation() {
    let bad = json!([{ "reason": "BadDetails", "message": "no kind" }]);
    let view = |node: &str, generation: Option<i64>, problems: &Value| {
        let view = json!({
            "namespace": "default", "name": "cam", "generation": generation, "problems": problems,
        });
        node_devices(node, json!([view]))
    };
    let good = json!([]);
    for (of_a, of_b, status, reason) in [
        ((Some(1), &good), (Some(1), &good), "Unknown", "NotReported"),
        ((Some(1), &good), (Some(2), &good), "Unknown", "NotReported"),
        ((Some(1), &bad), (Some(2), &good), "Unknown", "NotReported"),
        ((Some(1), &good), (Some(2), &bad), "False", "BadDetails"),
        ((Some(2), &good), (Some(2), &good), "True", "Working"),
        // An agent of an older version.
        ((None, &good), (Some(2), &good), "True", "Working"),
    ] {
        let edited = configuration("cam", json!({ "metadata": { "generation": 2 } }));
        let world = reported(vec![])
            .with_configuration(edited)
            .with_node_devices(view("a", of_a.0, of_a.1))
            .with_node_devices(view("b", of_b.0, of_b.1))
            .with_node_devices(view("late", Some(1), &good));
        let (ready, _) = validated(&world, 60);
        let said = (ready.status.as_str(), ready.reason.as_str());
        assert_eq!(said, (status, reason), "{of_a:?} {of_b:?}");
    }
}

#[test]
fn late_nodes_are_named_when_they_are_few_and_late_for_long_and_no_sooner() {
    let view = |node: &str, generation: i64| {
        let view = json!({"namespace": "default", "name": "cam", "generation": generation});
        node_devices(node, json!([view]))
    };
    let edited = configuration("cam", json!({ "metadata": { "generation": 2 } }));
    let mut world = reported(vec![]).with_configuration(edited);
    world = (world.with_node_devices(view("a", 1))).with_node_devices(view("b", 1));
    let wait = |world: &World, seconds| look(world, at(seconds)).waits.first();
    let message = |world: &World| {
        let status = world.configurations[&key("cam")].status.clone().unwrap();
        status.conditions[0].message.clone()
    };
    let planned = look(&world, at(0));
    // The condition does not wait yet. Its write is followed by another pass.
    assert_eq!(planned.waits.first(), None);
    execute(&mut world, &planned);
    assert!(message(&world).starts_with("some nodes have not looked"));
    assert_eq!(wait(&world, 5), Some(Duration::from_secs(10)));
    // The clock that wrote the time was ahead.
    assert_eq!(wait(&world, -60), Some(Duration::from_secs(15)));
    // A report is no write.
    let mut world = world.with_node_devices(view("c", 1));
    assert_eq!(look(&world, at(14)).actions, []);
    let planned = look(&world, at(15));
    execute(&mut world, &planned);
    assert!(message(&world).starts_with("nodes a, b, c have not looked at its current spec: "));
    assert_eq!(wait(&world, 16), None);
    // Four are not named, and not waited for.
    let many = world
        .with_nodes(["a", "b", "c", "d"].map(|name| (name, ready())))
        .with_node_devices(view("d", 1));
    assert_eq!(wait(&many, 16), None);
    let (ready, _) = validated(&many, 16);
    assert!(
        ready.message.starts_with("some nodes have not looked"),
        "{ready:?}"
    );
}
