mod brokers;
mod late;

use super::*;
use crate::controller::fixtures::{
    at, configuration, instance, key, node_devices, not_ready, ready, text,
};
use proptest::prelude::*;
use std::{sync::Arc, time::Duration};

fn look(world: &World, now: Timestamp) -> Plan {
    let (brokers, problems) = (Reports::new(), Problems::new());
    let seen = StatusInputs {
        world,
        brokers: &brokers,
        problems: &problems,
        learns_until: None,
    };
    plan(seen, now)
}

/// The API server, as far as this plan goes.
fn execute(world: &mut World, plan: &Plan) {
    for Action { object, patch, .. } in &plan.actions {
        match object {
            Object::Configuration(key) => {
                apply(world.configurations.get_mut(key).unwrap(), patch);
            }
            Object::Instance(key) => apply(world.instances.get_mut(key).unwrap(), patch),
        }
    }
}

fn apply<T: Clone + serde::Serialize + serde::de::DeserializeOwned>(
    object: &mut Arc<T>,
    patch: &Patch,
) {
    let mut value = serde_json::to_value(&**object).unwrap();
    let mut patch = patch.clone();
    // A test for `null` holds of what is not there, and fails in this crate.
    (patch.0).retain(|o| !matches!(o, json_patch::PatchOperation::Test(t) if t.value.is_null()));
    json_patch::patch(&mut value, &patch).unwrap();
    *object = Arc::new(serde_json::from_value(value).unwrap());
}

/// Returns the condition `Ready` of `cam` after a look at `world`, and the troubles that are reported.
fn validated(world: &World, seconds: i64) -> (Condition, Option<Problem>) {
    let mut world = world.clone();
    let planned = look(&world, at(seconds));
    let mut actions = planned.actions.iter();
    let cam = Object::Configuration(key("cam"));
    let trouble = actions.find_map(|a| (a.object == cam).then(|| a.troubles.first().cloned())?);
    execute(&mut world, &planned);
    let status = world.configurations[&key("cam")].status.clone().unwrap();
    (status.conditions[0].clone(), trouble)
}

fn report(node: &str, problems: &[(&str, &str)]) -> NodeReport {
    NodeReport {
        name: node.into(),
        instances: 1,
        problems: (problems.iter())
            .map(|(reason, message)| Problem {
                reason: (*reason).to_owned(),
                message: (*message).to_owned(),
            })
            .collect(),
    }
}

fn reported(reports: Vec<NodeReport>) -> World {
    let world = World::default()
        .with_nodes([
            ("a", ready()),
            ("b", ready()),
            ("c", ready()),
            ("late", not_ready(at(0))),
        ])
        .with_configuration(configuration("cam", json!({})));
    reports.into_iter().fold(world, with_report)
}

/// Lets a node report on `cam`.
fn with_report(world: World, report: NodeReport) -> World {
    let NodeReport { name, problems, .. } = report;
    let view = json!([{ "namespace": "default", "name": "cam", "problems": problems }]);
    world.with_node_devices(node_devices(&name, view))
}

const BAD: &[(&str, &str)] = &[("BadDetails", "no kind"), ("NotUsed", "second")];

#[test]
fn ready_says_what_the_nodes_make_of_a_configuration() {
    for (reports, seconds, status, reason, message) in [
        (vec![], 0, "Unknown", "NotReported", "no node has said"),
        (vec![report("a", &[])], 0, "True", "Working", "every device"),
        (
            vec![report("b", BAD), report("a", &[])],
            0,
            "False",
            "BadDetails",
            "on b: no kind",
        ),
        (
            vec![report("b", BAD), report("a", BAD)],
            0,
            "False",
            "BadDetails",
            "on a and 1 more: no kind",
        ),
        (
            vec![report("c", BAD), report("b", BAD), report("a", BAD)],
            0,
            "False",
            "BadDetails",
            "on a and 2 more: no kind",
        ),
        (vec![report("late", &[])], 59, "True", "Working", "every"),
        (vec![report("late", &[])], 60, "False", "NoAgent", "no node"),
        (vec![report("gone", BAD)], 0, "False", "NoAgent", "no node"),
        (
            vec![report("late", BAD), report("a", &[])],
            60,
            "True",
            "Working",
            "every",
        ),
    ] {
        let (ready, trouble) = validated(&reported(reports.clone()), seconds);
        assert_eq!(
            (ready.status.as_str(), ready.reason.as_str()),
            (status, reason),
            "{reports:?}"
        );
        assert!(ready.message.starts_with(message), "{ready:?}");
        assert_eq!(ready.observed_generation, Some(1));
        assert_eq!(trouble.is_some(), status == "False", "{reports:?}");
    }
}

