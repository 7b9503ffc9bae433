//! The properties of Instances: of their devices by the reports, and of their Configurations, which no report has.
use super::*;
use crate::controller::fixtures::node_devices;
use std::collections::BTreeMap;

fn world(configured: &str) -> World {
    let properties = json!({ "BY": configured, "MODE": configured });
    let configuration = configuration("cam", json!({ "spec": { "brokerProperties": properties } }));
    let own = json!({ "BY": "device", "URL": "device" });
    let device = json!({ "id": "porch", "connection": "x", "properties": own });
    let view =
        json!([{ "namespace": "default", "name": "cam", "complete": true, "devices": [device] }]);
    World::default()
        .with_nodes([("a", ready())])
        .with_configuration(configuration)
        .with_node_devices(node_devices("a", view))
}

#[test]
fn an_instance_has_the_properties_of_its_configuration_which_no_report_has() {
    let mut memory = NodeMemory::default();
    let planned = looked(&world("first"), &mut memory, 0);
    let [Action::Create(made)] = &*planned.actions else {
        panic!("{:?}", planned.actions);
    };
    let expected = [("BY", "first"), ("MODE", "first"), ("URL", "device")];
    let expected = expected.map(|(key, value)| (key.to_owned(), value.to_owned()));
    assert_eq!(made.spec.broker_properties, BTreeMap::from(expected));
    // They change with the Configuration.
    let mut made = Instance::clone(made);
    made.metadata.uid = Some("uid".to_owned());
    let planned = looked(&world("second").with_instance(made), &mut memory, 1);
    let [Action::Change(change)] = &*planned.actions else {
        panic!("{:?}", planned.actions);
    };
    let patch = serde_json::to_value(&change.patch).unwrap();
    let operations = patch.as_array().unwrap().iter();
    let written: Vec<_> = operations
        .filter(|one| one["path"] == "/spec/brokerProperties")
        .collect();
    let all = json!({ "BY": "second", "MODE": "second", "URL": "device" });
    assert_eq!(written[0]["value"], all);
}
