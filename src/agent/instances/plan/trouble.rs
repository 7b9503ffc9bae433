//! The troubles of a device that its Instance reports, and those of handlers that their Configuration reports. Pure.
use super::{devices::cut, world::PlanOfOne};
use crate::{
    agent::values::AcceptedConfiguration,
    api::{configuration::Problem, instance::Instance, names, reason::Reason},
    discovery::session::DiscoveryState,
    model::{
        container_devices::ContainerDevices,
        container_nodes::{NamedDevice, container_nodes},
        device::{Device, DeviceId, HandlerTrouble},
        instance_name::{InstanceKey, InstanceName},
        pin::Pin,
        typed_names::{ConfigurationKey, NodeName},
    },
};
use std::sync::Arc;

/// The most troubles of one handler's endpoints that are reported.
const TROUBLES_TOLD: usize = 4;

/// Returns what a Configuration says of its handler in another process.
pub(super) fn of_handlers(discovery: Option<&DiscoveryState>) -> impl Iterator<Item = Problem> {
    let troubles = discovery.map_or(&[][..], |discovery| &discovery.set.troubles);
    troubles.iter().take(TROUBLES_TOLD).map(|trouble| {
        let reason = match trouble {
            HandlerTrouble::RefusedDetails(_) => Reason::BadDiscoveryDetails,
            HandlerTrouble::Failed(_) => Reason::DiscoveryFailed,
        };
        Problem::new(reason, trouble.message())
    })
}

/// Returns what a Configuration says of devices that no container can have as it wishes, not even alone. Claims of them are
/// refused.
pub(super) fn of_device_nodes(
    key: &ConfigurationKey,
    accepted: &AcceptedConfiguration,
    discovery: Option<&DiscoveryState>,
    node: &NodeName,
) -> Option<Problem> {
    let wish = accepted.configuration.spec.container_devices.as_ref()?;
    let devices = discovery?.set.devices.values().map(Arc::as_ref);
    let name_of = |device: &Device| {
        let [name, _] = InstanceName::candidates(&key.name, &device.id, accepted.scope, node);
        accepted.own_name(device).unwrap_or(name)
    };
    impossible(devices, wish, name_of)
}

fn impossible<'a>(
    devices: impl Iterator<Item = &'a Device>,
    wish: &ContainerDevices,
    name_of: impl Fn(&Device) -> InstanceName,
) -> Option<Problem> {
    let mut refused = devices.filter_map(|device| {
        let instance = &name_of(device);
        container_nodes(&[NamedDevice { instance, device }], wish).err()
    });
    let first = refused.next()?;
    let more = match refused.count() {
        0 => String::new(),
        more => format!("; and {more} more devices"),
    };
    Some(Problem::new(
        Reason::AllocateRefused,
        format!("no container can get a device: {first}{more}"),
    ))
}

impl PlanOfOne<'_> {
    pub(super) fn flapping(&self, id: &DeviceId) -> Option<String> {
        let flapping = self.discovery?.flapping.get(id)?;
        Some(cut(flapping.to_string()))
    }

    /// Leaves the Instance as it is, unhealthy: another host announces its pinned device.
    pub(super) fn refuse(
        &mut self,
        key: &InstanceKey,
        instance: &Instance,
        device: &Device,
        pinned: &Pin,
    ) {
        let found = device.pin.as_ref().map(ToString::to_string);
        let message = format!(
            "{:?} is pinned to {pinned}, and is announced from {}; end the other host, or accept it: kubectl annotate instance {} {}-",
            device.id.as_str(),
            found.unwrap_or_default(),
            key.name,
            names::PIN
        );
        (self.report.problems).push(Problem::new(Reason::IdentityChanged, message.clone()));
        // An Instance without nodes would end, and the next one would be pinned to the other host.
        let is_left = instance.spec.nodes.is_empty();
        if is_left || instance.spec.names_node(&self.world.node) {
            self.miss_pinned(key, instance, message)
        } else {
            self.watch_on(key, instance, false)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::device::DeviceNode;

    fn camera(id: &str, nodes: &[&str]) -> Device {
        let mut device = Device::new(id);
        device.device_nodes = (nodes.iter())
            .map(|path| DeviceNode {
                container_path: (*path).to_owned(),
                host_path: (*path).to_owned(),
                permissions: "rw".to_owned(),
                links: vec![],
            })
            .collect();
        device
    }

    #[test]
    fn devices_that_no_container_can_have_are_told_before_one_asks() {
        let one = camera("one", &["/dev/video0"]);
        let two = camera("two", &["/dev/video2", "/dev/video3"]);
        let three = camera("three", &[]);
        let told = |devices: &[&Device], path: &str| {
            let wish = ContainerDevices {
                path: Some(path.to_owned()),
                ..ContainerDevices::default()
            };
            let name_of = |device: &Device| InstanceName::new(format!("cam-{}", device.id));
            impossible(devices.iter().copied(), &wish, name_of)
        };
        assert_eq!(told(&[&one], "/dev/cam"), None);
        assert_eq!(told(&[&one, &two], "/dev/cams/"), None);
        let problem = told(&[&one, &two, &three], "/dev/cam").unwrap();
        assert_eq!(problem.reason, Reason::AllocateRefused.as_str());
        for part in ["Instance cam-two", "with a slash", "; and 1 more devices"] {
            assert!(problem.message.contains(part), "{problem:?}");
        }
    }
}
