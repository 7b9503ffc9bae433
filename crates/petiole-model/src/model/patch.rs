//! Builds the operations of JSON patches (RFC 6902) from the keys of their paths.
use json_patch::{
    AddOperation, PatchOperation, RemoveOperation, ReplaceOperation, TestOperation,
    jsonptr::PointerBuf,
};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Returns an operation that fails the patch unless the path has this value. For an API server `null` also matches an
/// absent key.
pub fn test(path: &[&str], value: Value) -> PatchOperation {
    let path = pointer(path);
    PatchOperation::Test(TestOperation { path, value })
}

pub fn add(path: &[&str], value: Value) -> PatchOperation {
    let path = pointer(path);
    PatchOperation::Add(AddOperation { path, value })
}

pub fn replace(path: &[&str], value: Value) -> PatchOperation {
    let path = pointer(path);
    PatchOperation::Replace(ReplaceOperation { path, value })
}

pub fn remove(path: &[&str]) -> PatchOperation {
    let path = pointer(path);
    PatchOperation::Remove(RemoveOperation { path })
}

/// Returns the operations that create a map of the metadata if it is missing.
pub fn with_map(map: Option<&BTreeMap<String, String>>, name: &str) -> Vec<PatchOperation> {
    match map {
        Some(_) => vec![],
        None => vec![
            test(&["metadata", name], Value::Null),
            add(&["metadata", name], Value::Object(Map::new())),
        ],
    }
}

fn pointer(path: &[&str]) -> PointerBuf {
    PointerBuf::from_tokens(path.iter().copied())
}
