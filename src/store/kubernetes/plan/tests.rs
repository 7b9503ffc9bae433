use super::*;
use crate::{
    api::condition::{Condition, ConditionStatus, ConditionType},
    store::{
        fixtures::exchange_of,
        plan::{exchanged, says_exception, with_health},
    },
};

fn camera(nodes: &[&str]) -> Instance {
    let mut instance = Instance::new("cam-1", Default::default());
    instance.metadata.namespace = Some("default".to_owned());
    instance.metadata.uid = Some("u".to_owned());
    instance.spec.nodes = nodes.iter().map(|&node| node.into()).collect();
    for node in nodes {
        let labels = instance.metadata.labels.get_or_insert_default();
        labels.insert(names::node_label(node), String::new());
    }
    instance
}

/// Applies the patch as the server does; the patch's `test`s must hold.
fn patched(instance: &Instance, patch: &Patch) -> Result<Instance, json_patch::PatchError> {
    let mut value = serde_json::to_value(instance).unwrap();
    // This is the schema's default.
    value["spec"]["deviceUsage"] = json!(instance.spec.device_usage);
    // An absent key matches `null` in the API server's `test`, and is an error in this crate's.
    let mut patch = patch.clone();
    patch.0.retain(|operation| {
        let PatchOperation::Test(test) = operation else {
            return true;
        };
        if test.value.is_null() {
            assert_eq!(test.path.resolve(&value).ok(), None);
        }
        !test.value.is_null()
    });
    json_patch::patch(&mut value, &patch)?;
    Ok(serde_json::from_value(value).unwrap())
}

#[test]
fn a_node_joins_and_leaves_with_its_label_and_the_others_stay() {
    let alone = camera(&["a"]);
    let both = patched(&alone, &join(&alone, "b")).unwrap();
    assert_eq!(both, camera(&["a", "b"]));
    assert_eq!(patched(&both, &join(&both, "b")).unwrap(), both);
    assert_eq!(patched(&both, &leave(&both, "b")).unwrap(), alone);
    let bare = Instance::new("cam-1", Default::default());
    assert_eq!(patched(&bare, &join(&bare, "a")).unwrap().spec.nodes, ["a"]);
}

#[test]
fn a_patch_made_of_what_was_known_before_does_not_fit_another() {
    let both = camera(&["a", "b"]);
    let leaves_second = leave(&both, "b");
    assert!(patched(&camera(&["b"]), &leaves_second).is_err());
    let mut successor = both.clone();
    successor.metadata.uid = Some("v".to_owned());
    assert!(patched(&successor, &join(&both, "c")).is_err());
}

#[test]
fn slots_are_exchanged_as_the_folder_does_it() {
    let claim = exchange_of(None, Some("a"));
    let release = exchange_of(Some("a"), None);
    let free = camera(&["a"]);
    let claimed = patched(&free, &exchange(&free, "a", &[&claim])).unwrap();
    assert_eq!(claimed, exchanged(&free, &[&claim]).unwrap());
    let released = patched(&claimed, &exchange(&claimed, "a", &[&release])).unwrap();
    assert_eq!(released, exchanged(&claimed, &[&release]).unwrap());
    // Akri 0.12 wrote free slots explicitly.
    let mut written_out = free.clone();
    written_out
        .spec
        .device_usage
        .insert("cam-1-0".to_owned(), String::new());
    let claimed = patched(&written_out, &exchange(&written_out, "a", &[&claim])).unwrap();
    assert_eq!(claimed.spec.device_usage["cam-1-0"], "a");
}

#[test]
fn a_node_that_left_keeps_its_label_until_its_last_slot_is_released() {
    let both = camera(&["a", "b"]);
    let held = exchanged(&both, &[&exchange_of(None, Some("b"))]).unwrap();
    let left = patched(&held, &leave(&held, "b")).unwrap();
    assert_eq!(left.spec.nodes, ["a"]);
    assert!(
        left.metadata
            .labels
            .as_ref()
            .unwrap()
            .contains_key(&names::node_label("b"))
    );
    let release = exchange_of(Some("b"), None);
    let released = patched(&left, &exchange(&left, "b", &[&release])).unwrap();
    assert_eq!(released.metadata.labels, camera(&["a"]).metadata.labels);
    assert!(released.spec.device_usage.is_empty());
}

