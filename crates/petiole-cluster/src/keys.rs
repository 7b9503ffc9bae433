//! Converts the metadata of an object to its key and its version.
use kube::core::ObjectMeta;
use petiole_model::model::{
    instance_name::InstanceKey, names::ObjectKey, typed_names::ConfigurationKey,
};

/// Returns the key of an object. The namespace of a cluster-scoped object is empty.
pub fn key_of(metadata: &ObjectMeta) -> ObjectKey {
    ObjectKey::new(
        metadata.namespace.as_deref().unwrap_or_default(),
        metadata.name.as_deref().unwrap_or_default(),
    )
}

/// Returns the key of a Configuration.
pub fn configuration_key(metadata: &ObjectMeta) -> ConfigurationKey {
    key_of(metadata).typed()
}

/// Returns the key of an Instance.
pub fn instance_key(metadata: &ObjectMeta) -> InstanceKey {
    key_of(metadata).typed()
}

/// Returns the version of an object. Versions of one kind are numbers that grow (KEP-5504).
pub fn version_of(metadata: &ObjectMeta) -> u64 {
    let version = metadata.resource_version.as_deref();
    version.and_then(|text| text.parse().ok()).unwrap_or(0)
}
