//! JSON patches that hold only for what was seen. Pure.
use crate::{
    api::instance::{Instance, InstanceStatus},
    model::patch::{add, test},
};
use json_patch::{Patch, PatchOperation};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

/// Returns a patch that is accepted only while the object is the one that was read.
pub(crate) fn as_seen(metadata: &ObjectMeta, mut operations: Vec<PatchOperation>) -> Option<Patch> {
    if operations.is_empty() {
        return None;
    }
    let version = json!(metadata.resource_version);
    operations.insert(0, test(&["metadata", "resourceVersion"], version));
    Some(Patch(operations))
}

/// Adds guards to a patch: it fails on another Instance, and if the nodes have changed. Operations on a slot test that
/// slot alone, so that frequent claims of other slots do not make the patch fail.
pub(crate) fn guarded(instance: &Instance, mut operations: Vec<PatchOperation>) -> Option<Patch> {
    // A patch cannot tell an Instance without the field `nodes` from one with an empty list.
    if instance.spec.nodes.is_empty() || instance.metadata.finalizers.is_some() {
        return as_seen(&instance.metadata, operations);
    }
    if operations.is_empty() {
        return None;
    }
    let guards = [
        test(&["metadata", "uid"], json!(instance.metadata.uid)),
        test(&["spec", "nodes"], json!(instance.spec.nodes)),
    ];
    operations.splice(0..0, guards);
    Some(Patch(operations))
}

/// Replaces the nodes and conditions in an Instance's status. The other tasks of the controller write `brokerGeneration` and the
/// condition `BrokersReady`, also after the Instance was read: conditions are replaced only if they are still those that were
/// read.
pub(crate) fn status(instance: &Instance, after: &InstanceStatus) -> Patch {
    let mut patch = vec![test(&["metadata", "uid"], json!(instance.metadata.uid))];
    let Some(before) = &instance.status else {
        patch.push(test(&["status"], Value::Null));
        patch.push(add(&["status"], json!(after)));
        return Patch(patch);
    };
    if before.nodes != after.nodes {
        patch.push(add(&["status", "nodes"], json!(after.nodes)));
    }
    if before.conditions != after.conditions {
        let at = ["status", "conditions"];
        patch.push(test(&at, json!(before.conditions)));
        patch.push(add(&at, json!(after.conditions)));
    }
    Patch(patch)
}
