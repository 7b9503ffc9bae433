//! Finds out who holds the slots of an Instance. Pure.
use super::{
    claims::consumers,
    pods::{extended_requests, given, is_finished, node_of},
    snapshot::Snapshot,
};
use k8s_openapi::api::{core::v1::Pod, resource::v1::ResourceClaim};
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
use std::collections::{BTreeMap, BTreeSet};

/// A slot that is in use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UsedSlot {
    pub slot: String,
    pub node: NodeName,
    /// The Pods on the node that ask for the resource by which the slot is held: the one that has it, where the kubelet says
    /// which, or else all that may have it.
    pub pods: Vec<String>,
    /// True if all Pods that may have the slot are known.
    #[serde(rename = "certain")]
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

    /// Returns the command that deletes the Pod that has the slot, or lists those that may have it.
    pub(crate) fn deletion(&self) -> String {
        match self.pods.as_slice() {
            [pod] => match pod.split_once('/') {
                Some((namespace, pod)) => format!("kubectl -n {namespace} delete pod {pod}"),
                None => format!("kubectl delete pod {pod}"),
            },
            _ => format!(
                "kubectl get pods -A --field-selector spec.nodeName={}",
                self.node
            ),
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

/// Finds those who have slots. It is made once for all slots: to search all Pods for each of 10,000 slots takes a minute.
pub(crate) struct Holders<'a> {
    pub(crate) snapshot: &'a Snapshot,
    /// The Pods that have not ended, by their node and by what they ask for.
    asking: BTreeMap<&'a str, BTreeMap<ResourceName, Vec<Asking<'a>>>>,
    /// The resources that are offered now; none if it is not known who asks.
    offered: BTreeSet<ResourceName>,
    /// The ResourceClaims by their UID.
    claims: BTreeMap<&'a str, &'a ResourceClaim>,
}

/// A Pod that asks for some of a resource.
pub(crate) struct Asking<'a> {
    pub(crate) key: &'a ObjectKey,
    pub(crate) pod: &'a Pod,
    pub(crate) amount: u64,
}

impl<'a> Holders<'a> {
    pub(crate) fn new(snapshot: &'a Snapshot) -> Self {
        let mut asking: BTreeMap<&str, BTreeMap<ResourceName, Vec<Asking<'_>>>> = BTreeMap::new();
        for (key, pod) in snapshot.pods.iter().filter(|(_, pod)| !is_finished(pod)) {
            let Some(node) = node_of(pod) else { continue };
            let here = asking.entry(node).or_default();
            for (resource, amount) in extended_requests(pod) {
                let others = here.entry(resource).or_default();
                others.push(Asking { key, pod, amount });
            }
        }
        let claims = snapshot.claims.iter();
        let offered = (!asking.is_empty()).then(|| snapshot.resources().into_keys().collect());
        Self {
            snapshot,
            asking,
            offered: offered.unwrap_or_default(),
            claims: claims
                .filter_map(|claim| Some((claim.metadata.uid.as_deref()?, claim)))
                .collect(),
        }
    }

    /// Returns the Pods of a node that ask for a resource and have not ended.
    pub(crate) fn asking(&self, node: &str, resource: &ResourceName) -> &[Asking<'a>] {
        let here = self.asking.get(node);
        let asking = here.and_then(|here| here.get(resource));
        asking.map_or(&[], Vec::as_slice)
    }

