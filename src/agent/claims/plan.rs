//! Decides what a ResourceClaim gets, and reads from its CDI file what it has got. Pure.
use crate::{
    model::{
        container_edits::{ContainerEdits, SLOT_VARIABLE},
        container_nodes::CDI_VERSION,
        dra,
        instance_name::InstanceKey,
        slot::SlotId,
        slot_table::Use,
    },
    store::Instances,
};
use petiole_dra::claim::Claim;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// The devices of one request of a claim: a container that has the request gets all of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DeviceRequest {
    pub(crate) devices: Vec<InstanceKey>,
    /// True if the container only looks at them: it takes no slots.
    pub(crate) is_admin: bool,
}

/// Returns the requests of a claim in their order. A device that has no Instance is an error.
pub(crate) fn requests(claim: &Claim, instances: &Instances) -> Result<Vec<DeviceRequest>, String> {
    let mut names: Vec<&str> = vec![];
    let mut requests: Vec<DeviceRequest> = vec![];
    for device in &claim.devices {
        let key = instance_of(&device.pool, &device.device, instances).ok_or_else(|| {
            format!(
                "device {} of pool {} has no Instance any more: delete the Pod, and the next one gets another device",
                device.device, device.pool
            )
        })?;
        let name = device.base_request();
        let is_admin = device.admin_access == Some(true);
        match names.iter().position(|known| *known == name) {
            Some(n) => requests[n].devices.push(key),
            None => {
                names.push(name);
                requests.push(DeviceRequest {
                    devices: vec![key],
                    is_admin,
                });
            }
        }
    }
    Ok(requests)
}

/// Returns the Instance of a device.
pub(crate) fn instance_of(pool: &str, device: &str, instances: &Instances) -> Option<InstanceKey> {
    let configuration = dra::configuration_of(pool)?;
    let mut instances = instances.iter();
    let is_it = |key: &InstanceKey| dra::device_name(&key.name) == device;
    let (key, _) = instances.find(|(key, instance)| {
        instance.spec.configuration_key(&key.namespace) == configuration && is_it(key)
    })?;
    Some(key.clone())
}

/// Returns the CDI devices of each device of a claim, in their order: the first of a request brings what the request gets.
pub(crate) fn cdi_devices(claim: &Claim, edits: &[ContainerEdits]) -> Vec<Vec<String>> {
    let mut seen: Vec<&str> = vec![];
    let names = claim.devices.iter().map(|device| {
        let name = device.base_request();
        if seen.contains(&name) {
            return vec![];
        }
        seen.push(name);
        let n = seen.len() - 1;
        let own = format!("{}={}", dra::CDI_KIND, cdi_name(&claim.key.uid, n));
        let further = edits.get(n).map(|edits| edits.cdi_devices.clone());
        std::iter::once(own)
            .chain(further.into_iter().flatten())
            .collect()
    });
    names.collect()
}

fn cdi_name(uid: &str, request: usize) -> String {
    format!("{uid}-{request}")
}

/// Returns the text of the CDI file of a claim: a device for each of its requests.
pub(crate) fn cdi_text(uid: &str, edits: &[ContainerEdits]) -> String {
    let devices = edits.iter().enumerate().map(|(n, edits)| {
        json!({"name": cdi_name(uid, n), "containerEdits": container_edits(uid, edits)})
    });
    let devices: Vec<Value> = devices.collect();
    json!({"cdiVersion": CDI_VERSION, "kind": dra::CDI_KIND, "devices": devices}).to_string()
}

fn container_edits(uid: &str, edits: &ContainerEdits) -> Value {
    let env = edits
        .env
        .iter()
        .map(|(name, value)| format!("{name}={value}"));
    // CDI refuses a device without any edit.
    let claim = format!("AKRI_CLAIM={uid}");
    let nodes = edits.device_nodes.iter().map(|node| {
        json!({"path": node.container_path, "hostPath": node.host_path, "permissions": node.permissions})
    });
    let mounts = edits.mounts.iter().map(|mount| {
        let rights = if mount.read_only { "ro" } else { "rw" };
        json!({"hostPath": mount.host_path, "containerPath": mount.container_path, "options": ["rbind", rights]})
    });
    json!({
        "env": env.chain([claim]).collect::<Vec<_>>(),
        "deviceNodes": nodes.collect::<Vec<_>>(),
        "mounts": mounts.collect::<Vec<_>>(),
    })
}

/// Returns the slots that the containers of a claim were given, by the text of its CDI file.
pub(crate) fn use_of(uid: &str, text: &str) -> Use {
    let file: Value = serde_json::from_str(text).unwrap_or_default();
    let devices = file["devices"].as_array().into_iter().flatten();
    let env = devices.flat_map(|device| device["containerEdits"]["env"].as_array());
    let slots = env.flatten().filter_map(|variable| {
        let (name, slots) = variable.as_str()?.split_once('=')?;
        (name == SLOT_VARIABLE).then_some(slots)
    });
    let slots = slots.flat_map(|slots| slots.split(','));
    let slots: BTreeSet<SlotId> = slots.filter_map(|slot| slot.parse().ok()).collect();
    Use {
        ids: slots.iter().map(Into::into).collect(),
        claim: Some(uid.to_owned()),
        ..Use::default()
    }
}

#[cfg(test)]
mod tests;
