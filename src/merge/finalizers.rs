//! Removes the finalizers of Akri's agents, which would keep objects for ever. Pure.
use crate::model::patch::replace;
use json_patch::PatchOperation;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::json;

/// Finalizers without a prefix that are Kubernetes' own.
const KUBERNETES_FINALIZERS: [&str; 2] = ["foregroundDeletion", "orphan"];

/// Akri's agents each put the plain name of their node there, and nobody takes that of a lost node off again. Ours
/// need none.
pub(crate) fn without_akris(metadata: &ObjectMeta) -> Vec<PatchOperation> {
    let finalizers = metadata.finalizers.as_deref().unwrap_or_default();
    let is_kept =
        |name: &&String| name.contains('/') || KUBERNETES_FINALIZERS.contains(&name.as_str());
    let kept: Vec<&String> = finalizers.iter().filter(is_kept).collect();
    if kept.len() == finalizers.len() {
        vec![]
    } else {
        vec![replace(&["metadata", "finalizers"], json!(kept))]
    }
}
