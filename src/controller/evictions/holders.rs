//! Finds out which Pods of a node have lost slots. Pure.
//!
//! From Kubernetes 1.36 on the status of a Pod names the devices of its containers. Of other Pods it follows from what they
//! ask for, if that leaves no choice: as many devices as the node holds, or fewer, all of them lost, or a single Pod for them, which
//! ran before the loss. If there is a choice no Pod is evicted, because another may have the device.
use crate::{
    api::names,
    cluster::parts::{ContainerPart, PodPart},
    controller::clock::elapsed,
    model::{
        claim_file,
        instance_name::InstanceKey,
        requests::{self, Asking},
        resource_name::ResourceName,
    },
};
use k8s_openapi::{api::core::v1::ResourceStatus, jiff::Timestamp};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// The annotation of a Pod that the kubelet made of a file: it ends with the file, and not with the Pod.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// How much earlier than the loss a Pod must have started that is taken for a holder without being named one: the slot of a
/// Pod that has ended is held for some seconds, and the clocks of the node and of the controller differ.
const MARGIN: Duration = Duration::from_secs(10);

/// The slots of one resource that containers of a node hold, by the ids that the kubelet knows them by: those of devices, or the
/// UIDs of claims.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Held {
    /// How many slots each id stands for: a claim may have several.
    pub(crate) ids: BTreeMap<String, u64>,
    /// The Instance of each slot among them whose device is lost.
    pub(crate) due: BTreeMap<String, Vec<InstanceKey>>,
    /// The time that has passed since the devices were lost, at least.
    pub(crate) lost_for: Duration,
}

/// A Pod that has, or may have, lost slots of these Instances.
#[derive(Debug, Clone)]
pub(crate) struct Holder<'a> {
    pub(crate) pod: &'a PodPart,
    pub(crate) of: BTreeSet<InstanceKey>,
}

/// The Pods that have lost slots.
#[derive(Debug, Default)]
pub(crate) struct Holders<'a> {
    /// The Pods that are to be evicted.
    pub(crate) certain: Vec<Holder<'a>>,
    /// The Pods of which one or more have a lost slot, and it is not known which.
    pub(crate) possible: Vec<Holder<'a>>,
}

/// A Pod that asks for a resource, or has a claim for such devices.
struct Asker<'a> {
    pod: &'a PodPart,
    /// The slots that its status names.
    ids: BTreeSet<&'a str>,
    /// How many of those that it asks for its status does not name: it has none of init containers, and none of the claim that the
    /// scheduler makes for a resource.
    unnamed: u64,
}

/// Returns the Pods that have lost slots. `pods` are all of the node that have not ended.
pub(crate) fn holders<'a>(
    held: &BTreeMap<ResourceName, Held>,
    pods: &'a [PodPart],
    now: Timestamp,
) -> Holders<'a> {
    let mut found = Holders::default();
    for (resource, held) in held {
        let askers = pods.iter().filter_map(|pod| asker(pod, resource, held));
        found.add(held, &askers.collect::<Vec<_>>(), now);
    }
    let Holders { certain, possible } = &mut found;
    possible.retain(|holder| {
        certain
            .iter()
            .all(|known| known.pod.metadata.uid != holder.pod.metadata.uid)
    });
    found
}