    /// Returns the slots that are in use. A value that no agent writes is left out.
    pub(crate) fn used(&self, key: &InstanceKey, instance: &Instance) -> Vec<UsedSlot> {
        let snapshot = self.snapshot;
        let usage = instance.spec.device_usage.iter();
        let used = usage.filter_map(|(slot, usage)| {
            let owner = SlotOwner::from_usage(usage).ok().flatten()?;
            let by_resource = |resource: &ResourceName, index: Option<u32>| {
                let pods = self.having(resource, &owner, |id| match index {
                    None => id == slot,
                    Some(index) => id.parse::<ListedId>().is_ok_and(|id| id.index == index),
                });
                let may_be_former = pods.is_empty() && self.has_former_name(owner.node(), resource);
                (pods, !snapshot.hidden.pods && !may_be_former)
            };
            let known = match &owner {
                SlotOwner::Node(_) => Some(by_resource(&snapshot.instance_resource(key), None)),
                SlotOwner::Configuration { .. } => {
                    let its = snapshot.configuration_of(key, instance);
                    let resource = its.map(|(key, of)| snapshot.configuration_resource(&key, of));
                    resource.map(|resource| by_resource(&resource, owner.configuration_index()))
                }
                SlotOwner::Claim { uid, .. } => {
                    let claim = self.claims.get(uid.as_str());
                    claim.map(|claim| (consumers(claim), true))
                }
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

    /// Returns whether a Pod of a node asks for a resource that nothing offers any more, and that may have been the name of this one: it
    /// had another prefix, or another name.
    fn has_former_name(&self, node: &str, resource: &ResourceName) -> bool {
        let mut asked = self.asking.get(node).into_iter().flat_map(BTreeMap::keys);
        asked.any(|asked| {
            let is_like = asked.prefix() == resource.prefix()
                || asked.last_segment() == resource.last_segment();
            is_like && !self.offered.contains(asked)
        })
    }

    /// Returns the Pod that has a slot, by what the kubelet says of its containers, or else those of which it does not say all: it says
    /// nothing of init containers (kubelet `updateContainerAllocatedResources`), nor of sidecars.
    fn having(
        &self,
        resource: &ResourceName,
        owner: &SlotOwner,
        is_it: impl Fn(&str) -> bool,
    ) -> Vec<ObjectKey> {
        let mut silent = vec![];
        for Asking { key, pod, amount } in self.asking(owner.node(), resource) {
            let mut named = 0;
            for (id, _) in given(pod, resource) {
                if is_it(id) {
                    return vec![(*key).clone()];
                }
                named += 1;
            }
            if named < *amount {
                silent.push((*key).clone());
            }
        }
        silent
    }
}

/// Returns the number of slots that nobody has.
pub(crate) fn free(instance: &Instance) -> usize {
    let capacity = usize::try_from(instance.spec.capacity).unwrap_or_default();
    capacity.saturating_sub(used_slots(&instance.spec.device_usage))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{from_value, json};

    /// A cluster in which each of 100 Pods has a device, 10 of them on each node.
    fn cluster() -> Snapshot {
        let names = (0..100).map(|n| (format!("cam-{n}"), format!("node-{}", n / 10)));
        let mut snapshot = Snapshot::default();
        for (name, node) in names {
            let slot = format!("{name}-0");
            let instance = json!({"metadata": {"name": name}, "spec": {
                "cdiName": "", "configurationName": "cam", "shared": true, "capacity": 1, "nodes": [node],
                "deviceUsage": {slot: node},
            }});
            let limits = json!({format!("akri.sh/{name}"): "1"});
            let pod = json!({"metadata": {"name": name}, "spec": {
                "nodeName": node, "containers": [{"name": "main", "resources": {"limits": limits}}],
            }});
            let key = InstanceKey::new("default", name.clone());
            snapshot
                .instances
                .insert(key, from_value(instance).unwrap());
            let key = ObjectKey::new("default", name);
            snapshot.pods.insert(key, from_value(pod).unwrap());
        }
        snapshot
    }

    #[test]
    fn each_device_is_used_by_the_pod_of_its_node_that_asks_for_it() {
        let devices = crate::inspect::devices::devices(&cluster(), Default::default());
        assert_eq!(devices.len(), 100);
        for device in devices {
            let pods = &device.used[0].pods;
            assert_eq!(*pods, [format!("default/{}", device.instance)]);
        }
    }

    #[test]
    fn a_sidecar_of_which_the_kubelet_says_nothing_has_its_slot() {
        let (mut snapshot, key) = (cluster(), ObjectKey::new("default", "cam-0"));
        let asks = json!({"limits": {"akri.sh/cam-0": "1"}});
        let given = json!({"name": "akri.sh/cam-0", "resources": [{"resourceID": "cam-0-7"}]});
        let pod = json!({
            "metadata": {"name": "cam-0"},
            "spec": {
                "nodeName": "node-0",
                "initContainers": [{"name": "sidecar", "restartPolicy": "Always", "resources": asks}],
                "containers": [{"name": "main", "resources": asks}],
            },
            "status": {"containerStatuses": [{
                "name": "main", "ready": true, "restartCount": 0, "image": "", "imageID": "",
                "allocatedResourcesStatus": [given],
            }]},
        });
        snapshot.pods.insert(key.clone(), from_value(pod).unwrap());
        let instance = InstanceKey::new("default", "cam-0");
        let used = Holders::new(&snapshot).used(&instance, &snapshot.instances[&instance]);
        assert_eq!(used[0].pods, [key.to_string()]);
    }

    #[test]
    fn who_has_a_slot_by_a_former_name_is_not_taken_for_nobody() {
        let mut snapshot = cluster();
        let key = ObjectKey::new("default", "cam-0");
        let used = |snapshot: &Snapshot| {
            let key = InstanceKey::new("default", "cam-0");
            let used = Holders::new(snapshot).used(&key, &snapshot.instances[&key]);
            (used[0].pods.clone(), used[0].has_known_pods)
        };
        let mut pod = serde_json::to_value(&snapshot.pods[&key]).unwrap();
        pod["spec"]["containers"][0]["resources"]["limits"] = json!({"akri.sh/old": "1"});
        snapshot.pods.insert(key.clone(), from_value(pod).unwrap());
        assert_eq!(used(&snapshot), (vec![], false));
        snapshot.pods.remove(&key);
        assert_eq!(used(&snapshot), (vec![], true));
    }
}
