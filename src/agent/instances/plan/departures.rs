//! Plans how this node leaves an Instance. Pure.
use super::{PlanOfOne, has_others, shared::is_merged};
use crate::{
    agent::device_state::device_id,
    api::{instance::Instance, names},
    model::{instance_name::InstanceKey, slot::holders, slot_table::Use},
    store::{InstanceChange, plan::in_use_by},
};

impl PlanOfOne<'_> {
    /// Leaves an Instance that others see and that has this node's label only, because the controller took the node out. It
    /// does so once it is certain that no container here has a slot of it.
    pub(super) fn part_with(&mut self, key: &InstanceKey, instance: &Instance) {
        let (node, name) = (self.world.node, key.name.clone());
        let labels = instance.metadata.labels.iter().flatten();
        let is_labelled = labels
            .map(|(label, _)| label)
            .any(|label| *label == names::node_label(node));
        let is_holder = holders(&instance.spec.device_usage).contains(node);
        let is_unused = |uses: &[Use]| !uses.iter().any(|one| one.may_be_of(&name));
        if is_labelled && !is_holder && self.world.uses.is_some_and(is_unused) {
            self.changes.push(InstanceChange::Leave(key.clone()));
        }
    }

    /// The last node to leave deletes, unless a container holds a slot: the Instance stays without nodes then, and goes
    /// when its slots are free.
    pub(super) fn leave(&mut self, key: &InstanceKey, instance: &Instance, reason: &'static str) {
        if is_merged(self.world, instance) {
            self.watch_on(key, instance);
            return;
        }
        let is_in_use = in_use_by(&instance.spec).is_some();
        if has_others(instance, self.world.node) {
            self.changes.push(InstanceChange::Leave(key.clone()));
        } else if !is_in_use {
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
