//! Gives `fuzz/` access to the private parsers of the kubelet. Nothing else uses this file.
use super::{
    device_manager::{checkpoint, inventory::Inventory},
    pods::manifest,
};
use k8s_openapi::api::core::v1::Pod;
use std::{collections::BTreeMap, time::Duration};

/// A static Pod as the kubelet runs it.
#[derive(Debug, PartialEq)]
pub struct StaticPod {
    /// `metadata.namespace`, or `default`.
    pub namespace: String,
    /// The name of the manifest with that of the node.
    pub name: String,
    /// The digest of the manifest.
    pub uid: String,
    /// The Pod of the manifest, with the fields that the kubelet sets.
    pub pod: Pod,
    /// The extended resources that each container requests, with their quantities.
    pub limits: Vec<BTreeMap<String, usize>>,
}

/// Parses a manifest into its Pod. The error says why the manifest is invalid.
pub fn static_pod(text: &str, file: &str, node: &str) -> Result<StaticPod, String> {
    let read = manifest::parse(text, file, node).map_err(|e| e.to_string())?;
    let limits = read.spec.containers.iter().map(manifest::limits);
    Ok(StaticPod {
        limits: limits
            .collect::<Result<_, _>>()
            .map_err(|e| e.to_string())?,
        namespace: read.key.namespace,
        name: read.key.name,
        uid: read.uid,
        pod: read.pod,
    })
}

/// Restores a checkpoint and returns the checkpoint that a kubelet then writes. Returns `None` if the checkpoint is
/// invalid.
pub fn checkpoint_again(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut inventory = Inventory::<()>::default();
    checkpoint::read(bytes, &mut inventory, Duration::ZERO).ok()?;
    Some(checkpoint::write(&inventory))
}
