//! Reads which devices a ResourceClaim has, and names the CDI devices that bring them. Pure.
use crate::{
    agent::plugins::DeviceRequest,
    model::{claim_file, container_edits::ContainerEdits, dra, instance_name::InstanceKey},
    store::Instances,
};
use petiole_dra::claim::Claim;

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
        let own = format!(
            "{}={}",
            dra::CDI_KIND,
            claim_file::device_name(&claim.key.uid, n)
        );
        let further = edits.get(n).map(|edits| edits.cdi_devices.clone());
        std::iter::once(own)
            .chain(further.into_iter().flatten())
            .collect()
    });
    names.collect()
}

#[cfg(test)]
mod tests;
