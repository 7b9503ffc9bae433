use super::*;
use crate::controller::fixtures::{at, text};
use serde_json::{Value, json};

/// The time of the look.
const NOW: i64 = 10_000;

/// A Pod that asks for a resource, and what its status says that it has. It has run for long.
fn pod(name: &str, amount: u8, ids: &[&str], fields: Value) -> PodPart {
    let devices: Vec<_> = ids
        .iter()
        .map(|id| json!({"resourceID": id, "health": "Healthy"}))
        .collect();
    let allocated = if devices.is_empty() {
        json!([])
    } else {
        json!([{"name": "akri.sh/cam", "resources": devices}])
    };
    let mut object = json!({
        "metadata": {"name": name, "namespace": "default", "uid": name},
        "spec": {"containers": [
            {"name": "web", "resources": {}},
            {"name": "main", "resources": {"limits": {"akri.sh/cam": amount.to_string(), "cpu": "1"}}},
        ]},
        "status": {"phase": "Running", "startTime": text(at(0)), "containerStatuses": [{"name": "main", "allocatedResourcesStatus": allocated}]},
    });
    json_patch::merge(&mut object, &fields);
    serde_json::from_value(object).unwrap()
}

fn plain(name: &str) -> PodPart {
    pod(name, 1, &[], json!({}))
}

/// A Pod that started so many seconds ago.
fn young(name: &str, age: i64) -> PodPart {
    pod(
        name,
        1,
        &[],
        json!({"status": {"startTime": text(at(NOW - age))}}),
    )
}

/// The slots that a node holds, of which `due` are lost. Their Instances have the same names.
fn held(ids: &[&str], due: &[&str]) -> Held {
    let mut held = Held {
        lost_for: Duration::from_secs(60),
        ..Held::default()
    };
    for id in ids {
        *held.ids.entry((*id).to_owned()).or_default() += 1;
    }
    for id in due {
        let of = held.due.entry((*id).to_owned()).or_default();
        of.push(InstanceKey::new("default", *id));
    }
    held
}

