//! Applies JSON patches as the API server does: all or nothing, and a `test` for `null` succeeds if the key is absent.
use super::api_server::refusal;
use json_patch::{Patch, PatchOperation};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

pub(super) fn patched<T: Serialize + DeserializeOwned>(
    before: &T,
    patch: &Patch,
) -> kube::Result<T> {
    let mut value = serde_json::to_value(before).unwrap();
    for operation in &patch.0 {
        apply(&mut value, operation).map_err(|e| refusal(422, e))?;
    }
    serde_json::from_value(value).map_err(|e| refusal(422, e.to_string()))
}

fn apply(value: &mut Value, operation: &PatchOperation) -> Result<(), String> {
    if let PatchOperation::Test(test) = operation
        && test.value.is_null()
    {
        let path = test.path.to_string();
        let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
        let is_held = value.pointer(parent).is_some()
            && value.pointer(&path).is_none_or(|there| there.is_null());
        return if is_held {
            Ok(())
        } else {
            Err(format!("{path} is not null"))
        };
    }
    json_patch::patch(value, std::slice::from_ref(operation)).map_err(|e| e.to_string())
}
