use super::*;
use crate::{
    api::instance::InstanceStatus,
    controller::fixtures::{at, configuration, instance, key, not_ready, ready, text},
};
use proptest::prelude::*;
use std::sync::Arc;

/// The API server, as far as this plan goes.
fn execute(world: &mut World, plan: &Plan) {
    for action in &plan.actions {
        match action {
            Action::Instance { key, status } => {
                let instance = Arc::make_mut(world.instances.get_mut(key).unwrap());
                let mut now =
                    serde_json::to_value(instance.status.take().unwrap_or_default()).unwrap();
                json_patch::merge(&mut now, &status["status"]);
                instance.status = Some(serde_json::from_value::<InstanceStatus>(now).unwrap());
            }
            Action::Configuration { key, status, .. } => {
                let configuration = Arc::make_mut(world.configurations.get_mut(key).unwrap());
                let before = configuration.status.take().unwrap_or_default();
                let mut now = serde_json::to_value(before).unwrap();
                json_patch::merge(&mut now, &status["status"]);
                configuration.status = Some(serde_json::from_value(now).unwrap());
            }
            Action::Forget { key, patch, .. } => {
                let configuration = Arc::make_mut(world.configurations.get_mut(key).unwrap());
                let mut value = serde_json::to_value(&*configuration).unwrap();
                json_patch::patch(&mut value, patch).unwrap();
                *configuration = serde_json::from_value(value).unwrap();
            }
        }
    }
}

/// The condition `Ready` of `cam` after a look at `world`, and what is told of it.
fn judged(world: &World, seconds: i64) -> (Condition, Option<Problem>) {
    let mut world = world.clone();
    let planned = plan(&world, at(seconds));
    let trouble = planned.actions.iter().find_map(|action| match action {
        Action::Configuration { key, trouble, .. } if key.name == "cam" => trouble.clone(),
        Action::Configuration { .. } | Action::Instance { .. } | Action::Forget { .. } => None,
    });
    execute(&mut world, &planned);
    let status = world.configurations[&key("cam")].status.clone().unwrap();
    (status.conditions[0].clone(), trouble)
}

fn report(node: &str, problems: &[(&str, &str)]) -> NodeReport {
    NodeReport {
        name: node.to_owned(),
        instances: 1,
        problems: (problems.iter())
            .map(|(reason, message)| Problem::new(reason, *message))
            .collect(),
    }
}

