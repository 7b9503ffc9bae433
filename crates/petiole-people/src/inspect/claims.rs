//! Defines ResourceClaims, by which the scheduler gives out devices. Pure.
use kube::core::Object;
use petiole_model::{
    api::configuration::{Allocation, Configuration},
    model::names::ObjectKey,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A claim, as far as it says whose it is and what it asks for. The shape is that of `resource.k8s.io/v1`.
pub type ResourceClaim = Object<ClaimSpec, ClaimStatus>;

#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct ClaimSpec {
    pub devices: Requests,
}

#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct Requests {
    pub requests: Vec<DeviceRequest>,
}

/// A request for devices of one class. One for the first of several classes that is available has no `exactly`.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct DeviceRequest {
    pub exactly: Option<ExactRequest>,
}

#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ExactRequest {
    pub device_class_name: String,
    /// The number of devices. Without it, one.
    pub count: Option<u64>,
}

#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimStatus {
    /// The devices, once the scheduler has chosen them.
    pub allocation: Option<Value>,
    /// The Pods that may use the claim.
    pub reserved_for: Vec<Consumer>,
}

#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct Consumer {
    pub resource: String,
    pub name: String,
}

/// Returns whether the scheduler gives out the devices of a Configuration.
pub(super) fn gives_out(configuration: &Configuration) -> bool {
    configuration.spec.allocation == Allocation::Dra
}

/// Returns whether the scheduler has chosen the devices of a claim.
pub(super) fn is_allocated(claim: &ResourceClaim) -> bool {
    (claim.status.as_ref()).is_some_and(|status| status.allocation.is_some())
}

/// Returns the Pods that may use a claim.
pub(super) fn consumers(claim: &ResourceClaim) -> Vec<ObjectKey> {
    let namespace = key(claim).namespace;
    let consumers = claim.status.iter().flat_map(|status| &status.reserved_for);
    let pods = consumers.filter(|consumer| consumer.resource == "pods");
    pods.map(|pod| ObjectKey::new(&namespace, pod.name.as_str()))
        .collect()
}

/// Returns the namespace and the name of a claim.
pub(super) fn key(claim: &ResourceClaim) -> ObjectKey {
    let of = &claim.metadata;
    let [namespace, name] =
        [&of.namespace, &of.name].map(|text| text.as_deref().unwrap_or_default());
    ObjectKey::new(namespace, name)
}
