//! The Instances of shared devices that have none yet. Pure.
use super::{
    device_reports::{DeviceReports, Identity, NodeReports, is_same_host, names_of, rank},
    lost::Memory,
};
use crate::{
    api::{
        configuration::{Configuration, Problem},
        instance::{Instance, InstanceSpec},
        names,
        node_devices::SeenDevice,
        reason::Reason,
    },
    controller::{outcome::Problems, world::World},
    model::{
        container_edits::stored_copy,
        device::{DeviceId, Scope},
        instance_name::{InstanceKey, InstanceName},
        slot::{SlotId, SlotOwner},
        typed_names::{ConfigurationKey, NodeName},
    },
};
use kube::Resource as _;
use std::collections::{BTreeMap, BTreeSet};
use tokio::time::Instant;

/// Returns the Instances to be created now, at most `maxInstances` of a Configuration, and a problem of each Configuration
/// with a device whose names are taken.
pub(crate) fn new_instances(
    world: &World,
    device_reports: &DeviceReports<'_>,
    memory: &Memory,
    now: Instant,
) -> (Vec<Instance>, Problems) {
    // Another Configuration may have an Instance of the name.
    let instances = &world.whole().instances;
    let mut names: BTreeSet<InstanceKey> = BTreeSet::new();
    let mut counts: BTreeMap<ConfigurationKey, i64> = BTreeMap::new();
    for (key, instance) in world.instances.iter().filter(|(_, i)| i.spec.shared) {
        let of = instance.spec.configuration_key(&key.namespace);
        *counts.entry(of).or_default() += 1;
    }
    let (mut made, mut nameless) = (vec![], Problems::new());
    for (device, reports) in device_reports.without_instance() {
        let Some(configuration) = world.configurations.get(&device.configuration) else {
            continue;
        };
        let is_deleting = configuration.metadata.deletion_timestamp.is_some();
        let count = counts.entry(device.configuration.clone()).or_default();
        if is_deleting || *count >= configuration.spec.max_instances {
            continue;
        }
        let is_there =
            |node: &NodeName| world.nodes.contains_key(node) && !memory.is_silent(node, now);
        let mut seen: NodeReports<'_> = reports.clone();
        seen.retain(|node, report| {
            report.is_healthy() && is_there(node) && world.selects(&device.configuration, node)
        });
        let most = configuration.spec.max_nodes;
        let most = most.and_then(|most| usize::try_from(most).ok());
        let key = |name: &InstanceName| InstanceKey::new(&device.configuration.namespace, name);
        let candidates = names_of(device);
        let is_taken = |key: &InstanceKey| instances.contains_key(key) || names.contains(key);
        let free = (candidates.iter()).find(|name| !is_taken(&key(name)));
        let Some(name) = free else {
            let problem = || name_taken(device, &candidates.each_ref().map(key), world.whole());
            (nameless.entry(device.configuration.clone())).or_insert_with(problem);
            continue;
        };
        let seen = first_in_order(name.as_str(), seen, most.unwrap_or(usize::MAX));
        if let Some(instance) = instance(device, configuration, name.as_str(), &seen) {
            *count += 1;
            names.insert(key(name));
            made.push(instance);
        }
    }
    (made, nameless)
}

fn name_taken(device: &Identity, names: &[InstanceKey; 2], world: &World) -> Problem {
    let instances = names.iter().filter_map(|key| world.instances.get(key));
    let nodes: BTreeSet<&str> = (instances.flat_map(|instance| &instance.spec.nodes))
        .map(|node| node.as_str())
        .collect();
    let nodes: Vec<&str> = nodes.into_iter().collect();
    let [short, long] = names;
    let message = format!(
        "a device gets no Instance, because {} and {} are Instances of other devices, on {}; its id is {:?}; rename this Configuration, or where a node has no such device, delete the Pod of its agent, which revokes the agent's token, and then these Instances",
        short.name,
        long.name,
        nodes.join(", "),
        device.device,
    );
    Problem::new(Reason::InstanceNameTaken, message)
}

