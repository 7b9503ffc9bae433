//! Decides whether a Pod waits for slots that its own Deployment keeps for the Pods before it. Pure.
use super::super::finding::{Cause, Finding};
use crate::inspect::{
    pods::is_ready, slots::UsedSlot, snapshot::Snapshot, workloads::deployment_of,
};
use k8s_openapi::api::core::v1::Pod;
use petiole_model::model::names::ObjectKey;

/// A Pod's Deployment, and its ReplicaSet below that.
struct Of<'a> {
    namespace: &'a str,
    deployment: &'a str,
    replica_set: &'a str,
}

impl<'a> Of<'a> {
    fn pod(pod: &'a Pod) -> Option<Self> {
        let mut owners = pod.metadata.owner_references.iter().flatten();
        let owner = owners.find(|owner| owner.controller == Some(true))?;
        Some(Self {
            namespace: pod.metadata.namespace.as_deref()?,
            deployment: deployment_of(pod, owner)?,
            replica_set: &owner.name,
        })
    }
}

/// Returns the finding for slots that are all in use by Pods of the Pod's own Deployment, some of them of an earlier ReplicaSet: by default
/// a Deployment ends such a Pod when a new one is ready. `used` says which slots are in use, without a period.
pub(super) fn waits_for_itself<'a>(
    snapshot: &Snapshot,
    pod: &Pod,
    holders: impl Iterator<Item = &'a UsedSlot>,
    used: &str,
) -> Option<Finding> {
    let its = Of::pod(pod)?;
    let mut has_earlier = false;
    for slot in holders {
        if slot.pods.is_empty() || !slot.has_known_pods {
            return None;
        }
        for holder in &slot.pods {
            let (namespace, name) = holder.split_once('/')?;
            let holder = snapshot.pods.get(&ObjectKey::new(namespace, name))?;
            let of = Of::pod(holder)?;
            let is_own = of.namespace == its.namespace && of.deployment == its.deployment;
            let is_earlier = of.replica_set != its.replica_set;
            // One that is being deleted makes place, and once a new one is ready, a former one does. One that is younger replaces a
            // former one, and has not been before this Pod.
            let goes_on = if is_earlier {
                holder.metadata.creation_timestamp > pod.metadata.creation_timestamp
            } else {
                !is_ready(holder)
            };
            if !is_own || goes_on || holder.metadata.deletion_timestamp.is_some() {
                return None;
            }
            has_earlier |= is_earlier;
        }
    }
    let Of {
        namespace,
        deployment,
        ..
    } = its;
    let text = format!(
        "{used}. Its own Deployment {deployment} keeps its former Pods, which have them, until the new one is ready: the rollout waits for itself. Set strategy.type: Recreate in the Deployment, or maxSurge: 0 and maxUnavailable: 1."
    );
    let finding = Finding::new(Cause::SlotsTaken, text);
    has_earlier.then(|| {
        finding.then(format!(
            "kubectl -n {namespace} edit deployment {deployment}"
        ))
    })
}
