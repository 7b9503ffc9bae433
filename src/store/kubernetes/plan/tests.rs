use super::*;
use crate::store::{fixtures::exchange_of, plan::exchanged};
use json_patch::PatchOperation;
use serde_json::Value;

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
fn slots_are_exchanged_as_the_folder_does_it() {
    let claim = exchange_of(None, Some("a"));
    let release = exchange_of(Some("a"), None);
    let free = camera(&["a"]);
    let claimed = patched(&free, &exchange(&free, &[&claim])).unwrap();
    assert_eq!(claimed, exchanged(&free, &[&claim]).unwrap());
    let released = patched(&claimed, &exchange(&claimed, &[&release])).unwrap();
    assert_eq!(released, exchanged(&claimed, &[&release]).unwrap());
    // Akri 0.12 wrote free slots explicitly.
    let mut written_out = free.clone();
    written_out
        .spec
        .device_usage
        .insert("cam-1-0".to_owned(), String::new());
    let claimed = patched(&written_out, &exchange(&written_out, &[&claim])).unwrap();
    assert_eq!(claimed.spec.device_usage["cam-1-0"], "a");
}

#[test]
fn a_slot_that_another_node_took_meanwhile_is_not_taken() {
    let free = camera(&["a", "b"]);
    let ours = exchange(&free, &[&exchange_of(None, Some("a"))]);
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
fn a_long_node_name_has_a_label_all_the_same() {
    let label = names::node_label(&"n".repeat(200));
    assert_eq!(label.len(), names::NODE_LABEL_PREFIX.len() + 63);
}

#[test]
fn slots_are_exchanged_of_the_object_that_was_read_alone() {
    let read = camera(&["a"]);
    let claim = exchange(&read, &[&exchange_of(None, Some("a"))]);
    let mut successor = read.clone();
    successor.metadata.uid = Some("v".to_owned());
    assert!(patched(&read, &claim).is_ok());
    assert!(patched(&successor, &claim).is_err());
}