#[test]
fn the_time_is_kept_while_the_status_is_and_trouble_is_reported_once() {
    let mut world = reported(vec![report("a", BAD)]);
    let planned = look(&world, at(0));
    execute(&mut world, &planned);
    assert_eq!(look(&world, at(5)), Plan::default());

    let change = |problems| with_report(world.clone(), report("a", problems));
    for (problems, second, is_reported) in [
        (&[("BadDetails", "another sentence")], 0, false),
        (&[("UnknownHandler", "x")], 0, true),
    ] {
        let (ready, trouble) = validated(&change(problems), 5);
        assert_eq!(ready.last_transition_time, condition::time(at(second)));
        assert_eq!(trouble.is_some(), is_reported, "{problems:?}");
    }
    let (ready, trouble) = validated(&change(&[]), 5);
    assert_eq!(
        (ready.last_transition_time, trouble),
        (condition::time(at(5)), None)
    );
    // Its reports were those of deleted nodes.
    let mut alone = world.clone();
    Arc::make_mut(&mut alone.node_devices).clear();
    let (ready, _) = validated(&alone, 5);
    assert_eq!(ready.reason, "NoAgent");
}

#[test]
fn a_new_generation_and_each_instance_are_noted() {
    let mut world = reported(vec![report("a", &[])]);
    let planned = look(&world, at(0));
    execute(&mut world, &planned);
    let mut edited = world.clone();
    let configuration = Arc::make_mut(edited.configurations.get_mut(&key("cam")).unwrap());
    configuration.metadata.generation = Some(2);
    let mut elsewhere = instance("cam-9", json!({}));
    elsewhere.metadata.namespace = Some("other".to_owned());
    let mut edited = edited
        .with_instance(instance("cam-1", json!({ "spec": { "nodes": ["a"] } })))
        .with_instance(instance("cam-2", json!({ "spec": { "nodes": ["a"] } })))
        .with_instance(instance(
            "x-1",
            json!({ "spec": { "configurationName": "x", "nodes": ["a"] } }),
        ))
        .with_instance(elsewhere);
    let planned = look(&edited, at(1));
    execute(&mut edited, &planned);
    let status = edited.configurations[&key("cam")].status.clone().unwrap();
    assert_eq!((status.observed_generation, status.instances), (Some(2), 2));
}

/// The definition gives a new Configuration a status, so that tools do not take it for well before a controller has looked.
#[test]
fn the_status_that_the_definition_gives_is_replaced() {
    let new = configuration("cam", json!({ "status": { "observedGeneration": -1 } }));
    let mut world = World::default()
        .with_nodes([("a", ready())])
        .with_configuration(new);
    let planned = look(&world, at(0));
    execute(&mut world, &planned);
    let status = world.configurations[&key("cam")].status.clone().unwrap();
    assert_eq!(status.observed_generation, Some(1));
    assert_eq!(status.conditions[0].reason, "NotReported");
}

#[test]
fn of_one_name_the_older_works_until_the_nodes_say_otherwise() {
    let named = |namespace: &str, created: i64| {
        let metadata = json!({ "namespace": namespace, "creationTimestamp": text(at(created)) });
        configuration("cam", json!({ "metadata": metadata }))
    };
    let world = World::default()
        .with_nodes([("a", ready())])
        .with_configuration(named("default", 5));
    let first = world.clone().with_configuration(named("other", 0));
    let (condition, trouble) = validated(&first, 9);
    assert_eq!(condition.reason, "ConfigurationNameTaken");
    assert!(condition.message.starts_with("other/cam has the same name"));
    assert!(trouble.is_some());
    let second = world.clone().with_configuration(named("other", 9));
    assert_eq!(validated(&second, 9).0.status, "Unknown");

    let working = with_report(first, report("a", &[]));
    assert_eq!(validated(&working, 9).0.status, "True");
}

