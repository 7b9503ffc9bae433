use super::*;
use serde_json::{Value, json};

/// Returns a Pod that asks for a device and is not ready.
fn pod(name: &str, kind: &str, owner: &str) -> Value {
    json!({
        "metadata": {
            "namespace": "shop", "name": name,
            "labels": {"pod-template-hash": "5d9c"},
            "ownerReferences":
                [{"apiVersion": "", "kind": kind, "name": owner, "uid": "", "controller": true}],
        },
        "spec": {"containers": [{"name": "main", "resources": {"limits": {"akri.sh/cam": "1"}}}]},
        "status": {"phase": "Pending"},
    })
}

fn snapshot(pods: impl IntoIterator<Item = Value>) -> Snapshot {
    let pods = pods.into_iter().map(|pod| {
        let text = |field: &str| pod["metadata"][field].as_str().unwrap().to_owned();
        let key = ObjectKey::new(text("namespace"), text("name"));
        (key, serde_json::from_value(pod).unwrap())
    });
    Snapshot {
        pods: pods.collect(),
        ..Snapshot::default()
    }
}

fn workload(kind: Kind, name: &str) -> Object {
    Object::new(kind, ObjectKey::new("shop", name))
}

fn foremost_name(pods: impl IntoIterator<Item = Value>) -> String {
    let snapshot = snapshot(pods);
    let all = foremost_first(snapshot.pods.iter().collect());
    all[0].0.name.clone()
}

#[test]
fn a_pod_belongs_to_its_controller_and_to_the_deployment_above_it() {
    let snapshot = snapshot([
        pod("a", "ReplicaSet", "web-5d9c"),
        pod("b", "StatefulSet", "db"),
        pod("c", "Job", "once"),
        pod("d", "DaemonSet", "each"),
        // The hash of another template: no Deployment is named by it.
        pod("e", "ReplicaSet", "other-77"),
        pod("f", "Node", "node-1"),
    ]);
    let pods = |kind, name| {
        let workload = workload(kind, name);
        let pods = pods_of(&snapshot, &workload);
        pods.iter()
            .map(|(key, _)| key.name.as_str())
            .collect::<String>()
    };
    use Kind::*;
    assert_eq!(pods(Deployment, "web"), "a");
    assert_eq!(pods(ReplicaSet, "web-5d9c"), "a");
    assert_eq!(pods(StatefulSet, "db"), "b");
    assert_eq!(pods(Job, "once"), "c");
    assert_eq!(pods(DaemonSet, "each"), "d");
    assert_eq!(pods(Deployment, "other"), "");
    assert_eq!(pods(Deployment, "db"), "");
    assert_eq!(pods(StatefulSet, "web"), "");
}

#[test]
fn only_a_controller_that_has_pods_with_devices_is_found() {
    let mut other_owner = pod("a", "StatefulSet", "db");
    other_owner["metadata"]["ownerReferences"][0]["controller"] = json!(false);
    let mut without_device = pod("b", "StatefulSet", "db");
    without_device["spec"]["containers"] = json!([{"name": "main"}]);
    let none = snapshot([other_owner, without_device.clone()]);
    assert_eq!(all(&none), BTreeSet::new());
    without_device["metadata"]["labels"]["akri.sh/instance"] = json!("cam-0a1b2c");
    let broker = snapshot([without_device]);
    let expected = BTreeSet::from([workload(Kind::StatefulSet, "db")]);
    assert_eq!(all(&broker), expected);
}

#[test]
fn the_pod_that_waits_comes_before_those_that_are_ready_or_have_ended() {
    let with = |name: &str, phase: &str, ready: &str| {
        let mut pod = pod(name, "StatefulSet", "db");
        pod["status"] = json!({"phase": phase, "conditions": [{"type": "Ready", "status": ready}]});
        pod
    };
    let ended = || with("a", "Succeeded", "False");
    let failed = || with("b", "Failed", "False");
    let ending = || {
        let mut pod = with("c", "Running", "True");
        pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T10:00:00Z");
        pod
    };
    let ready = || with("d", "Running", "True");
    let waits = || with("e", "Pending", "False");
    let waits_too = with("f", "Running", "False");
    let all = [ended(), failed(), ending(), ready(), waits(), waits_too];
    assert_eq!(foremost_name(all), "e");
    assert_eq!(foremost_name([ended(), failed(), ending(), ready()]), "d");
    assert_eq!(foremost_name([ended(), failed(), ending()]), "c");
    assert_eq!(foremost_name([ended(), failed()]), "b");
    assert_eq!(foremost_name([ended()]), "a");
    let four = snapshot([ended(), failed(), ready(), waits()]);
    assert_eq!(unfinished(&four.pods.iter().collect::<Vec<_>>()), 2);
}
