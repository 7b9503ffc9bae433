//! Whether this agent is ready, and what it lacks: looked up at each request in what its tasks publish.
mod plan;

use super::{Node, plugins};
use crate::telemetry::http::Health;
use std::sync::Arc;

pub(super) fn health(node: Arc<Node>) -> Health {
    Health::new(move || {
        let names = node.judged.borrow().names.clone();
        let desired = plugins::desired(&node.store.instances().borrow(), &node.name, &names);
        let desired = desired.into_values().map(|offered| offered.full_name);
        plan::missing(&plan::World {
            plugin_folder: &node.plugin_folder,
            has_kubelet: node.kubelet.borrow().is_some(),
            configurations: &node.store.configurations().borrow().clone(),
            desired: &desired.collect(),
            registered: &node.registered.borrow(),
        })
    })
}