#[test]
fn a_selector_that_leaves_out_every_node_is_trouble_and_one_that_selects_some_is_not() {
    let mut world = reported(vec![]);
    let configuration = Arc::make_mut(world.configurations.get_mut(&key("cam")).unwrap());
    let hall = ("hall".to_owned(), "3".to_owned());
    configuration.spec.node_selector.extend([hall.clone()]);
    let reason = |world: &World| validated(world, 0).0.reason;
    assert_eq!(reason(&world), "NotReported");
    let nothing = Arc::new(node_devices("a", json!([])));
    Arc::make_mut(&mut world.node_devices).insert("a".into(), nothing);
    assert_eq!(reason(&world), "NoNodeSelected");
    // What is left of a device there does not change that.
    let left = json!([{"namespace": "default", "name": "cam", "complete": true, "devices": [{"instance": "i", "state": "Left"}]}]);
    let left = Arc::new(node_devices("a", left));
    Arc::make_mut(&mut world.node_devices).insert("a".into(), left);
    assert_eq!(reason(&world), "NoNodeSelected");
    // Nor does what it says is wrong.
    let problems = report("a", BAD).problems;
    let bad =
        json!([{"namespace": "default", "name": "cam", "complete": true, "problems": problems}]);
    let before = world.clone().with_node_devices(node_devices("a", bad));
    assert_eq!(reason(&before), "NoNodeSelected");
    let node = Arc::make_mut(Arc::make_mut(&mut world.nodes).get_mut("a").unwrap());
    node.labels.extend([hall]);
    assert_eq!(reason(&world), "Working");
}

#[test]
fn a_configuration_beyond_the_bound_says_so_by_the_one_line_of_each_node_that_it_selects() {
    let mut world = reported(vec![]);
    let mut object = node_devices("a", json!([]));
    let problem = Problem::new(Reason::TooManyConfigurations, "too many");
    object.spec.left_out = Some(problem.clone());
    Arc::make_mut(&mut world.node_devices).insert("a".into(), Arc::new(object.clone()));
    let (ready, _) = validated(&world, 0);
    assert_eq!(ready.reason, "TooManyConfigurations");
    // One that the node works with, and one that leaves the node out.
    let view = json!([{ "namespace": "default", "name": "cam", "complete": true }]);
    let mut works = node_devices("a", view);
    works.spec.left_out = Some(problem);
    Arc::make_mut(&mut world.node_devices).insert("a".into(), Arc::new(works));
    assert_eq!(validated(&world, 0).0.reason, "Working");
    Arc::make_mut(&mut world.node_devices).insert("a".into(), Arc::new(object));
    let configuration = Arc::make_mut(world.configurations.get_mut(&key("cam")).unwrap());
    let hall = ("hall".to_owned(), "3".to_owned());
    configuration.spec.node_selector.extend([hall]);
    assert_eq!(validated(&world, 0).0.reason, "NoNodeSelected");
}

#[test]
fn reports_of_deleted_nodes_are_taken_out() {
    let reports = ["gone", "a", "late", "gone-2"];
    let mut world = reported(reports.map(|node| report(node, BAD)).into());
    let planned = look(&world, at(0));
    execute(&mut world, &planned);
    let status = world.configurations[&key("cam")].status.clone().unwrap();
    let left: Vec<&str> = status.nodes.iter().map(|n| n.name.as_str()).collect();
    assert_eq!(left, ["a", "late"]);
}