fn reported(reports: Vec<NodeReport>) -> World {
    let status = json!({ "status": { "nodes": reports } });
    World::default()
        .with_nodes([
            ("a", ready()),
            ("b", ready()),
            ("c", ready()),
            ("late", not_ready(at(0))),
        ])
        .with_configuration(configuration("cam", status))
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
            "node b: no kind",
        ),
        (
            vec![report("b", BAD), report("a", BAD)],
            0,
            "False",
            "BadDetails",
            "node a: no kind (1 other node has a problem too)",
        ),
        (
            vec![report("c", BAD), report("b", BAD), report("a", BAD)],
            0,
            "False",
            "BadDetails",
            "node a: no kind (2 other nodes have problems too)",
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
        let (ready, trouble) = judged(&reported(reports.clone()), seconds);
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
fn the_time_is_kept_while_the_status_is_and_trouble_is_told_once() {
    let mut world = reported(vec![report("a", BAD)]);
    let planned = plan(&world, at(0));
    execute(&mut world, &planned);
    assert_eq!(plan(&world, at(5)), Plan::default());

    let change = |world: &World, reports: Vec<NodeReport>| {
        let mut changed = world.clone();
        let configuration = Arc::make_mut(changed.configurations.get_mut(&key("cam")).unwrap());
        configuration.status.as_mut().unwrap().nodes = reports;
        changed
    };
    for (problems, time, is_told) in [
        (&[("BadDetails", "another sentence")], 0, false),
        (&[("UnknownHandler", "x")], 0, true),
    ] {
        let (ready, trouble) = judged(&change(&world, vec![report("a", problems)]), 5);
        assert_eq!(ready.last_transition_time, clock(at(time)));
        assert_eq!(trouble.is_some(), is_told, "{problems:?}");
    }
    let (ready, trouble) = judged(&change(&world, vec![report("a", &[])]), 5);
    assert_eq!((ready.last_transition_time, trouble), (clock(at(5)), None));
    // Its reports were those of deleted nodes.
    let (ready, _) = judged(&change(&world, vec![]), 5);
    assert_eq!(ready.reason, "NoAgent");
}

#[test]
fn a_new_generation_and_each_instance_are_noted() {
    let mut world = reported(vec![report("a", &[])]);
    let planned = plan(&world, at(0));
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
    let planned = plan(&edited, at(1));
    execute(&mut edited, &planned);
    let status = edited.configurations[&key("cam")].status.clone().unwrap();
    assert_eq!((status.observed_generation, status.instances), (Some(2), 2));
    assert_eq!(status.nodes.len(), 1);
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
    let (condition, trouble) = judged(&first, 9);
    assert_eq!(condition.reason, "NameTaken");
    assert!(condition.message.starts_with("other/cam has the same name"));
    assert!(trouble.is_some());
    let second = world.clone().with_configuration(named("other", 9));
    assert_eq!(judged(&second, 9).0.status, "Unknown");

    let mut working = named("default", 5);
    working.status.get_or_insert_default().nodes = vec![report("a", &[])];
    assert_eq!(
        judged(&first.with_configuration(working), 9).0.status,
        "True"
    );
}

#[test]
fn reports_of_deleted_nodes_are_taken_out() {
    let reports = ["gone", "a", "late", "gone-2"];
    let mut world = reported(reports.map(|node| report(node, &[])).into());
    let planned = plan(&world, at(0));
    let forget = planned.actions.iter().find_map(|action| match action {
        Action::Forget { gone, .. } => Some(gone.clone()),
        Action::Configuration { .. } | Action::Instance { .. } => None,
    });
    let gone = ["gone", "gone-2"].map(str::to_owned);
    assert_eq!(forget, Some(BTreeSet::from(gone)));
    execute(&mut world, &planned);
    let status = world.configurations[&key("cam")].status.clone().unwrap();
    let left: Vec<&str> = status.nodes.iter().map(|n| n.name.as_str()).collect();
    assert_eq!(left, ["a", "late"]);
}

#[test]
fn an_instance_is_available_as_its_nodes_say_and_a_new_one_waits_for_them() {
    let seen = |health: &str| json!([{ "name": "a", "health": health, "lastTransitionTime": text(at(0)) }]);
    for (nodes, views, expected) in [
        (json!(["a"]), json!([]), None),
        (json!([]), json!([]), Some("False")),
        (json!(["a"]), seen("Healthy"), Some("True")),
        (json!(["a"]), seen("Unhealthy"), Some("False")),
    ] {
        let device = json!({ "spec": { "nodes": nodes }, "status": { "nodes": views } });
        let mut world = World::default().with_instance(instance("cam-1", device));
        let planned = plan(&world, at(0));
        execute(&mut world, &planned);
        let status = world.instances[&key("cam-1")].status.clone().unwrap();
        let available = status.conditions.first().map(|c| c.status.as_str());
        assert_eq!(available, expected, "{views}");
        assert_eq!(json!(status.nodes), views);
    }
}

#[test]
fn an_instance_whose_device_flaps_says_so_for_as_long_as_a_node_does() {
    let view = |reason: Value| {
        let mut view = json!({ "name": "a", "health": "Healthy", "lastTransitionTime": "t" });
        if reason != Value::Null {
            view["reason"] = reason;
            view["message"] = json!("the device went away 3 times");
        }
        view
    };
    let device = |view| json!({ "spec": { "nodes": ["a"] }, "status": { "nodes": [view] } });
    let flapping = device(view(json!("Flapping")));
    let mut world = World::default().with_instance(instance("cam-1", flapping));
    let types = |world: &World| -> Vec<String> {
        let status = world.instances[&key("cam-1")].status.clone().unwrap();
        status.conditions.into_iter().map(|c| c.type_).collect()
    };
    let planned = plan(&world, at(0));
    execute(&mut world, &planned);
    assert_eq!(types(&world), ["Available", "Flapping"]);
    assert_eq!(plan(&world, at(60)).actions, vec![]);
    let mut calm = Instance::clone(&world.instances[&key("cam-1")]);
    calm.status.as_mut().unwrap().nodes =
        serde_json::from_value(json!([view(Value::Null)])).unwrap();
    let mut world = World::default().with_instance(calm);
    let planned = plan(&world, at(90));
    execute(&mut world, &planned);
    assert_eq!(types(&world), ["Available"]);
}

#[test]
fn what_is_written_is_ours_alone_and_names_the_object_as_it_is() {
    let world = reported(vec![report("a", &[])]);
    let planned = plan(&world, at(0));
    let [Action::Configuration { status, .. }] = planned.actions.as_slice() else {
        panic!("{planned:?}")
    };
    assert_eq!(
        *status,
        json!({
            "apiVersion": "akri.sh/v0",
            "kind": "Configuration",
            "metadata": { "name": "cam", "namespace": "default", "uid": "uid-cam" },
            "status": {
                "observedGeneration": 1,
                "instances": 0,
                "conditions": [{
                    "type": "Ready", "status": "True", "reason": "Working",
                    "message": "every device that is found is offered",
                    "lastTransitionTime": clock(at(0)), "observedGeneration": 1,
                }],
            },
        })
    );
}

#[test]
fn the_next_look_is_when_a_node_is_given_up() {
    let mut world = reported(vec![report("late", &[])]);
    assert_eq!(plan(&world, at(10)).wake_in, Some(Duration::from_secs(50)));
    world.nodes.clear();
    assert_eq!(plan(&world, at(10)).wake_in, None);
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
            world.nodes.insert(name(n), Arc::new(state));
        }
        let planned = plan(&world, at(seconds));
        execute(&mut world, &planned);
        prop_assert_eq!(plan(&world, at(seconds)).actions, vec![]);
    }
}
