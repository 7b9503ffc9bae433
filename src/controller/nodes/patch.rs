//! JSON patches that hold only for what was seen. Pure.
use json_patch::{
    AddOperation, Patch, PatchOperation, RemoveOperation, ReplaceOperation, TestOperation,
    jsonptr::PointerBuf,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

/// Only on the object as it was seen.
pub(super) fn guarded(metadata: &ObjectMeta, mut operations: Vec<PatchOperation>) -> Option<Patch> {
    if operations.is_empty() {
        return None;
    }
    let version = json!(metadata.resource_version);
    operations.insert(0, test(["metadata", "resourceVersion"], version));
    Some(Patch(operations))
}

/// Takes the entry of a node out of `status.nodes`, if it is still the one at that place.
pub(in crate::controller) fn without_entry(n: usize, node: &str) -> [PatchOperation; 2] {
    let n = n.to_string();
    [
        test(["status", "nodes", &n, "name"], json!(node)),
        remove(["status", "nodes", &n]),
    ]
}

fn test<const N: usize>(path: [&str; N], value: Value) -> PatchOperation {
    let path = PointerBuf::from_tokens(path);
    PatchOperation::Test(TestOperation { path, value })
}

pub(super) fn add<const N: usize>(path: [&str; N], value: Value) -> PatchOperation {
    let path = PointerBuf::from_tokens(path);
    PatchOperation::Add(AddOperation { path, value })
}

pub(super) fn replace<const N: usize>(path: [&str; N], value: Value) -> PatchOperation {
    let path = PointerBuf::from_tokens(path);
    PatchOperation::Replace(ReplaceOperation { path, value })
}

pub(super) fn remove<const N: usize>(path: [&str; N]) -> PatchOperation {
    let path = PointerBuf::from_tokens(path);
    PatchOperation::Remove(RemoveOperation { path })
}
