//! The troubles of a device that its Instance reports, and those of handlers that their Configuration reports. Pure.
use super::{PlanOfOne, devices::cut};
use crate::{
    api::{configuration::Problem, instance::Instance, names, reason::Reason},
    discovery::session::DiscoveryState,
    model::{
        device::{Device, DeviceId, HandlerTrouble},
        instance_name::InstanceKey,
        pin::Pin,
    },
};

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
        match is_left || instance.spec.names_node(self.world.node) {
            true => self.miss_pinned(key, instance, message),
            false => self.watch_on(key, instance, false),
        }
    }
}
