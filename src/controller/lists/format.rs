//! Writes the devices of a Configuration as a list: for programs as JSON, and for Prometheus as `http_sd`. Pure.
use crate::{
    api::instance::{Instance, is_seen},
    controller::world::World,
    model::{address::address, typed_names::ConfigurationKey},
};
use petiole_base::collect::CollectMap as _;
use serde::Serialize;
use serde_json::{Map, Value, json, value::RawValue};
use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

/// The prefix of the labels of a target, by the conventions of Prometheus.
const META: &str = "__meta_petiole_";

/// The devices of one Configuration, by the names of their Instances.
#[derive(Debug)]
pub(crate) struct Devices {
    pub(crate) of: ConfigurationKey,
    pub(crate) instances: Vec<Arc<Instance>>,
}

/// A list as text, and the number of devices that it does not have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Text {
    pub(crate) text: String,
    pub(crate) left_out: usize,
}

/// The list as a program reads it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct List<'a> {
    namespace: &'a str,
    configuration: &'a str,
    devices: Vec<Box<RawValue>>,
    left_out: usize,
}

/// A device as a program reads it.
#[derive(Serialize)]
struct Device<'a> {
    instance: &'a str,
    /// The id that the handler gave it.
    #[serde(skip_serializing_if = "Option::is_none")]
    device: Option<&'a str>,
    /// `host:port`, of devices in the network.
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<String>,
    healthy: bool,
    /// The nodes that see it.
    nodes: Vec<&'a str>,
    properties: &'a BTreeMap<String, String>,
}

impl Devices {
    /// Returns the devices of a Configuration that this world has; `None` if it does not have the Configuration.
    pub(crate) fn new(world: &World, of: &ConfigurationKey) -> Option<Self> {
        world.configurations.get(of)?;
        let instances = world.instances.iter().filter(|(key, instance)| {
            let is_deleting = instance.metadata.deletion_timestamp.is_some();
            !is_deleting && instance.spec.configuration_key(&key.namespace) == *of
        });
        Some(Self {
            of: of.clone(),
            instances: instances.map(|(_, instance)| instance.clone()).collect(),
        })
    }

    /// Returns the list as JSON whose devices have `most` bytes together.
    pub(crate) fn json(&self, most: usize) -> Text {
        let all = self.instances.iter().map(|instance| &**instance);
        let (devices, left_out) = fitting(all.collect(), most, device);
        let list = List {
            namespace: &self.of.namespace,
            configuration: &self.of.name,
            devices,
            left_out,
        };
        text(&list, left_out)
    }

    /// Returns the list as a Prometheus server reads it (`http_sd_configs`), at most as long: a target for each device that has
    /// an address that has a meaning on every node.
    pub(crate) fn http_sd(&self, most: usize) -> Text {
        let all = self.instances.iter().map(|instance| &**instance);
        let targets = all.filter(|instance| target(instance).is_some());
        let (groups, left_out) = fitting(
            targets.collect(),
            most,
            |instance| json!({ "targets": [target(instance)], "labels": self.labels(&device(instance)) }),
        );
        text(&groups, left_out)
    }

    fn labels(&self, device: &Device<'_>) -> Map<String, Value> {
        let own = [
            ("namespace", &*self.of.namespace),
            ("configuration", &self.of.name),
            ("instance", device.instance),
            ("device", device.device.unwrap_or_default()),
            ("healthy", if device.healthy { "true" } else { "false" }),
            // Each has a comma on both sides, so that a regular expression finds it wherever it stands.
            ("nodes", &format!(",{},", device.nodes.join(","))),
        ];
        let own = own.map(|(name, value)| (format!("{META}{name}"), value.into()));
        let mut labels = Map::from_iter(own);
        for (name, value) in device.properties {
            let name = format!("{META}property_{}", label(name));
            labels.entry(name).or_insert_with(|| value.as_str().into());
        }
        labels
    }
}

fn device(instance: &Instance) -> Device<'_> {
    let (spec, status) = (&instance.spec, instance.status.as_ref());
    let nodes = spec.nodes.iter().map(|node| node.as_str());
    Device {
        instance: instance.metadata.name.as_deref().unwrap_or_default(),
        device: instance.device_id().map(String::as_str),
        address: address(&spec.broker_properties),
        healthy: instance.unavailable().is_none(),
        nodes: nodes
            .filter(|node| status.is_none_or(|status| is_seen(status, node)))
            .collect(),
        properties: &spec.broker_properties,
    }
}

/// Returns the address of a device, if it has one that means the same host on every node.
pub(crate) fn target(instance: &Instance) -> Option<String> {
    address(&instance.spec.broker_properties).filter(|address| is_anywhere(address))
}

/// Returns whether an address, `host` or `host:port`, means the same host on every node: it is neither of a node's own link nor the
/// node itself.
fn is_anywhere(address: &str) -> bool {
    let with_port = address.rsplit_once(':');
    let with_port = with_port.filter(|(_, port)| !port.ends_with(']'));
    let (host, port) = with_port.unwrap_or((address, "80"));
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let is_named = !host.is_empty() && !port.is_empty() && !host.contains('%');
    is_named
        && match host.parse::<IpAddr>().map(|ip| ip.to_canonical()) {
            Ok(ip) if ip.is_loopback() || ip.is_unspecified() => false,
            Ok(IpAddr::V4(ip)) => !ip.is_link_local(),
            Ok(IpAddr::V6(ip)) => !ip.is_unicast_link_local(),
            Err(_) => !host.eq_ignore_ascii_case("localhost"),
        }
}

/// Returns a part of the name of a label of Prometheus.
fn label(name: &str) -> String {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || c == '_';
    name.replace(|c| !is_allowed(c), "_")
}

/// Returns the entries of the Instances in their order, and the number of those that do not fit. The largest are left out first:
/// whoever announces large devices loses its own. What does not fit is not kept.
fn fitting<'a, E: Serialize>(
    instances: Vec<&'a Instance>,
    most: usize,
    entry: impl Fn(&'a Instance) -> E,
) -> (Vec<Box<RawValue>>, usize) {
    let size = |instance: &Instance| -> usize {
        let properties = instance.spec.broker_properties.iter();
        properties
            .map(|(name, value)| name.len() + value.len())
            .sum()
    };
    let mut by_size: Vec<_> = instances.iter().enumerate().collect();
    by_size.sort_by_key(|(_, instance)| size(instance));
    let mut left = most;
    let fitting = by_size.into_iter().filter_map(|(place, instance)| {
        let entry = serde_json::value::to_raw_value(&entry(instance)).ok()?;
        // A comma follows it.
        left = left.checked_sub(entry.get().len() + 1)?;
        Some((place, entry))
    });
    let fitting = fitting.collect_map();
    let left_out = instances.len() - fitting.len();
    (fitting.into_values().collect(), left_out)
}

fn text(list: &impl Serialize, left_out: usize) -> Text {
    let text = serde_json::to_string(list).expect("keys are text, and nothing fails to be written");
    Text { text, left_out }
}

#[cfg(test)]
mod tests;
