//! Finds out who holds the slots of an Instance. Pure.
use super::{
    pods::{extended_requests, given, is_finished, node_of},
    snapshot::Snapshot,
};
use petiole_model::{
    api::instance::Instance,
    model::{
        instance_name::InstanceKey,
        names::ObjectKey,
        resource_name::ResourceName,
        slot::{ListedId, SlotOwner, used_slots},
        typed_names::NodeName,
    },
};
use serde::Serialize;

/// A slot that is in use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UsedSlot {
    pub slot: String,
    pub node: NodeName,
    /// The Pods on the node that ask for the resource by which the slot is held: the one that has it, where the kubelet says
    /// which, or else all that may have it.
    pub pods: Vec<String>,
    /// True if all Pods that may have the slot are known.
    #[serde(skip)]
    pub has_known_pods: bool,
}

impl UsedSlot {
    /// Returns `node-1 (Pod default/web)`.
    pub fn holder(&self) -> String {
        // A Pod that is not known may have the slot.
        let certainty = if self.has_known_pods { "" } else { "perhaps " };
        match self.pods.as_slice() {
            [] => self.node.to_string(),
            [pod] => format!("{} ({certainty}Pod {pod})", self.node),
            several => {
                let several = several.join(", ");
                format!("{} ({certainty}one of the Pods {several})", self.node)
            }
        }
    }

    /// Returns `default/web on node-1`, for a cell of a table. A Pod that only may have the slot is left out.
    pub fn cell(&self) -> String {
        match self.pods.as_slice() {
            [pod] if self.has_known_pods => format!("{pod} on {}", self.node),
            _ => self.node.to_string(),
        }
    }
}

/// Returns the slots that are in use. A value that no agent writes is left out.
pub(crate) fn used(snapshot: &Snapshot, key: &InstanceKey, instance: &Instance) -> Vec<UsedSlot> {
    let usage = instance.spec.device_usage.iter();
    let used = usage.filter_map(|(slot, usage)| {
        let owner = SlotOwner::from_usage(usage).ok().flatten()?;
        let by_resource = |resource: &ResourceName, index: Option<u32>| {
            let pods = having(snapshot, resource, &owner, |id| match index {
                None => id == slot,
                Some(index) => id.parse::<ListedId>().is_ok_and(|id| id.index == index),
            });
            (pods, !snapshot.hidden.pods)
        };
        let known = match &owner {
            SlotOwner::Node(_) => Some(by_resource(&snapshot.instance_resource(key), None)),
            SlotOwner::Configuration { .. } => {
                let its = snapshot.configuration_of(key, instance);
                let resource = its.map(|(key, of)| snapshot.configuration_resource(&key, of));
                resource.map(|resource| by_resource(&resource, owner.configuration_index()))
            }
            SlotOwner::Claim { uid, .. } => snapshot.pods_with(uid).map(|pods| (pods, true)),
        };
        let (pods, has_known_pods) = known.unwrap_or_default();
        Some(UsedSlot {
            slot: slot.clone(),
            node: owner.node().clone(),
            pods: pods.iter().map(ObjectKey::to_string).collect(),
            has_known_pods,
        })
    });
    used.collect()
}

/// Returns the Pod that has a slot, by what the kubelet says of its containers, or else those of which it says nothing yet.
fn having(
    snapshot: &Snapshot,
    resource: &ResourceName,
    owner: &SlotOwner,
    is_it: impl Fn(&str) -> bool,
) -> Vec<ObjectKey> {
    let mut silent = vec![];
    for key in asking(snapshot, owner.node(), resource) {
        let mut ids = given(&snapshot.pods[key], resource).peekable();
        if ids.peek().is_none() {
            silent.push(key.clone());
        } else if ids.any(|(id, _)| is_it(id)) {
            return vec![key.clone()];
        }
    }
    silent
}

/// Returns the Pods of a node that ask for a resource and have not ended.
pub(crate) fn asking<'a>(
    snapshot: &'a Snapshot,
    node: &'a str,
    resource: &'a ResourceName,
) -> impl Iterator<Item = &'a ObjectKey> {
    let pods = snapshot.pods.iter();
    let here = pods.filter(move |(_, pod)| node_of(pod) == Some(node) && !is_finished(pod));
    here.filter(move |(_, pod)| extended_requests(pod).contains_key(resource))
        .map(|(key, _)| key)
}

/// Returns the number of slots that nobody has.
pub(crate) fn free(instance: &Instance) -> usize {
    let capacity = usize::try_from(instance.spec.capacity).unwrap_or_default();
    capacity.saturating_sub(used_slots(
        &instance.spec.device_usage,
        instance.spec.capacity,
    ))
}
