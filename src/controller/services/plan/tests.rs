use super::*;
use crate::controller::{
    fixtures::{configuration, instance, key, moment, pod},
    world::Meta,
};
use k8s_openapi::api::core::v1::ServiceSpec;
use proptest::prelude::*;
use std::sync::Arc;

fn specs() -> Value {
    json!({ "spec": {
        "instanceServiceSpec": { "ports": [{ "port": 80 }], "selector": { "mine": "kept" }, "notKnownToUs": 1 },
        "configurationServiceSpec": { "ports": [{ "port": 81 }] },
    } })
}

fn world(specs: Value) -> World {
    World::default()
        .with_configuration(configuration("cam", specs))
        .with_instance(instance("cam-1", json!({})))
}

/// Returns what a plan says, in short.
fn said(plan: &Plan) -> Vec<String> {
    (plan.actions.iter())
        .map(|action| match action {
            Action::Apply(apply) if apply.uid.is_none() => format!("create {}", apply.key.name),
            Action::Apply(apply) => format!("update {}", apply.key.name),
            Action::Delete { key, .. } => format!("delete {}", key.name),
            Action::Report(_, _, key) => format!("report {}", key.name),
        })
        .collect()
}

fn plan_now(world: &World) -> Vec<String> {
    said(&plan(world, &Idle::new(), moment(0)))
}

/// The API server, as far as this plan goes.
fn execute(world: &mut World, plan: &Plan) {
    for action in &plan.actions {
        match action {
            Action::Apply(apply) => {
                let text = |path: &str| apply.manifest.pointer(path).cloned().unwrap();
                let service = OwnedService {
                    meta: Meta {
                        uid: "uid-svc".to_owned(),
                        labels: strings(text("/metadata/labels")),
                        annotations: strings(text("/metadata/annotations")),
                        owner: text("/metadata/ownerReferences/0/uid")
                            .as_str()
                            .map(str::to_owned),
                        ..Meta::default()
                    },
                    spec: ServiceSpec {
                        selector: Some(strings(text("/spec/selector"))),
                        ..ServiceSpec::default()
                    },
                };
                world.services.insert(apply.key.clone(), Arc::new(service));
            }
            Action::Delete { key, .. } => drop(world.services.remove(key)),
            Action::Report(..) => {}
        }
    }
}

fn strings(values: Value) -> BTreeMap<String, String> {
    serde_json::from_value(values).unwrap()
}

/// Returns a world with a running broker, and the Services made for it.
fn served() -> World {
    let mut world = world(specs()).with_pod("broker", pod("cam-1", "Running"));
    let made = plan(&world, &Idle::new(), moment(0));
    execute(&mut world, &made);
    world
}

#[test]
fn services_come_with_the_first_broker_that_runs() {
    let both = vec!["create cam-1-svc", "create cam-svc"];
    for (phase, expected) in [
        ("Pending", vec![]),
        ("Running", both),
        ("Succeeded", vec![]),
        ("Failed", vec![]),
    ] {
        let world = world(specs()).with_pod("broker", pod("cam-1", phase));
        assert_eq!(plan_now(&world), expected, "{phase}");
    }
    let mut deleting = pod("cam-1", "Running");
    deleting.meta.is_deleting = true;
    assert_eq!(
        plan_now(&world(specs()).with_pod("broker", deleting)),
        [""; 0]
    );
    assert_eq!(
        plan_now(&world(json!({})).with_pod("broker", pod("cam-1", "Running"))),
        [""; 0]
    );
    // One of another namespace.
    let mut elsewhere = world(specs());
    let broker = Arc::new(pod("cam-1", "Running"));
    (elsewhere.pods).insert(ObjectKey::new("other", "broker"), broker);
    assert_eq!(plan_now(&elsewhere), [""; 0]);
}

#[test]
fn a_service_is_what_the_user_wrote_with_our_labels_selector_and_owner() {
    let world = world(specs()).with_pod("broker", pod("cam-1", "Running"));
    let plan = plan(&world, &Idle::new(), moment(0));
    let Action::Apply(apply) = &plan.actions[0] else {
        panic!("{plan:?}")
    };
    let expected = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": "cam-1-svc",
            "namespace": "default",
            "labels": { "app": "cam-1-svc", "controller": "akri.sh", "akri.sh/instance": "cam-1" },
            "annotations": { "akri.sh/rendered": apply.digest },
            "ownerReferences": [{
                "apiVersion": "akri.sh/v0", "kind": "Instance", "name": "cam-1", "uid": "uid-cam-1",
                "controller": true, "blockOwnerDeletion": true,
            }],
        },
        "spec": {
            "ports": [{ "port": 80 }],
            "notKnownToUs": 1,
            "selector": { "mine": "kept", "controller": "akri.sh", "akri.sh/instance": "cam-1" },
        },
    });
    assert_eq!(apply.manifest, expected);
}

