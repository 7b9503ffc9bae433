//! Devices whose identity is remembered.
use super::*;
use crate::agent::device_state::{DeviceState, device_state, pin, why_gone};

fn device(pin: &str) -> Device {
    let mut device = Device::new("porch");
    device.properties.insert("FROM".to_owned(), pin.to_owned());
    device.pin = Some(pin.parse().unwrap());
    device
}

fn conditions(fixture: &Fixture) -> Vec<String> {
    let status = fixture.only().status.iter();
    let conditions = status.flat_map(|status| &status.conditions);
    conditions
        .map(|c| format!("{} {}", c.type_, c.status))
        .collect()
}

const OURS: &str = "10.0.0.0/24 porch.local";
const OTHER_HOST: &str = "10.0.0.0/24 evil.local";
const OTHER_NETWORK: &str = "192.0.2.0/24 porch.local";

#[test]
fn another_host_that_takes_the_name_of_a_pinned_device_is_a_condition_and_no_move() {
    let mut fixture = Fixture::new(", gracePeriodSeconds: 10");
    fixture.see_devices([device(OURS)], true);
    fixture.settle();
    let before = fixture.only().spec.clone();
    assert_eq!(conditions(&fixture), [""; 0]);
    for other in [OTHER_HOST, OTHER_NETWORK] {
        fixture.see_devices([device(other)], true);
        fixture.settle();
        fixture.uptime += 3600;
        fixture.settle();
        assert_eq!(fixture.only().spec, before, "the Instance stays as it was");
        let expected = ["Available False", "IdentityChanged True"];
        assert_eq!(conditions(&fixture), expected);
        assert_eq!(
            device_state(fixture.only(), &fixture.discoveries),
            DeviceState::Gone,
            "no container is told the other address"
        );
        let why = why_gone(fixture.only(), &fixture.discoveries);
        assert!(why.contains("another host"), "{why}");
        let problems = &fixture.plan().reports.of[&key("cam")].problems;
        assert_eq!(problems[0].reason, "IdentityChanged");
        let named = [OURS, other, "akri.sh/pin-"];
        let message = &problems[0].message;
        assert!(named.iter().all(|n| message.contains(n)), "{message}");
        fixture.see_devices([device(OURS)], true);
        fixture.settle();
        assert_eq!(
            conditions(&fixture),
            ["Available True"],
            "the first is back"
        );
    }
}

#[test]
fn a_device_is_pinned_when_its_configuration_begins_to_pin_and_anew_when_the_pin_is_taken_off() {
    let mut fixture = Fixture::new("");
    fixture.see(&["porch"], true);
    fixture.settle();
    let pin = |fixture: &Fixture| pin(fixture.only()).map(str::to_owned);
    assert_eq!(pin(&fixture), None);
    fixture.see_devices([device(OURS)], true);
    fixture.settle();
    assert_eq!(pin(&fixture).as_deref(), Some(OURS));
    fixture.see(&["porch"], true);
    fixture.settle();
    assert_eq!(conditions(&fixture), [""; 0], "it is not compared");
    let name = fixture.instances.keys().next().unwrap().clone();
    let instance = Arc::make_mut(fixture.instances.get_mut(&name).unwrap());
    let annotations = instance.metadata.annotations.as_mut().unwrap();
    annotations.remove(names::PIN);
    fixture.see_devices([device(OTHER_HOST)], true);
    fixture.settle();
    assert_eq!(pin(&fixture).as_deref(), Some(OTHER_HOST));
    assert_eq!(conditions(&fixture), [""; 0]);
}

#[test]
fn a_pinned_device_whose_instance_names_no_node_is_not_pinned_to_another_host() {
    for scope in [Scope::Shared, Scope::Node] {
        let mut fixture = Fixture::new(", gracePeriodSeconds: 10");
        fixture.accepted().scope = scope;
        fixture.see_devices([device(OURS)], true);
        fixture.settle();
        fixture.leave();
        fixture.see_devices([device(OTHER_HOST)], true);
        fixture.settle();
        fixture.uptime += 3600;
        fixture.settle();
        assert_eq!(pin(fixture.only()), Some(OURS));
        assert_eq!(fixture.only().spec.nodes, [""; 0]);
        fixture.see_devices([device(OURS)], true);
        fixture.settle();
        assert_eq!(fixture.only().spec.nodes, [NODE]);
    }
}
