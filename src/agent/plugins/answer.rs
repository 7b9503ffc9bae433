//! Converts what a container gets to the kubelet's format. Pure.
use super::denied::Denied;
use crate::{
    agent::connections::ConnectionDigest,
    api::configuration::Configuration,
    model::{
        budget::text_bytes,
        container_devices::ContainerDevices,
        container_edits::{ContainerEdits, Given},
        container_nodes::{NamedDevice, cdi_file, connection_digest},
        device::Device,
        instance_name::InstanceName,
        limits,
        slot::SlotId,
        slot_table::{Claim, SlotChange},
    },
};
use petiole_base::collect::CollectMap as _;
use petiole_kubelet_api::device_plugin::{CdiDevice, ContainerAllocateResponse, DeviceSpec, Mount};
use prost::Message as _;
use std::{collections::BTreeMap, sync::Arc};

/// The device of an Instance, and everything else that a container gets.
pub(super) struct FoundDevice {
    /// The digest by which its variables end.
    pub(super) digest: String,
    pub(super) device: Device,
    /// The Configuration, whose properties the container gets, too.
    pub(super) configuration: Option<Arc<Configuration>>,
}

impl FoundDevice {
    fn wish(&self) -> Option<&ContainerDevices> {
        self.configuration.as_ref()?.spec.container_devices.as_ref()
    }

    /// Returns the digest of all values by which a container reaches the device.
    pub(super) fn connection_digest(&self) -> ConnectionDigest {
        connection_digest(&self.device, self.wish())
    }
}

/// Returns the CDI files that containers with these devices need.
pub(super) fn cdi_files(
    found: &BTreeMap<InstanceName, FoundDevice>,
) -> BTreeMap<InstanceName, String> {
    let file = |(instance, found): (&InstanceName, &FoundDevice)| {
        let device = &found.device;
        let file = cdi_file(NamedDevice { instance, device }, found.wish()?)?;
        Some((instance.clone(), file))
    };
    found.iter().filter_map(file).collect_map()
}

/// Returns the digest of each device's connection.
pub(super) fn connection_digests(
    found: &BTreeMap<InstanceName, FoundDevice>,
) -> BTreeMap<InstanceName, ConnectionDigest> {
    let digest =
        |(name, found): (&InstanceName, &FoundDevice)| (name.clone(), found.connection_digest());
    found.iter().map(digest).collect_map()
}

static NO_PROPERTIES: BTreeMap<String, String> = BTreeMap::new();

/// Returns what each container gets.
pub(super) fn answers(
    claim: &Claim,
    found: &BTreeMap<InstanceName, FoundDevice>,
) -> Result<Vec<ContainerAllocateResponse>, Denied> {
    let requests = claim.requests.iter();
    let slots = |request: &Vec<SlotChange>| Vec::from_iter(request.iter().map(|c| c.slot.clone()));
    requests
        .map(|request| edits(&slots(request), found).map(wire))
        .collect()
}

/// Returns what a container gets with these slots.
pub(super) fn edits(
    slots: &[SlotId],
    found: &BTreeMap<InstanceName, FoundDevice>,
) -> Result<ContainerEdits, Denied> {
    let mut given = vec![];
    // All are of one Configuration.
    let mut wish = None;
    for slot in slots {
        let found = found
            .get(&slot.instance)
            .ok_or_else(|| Denied::Internal(format!("{slot} was not looked at")))?;
        wish = found.wish();
        given.push(Given {
            digest: &found.digest,
            slot,
            device: &found.device,
            broker_properties: (found.configuration.as_ref())
                .map_or(&NO_PROPERTIES, |of| &of.spec.broker_properties),
        });
    }
    bounded(&given, wish)
}

/// Returns the edits for a container with these devices. The kubelet keeps the answer in its checkpoint as long as the container
/// lives, so it is bounded.
fn bounded(
    devices: &[Given<'_>],
    wish: Option<&ContainerDevices>,
) -> Result<ContainerEdits, Denied> {
    let bytes = |given: &Given<'_>| {
        text_bytes(&given.device.properties) + text_bytes(given.broker_properties)
    };
    // Counted before it is built, in which each value is there twice.
    if devices.iter().map(bytes).sum::<usize>() > limits::ANSWER_BYTES_MAX {
        return Err(Denied::TooLarge {
            devices: devices.len(),
        });
    }
    let edits = ContainerEdits::of(devices, wish)?;
    if wire(edits.clone()).encoded_len() <= limits::ANSWER_BYTES_MAX {
        Ok(edits)
    } else {
        Err(Denied::TooLarge {
            devices: devices.len(),
        })
    }
}

fn wire(edits: ContainerEdits) -> ContainerAllocateResponse {
    ContainerAllocateResponse {
        envs: edits.env,
        mounts: edits
            .mounts
            .into_iter()
            .map(|m| Mount {
                container_path: m.container_path,
                host_path: m.host_path,
                read_only: m.read_only,
            })
            .collect(),
        devices: edits
            .device_nodes
            .into_iter()
            .map(|n| DeviceSpec {
                container_path: n.container_path,
                host_path: n.host_path,
                permissions: n.permissions,
            })
            .collect(),
        annotations: BTreeMap::new(),
        cdi_devices: edits
            .cdi_devices
            .into_iter()
            .map(|name| CdiDevice { name })
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_with_more_than_the_kubelet_is_to_keep_is_refused() {
        let of = |name: &str, value: &str| {
            BTreeMap::from([(name.to_owned(), value.repeat(32 * 1024 - 1))])
        };
        let configured = of("A", "x");
        let mut device = Device::new("a");
        device.properties = of("B", "y");
        let digests: Vec<String> = (0..12).map(|n| format!("{n:06x}")).collect();
        let slot = SlotId::new("cam-000000", 0);
        let given = |digest| Given {
            digest,
            slot: &slot,
            device: &device,
            broker_properties: &configured,
        };
        let given: Vec<Given<'_>> = digests.iter().map(|digest| given(digest)).collect();
        let answer = bounded(&given[..2], None).unwrap();
        assert_eq!(
            answer.env.len(),
            2 + 2 * 2 + 3,
            "two values, each of them for each device, and three slots"
        );
        for too_many in [3, 12] {
            let refused: tonic::Status = bounded(&given[..too_many], None).unwrap_err().into();
            let message = format!("with its {too_many} devices");
            assert!(
                refused.message().contains(&message),
                "{}",
                refused.message()
            );
        }
    }
}
