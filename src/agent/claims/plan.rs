//! Reads which devices a ResourceClaim has, and names the CDI devices that bring them. Pure.
use crate::{
    agent::{plugins::DeviceRequest, values::AcceptedConfiguration},
    api::attributes::attributes,
    model::{
        claim_file,
        claim_metadata::{self, Described, OfClaim},
        container_edits::ContainerEdits,
        dra,
        instance_name::InstanceKey,
        typed_names::ConfigurationKey,
    },
    store::Instances,
};
use petiole_dra::claim::{Claim, base_request};
use std::collections::BTreeMap;

/// Returns the number of the group of each device of a claim. The devices of a group are those of one request and of one
/// Configuration, which may say what containers get of them.
fn groups(claim: &Claim) -> Vec<usize> {
    let mut groups: Vec<(&str, &str)> = vec![];
    let of = claim.devices.iter().map(|device| {
        let group = (base_request(device), device.pool.as_str());
        let known = groups.iter().position(|other| *other == group);
        known.unwrap_or_else(|| {
            groups.push(group);
            groups.len() - 1
        })
    });
    of.collect()
}

/// Returns the requests of a claim in the order of its groups. A device that has no Instance is an error, and so is a
/// configuration for the driver: nobody is to think that it has an effect.
pub(crate) fn requests(claim: &Claim, instances: &Instances) -> Result<Vec<DeviceRequest>, String> {
    if !claim.configs.is_empty() {
        return Err(format!(
            "ResourceClaim {}, or the DeviceClass of a request, has a `config` for driver {}, which has no parameters: remove it. What containers get is said by the Configuration of a device",
            claim.key,
            dra::DRIVER
        ));
    }
    let mut requests: Vec<DeviceRequest> = vec![];
    for (device, group) in claim.devices.iter().zip(groups(claim)) {
        let key = instance_of(&device.pool, &device.device, instances).ok_or_else(|| {
            format!(
                "device {} of pool {} has no Instance any more: delete the Pod, and the next one gets another device",
                device.device, device.pool
            )
        })?;
        match requests.get_mut(group) {
            Some(request) => request.devices.push(key),
            None => requests.push(DeviceRequest {
                devices: vec![key],
                is_admin: device.admin_access == Some(true),
            }),
        }
    }
    Ok(requests)
}

/// Returns the Instance of a device.
pub(crate) fn instance_of(pool: &str, device: &str, instances: &Instances) -> Option<InstanceKey> {
    let configuration = dra::configuration_of(pool)?;
    let is_its = |key: &InstanceKey| {
        let spec = instances.get(key).map(|instance| &instance.spec);
        spec.is_some_and(|spec| spec.configuration_key(&key.namespace) == configuration)
    };
    let same = InstanceKey::new(&configuration.namespace, device);
    let is_shortened = |key: &&InstanceKey| dra::device_name(&key.name) == device && is_its(key);
    if is_its(&same) {
        Some(same)
    } else {
        instances.keys().find(is_shortened).cloned()
    }
}

/// Returns the CDI devices of each device of a claim, in their order: the first of a group brings what the group gets.
pub(crate) fn cdi_devices(claim: &Claim, edits: &[ContainerEdits]) -> Vec<Vec<String>> {
    let mut begun = 0;
    let names = groups(claim).into_iter().map(|group| {
        if group < begun {
            return vec![];
        }
        begun = group + 1;
        let name = claim_file::device_name(&claim.key.uid, group);
        let further = edits.get(group).into_iter();
        let further = further.flat_map(|edits| edits.cdi_devices.iter().cloned());
        let own = [format!("{}={name}", dra::CDI_KIND)];
        own.into_iter().chain(further).collect()
    });
    names.collect()
}

/// What a container may read of the devices of a request.
#[derive(Debug, PartialEq)]
pub(crate) struct Metadata {
    /// The group of the first of them.
    pub(crate) group: usize,
    /// The path of the file in containers.
    pub(crate) path: String,
    pub(crate) text: String,
}

/// Describes the devices of a claim, a file for each request. What is not known of a device is left out.
pub(crate) fn metadata(
    claim: &Claim,
    instances: &Instances,
    accepted: &BTreeMap<ConfigurationKey, AcceptedConfiguration>,
) -> Vec<Metadata> {
    let mut requests: Vec<(&str, usize, Vec<Described<'_>>)> = vec![];
    for (device, group) in claim.devices.iter().zip(groups(claim)) {
        let key = instance_of(&device.pool, &device.device, instances);
        let attributes = key.and_then(|key| {
            let instance = instances.get(&key)?;
            let of = accepted.get(&instance.spec.configuration_key(&key.namespace))?;
            Some(attributes(&key, instance, &of.configuration))
        });
        let described = Described {
            request: &device.request,
            pool: &device.pool,
            name: &device.device,
            attributes: attributes.unwrap_or_default(),
        };
        let request = base_request(device);
        match requests.iter_mut().find(|(known, ..)| *known == request) {
            Some((.., devices)) => devices.push(described),
            None => requests.push((request, group, vec![described])),
        }
    }
    let of = OfClaim {
        namespace: &claim.key.namespace,
        name: &claim.key.name,
        uid: &claim.key.uid,
        in_pod: claim.in_pod.as_deref(),
    };
    let requests = requests.into_iter();
    let files = requests.map(|(request, group, devices)| Metadata {
        group,
        path: claim_metadata::path(of, request),
        text: claim_metadata::text(of, &devices),
    });
    files.collect()
}

#[cfg(test)]
mod tests;
