//! What is sent to the API server for a change: guarded JSON patches and entries for server-side apply. Pure.
//!
//! `spec` is changed by JSON patches, each with a `test` of what the change depends on: one request, no record of
//! field owners that would outlive a node, and no other node's concurrent change makes it fail. `status` has one
//! entry a node, which its agent applies.
use crate::{
    api::{
        configuration::{NodeReport, Problem},
        instance::Instance,
        names,
    },
    model::{names::shortened, slot::SlotOwner},
    store::{
        Exchange, Report, View,
        plan::{forced, with_health},
    },
};
use json_patch::{
    AddOperation, Patch, PatchOperation, RemoveOperation, TestOperation, jsonptr::PointerBuf,
};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// The longest name part of a label.
const LABEL_LIMIT: usize = 63;

/// The label by which an agent's watch finds the Instances of its node.
pub fn node_label(node: &str) -> String {
    format!(
        "{}{}",
        names::NODE_LABEL_PREFIX,
        shortened(node, LABEL_LIMIT)
    )
}

/// Who an agent is in the bookkeeping of the API server.
pub(super) fn field_manager(node: &str) -> String {
    // 128 characters at most (ValidateFieldManager).
    shortened(&format!("petiole-{node}"), 128)
}

/// An Instance as it is created: its status is no part of it.
pub(super) fn to_create(instance: &Instance, node: &str) -> Instance {
    let mut instance = instance.clone();
    instance.status = None;
    let labels = instance.metadata.labels.get_or_insert_default();
    labels.insert(node_label(node), String::new());
    instance
}

/// What to do about an Instance that has the name of one that was to be created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Met {
    /// It is of the same device, which another node found first.
    Same,
    /// It is of another device.
    Other,
    /// It is being deleted.
    Leaving,
}

pub(super) fn met(there: &Instance, ours: &Instance) -> Met {
    let id = |instance: &Instance| {
        let annotations = instance.metadata.annotations.as_ref();
        annotations
            .and_then(|all| all.get(names::DEVICE_ID))
            .cloned()
    };
    if there.metadata.deletion_timestamp.is_some() {
        return Met::Leaving;
    }
    // One that Akri made has no note of its device; its name is made of the device's id as ours is.
    let is_same = id(there).is_none_or(|there| Some(there) == id(ours))
        && there.spec.configuration_name == ours.spec.configuration_name;
    if is_same { Met::Same } else { Met::Other }
}

/// Adds this node.
pub(super) fn join(instance: &Instance, node: &str) -> Patch {
    let mut patch = guarded(instance);
    patch.extend(with_label(instance, node));
    if !instance.spec.nodes.iter().any(|n| n == node) {
        patch.push(add(&["spec", "nodes", "-"], json!(node)));
    }
    Patch(patch)
}

/// Takes this node out. As long as it holds a slot its label stays, so that its agent can release it.
pub(super) fn leave(instance: &Instance, node: &str) -> Patch {
    let mut patch = guarded(instance);
    if let Some(n) = instance.spec.nodes.iter().position(|n| n == node) {
        let at = n.to_string();
        patch.push(test(&["spec", "nodes", &at], json!(node)));
        patch.push(remove(&["spec", "nodes", &at]));
    }
    if !holds_slot(instance, node) {
        patch.extend(without_label(instance, node));
    }
    Patch(patch)
}

fn holds_slot(instance: &Instance, node: &str) -> bool {
    let mut owners = instance
        .spec
        .device_usage
        .values()
        .map(|usage| SlotOwner::from_usage(usage));
    owners.any(|owner| owner.is_ok_and(|owner| owner.is_some_and(|owner| owner.node() == node)))
}

/// What the Configuration and the device say. Only the first node of an Instance writes that.
pub(super) struct Description<'a> {
    pub(super) capacity: i32,
    pub(super) broker_properties: &'a BTreeMap<String, String>,
    pub(super) device_id: Option<&'a String>,
}

pub(super) fn describe(instance: &Instance, node: &str, said: &Description<'_>) -> Patch {
    let mut patch = guarded(instance);
    patch.push(test(&["spec", "nodes", "0"], json!(node)));
    patch.push(add(&["spec", "capacity"], json!(said.capacity)));
    patch.push(add(
        &["spec", "brokerProperties"],
        json!(said.broker_properties),
    ));
    if let Some(id) = said.device_id {
        patch.extend(with_map(
            instance.metadata.annotations.as_ref(),
            "annotations",
        ));
        patch.push(add(
            &["metadata", "annotations", names::DEVICE_ID],
            json!(id),
        ));
    }
    Patch(patch)
}

