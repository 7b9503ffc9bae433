//! Tests of what the status says of brokers and Services.
use super::*;
use crate::{
    api::{configuration::Problem, instance::Instance},
    controller::brokers::report::BrokerProblem,
};

fn with_broker() -> World {
    let spec = json!({ "spec": { "brokerSpec": { "brokerPodSpec": { "containers": [] } } } });
    World::default()
        .with_nodes([("a", ready())])
        .with_configuration(configuration("cam", spec))
        .with_node_devices(node_devices(
            "a",
            json!([{ "name": "cam", "namespace": "default", "complete": true }]),
        ))
}

fn report(running: usize, wanted: usize, reason: Option<Reason>) -> Reports {
    let first = reason.map(|reason| BrokerProblem {
        of: "cam-1-pod".to_owned(),
        problem: Problem::new(reason, "why"),
    });
    let report = Report {
        generation: Some(1),
        wanted,
        running,
        first,
        ..Report::default()
    };
    Reports::from([(key("cam"), report)])
}

/// Writes the status, and returns the column BROKERS, the conditions in words, and the reasons of Events.
fn after(
    world: &mut World,
    (brokers, services): (&Reports, &Problems),
) -> (Option<String>, Vec<String>, Vec<String>) {
    let seen = StatusInputs {
        world: &world.clone(),
        brokers,
        problems: services,
        learns_until: None,
    };
    let planned = plan(seen, at(0));
    execute(world, &planned);
    let reported = planned.actions.into_iter().flat_map(|a| a.troubles);
    let status = world.configurations[&key("cam")].status.clone().unwrap();
    let words = |c: &Condition| format!("{} {} {}", c.type_, c.status, c.reason);
    (
        status.brokers,
        status.conditions.iter().map(words).collect(),
        reported.map(|problem| problem.reason).collect(),
    )
}

#[test]
fn brokers_that_do_not_run_are_a_condition_and_one_event_and_ready_stays() {
    let (mut world, none) = (with_broker(), Problems::new());
    let (brokers, conditions, reported) = after(&mut world, (&Reports::new(), &none));
    assert_eq!(brokers.as_deref(), Some("0/0"));
    let expected = ["Ready True Working", "BrokersReady Unknown NoDevice"];
    assert_eq!(conditions, expected);
    assert!(reported.is_empty());
    let starts = report(0, 2, Some(Reason::BrokersStarting));
    let (_, conditions, reported) = after(&mut world, (&starts, &none));
    assert_eq!(conditions[1], "BrokersReady False BrokersStarting");
    assert!(reported.is_empty());
    let image = |running| report(running, 2, Some(Reason::BrokerImage));
    let (brokers, conditions, reported) = after(&mut world, (&image(0), &none));
    assert_eq!(brokers.as_deref(), Some("0/2"));
    let expected = ["Ready True Working", "BrokersReady False BrokerImage"];
    assert_eq!(conditions, expected);
    assert_eq!(reported, ["BrokerImage"]);
    let (brokers, _, reported) = after(&mut world, (&image(1), &none));
    assert_eq!(brokers.as_deref(), Some("1/2"));
    assert!(reported.is_empty(), "{reported:?}");
    let (_, conditions, _) = after(&mut world, (&report(2, 2, None), &none));
    assert_eq!(conditions[1], "BrokersReady True BrokersRun");
}

#[test]
fn a_refused_broker_spec_or_service_makes_ready_false_with_one_event() {
    let (mut world, none) = (with_broker(), Problems::new());
    let refused = report(0, 1, Some(Reason::BrokerSpecInvalid));
    let (_, conditions, reported) = after(&mut world, (&refused, &none));
    let expected = [
        "Ready False BrokerSpecInvalid",
        "BrokersReady False BrokerSpecInvalid",
    ];
    assert_eq!(conditions, expected);
    assert_eq!(reported, ["BrokerSpecInvalid"]);
    let service = Problem::new(Reason::ServiceRefused, "no such port");
    let services = Problems::from([(key("cam"), service)]);
    let (_, conditions, reported) = after(&mut world, (&report(1, 1, None), &services));
    let expected = ["Ready False ServiceRefused", "BrokersReady True BrokersRun"];
    assert_eq!(conditions, expected);
    assert_eq!(reported, ["ServiceRefused"]);
}

#[test]
fn a_configuration_that_asks_for_no_broker_any_more_loses_condition_and_count() {
    let (mut world, none) = (with_broker(), Problems::new());
    after(&mut world, (&report(1, 1, None), &none));
    let configuration = Arc::make_mut(world.configurations.get_mut(&key("cam")).unwrap());
    configuration.spec.broker_spec = None;
    let (brokers, conditions, _) = after(&mut world, (&Reports::new(), &none));
    assert_eq!((brokers, conditions.len()), (None, 1));
    let seen = StatusInputs {
        world: &world,
        brokers: &Reports::new(),
        problems: &none,
        learns_until: None,
    };
    assert_eq!(plan(seen, at(0)), Plan::default());
}

/// Returns a report with one Instance, `cam-1`.
fn report_of_instance(running: usize, wanted: usize, reason: Option<Reason>) -> Reports {
    let mut reports = report(running, wanted, reason);
    let report = reports.get_mut(&key("cam")).unwrap();
    let of = Report {
        instances: BTreeMap::new(),
        ..std::mem::take(report)
    };
    report.generation = Some(1);
    report.add_instance(&key("cam-1"), of);
    reports
}

