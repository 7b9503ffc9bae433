use super::*;
use petiole_model::{
    api::instance::Instance,
    model::{instance_name::InstanceKey, names::ObjectKey, typed_names::ConfigurationKey},
};
use serde_json::json;

/// An Instance of one slot: `usage` is the node that has it, or nothing.
pub(in crate::live) fn instance(
    name: &str,
    usage: &str,
    is_available: bool,
) -> (InstanceKey, Instance) {
    let status = if is_available { "True" } else { "False" };
    let object = json!({
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "cdiName": "", "configurationName": "cams", "shared": true, "capacity": 1, "nodes": ["node-1"],
            "brokerProperties": {"DEBUG_ECHO_DESCRIPTION": format!("camera {name}")},
            "deviceUsage": {format!("{name}-0"): usage},
        },
        "status": {"conditions": [{
            "type": "Available", "status": status, "reason": "NotSeen", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }]},
    });
    let object = serde_json::from_value(object).unwrap();
    (InstanceKey::new("default", name), object)
}

fn snapshot<const N: usize>(instances: [(InstanceKey, Instance); N]) -> Snapshot {
    Snapshot {
        instances: instances.into(),
        ..Snapshot::default()
    }
}

pub(in crate::live) fn state<const N: usize>(instances: [(InstanceKey, Instance); N]) -> State {
    let mut state = State::new("here".to_owned(), "Look at its log.".to_owned());
    state.take(Ok(&snapshot(instances)), Timestamp::UNIX_EPOCH);
    state
}

fn selected(state: &State) -> String {
    let devices = state.devices();
    devices[state.row(&devices).unwrap()].instance.clone()
}

#[test]
fn devices_without_instances_are_said_in_a_note() {
    let mut state = state([]);
    assert!(state.shown().notes.is_empty());
    let spec = json!({"metadata": {}, "spec": {"discoveryHandler": {"name": "paths"}, "instances": false}});
    let mut looked = snapshot([]);
    let key = ConfigurationKey::new("default", "kvm");
    (looked.configurations).insert(key, serde_json::from_value(spec).unwrap());
    state.take(Ok(&looked), Timestamp::UNIX_EPOCH);
    let note = "Configuration default/kvm has no Instances, and no node has akri.sh/kvm now.";
    assert_eq!(state.shown().notes, [note]);
}

#[test]
fn each_change_is_said_once() {
    let mut state = state([instance("a", "", true), instance("b", "node-1", true)]);
    assert!(state.changes.is_empty(), "{:?}", state.changes);
    let after = snapshot([instance("a", "node-1", false), instance("c", "", true)]);
    for _ in 0..2 {
        state.take(Ok(&after), Timestamp::UNIX_EPOCH);
    }
    let texts: Vec<_> = state.changes.iter().map(|c| c.text.as_str()).collect();
    assert_eq!(
        texts,
        [
            "camera a (a): Healthy -> NotSeen",
            "camera a (a) is used by node-1",
            "camera c (c) was found: Healthy",
            "camera b (b) is gone",
        ]
    );
    state.take(
        Ok(&snapshot([instance("a", "", false)])),
        Timestamp::UNIX_EPOCH,
    );
    assert_eq!(
        state.changes[4].text,
        "camera a (a) is not used by node-1 any more"
    );
}

#[test]
fn a_kubelet_that_does_not_answer_takes_no_device_from_its_pod() {
    let pod = json!({
        "spec": {"nodeName": "node-1", "containers": [{
            "name": "main", "resources": {"limits": {"akri.sh/a": "1"}},
        }]},
    });
    let pod = (
        ObjectKey::new("default", "web"),
        serde_json::from_value(pod).unwrap(),
    );
    let mut with_pod = snapshot([instance("a", "node-1", true)]);
    with_pod.pods = [pod].into();
    let mut silent = snapshot([instance("a", "node-1", true)]);
    silent.hidden.pods = true;
    let mut state = state([instance("a", "", true)]);
    for look in [&with_pod, &silent, &with_pod] {
        state.take(Ok(look), Timestamp::UNIX_EPOCH);
    }
    let texts: Vec<_> = state.changes.iter().map(|c| c.text.as_str()).collect();
    assert_eq!(texts, ["camera a (a) is used by default/web on node-1"]);
}

#[test]
fn a_place_that_starts_now_has_no_devices_yet_and_counts_the_seconds() {
    let begun = Timestamp::UNIX_EPOCH;
    let mut state = State::starting("here".to_owned(), String::new(), begun);
    state.take(Ok(&snapshot([instance("a", "", true)])), begun);
    state.record(vec!["the kubelet is up".to_owned()], begun);
    let texts: Vec<_> = state.take_changes().into_iter().map(|c| c.text).collect();
    assert_eq!(
        texts,
        ["camera a (a) was found: Healthy", "the kubelet is up"]
    );
    assert!(state.take_changes().is_empty());
    assert_eq!(
        state.time(begun + Duration::from_millis(1500)),
        "   1.50 s  "
    );
    assert_eq!(
        State::new(String::new(), String::new()).time(begun),
        "00:00:00  "
    );
}

