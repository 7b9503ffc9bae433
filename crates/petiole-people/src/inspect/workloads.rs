//! Finds the Pods of Deployments and of other workloads, by the owners that Pods name. Pure.
use super::{
    pods::{asks_for_devices, is_finished, is_ready, label, phase},
    snapshot::Snapshot,
};
use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::OwnerReference};
use petiole_model::{
    api::names::INSTANCE_LABEL,
    model::names::{Key, ObjectKey},
};
use std::{collections::BTreeSet, fmt};

/// A kind of object that has Pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum WorkloadKind {
    Deployment,
    ReplicaSet,
    StatefulSet,
    DaemonSet,
    Job,
}

/// An object that has Pods.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Workload {
    pub kind: WorkloadKind,
    pub key: ObjectKey,
}

impl WorkloadKind {
    const ALL: [Self; 5] = [
        Self::Deployment,
        Self::ReplicaSet,
        Self::StatefulSet,
        Self::DaemonSet,
        Self::Job,
    ];

    /// Returns the kind of this name, in lower-case letters, in a form that kubectl takes.
    pub fn parse(kind: &str) -> Option<Self> {
        let kind = kind.strip_suffix(".apps").unwrap_or(kind);
        let kind = kind.strip_suffix(".batch").unwrap_or(kind);
        Self::ALL.into_iter().find(|known| {
            let name = known.as_str().to_lowercase();
            kind == known.short() || kind.strip_suffix('s').unwrap_or(kind) == name
        })
    }

    fn short(self) -> &'static str {
        match self {
            Self::Deployment => "deploy",
            Self::ReplicaSet => "rs",
            Self::StatefulSet => "sts",
            Self::DaemonSet => "ds",
            Self::Job => "job",
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Deployment => "Deployment",
            Self::ReplicaSet => "ReplicaSet",
            Self::StatefulSet => "StatefulSet",
            Self::DaemonSet => "DaemonSet",
            Self::Job => "Job",
        }
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind.as_str(), self.key)
    }
}

impl Workload {
    /// Returns whether a Pod of this name may be its own. The name of a Deployment's Pod has two parts more, those of other
    /// workloads one.
    pub(crate) fn may_have_made(&self, pod: &str) -> bool {
        let more = pod.strip_prefix(self.key.name.as_str());
        let more = more.and_then(|more| more.strip_prefix('-'));
        let is_deployment = self.kind == WorkloadKind::Deployment;
        let parts = if is_deployment { 2 } else { 1 };
        more.is_some_and(|more| more.split('-').count() == parts)
    }
}

/// Returns the workloads of this name that have Pods with devices, in one namespace or in all.
pub fn named(snapshot: &Snapshot, namespace: Option<&str>, name: &str) -> BTreeSet<Workload> {
    (snapshot.pods.iter())
        .filter(|(key, _)| namespace.is_none_or(|namespace| namespace == key.namespace))
        .flat_map(|(key, pod)| workloads_of(key, pod))
        .filter(|workload| workload.key.name == name)
        .collect()
}

/// Returns the Pods of a workload that ask for devices or are brokers.
pub fn pods_of<'a>(snapshot: &'a Snapshot, workload: &Workload) -> Vec<(&'a ObjectKey, &'a Pod)> {
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
fn workloads_of(key: &ObjectKey, pod: &Pod) -> Vec<Workload> {
    if !asks_for_devices(pod) && label(pod, INSTANCE_LABEL).is_none() {
        return vec![];
    }
    let mut owners = pod.metadata.owner_references.iter().flatten();
    let Some(owner) = owners.find(|owner| owner.controller == Some(true)) else {
        return vec![];
    };
    let workload = |kind: WorkloadKind, name: &str| Workload {
        kind,
        key: Key::new(&key.namespace, name.to_owned()),
    };
    let kinds = WorkloadKind::ALL.into_iter();
    let direct = kinds.filter(|kind| kind.as_str() == owner.kind);
    let direct = direct.map(|kind| workload(kind, &owner.name));
    let deployment = deployment_of(pod, owner);
    let deployment = deployment.map(|name| workload(WorkloadKind::Deployment, name));
    direct.chain(deployment).collect()
}

#[cfg(test)]
mod tests;
