//! Deserializes the objects of a watch, some of which may be invalid.
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Resource, core::error_boundary::InvalidObject};
use serde::{Deserialize, Deserializer, de::DeserializeOwned};
use serde_json::value::RawValue;
use std::borrow::Cow;

/// An object of a watch, or its metadata and the error if it cannot be deserialized. It replaces
/// kube's `DeserializeGuard`, whose intermediate tree took a sixtieth of the image and half of the time of each event.
#[derive(Debug, Clone)]
pub struct Read<K>(pub Result<K, InvalidObject>);

#[derive(Deserialize)]
struct OnlyMetadata {
    #[serde(default)]
    metadata: ObjectMeta,
}

impl<'de, K: DeserializeOwned> Deserialize<'de> for Read<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Box::<RawValue>::deserialize(deserializer)?;
        let error = match serde_json::from_str(text.get()) {
            Ok(object) => return Ok(Self(Ok(object))),
            Err(e) => e.to_string(),
        };
        let OnlyMetadata { metadata } =
            serde_json::from_str(text.get()).map_err(serde::de::Error::custom)?;
        Ok(Self(Err(InvalidObject { error, metadata })))
    }
}

impl<K: Resource> Resource for Read<K> {
    type DynamicType = K::DynamicType;
    type Scope = K::Scope;

    fn kind(dt: &K::DynamicType) -> Cow<'_, str> {
        K::kind(dt)
    }

    fn group(dt: &K::DynamicType) -> Cow<'_, str> {
        K::group(dt)
    }

    fn version(dt: &K::DynamicType) -> Cow<'_, str> {
        K::version(dt)
    }

    fn plural(dt: &K::DynamicType) -> Cow<'_, str> {
        K::plural(dt)
    }

    fn meta(&self) -> &ObjectMeta {
        self.0.as_ref().map_or_else(|e| &e.metadata, K::meta)
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        self.0
            .as_mut()
            .map_or_else(|e| &mut e.metadata, K::meta_mut)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::core::WatchEvent;

    #[test]
    fn an_object_that_cannot_be_read_keeps_its_metadata_and_the_error() {
        let event = |data: &str| {
            let text = format!(
                r#"{{"type": "ADDED", "object": {{"metadata": {{"name": "one"}}, "data": {data}}}}}"#
            );
            let WatchEvent::Added(read) = serde_json::from_str(&text).unwrap() else {
                panic!("{text}");
            };
            let read: Read<ConfigMap> = read;
            read
        };
        assert_eq!(event("{}").0.unwrap().metadata.name.as_deref(), Some("one"));
        let invalid = event("7").0.unwrap_err();
        assert_eq!(invalid.metadata.name.as_deref(), Some("one"));
        assert!(invalid.error.contains("invalid type"), "{}", invalid.error);
    }
}