/// Exchanges the owners of slots, each only where it has the owner it had when the Instance was read.
pub(super) fn exchange(instance: &Instance, node: &str, exchanges: &[&Exchange]) -> Patch {
    let mut patch = guarded(instance);
    let annotations = instance.metadata.annotations.as_ref();
    let told =
        |exchange: &Exchange| format!("{}{}", names::TOLD_PREFIX, exchange.change.slot.index);
    if exchanges
        .iter()
        .any(|e| e.told.is_some() && e.change.to.is_some())
    {
        patch.extend(with_map(annotations, "annotations"));
    }
    for exchange in exchanges {
        let slot = exchange.change.slot.to_string();
        let at = ["spec", "deviceUsage", slot.as_str()];
        let usage = instance.spec.device_usage.get(&slot);
        // `null` passes for an absent key, if the map exists: the schema's default sees to that.
        patch.push(test(&at, json!(usage)));
        match &exchange.change.to {
            Some(owner) => patch.push(add(&at, json!(owner.to_string()))),
            None if usage.is_some() => patch.push(remove(&at)),
            None => {}
        }
        let key = told(exchange);
        let at = ["metadata", "annotations", key.as_str()];
        match exchange
            .told
            .as_ref()
            .filter(|_| exchange.change.to.is_some())
        {
            Some(told) => patch.push(add(&at, json!(told))),
            None if annotations.is_some_and(|all| all.contains_key(&key)) => {
                patch.push(remove(&at))
            }
            None => {}
        }
    }
    let has_left = !instance.spec.nodes.iter().any(|n| n == node);
    if has_left && !holds_slot(&forced(instance, exchanges.iter().copied()), node) {
        patch.extend(without_label(instance, node));
    }
    Patch(patch)
}

/// This node's entry in an Instance's status, to be applied. Without one the entry goes.
pub(super) fn health(instance: &Instance, node: &str, seen: Option<(&View, &str)>) -> Value {
    let before = instance.status.clone().unwrap_or_default();
    let after = seen.map(|(view, now)| with_health(&before, node, view, now));
    let entries = after.into_iter().flat_map(|status| status.nodes);
    let own: Vec<_> = entries.filter(|entry| entry.name == node).collect();
    applied(instance, json!({ "nodes": own }))
}

/// This node's entry in a Configuration's status.
pub(super) fn entry(report: &Report, node: &str) -> NodeReport {
    NodeReport {
        name: node.to_owned(),
        instances: i64::try_from(report.instances).unwrap_or(i64::MAX),
        problems: report.problems.clone(),
    }
}

/// The problems that were not there before.
pub(super) fn new_problems<'a>(
    before: Option<&NodeReport>,
    now: &'a NodeReport,
) -> Vec<&'a Problem> {
    let is_new =
        |problem: &&Problem| before.is_none_or(|before| !before.problems.contains(problem));
    now.problems.iter().filter(is_new).collect()
}

/// An object with nothing but `status`. With its uid it is not created again where it was just deleted.
pub(super) fn applied<K>(object: &K, status: Value) -> Value
where
    K: kube::Resource<DynamicType = ()>,
{
    json!({
        "apiVersion": K::api_version(&()),
        "kind": K::kind(&()),
        "metadata": { "name": object.meta().name, "uid": object.meta().uid },
        "status": status,
    })
}

/// The beginning of every patch: only of this object, not of a later one of its name.
fn guarded(instance: &Instance) -> Vec<PatchOperation> {
    vec![test(&["metadata", "uid"], json!(instance.metadata.uid))]
}

fn with_label(instance: &Instance, node: &str) -> Vec<PatchOperation> {
    let mut patch = with_map(instance.metadata.labels.as_ref(), "labels");
    patch.push(add(&["metadata", "labels", &node_label(node)], json!("")));
    patch
}

fn without_label(instance: &Instance, node: &str) -> Option<PatchOperation> {
    let (label, labels) = (node_label(node), instance.metadata.labels.as_ref());
    let is_there = labels.is_some_and(|labels| labels.contains_key(&label));
    is_there.then(|| remove(&["metadata", "labels", &label]))
}

/// Makes a map of the metadata that is not there.
fn with_map(map: Option<&BTreeMap<String, String>>, name: &str) -> Vec<PatchOperation> {
    match map {
        Some(_) => vec![],
        None => vec![
            test(&["metadata", name], Value::Null),
            add(&["metadata", name], Value::Object(Map::new())),
        ],
    }
}

fn test(path: &[&str], value: Value) -> PatchOperation {
    let path = PointerBuf::from_tokens(path.iter().copied());
    PatchOperation::Test(TestOperation { path, value })
}

