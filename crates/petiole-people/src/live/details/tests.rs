use super::*;
use crate::live::state::State;
use petiole_model::model::names::Key;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::{env, fs};

/// What a browser gets of this cluster. `tests/web/run` shows it in a browser, and makes larger clusters of it.
const RECORDED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/web/recorded.json");

fn read<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn map<Name: From<String> + Ord, T: DeserializeOwned>(
    values: impl IntoIterator<Item = Value>,
) -> BTreeMap<Key<Name>, T> {
    let named = values.into_iter().map(|value| {
        let name = value["metadata"]["name"].as_str().unwrap().to_owned();
        (Key::new("default", name), read(value))
    });
    named.collect()
}

fn condition(type_: &str, status: &str, reason: &str, message: &str) -> Value {
    json!({
        "type": type_, "status": status, "reason": reason, "message": message,
        "lastTransitionTime": "2026-01-01T10:00:00Z",
    })
}

fn instance(configuration: &str, digest: &str, device: &str, conditions: Value) -> Value {
    let name = format!("{configuration}-{digest}");
    json!({
        "metadata": {"namespace": "default", "name": name, "creationTimestamp": "2026-01-01T08:00:00Z"},
        "spec": {
            "configurationName": configuration, "cdiName": "", "capacity": 2, "shared": true,
            "nodes": ["node-1", "node-2"],
            "brokerProperties": {
                "AKRI_ZEROCONF_DEVICE_NAME": device, "AKRI_ZEROCONF_DEVICE_ADDR": "198.51.100.101",
                "AKRI_ZEROCONF_DEVICE_PORT": "554",
            },
        },
        "status": {"conditions": conditions},
    })
}

fn broker(instance: &str, node: &str, waits: Option<&str>) -> Value {
    let ready = if waits.is_none() { "True" } else { "False" };
    let state = waits.map_or(
        json!({"running": {}}),
        |reason| json!({"waiting": {"reason": reason}}),
    );
    json!({
        "metadata": {
            "namespace": "default", "name": format!("{node}-{instance}-pod"), "labels": {INSTANCE_LABEL: instance},
        },
        "spec": {"nodeName": node, "containers": [
            {"name": "main", "resources": {"limits": {format!("akri.sh/{instance}"): "1"}}},
        ]},
        "status": {
            "phase": "Running", "conditions": [{"type": "Ready", "status": ready}],
            "containerStatuses": [
                {"name": "main", "image": "", "imageID": "", "ready": waits.is_none(), "restartCount": 0, "state": state},
            ],
        },
    })
}

fn configuration(name: &str, ready: Value) -> Value {
    json!({
        "metadata": {"namespace": "default", "name": name},
        "spec": {"discoveryHandler": {"name": "zeroconf"}},
        "status": {"conditions": [ready]},
    })
}

/// A Pod of Petiole's own.
fn own(component: &str, node: &str) -> Value {
    json!({
        "metadata": {"name": format!("{component}-{node}"), "labels": {
            "app.kubernetes.io/component": component, "app.kubernetes.io/part-of": "petiole",
        }},
        "spec": {"nodeName": node, "containers": []},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    })
}

/// Three devices: one with brokers that run, one whose broker crashes, and one that is gone.
fn cluster() -> Snapshot {
    let available = condition("Available", "True", "DeviceSeen", "");
    let crashes = condition(
        "BrokersReady",
        "False",
        "BrokerCrashes",
        "Pod node-1-cams-ec86bf-pod: container main ended with exit code 1, 7 times",
    );
    let gone =
        "no node sees the device since 2026-01-01T10:00:00Z; its Instance is deleted after 5m";
    let mut door = instance("cams", "4c951e", "Front door", json!([available]));
    door["spec"]["deviceUsage"] = json!({"cams-4c951e-0": "node-1", "cams-4c951e-1": "node-2"});
    let mut yard = instance("cams", "ec86bf", "Yard", json!([available, crashes]));
    yard["spec"]["deviceUsage"] = json!({"cams-ec86bf-0": "node-1"});
    let gone = condition("Available", "False", "DeviceGone", gone);
    let mut printer = instance("printers", "2c777e", "Printer 2", json!([gone]));
    let unseen =
        |node: &str| json!({"name": node, "health": "Unhealthy", "lastTransitionTime": ""});
    printer["status"]["nodes"] = json!([unseen("node-1"), unseen("node-2")]);
    let wrong = "discoveryDetails: `knid` is no key of zeroconf; known here: kind, name, domain. Correct it and apply it again.";
    Snapshot {
        configurations: map([
            configuration("cams", condition("Ready", "True", "Working", "")),
            configuration("printers", condition("Ready", "True", "Working", "")),
            configuration(
                "scanners",
                condition("Ready", "False", "BadDiscoveryDetails", wrong),
            ),
        ]),
        instances: map([door, yard, printer]),
        pods: map([
            own("agent", "node-1"),
            own("agent", "node-2"),
            own("controller", "node-1"),
            broker("cams-4c951e", "node-1", None),
            broker("cams-4c951e", "node-2", None),
            broker("cams-ec86bf", "node-1", Some("CrashLoopBackOff")),
        ]),
        nodes: ["node-1", "node-2"]
            .map(|name| {
                let ready = json!({"conditions": [{"type": "Ready", "status": "True"}]});
                (
                    name.to_owned(),
                    read(json!({"metadata": {"name": name}, "status": ready})),
                )
            })
            .into(),
        ..Snapshot::default()
    }
}