#[test]
fn a_look_that_fails_leaves_the_devices_and_says_why() {
    let mut state = state([instance("a", "node-1", true), instance("b", "", false)]);
    let error = anyhow::anyhow!("no route").context("cannot list instances.akri.sh");
    state.take(Err(&error), Timestamp::UNIX_EPOCH);
    assert_eq!(
        state.error.as_deref(),
        Some("cannot list instances.akri.sh: no route. The devices are those of 00:00:00 UTC.")
    );
    let mut unknown = State::new("here".to_owned(), String::new());
    unknown.take(Err(&error), Timestamp::UNIX_EPOCH);
    assert_eq!(
        unknown.error.as_deref(),
        Some("cannot list instances.akri.sh: no route")
    );
    assert_eq!(
        state.summary(),
        "2 devices, 1 with a problem, 1 of 2 slots in use"
    );
    assert!(state.shown().stale && state.shown().known && !unknown.shown().known);
    state.take(Ok(&snapshot([])), Timestamp::UNIX_EPOCH);
    assert_eq!(state.error, None);
    assert!(!state.shown().stale);
    assert_eq!(state.changes.len(), 2);
}

#[test]
fn the_selection_stays_on_its_device() {
    let mut state = state([
        instance("b", "", true),
        instance("c", "", false),
        instance("d", "", true),
    ]);
    // The one with a problem is first.
    assert_eq!(selected(&state), "c");
    for (key, expected) in [
        (Key::Up, "c"),
        (Key::Last, "d"),
        (Key::Down, "d"),
        (Key::First, "c"),
        (Key::Down, "b"),
    ] {
        assert!(!state.press(key));
        assert_eq!(selected(&state), expected, "{key:?}");
    }
    let more = [
        instance("a", "", true),
        instance("b", "", true),
        instance("c", "", false),
    ];
    state.take(Ok(&snapshot(more)), Timestamp::UNIX_EPOCH);
    assert_eq!(selected(&state), "b");
    state.press(Key::Letter('p'));
    assert_eq!(state.devices().len(), 1);
    state.take(
        Ok(&snapshot([instance("a", "", true)])),
        Timestamp::UNIX_EPOCH,
    );
    assert!(state.devices().is_empty());
    assert!(!state.press(Key::Escape), "it shows all devices again");
    assert!(state.press(Key::Escape));
}

#[test]
fn a_search_and_filters_leave_the_devices_that_have_all_of_it() {
    let mut state = state([
        instance("door-10", "node-1", true),
        instance("door-2", "", true),
        instance("gate", "", false),
    ]);
    let listed = |state: &State| -> Vec<String> {
        let devices = state.devices().into_iter();
        devices.map(|device| device.instance).collect()
    };
    let typed = |state: &mut State, letters: &str| {
        letters
            .chars()
            .for_each(|letter| assert!(!state.press(Key::Letter(letter)), "{letter}"));
        listed(state)
    };
    assert_eq!(
        listed(&state),
        ["gate", "door-2", "door-10"],
        "problems first, numbers as such"
    );
    assert_eq!(typed(&mut state, "/DOOR q"), [""; 0]);
    assert_eq!(state.filter.said(), "/DOOR q");
    state.press(Key::Backspace);
    assert_eq!(listed(&state), ["door-2", "door-10"]);
    state.press(Key::Enter);
    // In use: free, healthy and in use are the states of these and of the others.
    for (said, expected) in [
        ("/DOOR , state NotSeen", &[][..]),
        ("/DOOR , state free", &["door-2"]),
        ("/DOOR , state healthy", &["door-2", "door-10"]),
        ("/DOOR , state in use", &["door-10"]),
        ("/DOOR , state problem", &[]),
        ("/DOOR ", &["door-2", "door-10"]),
    ] {
        assert_eq!(typed(&mut state, "s"), expected, "{said}");
        assert_eq!(state.filter.said(), said);
    }
    typed(&mut state, "nc");
    assert_eq!(
        state.filter.said(),
        "/DOOR , node node-1, Configuration default/cams"
    );
    assert_eq!(typed(&mut state, "nc"), ["door-2", "door-10"]);
    assert!(!state.press(Key::Escape));
    assert_eq!(listed(&state).len(), 3);
}

#[test]
fn a_search_finds_the_words_of_a_problem() {
    let (key, mut gate) = instance("gate", "", false);
    let status = gate.status.as_mut().unwrap();
    status.conditions[0].message = "No answer since noon".to_owned();
    let mut state = state([(key, gate), instance("door", "", true)]);
    for letter in "/noon".chars() {
        state.press(Key::Letter(letter));
    }
    let devices = state.devices().into_iter();
    assert_eq!(Vec::from_iter(devices.map(|its| its.instance)), ["gate"]);
}

#[test]
fn a_browser_gets_the_devices_and_the_newest_change_first() {
    let mut state = state([instance("a", "", true)]);
    let after = snapshot([instance("a", "node-1", true), instance("b", "", false)]);
    state.take(Ok(&after), Timestamp::UNIX_EPOCH);
    let shown = serde_json::to_value(state.shown()).unwrap();
    assert_eq!(shown["problems"], 1);
    assert_eq!(shown["devices"][0]["health"], "NotSeen");
    assert_eq!(shown["devices"][1]["used"][0]["node"], "node-1");
    assert_eq!(
        shown["changes"][0]["text"],
        "camera a (a) is used by node-1"
    );
    assert_eq!(shown["changes"][0]["at"], "1970-01-01T00:00:00Z");
}