#[test]
fn an_edited_spec_updates_its_service_and_a_removed_one_takes_it_away() {
    let world = served();
    assert_eq!(plan_now(&world), [""; 0]);
    for (field, spec, expected) in [
        (
            "instanceServiceSpec",
            json!({ "ports": [] }),
            "update cam-1-svc",
        ),
        (
            "configurationServiceSpec",
            json!({ "ports": [] }),
            "update cam-svc",
        ),
        ("instanceServiceSpec", Value::Null, "delete cam-1-svc"),
        ("configurationServiceSpec", Value::Null, "delete cam-svc"),
    ] {
        let mut edited = specs();
        json_patch::merge(&mut edited, &json!({ "spec": { field: spec } }));
        let world = world
            .clone()
            .with_configuration(configuration("cam", edited));
        assert_eq!(plan_now(&world), [expected], "{field}");
    }
}

#[test]
fn what_others_took_off_a_service_comes_back() {
    for take_off in [
        (|s: &mut OwnedService| s.spec.selector = None) as fn(&mut OwnedService),
        |s| s.meta.labels.clear(),
        |s| s.meta.annotations.clear(),
    ] {
        let mut world = served();
        let service = world.services.get_mut(&key("cam-svc")).unwrap();
        take_off(Arc::make_mut(service));
        assert_eq!(plan_now(&world), ["update cam-svc"]);
    }
}

#[test]
fn a_service_outlives_its_brokers_by_a_minute() {
    let mut world = served();
    world.pods.clear();
    let first = plan(&world, &Idle::new(), moment(0));
    assert_eq!(said(&first), [""; 0]);
    assert_eq!(first.waits.first(), Some(IDLE_TIME));

    let later = plan(&world, &first.idle, moment(59));
    assert_eq!(said(&later), [""; 0]);
    assert_eq!(later.waits.first(), Some(Duration::from_secs(1)));
    let over = plan(&world, &later.idle, moment(60));
    assert_eq!(said(&over), ["delete cam-1-svc", "delete cam-svc"]);

    // A broker that is there, though it does not run yet, starts the count anew.
    let replaced = world.clone().with_pod("next", pod("cam-1", "Pending"));
    let seen = plan(&replaced, &later.idle, moment(60));
    assert_eq!((said(&seen), &seen.idle), (vec![], &Idle::new()));
    assert_eq!(said(&plan(&world, &seen.idle, moment(61))), [""; 0]);
}

#[test]
fn a_service_of_somebody_else_is_reported_and_left() {
    let mut world = served();
    for service in world.services.values_mut() {
        Arc::make_mut(service).meta.owner = None;
    }
    assert_eq!(plan_now(&world), ["report cam-1-svc", "report cam-svc"]);
    let without = world
        .clone()
        .with_configuration(configuration("cam", json!({})));
    assert_eq!(plan_now(&without), [""; 0]);
}

#[test]
fn a_service_whose_configuration_cannot_be_read_or_that_goes_is_left() {
    let mut unreadable = served();
    unreadable.configurations.clear();
    assert_eq!(plan_now(&unreadable), [""; 0]);

    let mut going = served().with_configuration(configuration("cam", json!({})));
    for service in going.services.values_mut() {
        Arc::make_mut(service).meta.is_deleting = true;
    }
    assert_eq!(plan_now(&going), [""; 0]);
}

#[test]
fn names_fit() {
    let long = format!("{}.1", "x".repeat(70));
    let service = service_key(&ConfigurationKey::new("default", long.as_str()));
    assert_eq!(service.name.len(), 63);
    assert_eq!(
        service_key(&InstanceKey::new("default", "a.b")).name,
        "a-b-svc"
    );
    let labels: BTreeMap<String, String> = strings(json!({ "a": label_value(&long) }));
    assert!(labels["a"].len() <= 63);
}

proptest! {
    #[test]
    fn executing_the_plan_leaves_nothing_to_do(
        pods in proptest::collection::vec((0..4_usize, 0..5_usize), 0..6),
        specs in proptest::collection::vec(0..3_u32, 2),
        was in proptest::collection::vec(0..3_u32, 2),
        passed in 0..100_u64,
    ) {
        let spec = |n: u32| if n == 0 { Value::Null } else { json!({ "ports": [{ "port": n }] }) };
        let configured = |n: &[u32]| configuration("cam", json!({ "spec": {
            "instanceServiceSpec": spec(n[0]), "configurationServiceSpec": spec(n[1]),
        } }));
        let mut world = World::default().with_configuration(configured(&was));
        for n in 0..3 {
            world = world.with_instance(instance(&format!("cam-{n}"), json!({})))
                .with_pod(&format!("before-{n}"), pod(&format!("cam-{n}"), "Running"));
        }
        let before = plan(&world, &Idle::new(), moment(0));
        execute(&mut world, &before);
        world.pods.clear();
        world = world.with_configuration(configured(&specs));
        for (n, (instance, phase)) in pods.into_iter().enumerate() {
            let phase = ["Pending", "Running", "Succeeded", "Failed", "Unknown"][phase];
            world = world.with_pod(&format!("pod-{n}"), pod(&format!("cam-{instance}"), phase));
        }
        let idle = plan(&world, &Idle::new(), moment(0)).idle;
        let planned = plan(&world, &idle, moment(passed));
        execute(&mut world, &planned);
        prop_assert_eq!(said(&plan(&world, &planned.idle, moment(passed))), Vec::<String>::new());
    }
}
