//! Says who gives out the devices of a Configuration.
use super::word::word;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

/// Who gives out the devices.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Allocation {
    /// The kubelet of each node, by device plugins.
    #[default]
    DevicePlugin,
    /// The scheduler, by Dynamic Resource Allocation.
    #[serde(rename = "DRA")]
    Dra,
}

pub(super) fn allocation<'de, D: Deserializer<'de>>(given: D) -> Result<Allocation, D::Error> {
    word(given, "allocation", "DevicePlugin or DRA")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::configuration::ConfigurationSpec;
    use serde_json::{Value, json};

    #[test]
    fn plugins_give_out_the_devices_unless_it_is_said_and_another_word_is_named_with_those_that_are_right()
     {
        let read = |mut fields: Value| {
            fields["discoveryHandler"] = json!({"name": "udev"});
            let spec: Result<ConfigurationSpec, _> = serde_json::from_value(fields);
            spec.map(|spec| spec.allocation).map_err(|e| e.to_string())
        };
        assert_eq!(read(json!({})), Ok(Allocation::DevicePlugin));
        assert_eq!(read(json!({"allocation": "DRA"})), Ok(Allocation::Dra));
        let error = "spec.allocation is \"dra\": write DevicePlugin or DRA".to_owned();
        assert_eq!(read(json!({"allocation": "dra"})), Err(error));
        assert_eq!(serde_json::to_value(Allocation::Dra).unwrap(), "DRA");
    }
}
