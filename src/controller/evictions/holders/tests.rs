use super::*;
use serde_json::{Value, json};

/// A Pod that asks for a resource, and what its status says that it has.
fn pod(name: &str, amount: u8, ids: &[&str], fields: Value) -> PodPart {
    let devices: Vec<_> = ids
        .iter()
        .map(|id| json!({"resourceID": id, "health": "Healthy"}))
        .collect();
    let allocated = match devices.is_empty() {
        true => json!([]),
        false => json!([{"name": "akri.sh/cam", "resources": devices}]),
    };
    let mut object = json!({
        "metadata": {"name": name, "namespace": "default", "uid": name},
        "spec": {"containers": [
            {"name": "web", "resources": {}},
            {"name": "main", "resources": {"limits": {"akri.sh/cam": amount.to_string(), "cpu": "1"}}},
        ]},
        "status": {"phase": "Running", "containerStatuses": [{"name": "main", "allocatedResourcesStatus": allocated}]},
    });
    json_patch::merge(&mut object, &fields);
    serde_json::from_value(object).unwrap()
}

fn plain(name: &str) -> PodPart {
    pod(name, 1, &[], json!({}))
}

/// The slots that a node holds, of which `due` are lost.
fn held(ids: &[&str], due: &[&str]) -> Held {
    let set = |ids: &[&str]| ids.iter().map(|&id| id.to_owned()).collect();
    Held {
        resource: "akri.sh/cam".parse().unwrap(),
        ids: set(ids),
        due: set(due),
    }
}

/// Returns the names of the Pods that certainly, and possibly, have lost slots.
fn found(held: &Held, pods: &[PodPart]) -> [String; 2] {
    let found = holders(std::slice::from_ref(held), pods);
    [found.certain, found.possible].map(|pods| {
        let names = pods.iter().filter_map(|pod| pod.metadata.name.as_deref());
        names.collect::<Vec<_>>().join(" ")
    })
}

#[test]
fn the_status_of_a_pod_names_its_slots() {
    let pods = [
        pod("a", 1, &["cam-0"], json!({})),
        pod("b", 1, &["cam-1"], json!({})),
    ];
    assert_eq!(
        found(&held(&["cam-0", "cam-1"], &["cam-1"]), &pods),
        ["b", ""]
    );
    // Two slots, one of which is lost.
    let both = [pod("a", 2, &["cam-0", "cam-1"], json!({}))];
    assert_eq!(
        found(&held(&["cam-0", "cam-1"], &["cam-1"]), &both),
        ["a", ""]
    );
}

#[test]
fn without_a_status_it_follows_from_what_the_pods_ask_for() {
    let one = held(&["cam-0"], &["cam-0"]);
    assert_eq!(found(&one, &[plain("a")]), ["a", ""]);
    let two = held(&["cam-0", "cam-1"], &["cam-0", "cam-1"]);
    assert_eq!(found(&two, &[plain("a"), plain("b")]), ["a b", ""]);
    // The one whose status is known leaves the other slot to the other Pod.
    let known = [pod("a", 1, &["cam-0"], json!({})), plain("b")];
    assert_eq!(
        found(&held(&["cam-0", "cam-1"], &["cam-1"]), &known),
        ["b", ""]
    );
    // A single Pod has all slots.
    let single = [pod("a", 2, &[], json!({}))];
    assert_eq!(
        found(&held(&["cam-0", "cam-1"], &["cam-1"]), &single),
        ["a", ""]
    );
}

#[test]
fn a_pod_that_may_have_a_device_that_is_there_stays_and_is_named() {
    let two = held(&["cam-0", "cam-1"], &["cam-1"]);
    assert_eq!(found(&two, &[plain("a"), plain("b")]), ["", "a b"]);
}

#[test]
fn while_a_pod_begins_or_ends_no_other_is_taken_for_it() {
    let one = held(&["cam-0"], &["cam-0"]);
    // The second was put there for another device, and has none yet.
    assert_eq!(found(&one, &[plain("a"), plain("b")]), ["", ""]);
    let known = [pod("a", 1, &["cam-0"], json!({})), plain("b")];
    assert_eq!(found(&one, &known), ["a", ""]);
    // The holder has ended, and its slot is about to be released.
    let two = held(&["cam-0", "cam-1"], &["cam-1"]);
    assert_eq!(found(&two, &[plain("a")]), ["", ""]);
    assert_eq!(found(&one, &[]), ["", ""]);
}

#[test]
fn a_pod_that_asks_for_no_resource_of_the_device_is_never_evicted() {
    let other = json!({"spec": {"containers": [{"resources": {"limits": {"akri.sh/tv": "1"}}}]}});
    let lies = pod("a", 1, &["cam-0"], other);
    assert_eq!(found(&held(&["cam-0"], &["cam-0"]), &[lies]), ["", ""]);
}

#[test]
fn init_containers_and_sidecars_have_slots_too() {
    let limits = json!({"limits": {"akri.sh/cam": "1"}});
    for init in [
        json!({"resources": limits}),
        json!({"resources": limits, "restartPolicy": "Always"}),
    ] {
        let alone = pod(
            "a",
            0,
            &[],
            json!({"spec": {"initContainers": [init], "containers": [{}]}}),
        );
        assert_eq!(found(&held(&["cam-0"], &["cam-0"]), &[alone]), ["a", ""]);
    }
    // Both have one slot, one after the other.
    let both = pod(
        "a",
        1,
        &[],
        json!({"spec": {"initContainers": [{"resources": limits}]}}),
    );
    assert_eq!(found(&held(&["cam-0"], &["cam-0"]), &[both]), ["a", ""]);
}

#[test]
fn brokers_mirror_pods_and_those_that_end_are_left_out_and_those_of_daemon_sets_are_not() {
    let one = held(&["cam-0"], &["cam-0"]);
    let with = |metadata: Value| pod("a", 1, &["cam-0"], json!({"metadata": metadata}));
    for left in [
        json!({"labels": {"akri.sh/configuration": "cam"}}),
        json!({"annotations": {"kubernetes.io/config.mirror": "x"}}),
        json!({"deletionTimestamp": "2026-01-01T00:00:00Z"}),
    ] {
        assert_eq!(found(&one, &[with(left)]), ["", ""]);
    }
    let owner = json!({"ownerReferences": [
        {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "u", "controller": true},
    ]});
    assert_eq!(found(&one, &[with(owner)]), ["a", ""]);
}

#[test]
fn a_pod_that_lost_devices_by_two_resources_is_evicted_once() {
    let mut other = held(&["cam-1-0"], &["cam-1-0"]);
    other.resource = "akri.sh/cam-1".parse().unwrap();
    let limits = json!({"akri.sh/cam": "1", "akri.sh/cam-1": "1"});
    let both = json!({"spec": {"containers": [{"resources": {"limits": limits}}]}});
    let pods = [pod("a", 1, &[], both)];
    let all = [held(&["cam-0"], &["cam-0"]), other];
    assert_eq!(holders(&all, &pods).certain.len(), 1);
}
