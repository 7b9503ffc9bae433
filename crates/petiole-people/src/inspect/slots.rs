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
        let certainty = match self.has_known_pods {
            true => "",
            false => "perhaps ",
        };
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
        let resource = match &owner {
            SlotOwner::Node(_) => Some(snapshot.instance_resource(key)),
            SlotOwner::Configuration { .. } => snapshot
                .configuration_of(key, instance)
                .map(|(its, configuration)| snapshot.configuration_resource(&its, configuration)),
            SlotOwner::Claim { .. } => None,
        };
        let pods = resource
            .iter()
            .flat_map(|resource| having(snapshot, resource, slot, &owner));
        Some(UsedSlot {
            slot: slot.clone(),
            node: owner.node().clone(),
            pods: pods.map(ObjectKey::to_string).collect(),
            has_known_pods: resource.is_some() && !snapshot.hidden.pods,
        })
    });
    used.collect()
}

/// Returns the Pod that has a slot, by what the kubelet says of its containers, or else those of which it says nothing yet.
fn having<'a>(
    snapshot: &'a Snapshot,
    resource: &'a ResourceName,
    slot: &str,
    owner: &'a SlotOwner,
) -> Vec<&'a ObjectKey> {
    let is_it = |id: &str| match owner {
        SlotOwner::Node(_) => id == slot,
        SlotOwner::Configuration { .. } => {
            let index = id.parse::<ListedId>().ok().map(|id| id.index);
            index.is_some() && index == owner.configuration_index()
        }
        SlotOwner::Claim { .. } => false,
    };
    let mut silent = vec![];
    for key in asking(snapshot, owner.node(), resource) {
        let mut ids = given(&snapshot.pods[key], resource).peekable();
        if ids.peek().is_none() {
            silent.push(key);
        } else if ids.any(|(id, _)| is_it(id)) {
            return vec![key];
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
