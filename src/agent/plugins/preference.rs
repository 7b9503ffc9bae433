//! Tells the kubelet which of the slots that it may give to a container it should give.
use super::{allocate::Allocator, inputs::Inputs};
use crate::{
    agent::node_only,
    model::{slot_table::Resource, typed_names::ConfigurationName},
};

impl Allocator {
    /// Returns the ids of `available` that a container should get, `must` among them.
    pub(super) fn preferred(
        &self,
        resource: &Resource,
        available: &[String],
        must: &[String],
        size: usize,
    ) -> Vec<String> {
        if self.inputs.offer(resource).is_some() {
            return node_only::plan::preferred(available, must, size);
        }
        let slots = self.inputs.table.borrow();
        let available = match resource {
            Resource::Instance(_) => vec![],
            Resource::Configuration(name) => {
                slots.in_turn(name, available, place(&self.inputs, name))
            }
        };
        slots.preferred(resource, &available, must, size)
    }
}

/// Returns the place of this node among those of a Configuration's first device.
fn place(inputs: &Inputs, configuration: &ConfigurationName) -> usize {
    let instances = inputs.store.instances().borrow().clone();
    let mut all = instances.values();
    let first = all.find(|instance| instance.spec.configuration_name == *configuration);
    let mut nodes = first.iter().flat_map(|instance| &instance.spec.nodes);
    let place = nodes.position(|node| *node == inputs.settings.node_name);
    place.unwrap_or_default()
}