#[test]
fn a_slot_that_another_node_took_meanwhile_is_not_taken() {
    let free = camera(&["a", "b"]);
    let ours = exchange(&free, "a", &[&exchange_of(None, Some("a"))]);
    let theirs = exchanged(&free, &[&exchange_of(None, Some("b"))]).unwrap();
    let tests: Vec<_> = ours
        .0
        .iter()
        .filter(|o| matches!(o, PatchOperation::Test(_)))
        .collect();
    let slot = test(&["spec", "deviceUsage", "cam-1-0"], Value::Null);
    assert!(tests.contains(&&slot), "{ours}");
    assert!(theirs.spec.device_usage.contains_key("cam-1-0"));
}

#[test]
fn only_what_is_not_well_is_said_and_the_end_of_it() {
    let state = |is_healthy| Health {
        is_healthy,
        connection: Some("x".to_owned()),
        trouble: None,
    };
    let mut instance = camera(&["a"]);
    assert_eq!(health(&instance, "a", &state(true), "t0"), None);
    let gone = health(&instance, "a", &state(false), "t1").unwrap();
    let gone = patched(&instance, &gone).unwrap();
    let status = gone.status.clone().unwrap();
    let entry = json!([{"name": "a", "health": "Unhealthy", "lastTransitionTime": "t1"}]);
    assert_eq!(json!(status.nodes), entry);
    assert!(!status.conditions[0].is_true());
    assert_eq!(health(&gone, "a", &state(false), "t2"), None);
    let mut run = gone.clone();
    run.status.as_mut().unwrap().broker_generation = Some(7);
    let back = health(&run, "a", &state(true), "t3").unwrap();
    let back = patched(&run, &back).unwrap().status.unwrap();
    assert_eq!((back.nodes.len(), back.broker_generation), (0, Some(7)));
    assert!(back.conditions[0].is_true());
    // The report of an earlier agent about a healthy device stays unchanged.
    let status = with_health(&Default::default(), "a", &state(true), "t0");
    instance.status = Some(status);
    assert!(says_exception(
        instance.status.as_ref().unwrap(),
        "a",
        &state(true)
    ));
}

#[test]
fn a_condition_that_the_controller_wrote_meanwhile_stays() {
    let state = |is_healthy| Health {
        is_healthy,
        connection: None,
        trouble: None,
    };
    let lost = health(&camera(&["a"]), "a", &state(false), "t1").unwrap();
    let read = patched(&camera(&["a"]), &lost).unwrap();
    let mut now = read.clone();
    let conditions = &mut now.status.as_mut().unwrap().conditions;
    conditions.push(Condition::new(
        ConditionType::BrokersReady,
        ConditionStatus::False,
        "BrokerImage",
        String::new(),
        "t2",
    ));
    let said = |instance: &Instance| -> Vec<String> {
        let conditions = instance.status.iter().flat_map(|s| &s.conditions);
        conditions
            .map(|c| format!("{} {}", c.type_, c.status))
            .collect()
    };
    let stale = health(&read, "a", &state(true), "t3").unwrap();
    assert!(patched(&now, &stale).is_err(), "{stale}");
    let fresh = health(&now, "a", &state(true), "t3").unwrap();
    let back = patched(&now, &fresh).unwrap();
    assert_eq!(said(&back), ["Available True", "BrokersReady False"]);
    // A patch of the nodes alone says nothing of conditions.
    let mut after = read.status.clone().unwrap();
    after.nodes.clear();
    let nodes = status(&read, &after).unwrap();
    let emptied = patched(&now, &nodes).unwrap();
    assert_eq!(said(&emptied), said(&now));
    assert_eq!(emptied.status.unwrap().nodes, []);
}

#[test]
fn an_instance_of_the_same_device_is_joined_and_another_is_not() {
    let with_id = |id: Option<&str>| {
        let mut instance = camera(&["b"]);
        let id = id.map(|id| BTreeMap::from([(names::DEVICE_ID.to_owned(), id.to_owned())]));
        instance.metadata.annotations = id;
        instance
    };
    let ours = with_id(Some("d"));
    assert_eq!(
        name_conflict(&with_id(Some("d")), &ours),
        NameConflict::Same
    );
    assert_eq!(name_conflict(&with_id(None), &ours), NameConflict::Same);
    assert_eq!(
        name_conflict(&with_id(Some("e")), &ours),
        NameConflict::Other
    );
    let mut leaving = with_id(Some("d"));
    leaving.metadata.deletion_timestamp =
        Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(
            k8s_openapi::jiff::Timestamp::UNIX_EPOCH,
        ));
    assert_eq!(name_conflict(&leaving, &ours), NameConflict::Leaving);
}

#[test]
fn a_long_node_name_has_a_label_all_the_same() {
    let label = names::node_label(&"n".repeat(200));
    assert_eq!(label.len(), names::NODE_LABEL_PREFIX.len() + 63);
}
