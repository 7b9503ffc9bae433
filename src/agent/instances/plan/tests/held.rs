//! Instances whose slots containers hold.
use super::*;

fn available(instance: &Instance) -> (&str, &str) {
    let condition = &instance.status.as_ref().unwrap().conditions[0];
    (&condition.status, &condition.reason)
}

#[test]
fn an_instance_stays_while_a_container_holds_its_slot_and_goes_when_it_is_free() {
    for holder in [NODE, "C:cam-0:node-a"] {
        let mut fixture = Fixture::new(", gracePeriodSeconds: 60");
        fixture.see(&["a"], true);
        fixture.settle();
        fixture.hold(Some(holder));
        fixture.see(&[], true);
        fixture.settle();
        assert_eq!(available(fixture.only()), ("False", "DeviceGone"));
        fixture.uptime = 60;
        fixture.settle();
        assert_eq!(fixture.only().spec.nodes, [""; 0]);
        assert_eq!(available(fixture.only()), ("False", "DeviceGoneInUse"));
        fixture.uptime = 6000;
        assert!(fixture.settle().is_nothing());
        fixture.hold(None);
        fixture.settle();
        assert!(fixture.instances.is_empty(), "{holder}");
    }
}

#[test]
fn without_a_grace_period_the_status_says_since_when_the_device_is_gone() {
    let mut fixture = Fixture::new(", gracePeriodSeconds: 0");
    fixture.see(&["a"], true);
    fixture.settle();
    fixture.hold(Some(NODE));
    fixture.see(&[], true);
    fixture.settle();
    let condition = &fixture.only().status.as_ref().unwrap().conditions[0];
    assert_eq!(condition.reason, "DeviceGoneInUse");
    assert_eq!(condition.last_transition_time, "2026-01-01T00:00:00Z");
}

#[test]
fn a_device_that_comes_back_to_an_instance_without_nodes_finds_its_slots_as_they_are_used() {
    let mut fixture = Fixture::new(", gracePeriodSeconds: 0");
    fixture.see(&["a"], true);
    fixture.settle();
    fixture.hold(Some(NODE));
    fixture.see(&[], true);
    fixture.settle();
    fixture.see(&["a"], true);
    fixture.settle();
    assert_eq!(fixture.only().spec.nodes, [NODE]);
    assert_eq!(fixture.only().spec.device_usage.len(), 1);
    assert_eq!(available(fixture.only()), ("True", "DeviceSeen"));
}

#[test]
fn an_instance_of_a_device_that_has_another_one_now_stays_while_it_is_held() {
    let mut fixture = Fixture::new("");
    fixture.see(&["a"], true);
    fixture.settle();
    fixture.hold(Some(NODE));
    let shared = fixture.names()[0].to_owned();
    fixture.accepted().scope = Scope::Node;
    fixture.settle();
    assert_eq!(fixture.names().len(), 2);
    assert_eq!(
        fixture.instances[&instance_key(&shared)].spec.nodes,
        [""; 0]
    );
}

#[test]
fn a_deleted_configuration_takes_an_instance_along_that_is_held() {
    let mut fixture = Fixture::new("");
    fixture.see(&["a"], true);
    fixture.settle();
    fixture.hold(Some(NODE));
    fixture.validated = ValidatedConfigurations::default();
    fixture.discoveries.clear();
    fixture.configurations.objects.clear();
    fixture.settle();
    assert!(fixture.instances.is_empty());
}

#[test]
fn an_instance_that_is_made_anew_has_the_slots_that_containers_use() {
    let mut fixture = Fixture::new(", capacity: 2");
    let one_use = |id: &str, slot: &str| Use {
        ids: [id.parse().unwrap()].into(),
        env_slots: [slot.parse().unwrap()].into(),
        ..Use::default()
    };
    fixture.uses = vec![
        one_use("cam-4", "cam-8120fe-1"),
        one_use("cam-8120fe-0", "cam-8120fe-0"),
        one_use("cam-5", "cam-cafe12-0"),
    ];
    fixture.see(&["foo0", "other"], true);
    fixture.settle();
    let usage = &fixture.instances[&instance_key("cam-8120fe")]
        .spec
        .device_usage;
    assert_eq!(usage["cam-8120fe-1"], "C:cam-4:node-a");
    assert_eq!(usage["cam-8120fe-0"], "node-a");
    let others = fixture.instances.values();
    let used: usize = others.map(|i| i.spec.device_usage.len()).sum();
    assert_eq!(used, 2);
}
