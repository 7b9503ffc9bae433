//! Decides which devices the matches of the patterns are. Pure.
use super::details::{Details, Group, Pattern};
use crate::{
    discovery::external::HostPaths,
    model::{
        container_devices::is_below_dev,
        device::{Device, DeviceNode, DeviceSet},
    },
};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

/// The most device nodes of a device of `paths`. Each needs a property. Beyond it: containers get the first ones, and the node
/// reports it (`DiscoveryIncomplete`).
const NODES_MAX: usize = 64;
/// The variables with the paths of a device's nodes: this one, and from the second node on with its number.
const VARIABLE: &str = "DEVICE_PATH";

/// What one look has found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Look {
    /// The matches of each pattern, by its text.
    pub(super) found: BTreeMap<String, Vec<Found>>,
    /// The folders in which a device node may appear that would match.
    pub(super) folders: BTreeSet<PathBuf>,
    pub(super) problems: Vec<String>,
}

/// A path that matches, and that of its device node, which is another one if the path is a link; `None` if there is no device
/// node below `/dev`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) path: String,
    pub(super) node: Option<String>,
}

/// Returns the devices to offer.
pub(super) fn devices(details: &Details, look: &Look, allowed: &HostPaths) -> DeviceSet {
    let mut problems = look.problems.clone();
    problems.extend(not_allowed(look, allowed));
    let mut devices: BTreeMap<String, Device> = BTreeMap::new();
    for group in &details.groups {
        for (id, nodes) in of_group(group, look, allowed) {
            if nodes.len() > NODES_MAX {
                problems.push(format!(
                    "{id}: the group has {} device nodes; containers get the first {NODES_MAX}: narrow its patterns",
                    nodes.len()
                ));
            }
            match devices.contains_key(&id) {
                true => problems.push(format!(
                    "{id} is a device of two groups, and is one of the first: narrow the patterns of the other"
                )),
                false => drop(devices.insert(id.clone(), device(&id, &nodes, details))),
            }
        }
    }
    DeviceSet {
        left_out: !look.problems.is_empty(),
        problems,
        ..DeviceSet::complete(devices.into_values())
    }
}

/// The device nodes of a device, each with the links to it.
type Nodes<'a> = Vec<(&'a str, BTreeSet<&'a str>)>;

/// Returns the devices of a group that are there: one of which all paths have a device node, or with `each` one for each.
fn of_group<'a>(group: &Group, look: &'a Look, allowed: &HostPaths) -> Vec<(String, Nodes<'a>)> {
    let usable = |pattern: &Pattern| {
        let found = look.found.get(&pattern.text).into_iter().flatten();
        let usable = |found: &&Found| is_usable(found, allowed);
        found.filter(usable).collect::<Vec<&Found>>()
    };
    let paths: Vec<Vec<&Found>> = group.paths.iter().map(usable).collect();
    let optional: Vec<&Found> = group.optional.iter().flat_map(usable).collect();
    let nodes_of = |own: &[&'a Found]| nodes(own.iter().chain(&optional).copied());
    if group.each {
        let each = paths.iter().flatten();
        return each
            .map(|found| (found.path.clone(), nodes_of(&[*found])))
            .collect();
    }
    match paths.iter().any(Vec::is_empty) {
        true => vec![],
        false => vec![(group.first().to_owned(), nodes_of(&paths.concat()))],
    }
}

fn nodes<'a>(found: impl Iterator<Item = &'a Found>) -> Nodes<'a> {
    let mut nodes: Nodes<'a> = vec![];
    for found in found {
        let path = found.path.as_str();
        let node = found.node.as_deref().unwrap_or(path);
        let link = (path != node && is_below_dev(path)).then_some(path);
        match nodes.iter_mut().find(|(known, _)| *known == node) {
            Some((_, links)) => links.extend(link),
            None => nodes.push((node, link.into_iter().collect())),
        }
    }
    nodes
}

fn device(id: &str, nodes: &[(&str, BTreeSet<&str>)], details: &Details) -> Device {
    let mut device = Device::new(id);
    for (n, (path, links)) in nodes.iter().take(NODES_MAX).enumerate() {
        let variable = match n {
            0 => VARIABLE.to_owned(),
            n => format!("{VARIABLE}_{n}"),
        };
        device.connection.insert(variable.clone());
        device.properties.insert(variable, (*path).to_owned());
        device.device_nodes.push(DeviceNode {
            container_path: (*path).to_owned(),
            host_path: (*path).to_owned(),
            permissions: details.permissions.clone(),
            links: links.iter().map(|link| (*link).to_owned()).collect(),
        });
    }
    device
}

/// Returns whether a match has a device node that may be offered. What container runtimes make themselves is none.
fn is_usable(found: &Found, allowed: &HostPaths) -> bool {
    let node = found.node.as_deref();
    node.is_some_and(|node| is_below_dev(node) && allowed.allow(node))
}

fn not_allowed(look: &Look, allowed: &HostPaths) -> Option<String> {
    let nodes = look.found.values().flatten();
    let nodes = nodes.filter_map(|found| found.node.as_deref());
    let refused = |node: &&str| is_below_dev(node) && !allowed.allow(node);
    let refused: BTreeSet<&str> = nodes.filter(refused).collect();
    let first = refused.first()?;
    Some(format!(
        "{} device nodes are not allowed on this node, the first is {first}; allowed are {}. {REMEDY}",
        refused.len(),
        allowed.list()
    ))
}

/// The advice in messages about device nodes that are left out.
pub(super) const REMEDY: &str =
    "The administrator of the agents allows paths with --device-paths (the chart's paths.allow)";
