//! The operations of JSON patches (RFC 6902), each by the keys on the way to its place.
use json_patch::{
    AddOperation, PatchOperation, RemoveOperation, ReplaceOperation, TestOperation,
    jsonptr::PointerBuf,
};
use serde_json::Value;

/// The patch fails unless `value` stands there. To an API server `null` is also what is not there.
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

fn pointer(path: &[&str]) -> PointerBuf {
    PointerBuf::from_tokens(path.iter().copied())
}
