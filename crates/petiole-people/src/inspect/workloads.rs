//! Finds the Pods of Deployments and of other workloads, by the owners that Pods name. Pure.
use super::{
    object::{Kind, Object},
    pods::{asks_for_devices, is_finished, is_ready, label, phase},
    snapshot::Snapshot,
};
use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::OwnerReference};
use petiole_model::{api::names::INSTANCE_LABEL, model::names::ObjectKey};
use std::collections::BTreeSet;

/// Returns the workloads that have Pods with devices.
pub fn all(snapshot: &Snapshot) -> BTreeSet<Object> {
    let pods = snapshot.pods.iter();
    pods.flat_map(|(key, pod)| workloads_of(key, pod)).collect()
}

/// Returns the Pods of a workload that ask for devices or are brokers.
pub fn pods_of<'a>(snapshot: &'a Snapshot, workload: &Object) -> Vec<(&'a ObjectKey, &'a Pod)> {
    let is_its = |(key, pod): &(&ObjectKey, &Pod)| workloads_of(key, pod).contains(workload);
    snapshot.pods.iter().filter(is_its).collect()
}

/// Returns the Pods with the one first that says most about its workload: one that is not ready yet, or else the first that
/// is. Pods that are being deleted or have ended come last, because others replace them.
pub fn foremost_first<'a>(
    mut pods: Vec<(&'a ObjectKey, &'a Pod)>,
) -> Vec<(&'a ObjectKey, &'a Pod)> {
    pods.sort_by_key(|(_, pod)| match phase(pod) {
        "Succeeded" => 4,
        "Failed" => 3,
        _ if !lasts(pod) => 2,
        _ if is_ready(pod) => 1,
        _ => 0,
    });
    pods
}

/// Returns whether a Pod has not ended, and is not being deleted.
pub(crate) fn lasts(pod: &Pod) -> bool {
    !is_finished(pod) && pod.metadata.deletion_timestamp.is_none()
}

/// Returns how many Pods have not ended.
pub fn unfinished(pods: &[(&ObjectKey, &Pod)]) -> usize {
    pods.iter().filter(|(_, pod)| !is_finished(pod)).count()
}

/// Returns the name of the Deployment of a Pod's owner. The name of its ReplicaSet ends with the hash of its template.
pub fn deployment_of<'a>(pod: &Pod, owner: &'a OwnerReference) -> Option<&'a str> {
    let hash = label(pod, "pod-template-hash").filter(|_| owner.kind == "ReplicaSet")?;
    owner.name.strip_suffix(hash.as_str())?.strip_suffix('-')
}

/// Returns the workloads that a Pod belongs to: its controller, and the Deployment above that.
fn workloads_of(key: &ObjectKey, pod: &Pod) -> Vec<Object> {
    if !asks_for_devices(pod) && label(pod, INSTANCE_LABEL).is_none() {
        return vec![];
    }
    let mut owners = pod.metadata.owner_references.iter().flatten();
    let Some(owner) = owners.find(|owner| owner.controller == Some(true)) else {
        return vec![];
    };
    let workload = |kind, name: &str| Object::new(kind, ObjectKey::new(&key.namespace, name));
    let kinds = Kind::WORKLOADS.into_iter();
    let direct = kinds.filter(|kind| kind.as_str() == owner.kind);
    let direct = direct.map(|kind| workload(kind, &owner.name));
    let deployment = deployment_of(pod, owner);
    let deployment = deployment.map(|name| workload(Kind::Deployment, name));
    direct.chain(deployment).collect()
}

#[cfg(test)]
mod tests;
