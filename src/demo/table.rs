//! Converts a snapshot into the rows of the tables on the screen. Pure.
use super::snapshot::Snapshot;
use crate::model::instance_row::{COLUMNS, InstanceRow};

/// The columns of the Instances, with the health that the node reports.
pub(super) const INSTANCE_COLUMNS: [&str; 7] = {
    let [name, config, shared, nodes, age] = COLUMNS;
    [name, config, shared, nodes, age, "HEALTH", "DEVICE"]
};
pub(super) const SOCKET_COLUMNS: [&str; 2] = ["RESOURCE", "SOCKET"];
pub(super) const NODE_COLUMNS: [&str; 3] = ["RESOURCE", "CAPACITY", "ALLOCATABLE"];
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

pub(super) fn sockets(snapshot: &Snapshot) -> Vec<[String; 2]> {
    let names = snapshot
        .resources
        .keys()
        .filter_map(|name| name.strip_prefix("akri.sh/"));
    names
        .filter_map(|name| {
            Some([
                format!("akri.sh/{name}"),
                snapshot.socket_of(name)?.to_owned(),
            ])
        })
        .collect()
}

pub(super) fn node(snapshot: &Snapshot) -> Vec<[String; 3]> {
    let row = |(name, resource): (&String, &super::snapshot::Resource)| {
        [
            name.clone(),
            resource.capacity.to_string(),
            resource.allocatable.to_string(),
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
