//! Determines the state of an Instance's device on this node. Pure.
use crate::{
    api::{
        instance::{Instance, is_seen},
        names,
    },
    discovery::session::{Discoveries, DiscoveryState},
    model::{
        device::{Device, DeviceId},
        instance_name::InstanceKey,
        pin::Pin,
        slot_table::{ObservedSlots, Precedence},
    },
};
use petiole_base::collect::CollectMap as _;
use std::collections::BTreeMap;

/// The state of an Instance's device on this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeviceState<'a> {
    /// It was there in an earlier life, and discovery has not looked everywhere yet.
    Adopted,
    Seen(&'a Device),
    Gone,
}

/// Returns why a device is [`DeviceState::Gone`].
pub(super) fn why_gone(instance: &Instance, discoveries: &Discoveries) -> &'static str {
    let id = device_id(instance);
    let discovery = discovery_of(instance, discoveries);
    let Some((discovery, id)) = discovery.zip(id) else {
        return "is gone";
    };
    let device = discovery.set.devices.get(&id);
    if device.is_some_and(|device| other_identity(instance, device).is_some()) {
        "is announced by another host than the pinned one, as condition IdentityChanged of the Instance says"
    } else if discovery.is_held_back(&id) {
        "comes and goes, and counts as gone until it is steady"
    } else {
        "is gone"
    }
}

/// The pin of an Instance, where the device that was found has another identity.
pub(crate) fn other_identity(instance: &Instance, device: &Device) -> Option<Pin> {
    let found = device.pin.as_ref()?;
    let pinned: Pin = pin(instance)?.parse().ok()?;
    (!pinned.is_same(found)).then_some(pinned)
}

/// The pin of an Instance as it is written.
pub(crate) fn pin(instance: &Instance) -> Option<&str> {
    let annotations = instance.metadata.annotations.as_ref()?;
    annotations.get(names::PIN).map(String::as_str)
}

fn discovery_of<'a>(
    instance: &Instance,
    discoveries: &'a Discoveries,
) -> Option<&'a DiscoveryState> {
    let namespace = instance.metadata.namespace.as_deref().unwrap_or("default");
    discoveries.get(&instance.spec.configuration_key(namespace))
}

/// Returns the state of an Instance's device.
pub(crate) fn device_state<'a>(
    instance: &Instance,
    discoveries: &'a Discoveries,
) -> DeviceState<'a> {
    let Some(id) = device_id(instance) else {
        return DeviceState::Adopted;
    };
    match state_of(&id, discovery_of(instance, discoveries)) {
        DeviceState::Seen(device) if other_identity(instance, device).is_some() => {
            DeviceState::Gone
        }
        state @ (DeviceState::Seen(_) | DeviceState::Gone | DeviceState::Adopted) => state,
    }
}

/// Returns the state of a device, by the discovery of its Configuration.
pub(crate) fn state_of<'a>(
    id: &DeviceId,
    discovery: Option<&'a DiscoveryState>,
) -> DeviceState<'a> {
    match discovery.and_then(|discovery| discovery.set.devices.get(id)) {
        Some(device) => DeviceState::Seen(device),
        None if discovery.is_some_and(|discovery| discovery.is_missing(id)) => DeviceState::Gone,
        None => DeviceState::Adopted,
    }
}

/// Returns the device that an Instance was made for.
pub(crate) fn device_id(instance: &Instance) -> Option<DeviceId> {
    instance.device_id().map(DeviceId::new)
}

/// Returns whether this node gives out the slots of an Instance from its memory: the device is of this node alone, and the Instance
/// does not say that it is gone. The deletion of one that says so may be on its way: a claim that is written stops it. An agent
/// therefore does not leave the device out of its report before the Instance says that it is gone.
pub(super) fn is_own(instance: &Instance, node: &str) -> bool {
    let is_told_gone = (instance.status.as_ref()).is_some_and(|status| !is_seen(status, node));
    !instance.spec.shared && instance.spec.nodes.iter().all(|named| *named == node) && !is_told_gone
}

/// Returns the slots of an Instance whose Configuration this node uses, for the table of this node's slots. The caller
/// sets `precedence.is_stray` for other Instances, `is_by_claims` for those that ResourceClaims have, and clears `is_own` if the store
/// is the memory.
pub(crate) fn observed_slots(key: &InstanceKey, instance: &Instance, node: &str) -> ObservedSlots {
    let created = instance.metadata.creation_timestamp.as_ref();
    ObservedSlots {
        key: key.clone(),
        precedence: Precedence {
            is_stray: false,
            created: created.map_or(i64::MAX, |created| created.0.as_second()),
        },
        configuration: instance.spec.configuration_name.clone(),
        capacity: u32::try_from(instance.spec.capacity).unwrap_or(0),
        users_max: u32::try_from(instance.spec.capacity).unwrap_or(0),
        is_offered: instance.spec.names_node(node),
        is_by_claims: false,
        is_own: is_own(instance, node),
        told: told(instance),
        usage: instance.spec.device_usage.clone(),
    }
}

/// Returns the digests of the connections that the containers with the slots of an Instance were given.
pub(super) fn told(instance: &Instance) -> BTreeMap<u32, String> {
    let annotations = instance.metadata.annotations.iter().flatten();
    let told = annotations.filter_map(|(key, digest)| {
        let index = key
            .strip_prefix(names::SLOT_CONNECTION_PREFIX)?
            .parse()
            .ok()?;
        Some((index, digest.clone()))
    });
    told.collect_map()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_device_of_one_node_is_its_own_until_its_instance_says_that_it_is_gone() {
        let is_own = |shared: bool, nodes: &[&str], status: serde_json::Value| {
            let spec = json!({"configurationName": "cam", "cdiName": "akri.sh/cam=1", "capacity": 1, "shared": shared, "nodes": nodes});
            let instance = json!({"apiVersion": "akri.sh/v0", "kind": "Instance", "metadata": {"name": "cam-1"}, "spec": spec, "status": status});
            let instance: Instance = serde_json::from_value(instance).unwrap();
            observed_slots(&InstanceKey::new("default", "cam-1"), &instance, "a").is_own
        };
        let says = |node: &str, health: &str| json!({"nodes": [{"name": node, "health": health, "lastTransitionTime": ""}]});
        assert!(is_own(false, &["a"], json!(null)));
        assert!(is_own(false, &["a"], says("a", "Healthy")));
        assert!(is_own(false, &["a"], says("b", "Unhealthy")));
        // Its deletion may be on its way.
        assert!(!is_own(false, &["a"], says("a", "Unhealthy")));
        assert!(!is_own(false, &["a", "b"], json!(null)));
        assert!(!is_own(true, &["a"], json!(null)));
    }
}
