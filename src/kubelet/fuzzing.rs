//! The doors through which `fuzz/` reaches the parsers of the kubelet: nothing else uses them.
use super::{
    device_manager::{checkpoint, inventory::Inventory},
    pods::manifest,
};
use k8s_openapi::api::core::v1::Pod;
use std::{collections::BTreeMap, time::Duration};

/// A static Pod as the kubelet runs it.
#[derive(Debug, PartialEq)]
pub struct StaticPod {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub pod: Pod,
    /// What each container asks of extended resources.
    pub limits: Vec<BTreeMap<String, usize>>,
}

/// The Pod of a manifest, or why it is refused.
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

/// The checkpoint that a kubelet writes after it has read this one. `None` where it refuses it.
pub fn checkpoint_again(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut inventory = Inventory::<()>::default();
    let restored = checkpoint::read(bytes).ok()?;
    restored.put_into(&mut inventory, Duration::ZERO);
    Some(checkpoint::write(&inventory))
}
