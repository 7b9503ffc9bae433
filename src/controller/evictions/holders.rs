//! Finds out which Pods of a node have lost slots. Pure.
//!
//! From Kubernetes 1.36 on the status of a Pod names the devices of its containers. Of other Pods it follows from what they
//! ask for, if that leaves no choice: as many devices as the node holds, all of them lost, or a single Pod for them. If there
//! is a choice no Pod is evicted, because another may have the device.
use crate::{
    api::names,
    cluster::parts::{ContainerPart, PodPart},
    model::{
        requests::{self, Asking},
        resource_name::ResourceName,
    },
};
use std::collections::BTreeSet;

/// The annotation of a Pod that the kubelet made of a file: it ends with the file, and not with the Pod.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// The slots of one resource that containers of a node hold, by the ids that the kubelet knows them by.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Held {
    pub(crate) resource: ResourceName,
    pub(crate) ids: BTreeSet<String>,
    /// Those of them whose device is lost.
    pub(crate) due: BTreeSet<String>,
}

impl Held {
    pub(crate) fn new(resource: ResourceName) -> Self {
        Self {
            resource,
            ids: BTreeSet::new(),
            due: BTreeSet::new(),
        }
    }

    pub(crate) fn add(&mut self, id: String, is_due: bool) {
        if is_due {
            self.due.insert(id.clone());
        }
        self.ids.insert(id);
    }
}

/// The Pods that have lost slots.
#[derive(Debug, Default)]
pub(crate) struct Holders<'a> {
    /// Those that are to be evicted.
    pub(crate) certain: Vec<&'a PodPart>,
    /// Those of which one or more have a lost slot, and it is not known which.
    pub(crate) possible: Vec<&'a PodPart>,
}

/// A Pod that asks for a resource.
struct Asker<'a> {
    pod: &'a PodPart,
    amount: u64,
    ids: BTreeSet<&'a str>,
}

/// Returns the Pods that have lost slots. `pods` are all of the node that have not ended.
pub(crate) fn holders<'a>(held: &[Held], pods: &'a [PodPart]) -> Holders<'a> {
    let mut found = Holders::default();
    for held in held {
        let (known, others): (Vec<_>, Vec<_>) = (pods.iter())
            .filter_map(|pod| asker(pod, &held.resource))
            .partition(|asker| !asker.ids.is_empty());
        let is_due = |asker: &&Asker<'_>| asker.ids.iter().any(|id| held.due.contains(*id));
        found.add_certain(known.iter().filter(is_due));
        let is_left = |id: &&String| known.iter().all(|asker| !asker.ids.contains(id.as_str()));
        let left = held.ids.iter().filter(is_left).count();
        let due = held.due.iter().filter(is_left).count();
        let asked: u64 = others.iter().map(|asker| asker.amount).sum();
        if due == 0 || u64::try_from(left) != Ok(asked) {
            continue; // a Pod has just begun or ended, and the next look finds it
        }
        if due == left || others.len() == 1 {
            found.add_certain(others.iter());
        } else {
            let possible = others.iter().map(|asker| asker.pod);
            found
                .possible
                .extend(possible.filter(|pod| is_evicted(pod)));
        }
    }
    found
}

impl<'a> Holders<'a> {
    fn add_certain<'h>(&mut self, askers: impl Iterator<Item = &'h Asker<'a>>)
    where
        'a: 'h,
    {
        for Asker { pod, .. } in askers {
            let uid = &pod.metadata.uid;
            let is_known = self.certain.iter().any(|known| known.metadata.uid == *uid);
            if is_evicted(pod) && !is_known {
                self.certain.push(pod);
            }
        }
    }
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

fn asker<'a>(pod: &'a PodPart, resource: &ResourceName) -> Option<Asker<'a>> {
    let asked = requests::extended(
        pod.spec.containers.iter().map(asking),
        pod.spec.init_containers.iter().map(asking),
    );
    let amount = asked.get(resource).copied().filter(|amount| *amount > 0)?;
    let status = &pod.status;
    let containers = status
        .init_container_statuses
        .iter()
        .chain(&status.container_statuses);
    let allocated = containers.flat_map(|container| &container.allocated_resources_status);
    let allocated = allocated.filter(|allocated| *resource == *allocated.name);
    Some(Asker {
        pod,
        amount,
        ids: (allocated.flat_map(|allocated| &allocated.resources))
            .map(|device| device.id.as_str())
            .collect(),
    })
}

fn asking(container: &ContainerPart) -> Asking<'_> {
    Asking {
        limits: Some(&container.resources.limits),
        is_sidecar: container.restart_policy.as_deref() == Some("Always"),
    }
}

#[cfg(test)]
mod tests;
