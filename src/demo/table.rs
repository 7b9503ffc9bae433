//! Converts a snapshot into the rows of the tables on the screen. Pure.
use super::snapshot::{HELD, Snapshot};
use crate::model::instance_row::{COLUMNS, InstanceRow};

/// The columns of the Instances, with the health that the node reports.
pub(super) const INSTANCE_COLUMNS: [&str; 7] = {
    let [name, config, shared, nodes, age] = COLUMNS;
    [name, config, shared, nodes, age, "HEALTH", "DEVICE"]
};
pub(super) const NODE_COLUMNS: [&str; 4] = ["RESOURCE", "CAPACITY", "ALLOCATABLE", "SOCKET"];
pub(super) const BROKER_COLUMNS: [&str; 5] =
    ["POD", "STATUS", "RESTARTS", "DEVICE NAME", "DEVICE ADDRESS"];

pub(super) fn instances(snapshot: &Snapshot) -> Vec<[String; 7]> {
    let row = |(name, instance): (&String, &super::snapshot::Instance)| {
        let health = match snapshot.resource_of(name) {
            None => "-",
            Some(resource) if resource.allocatable > 0 => "Healthy",
            Some(_) => "Unhealthy",
        };
        let row = InstanceRow {
            name,
            configuration: &instance.configuration,
            is_shared: instance.is_shared,
            nodes: &instance.nodes,
            age: Some(instance.age),
        };
        let [name, config, shared, nodes, age] = row.cells();
        let device = instance.device.clone();
        [name, config, shared, nodes, age, health.to_owned(), device]
    };
    snapshot.instances.iter().map(row).collect()
}

/// Returns the resources of the node, each with the socket on which the kubelet calls its plugin.
pub(super) fn node(snapshot: &Snapshot) -> Vec<[String; 4]> {
    let row = |(name, resource): (&String, &super::snapshot::Resource)| {
        let socket = name.strip_prefix("akri.sh/");
        let socket = socket.and_then(|name| snapshot.socket_of(name));
        let why = if snapshot.is_held_by_brokers(name) {
            format!("{} ({HELD})", resource.allocatable)
        } else {
            resource.allocatable.to_string()
        };
        [
            name.clone(),
            resource.capacity.to_string(),
            why,
            socket.unwrap_or("-").to_owned(),
        ]
    };
    snapshot.resources.iter().map(row).collect()
}

pub(super) fn brokers(snapshot: &Snapshot) -> Vec<[String; 5]> {
    let row = |(pod, broker): (&String, &super::snapshot::Broker)| {
        let printed = |key: &str| {
            broker
                .printed
                .get(key)
                .cloned()
                .unwrap_or_else(|| "-".to_owned())
        };
        let status = match broker.reason.as_str() {
            "" => broker.phase.clone(),
            reason => format!("{}: {reason}", broker.phase),
        };
        let port = printed("AKRI_ZEROCONF_DEVICE_PORT");
        [
            pod.clone(),
            status,
            broker.restarts.to_string(),
            printed("AKRI_ZEROCONF_DEVICE_NAME"),
            format!("{}:{port}", printed("AKRI_ZEROCONF_DEVICE_ADDR")),
        ]
    };
    snapshot.brokers.iter().map(row).collect()
}
