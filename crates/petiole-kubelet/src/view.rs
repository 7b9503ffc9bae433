//! Converts the kubelet's state into objects for clients of the status socket. Pure.
use super::{
    device_manager::inventory::{Endpoint, Inventory, Resource},
    drivers::csi::Driver,
    plugin_manager::{
        plugin::{CSI_PLUGIN, DEVICE_PLUGIN},
        report::{Entry, Report},
    },
};
use k8s_openapi::{
    api::core::v1::{Node, NodeStatus},
    apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::ObjectMeta},
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A plugin as the status socket shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PluginView {
    /// The resource of a device plugin or the name of a driver. For a socket that could not be asked it is the file
    /// name.
    pub name: String,
    /// `DevicePlugin`, `CSIPlugin`, `DRAPlugin`, or another type that the plugin reports; empty if it could not be
    /// asked.
    #[serde(rename = "type")]
    pub kind: String,
    /// The path of the plugin's socket; empty for a plugin that is known from the checkpoint and has not registered
    /// since.
    pub endpoint: String,
    /// Whether the kubelet has the plugin now.
    pub state: PluginState,
    /// The reason for a stop or a rejection, or the step that is still missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The number of devices that may be allocated, or are.
    pub healthy: usize,
    /// The number of devices that the plugin, or its absence, says are not healthy.
    pub unhealthy: usize,
    /// The number of devices that containers hold.
    pub allocated: usize,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    /// What only a CSI driver has.
    pub csi: Option<CsiView>,
}

/// A CSI driver as the status socket shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CsiView {
    /// The highest version that both sides support.
    pub version: String,
    /// The driver's name for this node; absent if it does not implement NodeGetInfo.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_id: Option<String>,
    /// The most volumes of this driver on the node; 0 means no limit.
    pub max_volumes: i64,
}

/// Whether the kubelet has a plugin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum PluginState {
    /// A device plugin whose ListAndWatch stream is open.
    Connected,
    /// A registered driver.
    Registered,
    /// A device plugin whose stream has ended, or that has not come back since the kubelet started.
    Stopped,
    /// A plugin whose registration was answered with an error.
    Refused,
}

/// Returns the Node, with capacity and allocatable of extended resources. An entry disappears when the grace period of
/// its plugin is over. The Go kubelet leaves a "0" in the API server instead; here nobody else writes this object.
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

/// Returns the device plugins with their present state, and the outcome of every other registration.
pub(crate) fn plugins<C>(
    inventory: &Inventory<C>,
    report: &Report,
    drivers: &BTreeMap<String, Driver>,
) -> Vec<PluginView> {
    let resources = inventory.resources().iter();
    let device_plugins = resources.flat_map(|(name, resource)| device_plugins(name, resource));
    let others = report
        .entries()
        .filter(|entry| entry.refused.is_some() || entry.kind != DEVICE_PLUGIN);
    device_plugins
        .chain(others.map(|entry| other(entry, drivers)))
        .collect()
}

/// Returns the plugins of a resource, the one that answers first. It has the numbers, which are the resource's.
fn device_plugins<C>(name: &str, resource: &Resource<C>) -> impl Iterator<Item = PluginView> {
    let mut endpoints = resource.endpoints().iter().rev();
    let answering = endpoints.next().map(|endpoint| {
        let silent = (!resource.is_listed()).then_some("it has not listed its devices yet");
        let count = resource.count();
        PluginView {
            healthy: count.allocatable,
            unhealthy: count.capacity - count.allocatable,
            allocated: resource.held().len(),
            ..device_plugin(name, endpoint, silent)
        }
    });
    let older = Some("another plugin, which registered later, answers for the resource");
    let others = endpoints.map(move |endpoint| device_plugin(name, endpoint, older));
    answering.into_iter().chain(others)
}

fn device_plugin<C>(name: &str, endpoint: &Endpoint<C>, reason: Option<&str>) -> PluginView {
    let stopped = endpoint.stopped.as_ref().map(|stopped| &stopped.reason);
    PluginView {
        name: name.to_owned(),
        kind: DEVICE_PLUGIN.to_owned(),
        endpoint: endpoint.socket.display().to_string(),
        state: match endpoint.stopped {
            Some(_) => PluginState::Stopped,
            None => PluginState::Connected,
        },
        reason: stopped.cloned().or(reason.map(str::to_owned)),
        healthy: 0,
        unhealthy: 0,
        allocated: 0,
        csi: None,
    }
}

fn other(entry: &Entry, drivers: &BTreeMap<String, Driver>) -> PluginView {
    let driver = drivers.get(&entry.name);
    let is_driver = entry.kind == CSI_PLUGIN && entry.refused.is_none();
    PluginView {
        name: entry.name.clone(),
        kind: entry.kind.clone(),
        endpoint: entry.endpoint.display().to_string(),
        state: match entry.refused {
            Some(_) => PluginState::Refused,
            None => PluginState::Registered,
        },
        reason: entry.refused.clone(),
        healthy: 0,
        unhealthy: 0,
        allocated: 0,
        csi: driver.filter(|_| is_driver).map(|driver| CsiView {
            version: driver.version.to_string(),
            node_id: driver.node.as_ref().map(|node| node.id.clone()),
            max_volumes: driver.node.as_ref().map_or(0, |node| node.max_volumes),
        }),
    }
}
