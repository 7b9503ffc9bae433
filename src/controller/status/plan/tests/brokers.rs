//! Tests of what the status says of brokers and Services.
use super::*;
use crate::controller::brokers::report::Found;

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
    let first = reason.map(|reason| Found {
        reason,
        of: "cam-1-pod".to_owned(),
        message: "why".to_owned(),
    });
    let report = Report {
        generation: Some(1),
        wanted,
        running,
        first,
    };
    Reports::from([(key("cam"), report)])
}

/// Writes the status, and returns the column BROKERS, the conditions in words, and the reasons of Events.
fn after(
    world: &mut World,
    (brokers, services): (&Reports, &Problems),
) -> (Option<String>, Vec<String>, Vec<String>) {
    let seen = Seen {
        world: &world.clone(),
        brokers,
        services,
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
    let seen = Seen {
        world: &world,
        brokers: &Reports::new(),
        services: &none,
    };
    assert_eq!(plan(seen, at(0)), Plan::default());
}