fn add(path: &[&str], value: Value) -> PatchOperation {
    let path = PointerBuf::from_tokens(path.iter().copied());
    PatchOperation::Add(AddOperation { path, value })
}

fn remove(path: &[&str]) -> PatchOperation {
    let path = PointerBuf::from_tokens(path.iter().copied());
    PatchOperation::Remove(RemoveOperation { path })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        model::{
            names::ObjectKey,
            slot::{SlotId, SlotOwner},
            slot_table::SlotChange,
        },
        store::plan::exchanged,
    };

    fn camera(nodes: &[&str]) -> Instance {
        let mut instance = Instance::new("cam-1", Default::default());
        instance.metadata.namespace = Some("default".to_owned());
        instance.metadata.uid = Some("u".to_owned());
        instance.spec.nodes = nodes.iter().map(ToString::to_string).collect();
        for node in nodes {
            let labels = instance.metadata.labels.get_or_insert_default();
            labels.insert(node_label(node), String::new());
        }
        instance
    }

    /// The Instance as the server has it after the patch; the patch's `test`s must hold.
    fn patched(instance: &Instance, patch: &Patch) -> Result<Instance, json_patch::PatchError> {
        let mut value = serde_json::to_value(instance).unwrap();
        // The schema's default.
        value["spec"]["deviceUsage"] = json!(instance.spec.device_usage);
        // An absent key is `null` to the API server's `test`, and an error to this crate's.
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

    fn exchange_of(from: Option<&str>, to: Option<&str>) -> Exchange {
        let owner = |o: &str| SlotOwner::Node(o.to_owned());
        Exchange {
            change: SlotChange {
                key: ObjectKey::new("default", "cam-1"),
                slot: SlotId::new("cam-1", 0),
                from: from.map(owner),
                to: to.map(owner),
            },
            told: Some("digest".to_owned()),
        }
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
        let said = Description {
            capacity: 2,
            broker_properties: &BTreeMap::new(),
            device_id: None,
        };
        assert!(patched(&both, &describe(&both, "b", &said)).is_err());
        assert_eq!(
            patched(&both, &describe(&both, "a", &said))
                .unwrap()
                .spec
                .capacity,
            2
        );
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
        // Akri 0.12 wrote free slots out.
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
                .contains_key(&node_label("b"))
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
        let slot = PatchOperation::Test(TestOperation {
            path: PointerBuf::from_tokens(["spec", "deviceUsage", "cam-1-0"]),
            value: Value::Null,
        });
        assert!(tests.contains(&&slot), "{ours}");
        assert!(theirs.spec.device_usage.contains_key("cam-1-0"));
    }

    #[test]
    fn only_this_nodes_entry_is_applied_and_none_takes_it_away() {
        let mut instance = camera(&["a", "b"]);
        let view = View {
            is_healthy: true,
            connection: Some("x".to_owned()),
        };
        let status = with_health(&Default::default(), "b", &view, "t0");
        instance.status = Some(status);
        let applied = health(&instance, "a", Some((&view, "t1")));
        assert_eq!(
            applied["status"]["nodes"],
            json!([{"name": "a", "health": "Healthy", "lastTransitionTime": "t1", "connection": "x"}])
        );
        assert_eq!(applied["metadata"], json!({"name": "cam-1", "uid": "u"}));
        assert_eq!(health(&instance, "a", None)["status"], json!({"nodes": []}));
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
        assert_eq!(met(&with_id(Some("d")), &ours), Met::Same);
        assert_eq!(met(&with_id(None), &ours), Met::Same);
        assert_eq!(met(&with_id(Some("e")), &ours), Met::Other);
        let mut leaving = with_id(Some("d"));
        leaving.metadata.deletion_timestamp =
            Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(
                k8s_openapi::jiff::Timestamp::UNIX_EPOCH,
            ));
        assert_eq!(met(&leaving, &ours), Met::Leaving);
    }

    #[test]
    fn only_problems_that_are_new_are_told() {
        let entry = |reasons: &[&str]| NodeReport {
            name: "a".to_owned(),
            instances: 0,
            problems: reasons.iter().map(|r| Problem::new(r, "m")).collect(),
        };
        let now = entry(&["A", "B"]);
        assert_eq!(new_problems(None, &now).len(), 2);
        assert_eq!(new_problems(Some(&entry(&["A"])), &now), [&now.problems[1]]);
    }

    #[test]
    fn a_long_node_name_has_a_label_all_the_same() {
        let label = node_label(&"n".repeat(200));
        assert_eq!(label.len(), names::NODE_LABEL_PREFIX.len() + LABEL_LIMIT);
    }
}
