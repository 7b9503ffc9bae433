//! Deserializes the objects of a watch, some of which may be invalid.
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::{Resource, core::error_boundary::InvalidObject};
use petiole_model::model::limits;
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{DeserializeOwned, Error as _},
};
use serde_json::value::RawValue;
use std::{borrow::Cow, collections::BTreeMap};

/// An object of a watch, or its metadata and the error if it cannot be deserialized. It replaces
/// kube's `DeserializeGuard`, whose intermediate tree took a sixtieth of the image and half of the time of each event.
#[derive(Debug, Clone)]
pub struct Read<K>(pub Result<K, InvalidObject>);

#[derive(Deserialize)]
struct OnlyMetadata {
    #[serde(default)]
    metadata: Named,
}

/// The parts of an object's metadata that say which object it is. The others are as large as their author likes.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Named {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    generation: Option<i64>,
    creation_timestamp: Option<Time>,
    deletion_timestamp: Option<Time>,
}

impl From<Named> for ObjectMeta {
    fn from(named: Named) -> Self {
        Self {
            name: named.name,
            namespace: named.namespace,
            uid: named.uid,
            resource_version: named.resource_version,
            generation: named.generation,
            creation_timestamp: named.creation_timestamp,
            deletion_timestamp: named.deletion_timestamp,
            ..Self::default()
        }
    }
}

impl<'de, K: DeserializeOwned> Deserialize<'de> for Read<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Box::<RawValue>::deserialize(deserializer)?;
        let error = match serde_json::from_str(text.get()) {
            Ok(object) => return Ok(Self(Ok(object))),
            // It may quote a value.
            Err(e) => limits::cut(e.to_string(), limits::PROBLEM_MESSAGE_MAX),
        };
        let OnlyMetadata { metadata } =
            serde_json::from_str(text.get()).map_err(serde::de::Error::custom)?;
        let metadata = metadata.into();
        Ok(Self(Err(InvalidObject { error, metadata })))
    }
}

/// A Configuration `K` as a process keeps it: without `managedFields`, and only if `metadata` and `spec` are within
/// [`limits::CONFIGURATION_BYTES_MAX`]. A larger one is not parsed. `FOR_AGENTS` leaves out what only a controller reads:
/// `status`, and the specs of brokers and Services, which are free JSON and take many times their bytes once they are parsed.
#[derive(Debug, Clone)]
pub struct Bounded<K, const FOR_AGENTS: bool> {
    pub object: K,
    /// The bytes that were parsed.
    pub bytes: usize,
}

/// The fields of a Configuration's `spec` that no agent in a cluster reads.
const UNREAD_BY_AGENTS: [&str; 3] = [
    "brokerSpec",
    "configurationServiceSpec",
    "instanceServiceSpec",
];

#[derive(Deserialize, Serialize)]
struct Parts<'a> {
    #[serde(borrow)]
    metadata: Fields<'a>,
    #[serde(borrow)]
    spec: Fields<'a>,
    #[serde(borrow, default)]
    status: Option<&'a RawValue>,
}

type Fields<'a> = BTreeMap<String, &'a RawValue>;

impl<'de, K: DeserializeOwned, const FOR_AGENTS: bool> Deserialize<'de> for Bounded<K, FOR_AGENTS> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut parts = Parts::deserialize(deserializer)?;
        parts.metadata.remove("managedFields");
        let bytes = bytes_of(&parts.metadata) + bytes_of(&parts.spec);
        if bytes > limits::CONFIGURATION_BYTES_MAX {
            return Err(D::Error::custom(format!(
                "metadata and spec have {bytes} bytes, and {} are the most: shorten brokerSpec, discoveryDetails or what else is long",
                limits::CONFIGURATION_BYTES_MAX
            )));
        }
        if FOR_AGENTS {
            let is_read = |key: &String, _: &mut _| !UNREAD_BY_AGENTS.contains(&key.as_str());
            parts.spec.retain(is_read);
            let is_read =
                |key: &String, _: &mut _| !["annotations", "labels"].contains(&key.as_str());
            parts.metadata.retain(is_read);
            parts.status = None;
        }
        let bytes = bytes_of(&parts.metadata) + bytes_of(&parts.spec);
        let kept = serde_json::to_string(&parts).map_err(D::Error::custom)?;
        let object = serde_json::from_str(&kept).map_err(D::Error::custom)?;
        Ok(Self { object, bytes })
    }
}

