//! Reads ResourceClaims, by which the scheduler gives out devices. Pure.
use k8s_openapi::api::resource::v1::ResourceClaim;
use petiole_model::{
    api::configuration::{Allocation, Configuration},
    model::names::ObjectKey,
};

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
    let pods = consumers.flatten().filter(|of| of.resource == "pods");
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
