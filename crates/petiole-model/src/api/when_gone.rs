//! Says what becomes of Pods whose device is gone.
use super::word::word;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

/// What becomes of the Pods of a device that is gone.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum WhenGone {
    #[default]
    Keep,
    Evict,
}

pub(super) fn when_gone<'de, D: Deserializer<'de>>(given: D) -> Result<WhenGone, D::Error> {
    word(given, "whenGone", "Keep or Evict")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::configuration::ConfigurationSpec;
    use serde_json::{Value, json};

    #[test]
    fn when_gone_is_kept_unless_it_is_said_and_another_word_is_named_with_those_that_are_right() {
        let read = |mut fields: Value| {
            fields["discoveryHandler"] = json!({"name": "udev"});
            let spec: Result<ConfigurationSpec, _> = serde_json::from_value(fields);
            spec.map(|spec| spec.when_gone).map_err(|e| e.to_string())
        };
        assert_eq!(read(json!({})), Ok(WhenGone::Keep));
        assert_eq!(read(json!({"whenGone": "Evict"})), Ok(WhenGone::Evict));
        let error = "spec.whenGone is \"evict\": write Keep or Evict".to_owned();
        assert_eq!(read(json!({"whenGone": "evict"})), Err(error));
    }
}
