//! Reads the JSON of broker specs, and names the field that is wrong. Pure.
use serde_json::{Map, Value, json};

/// A broker spec that nothing can be made of.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("spec.brokerSpec.{path} is {found}: it must be {expected}")]
pub struct SpecError {
    pub path: String,
    pub found: &'static str,
    pub expected: &'static str,
}

pub(super) fn at<'a>(object: &'a mut Map<String, Value>, key: &str) -> &'a mut Value {
    object.entry(key).or_insert(Value::Null)
}

pub(super) fn or_empty(value: &mut Value) -> &mut Value {
    if value.is_null() {
        *value = json!({});
    }
    value
}

pub(super) fn object<'a>(
    value: &'a mut Value,
    path: &str,
) -> Result<&'a mut Map<String, Value>, SpecError> {
    let wrong = error(value, path, "an object");
    value.as_object_mut().ok_or(wrong)
}

/// An object in an object; `None` where there is none.
pub(super) fn member<'a>(
    object: &'a mut Map<String, Value>,
    key: &str,
    path: &str,
) -> Result<Option<&'a mut Map<String, Value>>, SpecError> {
    match object.get_mut(key) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => self::object(value, &format!("{path}.{key}")).map(Some),
    }
}

pub(super) fn error(found: &Value, path: &str, expected: &'static str) -> SpecError {
    SpecError {
        path: path.to_owned(),
        found: match found {
            Value::Null => "missing",
            Value::Bool(_) => "true or false",
            Value::Number(_) => "a number",
            Value::String(_) => "a text",
            Value::Array(_) => "a list",
            Value::Object(_) => "an object",
        },
        expected,
    }
}