fn event(reason: &str, type_: &str, time: &Value) -> Event {
    let message = match reason {
        "DeviceGone" => "no node sees the device; its Instance is deleted after 5m",
        "DeviceBack" => "node-1 sees the device again",
        _ => "the broker Pod was created",
    };
    let mut event = json!({
        "metadata": {}, "involvedObject": {}, "reason": reason, "type": type_, "message": message,
    });
    event
        .as_object_mut()
        .unwrap()
        .extend(time.as_object().unwrap().clone());
    read(event)
}

fn asked() -> Read {
    Read {
        events: vec![
            event(
                "DeviceBack",
                "Normal",
                &json!({"eventTime": "2026-01-01T09:00:00.000000Z"}),
            ),
            event(
                "DeviceGone",
                "Warning",
                &json!({
                    "eventTime": "2026-01-01T08:30:00.000000Z",
                    "series": {"count": 3, "lastObservedTime": "2026-01-01T10:00:00.000000Z"},
                }),
            ),
            event(
                "BrokerCreated",
                "Normal",
                &json!({"lastTimestamp": "2026-01-01T08:10:00Z", "count": 2}),
            ),
        ],
        unread: vec![],
        is_of_cluster: true,
        is_explained: true,
    }
}

#[test]
fn the_page_is_tested_with_what_the_server_says() {
    let now: Timestamp = "2026-01-01T10:02:00Z".parse().unwrap();
    let hint = "`petiole why configuration/NAME` says why a Configuration has none.";
    let mut state = State::new("all namespaces".to_owned(), hint.to_owned());
    let after = cluster();
    let mut before = after.clone();
    before.instances.pop_first();
    for (snapshot, at) in [(&before, now), (&after, now)] {
        state.take(Ok(snapshot), at);
    }
    let names = after.instances.keys();
    let details = names.map(|key| {
        let its = serde_json::to_value(details(&after, key, asked(), now)).unwrap();
        (key.to_string(), its)
    });
    let said = json!({
        "state": serde_json::to_value(state.shown()).unwrap(),
        "details": details.collect::<serde_json::Map<_, _>>(),
    });
    let said = serde_json::to_string_pretty(&said).unwrap() + "\n";
    if env::var_os("PETIOLE_UPDATE_GOLDEN").is_some() {
        fs::write(RECORDED, &said).unwrap();
    }
    let recorded = fs::read_to_string(RECORDED).unwrap_or_default();
    assert!(
        said == recorded,
        "tests/web/recorded.json differs; PETIOLE_UPDATE_GOLDEN=1 cargo test -p petiole-people the_page_is_tested, then just web:\n{said}"
    );
}

#[test]
fn the_latest_event_comes_first_by_whichever_field_has_its_time() {
    let cluster = cluster();
    let key = cluster.instances.keys().next().unwrap();
    let details = details(&cluster, key, asked(), Timestamp::UNIX_EPOCH).unwrap();
    let said = details.events.iter();
    let said: Vec<_> = said
        .map(|e| (e.reason.as_str(), e.count, e.warning))
        .collect();
    assert_eq!(
        said,
        [
            ("DeviceGone", 3, true),
            ("DeviceBack", 1, false),
            ("BrokerCreated", 2, false)
        ]
    );
}

#[test]
fn an_instance_that_is_gone_has_no_details_and_a_node_has_no_answer_of_why() {
    let cluster = cluster();
    let gone = InstanceKey::new("default", "gone");
    let now = Timestamp::UNIX_EPOCH;
    assert!(details(&cluster, &gone, Read::default(), now).is_none());
    let key = cluster.instances.keys().next().unwrap();
    assert!(
        details(&cluster, key, Read::default(), now)
            .unwrap()
            .why
            .is_none()
    );
}
