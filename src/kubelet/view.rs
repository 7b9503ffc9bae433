//! The kubelet's state as objects that others can read. Pure.
use super::device_manager::inventory::{Inventory, Resource};
use k8s_openapi::{
    api::core::v1::{Node, NodeStatus},
    apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::ObjectMeta},
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A device plugin as this kubelet knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PluginView {
    pub resource: String,
    /// The path of its socket; empty for one that the checkpoint knows and that has not registered since.
    pub endpoint: String,
    pub state: PluginState,
    /// Why it is stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    pub healthy: usize,
    pub unhealthy: usize,
    /// Devices that containers hold.
    pub allocated: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum PluginState {
    Connected,
    Stopped,
}

/// Capacity and allocatable of extended resources. Unlike the Go kubelet, which leaves a "0" in the API server, this
/// one drops the entry when the grace of its plugin is over: it is the only keeper of this node object.
pub(crate) fn node<C>(name: &str, inventory: &Inventory<C>) -> Node {
    let listed = inventory.resources().iter().filter(|(_, r)| r.is_listed());
    let mut capacity = BTreeMap::new();
    let mut allocatable = BTreeMap::new();
    for (resource, count) in listed.map(|(name, resource)| (name, resource.count())) {
        capacity.insert(resource.clone(), Quantity(count.capacity.to_string()));
        allocatable.insert(resource.clone(), Quantity(count.allocatable.to_string()));
    }
    Node {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            ..ObjectMeta::default()
        },
        status: Some(NodeStatus {
            capacity: Some(capacity),
            allocatable: Some(allocatable),
            ..NodeStatus::default()
        }),
        ..Node::default()
    }
}

pub(crate) fn plugins<C>(inventory: &Inventory<C>) -> Vec<PluginView> {
    let resources = inventory.resources().iter();
    resources
        .filter_map(|(name, resource)| plugin(name, resource))
        .collect()
}

fn plugin<C>(name: &str, resource: &Resource<C>) -> Option<PluginView> {
    let endpoint = resource.endpoint()?;
    let count = resource.count();
    Some(PluginView {
        resource: name.to_owned(),
        endpoint: endpoint.socket.display().to_string(),
        state: match endpoint.stopped {
            Some(_) => PluginState::Stopped,
            None => PluginState::Connected,
        },
        reason: endpoint
            .stopped
            .as_ref()
            .map(|stopped| stopped.reason.clone()),
        healthy: count.allocatable,
        unhealthy: count.capacity - count.allocatable,
        allocated: resource.held().len(),
    })
}