fn names(holders: &[Holder<'_>]) -> String {
    let names = (holders.iter()).filter_map(|holder| holder.pod.metadata.name.as_deref());
    names.collect::<Vec<_>>().join(" ")
}

/// Returns the names of the Pods that certainly, and possibly, have lost slots.
fn found(held: &Held, pods: &[PodPart]) -> [String; 2] {
    let all = BTreeMap::from([("akri.sh/cam".parse().unwrap(), held.clone())]);
    let found = holders(&all, pods, at(NOW));
    [names(&found.certain), names(&found.possible)]
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
fn a_claim_is_named_by_its_cdi_device_or_is_the_one_that_was_made_for_a_resource() {
    let claim = |name: &str, ids: &[&str]| {
        let ids: Vec<_> = ids.iter().map(|id| json!({"resourceID": id})).collect();
        let allocated = json!([{"name": "claim:camera/one", "resources": ids}]);
        pod(
            name,
            0,
            &[],
            json!({"status": {"containerStatuses": [{"name": "main", "allocatedResourcesStatus": allocated}]}}),
        )
    };
    let named = [
        claim("a", &["akri.sh/claim=u-1-0"]),
        claim("b", &["vendor.com/claim=u-1-0"]),
        claim("c", &["akri.sh/claim=u-2-1"]),
    ];
    let two = held(&["u-1", "u-2"], &["u-1"]);
    assert_eq!(found(&two, &named), ["a", ""]);
    // The status of a Pod that asks for the resource names no claim: the one that is left is its.
    let [a, _, _] = named;
    let for_resource = [a, plain("d")];
    assert_eq!(
        found(&held(&["u-1", "u-2"], &["u-2"]), &for_resource),
        ["d", ""]
    );
    assert_eq!(found(&two, &for_resource), ["a", ""]);
}

#[test]
fn a_claim_counts_as_many_slots_as_it_has() {
    let asks = |name, amount| pod(name, amount, &[], json!({}));
    // One claim of two slots is the Pod's that asks for two.
    let pair = held(&["u-1", "u-1"], &["u-1", "u-1"]);
    assert_eq!(found(&pair, &[asks("a", 2)]), ["a", ""]);
    // One of its two devices is gone, and it is the only Pod.
    let half = held(&["u-1", "u-1"], &["u-1"]);
    assert_eq!(found(&half, &[asks("a", 2)]), ["a", ""]);
    let both = [asks("a", 2), asks("b", 1)];
    let all = held(&["u-1", "u-1", "u-2"], &["u-1", "u-1", "u-2"]);
    assert_eq!(found(&all, &both), ["a b", ""]);
    let some = held(&["u-1", "u-1", "u-2"], &["u-2"]);
    assert_eq!(found(&some, &both), ["", "a b"]);
    // A Pod has just begun or ended.
    assert_eq!(found(&pair, &both), ["", ""]);
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
    // Nobody's status names the slot of a claim that only a sidecar uses. Where all are lost, it does not matter which is whose.
    let both = held(&["cam-0", "cam-1"], &["cam-0", "cam-1"]);
    assert_eq!(found(&both, &[plain("a")]), ["a", ""]);
    // One that waits for its own has none of them.
    let waits = pod("a", 1, &[], json!({"status": {"phase": "Pending"}}));
    assert_eq!(found(&both, &[waits]), ["", ""]);
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
    let limits = json!({"akri.sh/cam": "1", "akri.sh/cam-1": "1"});
    let both = json!({"spec": {"containers": [{"resources": {"limits": limits}}]}});
    let pods = [pod("a", 1, &[], both)];
    let all = BTreeMap::from([
        ("akri.sh/cam".parse().unwrap(), held(&["cam-0"], &["cam-0"])),
        (
            "akri.sh/cam-1".parse().unwrap(),
            held(&["cam-1-0"], &["cam-1-0"]),
        ),
    ]);
    let found = holders(&all, &pods, at(NOW));
    let [Holder { of, .. }] = &found.certain[..] else {
        panic!("{found:?}");
    };
    let of: Vec<_> = of.iter().map(|key| key.name.to_string()).collect();
    assert_eq!(of, ["cam-0", "cam-1-0"]);
}

#[test]
fn a_pod_that_begins_when_the_holder_has_just_ended_is_not_taken_for_it() {
    // Its slot is still held, and the new Pod has none yet: the numbers are the same.
    let one = held(&["cam-0"], &["cam-0"]);
    assert_eq!(found(&one, &[young("b", 69)]), ["", ""]);
    assert_eq!(found(&one, &[young("b", 70)]), ["b", ""]);
    let two = held(&["cam-0", "cam-1"], &["cam-0", "cam-1"]);
    assert_eq!(found(&two, &[plain("a"), young("b", 3)]), ["a", ""]);
    // Of one that the kubelet has not taken it is not known.
    let new = pod("b", 1, &[], json!({"status": {"startTime": null}}));
    assert_eq!(found(&one, &[new]), ["", ""]);
    // A status that names the slot leaves no doubt.
    let status = json!({"status": {"startTime": text(at(NOW - 1))}});
    let named = pod("b", 1, &["cam-0"], status);
    assert_eq!(found(&one, &[named]), ["b", ""]);
}

#[test]
fn slots_of_init_containers_are_not_in_the_status_and_are_found_by_their_number() {
    let limits = json!({"limits": {"akri.sh/cam": "1"}});
    let sidecar = json!({"resources": limits, "restartPolicy": "Always"});
    let with_sidecar = json!({"spec": {"initContainers": [sidecar]}});
    let both = pod("a", 1, &["cam-0"], with_sidecar);
    let pods = [both, pod("b", 1, &["cam-2"], json!({}))];
    let three = ["cam-0", "cam-1", "cam-2"];
    assert_eq!(found(&held(&three, &["cam-1"]), &pods), ["a", ""]);
    // A Pod whose status names nothing may have it as well.
    let pods = [&pods[..], &[plain("c")]].concat();
    let four = ["cam-0", "cam-1", "cam-2", "cam-3"];
    assert_eq!(found(&held(&four, &["cam-1"]), &pods), ["", "a c"]);
    assert_eq!(found(&held(&four, &["cam-0", "cam-1"]), &pods), ["a", "c"]);
}
