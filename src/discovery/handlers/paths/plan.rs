//! Decides which devices the matches of the patterns are. Pure.
use super::details::{Details, Group, Pattern};
use crate::{
    discovery::external::HostPaths,
    model::{
        device::{Device, DeviceNode, DeviceSet},
        limits::NODE_LINKS_MAX,
    },
};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

/// The most device nodes of a device of `paths`. Each needs a property. Beyond it: containers get the first ones, and the node
/// reports it (`DiscoveryIncomplete`).
const NODES_MAX: usize = 64;
/// The most matches of all devices of a Configuration of `paths` together. Beyond it: the discovery fails (`DiscoveryFailed`), and
/// what was found before stays.
const MATCHES_MAX: usize = 8192;
/// The variables with the paths of a device's nodes: this one, and from the second node on with its number.
const VARIABLE: &str = "DEVICE_PATH";

/// What one look has found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct PathsLook {
    /// The matches of each pattern, by its text.
    pub(super) found: BTreeMap<String, Vec<FoundPath>>,
    /// The folders in which a device node may appear that would match.
    pub(super) folders: BTreeSet<PathBuf>,
}

/// A path that matches, and that of its device node, which is another one if the path is a link; `None` if there is no device
/// node below `/dev`, or one that container runtimes make themselves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FoundPath {
    pub(super) path: String,
    pub(super) node: Option<String>,
}

/// Returns the devices to offer; an error if they are too many to make.
pub(super) fn devices(
    details: &Details,
    look: &PathsLook,
    allowed: &HostPaths,
) -> Result<DeviceSet, String> {
    let mut problems: Vec<String> = not_allowed(look, allowed).into_iter().collect();
    let (mut cut, mut twice) = (Named::default(), Named::default());
    let mut devices: BTreeMap<String, Device> = BTreeMap::new();
    let mut left = MATCHES_MAX;
    for group in &details.groups {
        for (id, found) in of_group(group, look, allowed, &mut left)? {
            let nodes = nodes(&found);
            if nodes.len() > NODES_MAX {
                cut.add(&id);
            }
            if devices.contains_key(&id) {
                twice.add(&id)
            } else {
                drop(devices.insert(id.clone(), device(&id, &nodes, details)))
            }
        }
    }
    problems.extend(cut.said(&format!(
        "more than {NODES_MAX} device nodes; containers get the first ones: narrow the patterns"
    )));
    problems.extend(
        twice.said(
            "a second group, and are devices of the first: narrow the patterns of the second",
        ),
    );
    Ok(DeviceSet {
        problems,
        ..DeviceSet::complete(devices.into_values())
    })
}

/// How many devices have a problem, and the first of them.
#[derive(Default)]
struct Named(usize, String);

impl Named {
    fn add(&mut self, id: &str) {
        if self.0 == 0 {
            id.clone_into(&mut self.1);
        }
        self.0 += 1;
    }

    fn said(&self, what: &str) -> Option<String> {
        let Self(count, first) = self;
        (*count > 0).then(|| format!("{count} devices, the first is {first}, have {what}"))
    }
}

/// The matches of a device that is there, by its id.
type Matches<'a> = Vec<(String, Vec<&'a FoundPath>)>;

/// Returns the devices of a group that are there: one of which all paths have a device node, or with `each` one for each. Their
/// matches are taken from those that are `left`.
fn of_group<'a>(
    group: &Group,
    look: &'a PathsLook,
    allowed: &HostPaths,
    left: &mut usize,
) -> Result<Matches<'a>, String> {
    let usable = |pattern: &Pattern| {
        let found = look.found.get(&pattern.text).into_iter().flatten();
        let usable = |found: &&FoundPath| is_usable(found, allowed);
        found.filter(usable).collect::<Vec<&FoundPath>>()
    };
    let paths: Vec<Vec<&FoundPath>> = group.paths.iter().map(usable).collect();
    let optional: Vec<&FoundPath> = group.optional.iter().flat_map(usable).collect();
    let own = paths.concat();
    let with_optional = |own: &[&'a FoundPath]| [own, &optional].concat();
    let count = if group.each {
        own.len().saturating_mul(1 + optional.len())
    } else {
        own.len() + optional.len()
    };
    *left = left.checked_sub(count).ok_or_else(|| {
        format!("the groups have more than {MATCHES_MAX} device nodes in all: narrow the patterns of {}", group.first())
    })?;
    Ok(match group.each {
        true => own
            .iter()
            .map(|found| (found.path.clone(), with_optional(&[*found])))
            .collect(),
        false if paths.iter().any(Vec::is_empty) => vec![],
        false => vec![(group.first().to_owned(), with_optional(&own))],
    })
}

/// Returns the first device nodes, one more than a device may have, each with the links to it.
fn nodes<'a>(found: &[&'a FoundPath]) -> Vec<(&'a str, BTreeSet<&'a str>)> {
    let mut nodes: Vec<(&str, BTreeSet<&str>)> = vec![];
    for found in found {
        let path = found.path.as_str();
        let node = found.node.as_deref().unwrap_or(path);
        let link = (path != node).then_some(path);
        let has_room = nodes.len() <= NODES_MAX;
        match nodes.iter_mut().find(|(known, _)| *known == node) {
            Some((_, links)) => links.extend(link),
            None if has_room => nodes.push((node, link.into_iter().collect())),
            None => {}
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
            permissions: details.permissions.to_owned(),
            links: (links.iter().take(NODE_LINKS_MAX))
                .map(|link| (*link).to_owned())
                .collect(),
        });
    }
    device
}

/// Returns whether a match has a device node that may be offered.
fn is_usable(found: &FoundPath, allowed: &HostPaths) -> bool {
    (found.node.as_deref()).is_some_and(|node| allowed.allow(node))
}

fn not_allowed(look: &PathsLook, allowed: &HostPaths) -> Option<String> {
    let nodes = look.found.values().flatten();
    let nodes = nodes.filter_map(|found| found.node.as_deref());
    let refused = nodes.filter(|node| !allowed.allow(node));
    let refused: BTreeSet<&str> = refused.collect();
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