/// Returns whether an Instance of a device that one node has is named after another device or another node. No agent
/// makes such an Instance, but with an agent's token it can be made, and would keep the name from its owner.
pub(crate) fn has_anothers_name(key: &InstanceKey, instance: &Instance) -> bool {
    let annotations = instance.metadata.annotations.as_ref();
    let id = annotations.and_then(|all| all.get(names::DEVICE_ID));
    let (Some(id), [node], false) = (id, &*instance.spec.nodes, instance.spec.shared) else {
        return false;
    };
    let of = &instance.spec.configuration_name;
    let names = InstanceName::candidates(of, &DeviceId::new(id), Scope::Node, node);
    let is_deleting = instance.metadata.deletion_timestamp.is_some();
    !is_deleting && !names.contains(&key.name)
}

/// Returns the first `most` nodes in the order of the device.
fn first_in_order<'a>(name: &str, seen: NodeReports<'a>, most: usize) -> NodeReports<'a> {
    if seen.len() <= most {
        return seen;
    }
    let mut all: Vec<_> = seen.into_iter().collect();
    all.sort_by_cached_key(|(node, _)| rank(name, node));
    all.into_iter().take(most).collect()
}

/// Returns the Instance of a device. `None` if no node reports the properties of the device.
fn instance(
    device: &Identity,
    configuration: &Configuration,
    name: &str,
    seen: &NodeReports<'_>,
) -> Option<Instance> {
    let (first, properties) =
        (seen.iter()).find_map(|(node, report)| Some((*node, report.properties.as_ref()?)))?;
    // A node that sees another host of a pinned device's name does not offer it.
    let pin = seen.get(first).and_then(|report| report.pin.as_ref());
    let is_same = |report: &SeenDevice| is_same_host(report, pin);
    let others = (seen.iter())
        .filter(|(node, report)| **node != first && is_same(report))
        .map(|(node, _)| node);
    let nodes: Vec<NodeName> = [&first]
        .into_iter()
        .chain(others)
        .map(|n| (*n).to_owned())
        .collect();
    let digest = name.rsplit_once('-').map_or("", |(_, digest)| digest);
    let spec = InstanceSpec {
        configuration_name: device.configuration.name.clone(),
        cdi_name: format!("{}/{}={digest}", names::GROUP, device.configuration.name),
        capacity: configuration.spec.capacity,
        broker_properties: stored_copy(properties, &configuration.spec.broker_properties),
        shared: true,
        device_usage: usage(name, seen),
        nodes,
    };
    let labels = spec.nodes.iter().map(|node| names::node_label(node));
    let labels = labels.map(|label| (label, String::new())).collect();
    let mut instance = Instance::new(name, spec);
    instance.metadata.namespace = Some(device.configuration.namespace.clone());
    let owner = configuration.controller_owner_ref(&());
    instance.metadata.owner_references = owner.map(|owner| vec![owner]);
    instance.metadata.labels = Some(labels);
    let mut annotations = BTreeMap::from([(names::DEVICE_ID.to_owned(), device.device.clone())]);
    annotations.extend(pin.map(|pin| (names::PIN.to_owned(), pin.clone())));
    instance.metadata.annotations = Some(annotations);
    Some(instance)
}

/// Returns the slots that containers have already. If two nodes report one slot, the first node gets it.
fn usage(name: &str, seen: &NodeReports<'_>) -> BTreeMap<String, String> {
    let mut usage = BTreeMap::new();
    for (node, report) in seen {
        for (slot, owner) in &report.usage {
            let is_its = slot
                .parse::<SlotId>()
                .is_ok_and(|slot| slot.instance == name);
            let is_own = (SlotOwner::from_usage(owner))
                .is_ok_and(|owner| owner.is_some_and(|owner| owner.node() == *node));
            if is_its && is_own {
                usage.entry(slot.clone()).or_insert_with(|| owner.clone());
            }
        }
    }
    usage
}