fn bytes_of(fields: &Fields<'_>) -> usize {
    let all = fields.iter();
    all.map(|(key, value)| key.len() + value.get().len()).sum()
}

/// The names of a kind of object, which a wrapper has of the object in it.
macro_rules! names_of {
    ($kind:ident) => {
        type DynamicType = $kind::DynamicType;
        type Scope = $kind::Scope;

        fn kind(dt: &$kind::DynamicType) -> Cow<'_, str> {
            $kind::kind(dt)
        }

        fn group(dt: &$kind::DynamicType) -> Cow<'_, str> {
            $kind::group(dt)
        }

        fn version(dt: &$kind::DynamicType) -> Cow<'_, str> {
            $kind::version(dt)
        }

        fn plural(dt: &$kind::DynamicType) -> Cow<'_, str> {
            $kind::plural(dt)
        }
    };
}

impl<K: Resource, const FOR_AGENTS: bool> Resource for Bounded<K, FOR_AGENTS> {
    names_of!(K);

    fn meta(&self) -> &ObjectMeta {
        self.object.meta()
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        self.object.meta_mut()
    }
}

impl<K: Resource> Resource for Read<K> {
    names_of!(K);

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

    /// A Configuration without the types of this crate's users.
    #[derive(Debug, Deserialize)]
    struct Object {
        spec: BTreeMap<String, serde_json::Value>,
        status: Option<serde_json::Value>,
    }

    fn read<const FOR_AGENTS: bool>(
        spec: &str,
        metadata: &str,
    ) -> Read<Bounded<Object, FOR_AGENTS>> {
        let text = format!(
            r#"{{"metadata": {{"name": "cam", "namespace": "a", "managedFields": [{}]{metadata}}}, "spec": {spec}, "status": {{"instances": 7}}}}"#,
            vec!["{}"; limits::CONFIGURATION_BYTES_MAX].join(",")
        );
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn a_configuration_above_its_bound_is_not_parsed_and_is_named() {
        for long in [600_000, limits::CONFIGURATION_BYTES_MAX] {
            let spec = format!(
                r#"{{"brokerSpec": {{"brokerPodSpec": {{"x": [{}]}}}}}}"#,
                vec!["0"; long].join(",")
            );
            let invalid = read::<true>(&spec, "").0.unwrap_err();
            assert_eq!(invalid.metadata.name.as_deref(), Some("cam"));
            assert_eq!(invalid.metadata.namespace.as_deref(), Some("a"));
            assert!(
                invalid.error.contains("262144 are the most"),
                "{}",
                invalid.error
            );
            assert!(read::<false>(&spec, "").0.is_err());
        }
        let note = format!(
            r#", "annotations": {{"note": "{}"}}"#,
            "x".repeat(limits::CONFIGURATION_BYTES_MAX)
        );
        assert!(read::<true>("{}", &note).0.is_err(), "all of it counts");
    }

    #[test]
    fn what_only_a_controller_reads_costs_an_agent_nothing() {
        let spec = format!(
            r#"{{"capacity": 2, "brokerSpec": {{"x": [{}]}}}}"#,
            vec!["0"; 100_000].join(",")
        );
        let of_agent = read::<true>(&spec, r#", "labels": {"a": "b"}"#).0.unwrap();
        assert_eq!(Vec::from_iter(of_agent.object.spec.keys()), ["capacity"]);
        assert!(
            of_agent.object.status.is_none() && of_agent.bytes < 64,
            "{of_agent:?}"
        );
        let of_controller = read::<false>(&spec, "").0.unwrap();
        assert_eq!(of_controller.object.spec.len(), 2);
        assert!(of_controller.object.status.is_some() && of_controller.bytes > 200_000);
    }

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
