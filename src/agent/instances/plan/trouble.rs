//! The troubles of a device that its Instance reports. Pure.
use super::{
    PlanOfOne,
    shared::{is_merged, is_named},
};
use crate::{
    api::{
        configuration::Problem,
        instance::{FLAPPING, IDENTITY_CHANGED, Instance},
        names,
    },
    model::{
        device::{Device, DeviceId},
        names::ObjectKey,
        pin::Pin,
    },
    store::{Trouble, View},
};

impl PlanOfOne<'_> {
    pub(super) fn flapping(&self, id: &DeviceId) -> Option<Trouble> {
        let flapping = self.sighting?.flapping.get(id)?;
        Some(Trouble {
            reason: FLAPPING,
            message: flapping.to_string(),
        })
    }

    /// Leaves the Instance as it is, unhealthy: another host announces its pinned device.
    pub(super) fn refuse(
        &mut self,
        key: &ObjectKey,
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
        (self.report.problems).push(Problem::new(IDENTITY_CHANGED, message.clone()));
        if is_named(instance, self.world.node) {
            let view = View {
                is_healthy: false,
                connection: None,
                trouble: Some(Trouble {
                    reason: IDENTITY_CHANGED,
                    message,
                }),
            };
            self.health(key, instance, view);
        } else if is_merged(self.world, instance) {
            self.watch_on(key, instance);
        }
    }
}