#[test]
fn what_a_node_says_in_its_object_counts_and_only_trouble_is_written() {
    let device = json!({ "spec": { "nodes": ["a"] } });
    let mut world =
        reported(vec![report("a", BAD), report("b", &[])]).with_instance(instance("cam-1", device));
    let look = |world: &mut World, seconds| {
        let planned = look(world, at(seconds));
        execute(world, &planned);
        let status = world.configurations[&key("cam")].status.clone().unwrap();
        (status.conditions[0].reason.clone(), status.nodes)
    };
    let bad = ("BadDetails".to_owned(), vec![report("a", BAD)]);
    assert_eq!(look(&mut world, 0), bad);
    // The node is taken out.
    Arc::make_mut(&mut world.node_devices).remove(&NodeName::from("a"));
    assert_eq!(look(&mut world, 5), ("Working".to_owned(), vec![]));
    let mut world = with_report(world, report("a", BAD));
    assert_eq!(look(&mut world, 9), bad);
}

#[test]
fn the_entries_of_many_nodes_are_bounded_and_a_node_has_one() {
    let long = "x".repeat(1024);
    let mut world = reported(vec![]);
    for n in 0..2_000 {
        let node = format!("node-{n}");
        Arc::make_mut(&mut world.nodes).insert(node.as_str().into(), Arc::new(ready()));
        let problems = report(&node, &[("BadDetails", &long)]).problems;
        let view = json!({ "namespace": "default", "name": "cam", "problems": problems });
        world = world.with_node_devices(node_devices(&node, json!([view, view])));
    }
    let planned = look(&world, at(0));
    execute(&mut world, &planned);
    let status = world.configurations[&key("cam")].status.clone().unwrap();
    assert_eq!(status.conditions[0].reason, "BadDetails");
    assert!(json_bytes(&status.nodes) < ENTRIES_BYTES_MAX + 1024);
    let names: BTreeMap<_, _> = status.nodes.iter().map(|node| (&node.name, ())).collect();
    assert_eq!(names.len(), status.nodes.len());
    assert!(names.len() > 50, "{}", names.len());
}

#[test]
fn the_next_look_is_when_a_node_is_given_up() {
    let mut world = reported(vec![report("late", &[])]);
    assert_eq!(
        look(&world, at(10)).waits.first(),
        Some(Duration::from_secs(50))
    );
    Arc::make_mut(&mut world.nodes).clear();
    assert_eq!(look(&world, at(10)).waits.first(), None);
}

proptest! {
    #[test]
    fn executing_the_plan_leaves_nothing_to_do(
        nodes in proptest::collection::vec(0..3_u8, 4),
        reports in proptest::collection::btree_map(0..5_usize, 0..3_usize, 0..5),
        views in proptest::collection::vec((0..5_usize, any::<bool>()), 0..5),
        before in proptest::option::of("True|False|Unknown"),
        seconds in 0..200_i64,
    ) {
        let name = |n: usize| format!("n{n}");
        let reports: Vec<NodeReport> = (reports.into_iter())
            .map(|(n, problems)| report(&name(n), &BAD[..problems.min(BAD.len())]))
            .collect();
        let conditions: Vec<Value> = (before.into_iter())
            .map(|status| json!({ "type": "Ready", "status": status, "reason": "X", "lastTransitionTime": text(at(-9)) }))
            .collect();
        let mut world = World::default()
            .with_configuration(configuration("cam", json!({ "status": { "nodes": reports, "conditions": conditions } })))
            .with_configuration(configuration("new", json!({})));
        for (n, (node, is_healthy)) in views.into_iter().enumerate() {
            let health = if is_healthy { "Healthy" } else { "Unhealthy" };
            let view = json!([{ "name": name(node), "health": health, "lastTransitionTime": text(at(0)) }]);
            let device = json!({ "spec": { "nodes": [name(node)] }, "status": { "nodes": view } });
            world = world.with_instance(instance(&format!("cam-{n}"), device));
        }
        for (n, state) in nodes.into_iter().enumerate() {
            let state = match state {
                0 => continue,
                1 => not_ready(at(0)),
                _ => ready(),
            };
            Arc::make_mut(&mut world.nodes).insert(name(n).into(), Arc::new(state));
        }
        let planned = look(&world, at(seconds));
        execute(&mut world, &planned);
        prop_assert_eq!(look(&world, at(seconds)).actions, vec![]);
    }
}
