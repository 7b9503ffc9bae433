//! Instances that have names of their own.
use super::*;

fn stick(id: &str, serial: &str) -> Device {
    let mut device = Device::new(id);
    let properties = [("SERIAL", serial)];
    let properties = properties.map(|(name, value)| (name.to_owned(), value.to_owned()));
    device.properties.extend(properties);
    device
}

fn fixture(scope: Scope) -> Fixture {
    let mut fixture = Fixture::new(", gracePeriodSeconds: 60, instanceName: 'zigbee-{SERIAL}'");
    fixture
        .validated
        .accepted
        .get_mut(&key("cam"))
        .unwrap()
        .scope = scope;
    fixture
}

#[test]
fn a_device_keeps_the_instance_with_its_own_name_also_where_it_would_get_another_now() {
    for scope in [Scope::Shared, Scope::Node] {
        let mut fixture = fixture(scope);
        fixture.see_devices([stick("1", "A1")], true);
        fixture.settle();
        assert_eq!(fixture.only().metadata.name.as_deref(), Some("zigbee-a1"));
        fixture.see_devices([stick("1", "A2")], true);
        fixture.settle();
        let kept = fixture.only();
        assert_eq!(kept.metadata.name.as_deref(), Some("zigbee-a1"));
        assert_eq!(kept.spec.broker_properties["SERIAL"], "A2");
        // It is missing, is back in time, and goes.
        fixture.see(&[], true);
        fixture.settle();
        assert_eq!(health(fixture.only()), "Unhealthy");
        fixture.see_devices([stick("1", "A1")], true);
        fixture.settle();
        assert!(fixture.only().status.as_ref().unwrap().nodes.is_empty());
        fixture.see(&[], true);
        fixture.settle();
        fixture.uptime = 60;
        fixture.settle();
        assert!(fixture.instances.is_empty(), "{scope:?}");
    }
}

#[test]
fn an_instance_of_another_node_with_the_same_device_id_is_not_its() {
    let mut fixture = fixture(Scope::Node);
    fixture.see_devices([stick("1", "A1")], true);
    fixture.settle();
    let mut other = fixture.only().clone();
    other.spec.nodes = vec!["node-b".into()];
    let labels = [(names::node_label("node-b"), String::new())];
    other.metadata.labels = Some(labels.into());
    fixture
        .instances
        .insert(instance_key("zigbee-a1"), Arc::new(other));
    let planned = fixture.plan();
    let report = &planned.reports.of[&key("cam")];
    assert_eq!(report.announced, ["1"]);
}

#[test]
fn a_container_keeps_the_slot_of_an_instance_that_is_made_again_under_its_own_name() {
    let mut fixture = fixture(Scope::Shared);
    let held = Use {
        ids: ["zigbee-a1-0".parse().unwrap()].into(),
        env_slots: ["zigbee-a1-0".parse().unwrap()].into(),
        ..Use::default()
    };
    fixture.uses = vec![held];
    fixture.see_devices([stick("1", "A1"), stick("2", "A1")], true);
    fixture.settle();
    let usage = |name: &str| {
        fixture.instances[&instance_key(name)]
            .spec
            .device_usage
            .clone()
    };
    let expected = [("zigbee-a1-0".to_owned(), NODE.to_owned())];
    assert_eq!(usage("zigbee-a1"), expected.into());
    let others = fixture
        .instances
        .keys()
        .filter(|key| key.name != "zigbee-a1");
    let others: Vec<&InstanceKey> = others.collect();
    assert_eq!(others.len(), 1);
    assert!(usage(&others[0].name).is_empty());
}