/// Writes the status, and returns the conditions of the Instance in words, and how many writes of it there were.
fn instance_after(world: &mut World, brokers: &Reports) -> (Vec<String>, usize) {
    let seen = StatusInputs {
        world: &world.clone(),
        brokers,
        problems: &Problems::new(),
        learns_until: None,
    };
    let planned = plan(seen, at(0));
    execute(world, &planned);
    let writes = planned
        .actions
        .iter()
        .filter(|a| matches!(a.object, Object::Instance(_)));
    let status = world.instances[&key("cam-1")].status.clone();
    let words = |c: &Condition| format!("{} {} {}: {}", c.type_, c.status, c.reason, c.message);
    let conditions = status.unwrap_or_default().conditions;
    (conditions.iter().map(words).collect(), writes.count())
}

#[test]
fn an_instance_has_the_condition_only_while_something_is_wrong_with_its_brokers() {
    for status in [Value::Null, json!({}), available()] {
        let mut world = with_broker();
        let mut cam = cam_1();
        cam.status = serde_json::from_value(status).unwrap();
        let before = cam.status.clone().unwrap_or_default().conditions.len();
        world = world.with_instance(cam);
        for (running, reason, writes, expected) in [
            (0, Some(Reason::BrokersStarting), 0, None),
            (2, None, 0, None),
            (
                1,
                Some(Reason::BrokerImage),
                1,
                Some("BrokerImage: 1 of 2 brokers run; cam-1-pod: why"),
            ),
            (
                1,
                Some(Reason::BrokerImage),
                0,
                Some("BrokerImage: 1 of 2 brokers run; cam-1-pod: why"),
            ),
            (
                0,
                Some(Reason::BrokerCrashes),
                1,
                Some("BrokerCrashes: 0 of 2 brokers run; cam-1-pod: why"),
            ),
            (
                0,
                Some(Reason::BrokersStarting),
                1,
                Some("BrokersStarting: 0 of 2 brokers run; cam-1-pod: why"),
            ),
            (2, None, 1, None),
            (2, None, 0, None),
        ] {
            let brokers = report_of_instance(running, 2, reason);
            let (conditions, written) = instance_after(&mut world, &brokers);
            let expected = expected.map(|words| format!("BrokersReady False {words}"));
            assert_eq!(conditions.get(before), expected.as_ref());
            assert_eq!(conditions.len(), before + usize::from(expected.is_some()));
            assert_eq!(written, writes, "{reason:?}");
        }
    }
}

fn cam_1() -> Instance {
    instance(
        "cam-1",
        json!({ "configurationName": "cam", "nodes": ["a"] }),
    )
}

fn available() -> Value {
    json!({ "conditions": [{
        "type": "Available", "status": "True", "reason": "DeviceSeen", "lastTransitionTime": "t",
    }] })
}

#[test]
fn an_instance_says_that_the_spec_is_refused_unless_its_brokers_run() {
    let mut world = with_broker().with_instance(cam_1());
    let refused = |running| {
        let mut reports =
            report_of_instance(running, 1, (running == 0).then_some(Reason::BrokerRefused));
        reports.get_mut(&key("cam")).unwrap().add(BrokerProblem {
            of: String::new(),
            problem: Problem::new(Reason::BrokerSpecInvalid, "spec.comand: unknown field"),
        });
        reports
    };
    let (conditions, _) = instance_after(&mut world, &refused(0));
    let expected =
        "BrokersReady False BrokerSpecInvalid: 0 of 1 brokers run: spec.comand: unknown field";
    assert_eq!(conditions, [expected]);
    // An earlier report says nothing of this generation.
    let mut late = refused(1);
    late.get_mut(&key("cam")).unwrap().generation = Some(0);
    assert_eq!(instance_after(&mut world, &late).1, 0);
    let (conditions, _) = instance_after(&mut world, &refused(1));
    assert!(conditions.is_empty(), "{conditions:?}");
}

#[test]
fn a_replica_that_has_just_begun_to_lead_does_not_end_what_it_has_not_tried_yet() {
    let mut world = with_broker();
    let brokers = report(1, 1, None);
    let refused = Problem::new(Reason::SlicesRefused, "no room");
    let problems = Problems::from([(key("cam"), refused)]);
    after(&mut world, (&brokers, &problems));
    let look = |world: &World, seconds| {
        let seen = StatusInputs {
            world,
            brokers: &brokers,
            problems: &Problems::new(),
            learns_until: Some(at(15)).filter(|until| at(seconds) < *until),
        };
        plan(seen, at(seconds))
    };
    let early = look(&world, 5);
    assert_eq!(early.actions, []);
    assert_eq!(early.waits.first(), Some(Duration::from_secs(10)));
    assert_eq!(look(&world, 15).actions.len(), 1, "it knows better by then");
    // Another spec is another question.
    let configuration = Arc::make_mut(world.configurations.get_mut(&key("cam")).unwrap());
    configuration.metadata.generation = configuration.metadata.generation.map(|n| n + 1);
    assert!(!look(&world, 5).actions.is_empty());
}
