//! Plans how this node leaves an Instance. Pure.
use super::{PlanOfOne, shared::is_merged};
use crate::{
    agent::device_state::device_id,
    api::instance::Instance,
    model::instance_name::InstanceKey,
    store::{InstanceChange, plan::in_use_by},
};

impl PlanOfOne<'_> {
    /// Deletes the Instance, unless a container holds a slot: it stays without nodes then, and goes when its slots are free.
    pub(super) fn leave(&mut self, key: &InstanceKey, instance: &Instance, reason: &'static str) {
        if is_merged(self.world, instance) {
            self.watch_on(key, instance);
            return;
        }
        let is_in_use = in_use_by(&instance.spec).is_some();
        if !is_in_use {
            self.changes.push(InstanceChange::Delete {
                key: key.clone(),
                reason,
                even_in_use: false,
            });
        } else if !instance.spec.nodes.is_empty() {
            // Since when the device is gone stands in the status.
            let gone = self.gone(device_id(instance).as_ref());
            self.health(key, instance, gone);
            self.changes.push(InstanceChange::Leave(key.clone()));
        }
    }
}
