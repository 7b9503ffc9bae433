//! Brokers, as what is asked about a Configuration and its Instances.
use super::{objects::broker, world::DOOR, *};

#[test]
fn a_broker_that_asks_for_no_device_is_named_if_no_broker_has_another_trouble() {
    let idle = || {
        broker().on("node-1", "Running").pod(|pod| {
            pod["spec"]["containers"][0]["resources"] = json!({});
        })
    };
    let lacks = "none of its containers asks for the device";
    let cases = |object: fn() -> Object| {
        vec![
            Case {
                next: "kubectl -n default edit configuration cam",
                ..case_of(
                    "asks for nothing",
                    idle(),
                    object(),
                    Cause::NoResourceRequested,
                    &["Its broker: Pod default/broker is Running on node node-1."],
                )
            },
            case_of(
                "asks for nothing, and is being deleted",
                idle().pod(|pod| {
                    pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T10:00:00Z");
                }),
                object(),
                Cause::Fine,
                &[],
            ),
        ]
    };
    run(cases(|| configuration("cam")));
    run(cases(|| instance(DOOR)));
    let mut world = idle();
    let mut crashing = broker().waiting("CrashLoopBackOff", "").pods.pop().unwrap();
    crashing["metadata"]["name"] = json!("crashing");
    world.pods.push(crashing);
    let said = explain(&world.snapshot(), &configuration("cam"), World::now()).text();
    assert!(
        said.contains("Pod default/crashing") && !said.contains(lacks),
        "{said}"
    );
}

#[test]
fn brokers_with_the_same_trouble_are_told_of_once_and_counted() {
    let mut world = broker().waiting("CrashLoopBackOff", "");
    let said = |world: &World| {
        let explanation = explain(&world.snapshot(), &configuration("cam"), World::now());
        explanation.text()
    };
    assert!(!said(&world).contains("The same"), "{}", said(&world));
    for (name, more) in [("second", "1 more broker."), ("third", "2 more brokers.")] {
        let mut pod = world.pods.last().unwrap().clone();
        pod["metadata"]["name"] = json!(name);
        world.pods.push(pod);
        let said = said(&world);
        assert!(said.contains(&format!("The same for {more}")), "{said}");
        assert_eq!(said.matches("its program ends").count(), 1, "{said}");
    }
}

#[test]
fn the_warning_that_was_repeated_last_is_quoted_and_not_the_one_that_began_last() {
    let warning = |reason: &str, began: &str, repeated: Value| {
        json!({
            "metadata": {"creationTimestamp": began}, "reason": reason, "message": format!("{reason} it is"),
            "eventTime": began, "series": repeated,
            "involvedObject": {"kind": "Configuration", "namespace": "default", "name": "cam"},
        })
    };
    let series = json!({"count": 9, "lastObservedTime": "2026-01-01T10:00:10.000000Z"});
    let mut world = World::new();
    world.events = vec![
        warning("BrokerRefused", "2026-01-01T10:00:00Z", series),
        warning("ServiceRefused", "2026-01-01T10:00:05Z", Value::Null),
    ];
    let object = configuration("cam");
    let says = &["(BrokerRefused): BrokerRefused it is."];
    run(vec![case_of(
        "repeated",
        world,
        object,
        Cause::BrokerRefused,
        says,
    )]);
}

#[test]
fn a_broker_without_cpu_shows_the_words_of_the_scheduler() {
    let message = "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) didn't satisfy plugin(s) [NodeAffinity]. no new claims to deallocate, preemption: 0/2";
    let unscheduled = |world: World| {
        world.pod(move |pod| {
            pod["spec"]["nodeName"] = json!(null);
            pod["status"] = json!({"phase": "Pending", "conditions": [{
                "type": "PodScheduled", "status": "False", "message": message,
            }]});
            pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] =
                json!({"nodeSelectorTerms": [{"matchFields":
                    [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]}]});
        })
    };
    run(vec![
        case_of(
            "a broker",
            unscheduled(broker()),
            configuration("cam"),
            Cause::OtherReason,
            &[
                "The scheduler says: 0/2 nodes are available: 1 Insufficient cpu, 1 node(s) didn't satisfy plugin(s) [NodeAffinity]. no new claims to deallocate, preemption: 0/2",
                "\n  kubectl -n default describe pod",
            ],
        ),
        case_of(
            "a Pod of a user",
            unscheduled(wants_cam()),
            pod("web"),
            Cause::OtherReason,
            &["the reason is another one", "describe pod web"],
        ),
    ]);
}
