//! Converts the metadata of an object to its key.
use crate::model::names::ObjectKey;
use kube::core::ObjectMeta;

/// Returns the key of an object. The namespace of a cluster-scoped object is empty.
pub fn key_of(metadata: &ObjectMeta) -> ObjectKey {
    ObjectKey::new(
        metadata.namespace.as_deref().unwrap_or_default(),
        metadata.name.as_deref().unwrap_or_default(),
    )
}