impl<'a> Holders<'a> {
    fn add(&mut self, held: &Held, askers: &[Asker<'a>], now: Timestamp) {
        let named: BTreeSet<&str> = askers.iter().flat_map(|asker| asker.ids.clone()).collect();
        for asker in askers {
            let of = asker.ids.iter().filter_map(|id| held.due.get(*id));
            add(&mut self.certain, asker.pod, of.flatten());
        }
        let left = held
            .ids
            .iter()
            .filter(|(id, _)| !named.contains(id.as_str()));
        let left: u64 = left.map(|(_, slots)| slots).sum();
        let due = (held.due.iter()).filter(|(id, _)| !named.contains(id.as_str()));
        let due: Vec<&InstanceKey> = due.flat_map(|(_, of)| of).collect();
        let others: Vec<_> = (askers.iter()).filter(|asker| asker.unnamed > 0).collect();
        let asked: u64 = others.iter().map(|asker| asker.unnamed).sum();
        let are_all_due = u64::try_from(due.len()) == Ok(left);
        // A claim that only a sidecar or no container uses has a slot that no Pod's status names.
        if left < asked || left > asked && !are_all_due {
            return; // a Pod has just begun or ended, and the next look finds it
        }
        let is_certain = are_all_due || others.len() == 1;
        let list = if is_certain {
            &mut self.certain
        } else {
            &mut self.possible
        };
        let at_least = held.lost_for + MARGIN;
        for other in others {
            // The numbers are also the same if the holder has just ended, and a Pod has begun that has no slot yet.
            let is_old = age(other.pod, now).is_some_and(|age| age >= at_least);
            // A Pod that waits for its claim has a start time, too.
            let has_slots = left == asked || other.pod.status.phase == "Running";
            if is_old && has_slots || !is_certain {
                add(list, other.pod, due.iter().copied());
            }
        }
    }
}

/// Adds a Pod that has lost slots of these Instances, if there are any.
fn add<'a, 'k>(
    list: &mut Vec<Holder<'a>>,
    pod: &'a PodPart,
    of: impl Iterator<Item = &'k InstanceKey>,
) {
    let of: BTreeSet<InstanceKey> = of.cloned().collect();
    if of.is_empty() || !is_evicted(pod) {
        return;
    }
    let uid = &pod.metadata.uid;
    match (list.iter_mut()).find(|known| known.pod.metadata.uid == *uid) {
        Some(known) => known.of.extend(of),
        None => list.push(Holder { pod, of }),
    }
}

/// Returns how long ago the kubelet took the Pod.
fn age(pod: &PodPart, now: Timestamp) -> Option<Duration> {
    let started = pod.status.start_time.as_ref()?;
    Some(elapsed(started.0, now))
}

/// Returns whether a Pod with a lost slot is evicted. A broker follows its device otherwise, and is replaced.
fn is_evicted(pod: &PodPart) -> bool {
    let metadata = &pod.metadata;
    let labels = metadata.labels.as_ref();
    let annotations = metadata.annotations.as_ref();
    metadata.deletion_timestamp.is_none()
        && !labels.is_some_and(|all| all.contains_key(names::CONFIGURATION_LABEL))
        && !annotations.is_some_and(|all| all.contains_key(MIRROR))
}

/// Returns a Pod that may have some of the slots. The kubelet names the devices of a claim by their CDI devices
/// (dra/manager.go: buildResourceHealth).
fn asker<'a>(pod: &'a PodPart, resource: &ResourceName, held: &Held) -> Option<Asker<'a>> {
    let status = &pod.status;
    let containers = status
        .init_container_statuses
        .iter()
        .chain(&status.container_statuses);
    let allocated = containers.flat_map(|container| &container.allocated_resources_status);
    let ids = |of: &'a ResourceStatus| of.resources.iter().flatten().map(|one| &*one.resource_id);
    let (of_plugins, of_claims): (Vec<_>, Vec<_>) =
        allocated.partition(|allocated| *resource == *allocated.name);
    let named: BTreeSet<&str> = of_plugins.into_iter().flat_map(ids).collect();
    let claims = of_claims.into_iter().flat_map(ids);
    let claims = claims.filter_map(claim_file::claim_of);
    let claims: Vec<&str> = claims.filter(|uid| held.ids.contains_key(*uid)).collect();
    let amount = asked(pod).get(resource).copied().unwrap_or_default();
    (amount > 0 || !claims.is_empty()).then(|| Asker {
        pod,
        unnamed: amount.saturating_sub(u64::try_from(named.len()).unwrap_or(u64::MAX)),
        ids: named.into_iter().chain(claims).collect(),
    })
}

/// Returns the extended resources that a Pod asks for.
pub(crate) fn asked(pod: &PodPart) -> BTreeMap<ResourceName, u64> {
    requests::extended(
        pod.spec.containers.iter().map(asking),
        pod.spec.init_containers.iter().map(asking),
    )
}

fn asking(container: &ContainerPart) -> Asking<'_> {
    Asking {
        limits: Some(&container.resources.limits),
        restart_policy: container.restart_policy.as_deref(),
    }
}

#[cfg(test)]
mod tests;
