//! JSON patches that hold only for what was seen. Pure.
use crate::model::patch::{remove, test};
use json_patch::{Patch, PatchOperation};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::json;

/// Only on the object as it was seen.
pub(crate) fn guarded(metadata: &ObjectMeta, mut operations: Vec<PatchOperation>) -> Option<Patch> {
    if operations.is_empty() {
        return None;
    }
    let version = json!(metadata.resource_version);
    operations.insert(0, test(&["metadata", "resourceVersion"], version));
    Some(Patch(operations))
}

/// Takes the entry of a node out of `status.nodes`, if it is still the one at that place.
pub(crate) fn without_entry(n: usize, node: &str) -> [PatchOperation; 2] {
    let n = n.to_string();
    [
        test(&["status", "nodes", &n, "name"], json!(node)),
        remove(&["status", "nodes", &n]),
    ]
}
