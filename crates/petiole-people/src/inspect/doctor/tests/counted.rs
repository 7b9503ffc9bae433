//! A thousand problems of each sort.
use super::{super::line::LINE_MAX, *};

#[test]
#[expect(clippy::too_many_lines, reason = "it is a table")]
fn every_object_with_a_problem_is_counted_in_one_line_for_each_reason() {
    let mut facts = well();
    with_configuration(&mut facts);
    let object = facts
        .snapshot
        .configurations
        .values()
        .next()
        .unwrap()
        .clone();
    for n in 0..1000 {
        let mut object = object.clone();
        let reason = if n < 26 {
            "UnknownHandler"
        } else {
            "BadDiscoveryDetails"
        };
        let conditions = [
            condition("Ready", "False", reason),
            condition("BrokersReady", "False", "BrokerRefused"),
        ];
        let conditions = conditions.map(|its| serde_json::from_value(its).unwrap());
        object.status.as_mut().unwrap().conditions = conditions.into();
        let name = format!("a-name-that-is-as-long-as-names-of-people-who-name-well-{n:04}");
        let key = petiole_model::model::names::Key::new("default", name.clone());
        facts.snapshot.configurations.insert(key.typed(), object);
        let instance = json!({
            "metadata": {"namespace": "default", "name": name},
            "spec": {"cdiName": "", "configurationName": name, "capacity": 1, "shared": true, "nodes": []},
            "status": {"conditions": [condition("Available", "False", "DeviceGone")]},
        });
        let key = petiole_model::model::names::Key::new("default", name.clone());
        let instance = serde_json::from_value(instance).unwrap();
        facts.snapshot.instances.insert(key.typed(), instance);
        let broker = json!({
            "metadata": {"labels": {"akri.sh/instance": name}},
            "status": {"phase": "Running", "containerStatuses": [{
                "name": "b", "ready": false, "restartCount": 1, "image": "", "imageID": "",
                "state": {"waiting": {"reason": "CrashLoopBackOff"}},
            }]},
        });
        let broker = serde_json::from_value(broker).unwrap();
        facts
            .snapshot
            .pods
            .insert(ObjectKey::new("default", &name), broker);
        let stale = (
            NodeName::from(format!("node-{n}")),
            "akri.sh/a".parse().unwrap(),
        );
        facts.stale.as_mut().unwrap().push(stale);
        facts.snapshot.nodes.insert(
            format!("node-{n}"),
            node(if n == 1 { "True" } else { "False" }),
        );
    }
    let said = troubles(&facts);
    for (text, level) in [
        (
            "node node-0, node-10, node-100 and 996 more: not ready",
            Level::Fail,
        ),
        (
            "974 Configurations not ready (BadDiscoveryDetails): ",
            Level::Warn,
        ),
        (
            "26 Configurations not ready (UnknownHandler): ",
            Level::Warn,
        ),
        (
            "1000 Configurations with brokers that do not run (BrokerRefused): ",
            Level::Warn,
        ),
        ("1000 brokers not ready (CrashLoopBackOff): ", Level::Warn),
        ("1000 devices not available (DeviceGone): ", Level::Warn),
        (
            "999 capacity entries without a device on node-0, node-10, node-100 and 996 more",
            Level::Warn,
        ),
    ] {
        let text = text.replace("node node-0", "nodes node-0");
        let is_it = |line: &&(Level, String)| line.0 == level && line.1.starts_with(&text);
        assert_eq!(said.iter().filter(is_it).count(), 1, "{text}: {said:#?}");
    }
    assert!(
        said.iter()
            .all(|(_, text)| text.chars().count() <= LINE_MAX),
        "{said:#?}"
    );
    assert!(
        said.is_sorted_by_key(|line| std::cmp::Reverse(line.0)),
        "{said:#?}"
    );
}
