//! Checks an installation: its definitions, its Pods, each node, and what is left of earlier ones. Pure.
mod agents;
mod line;
mod objects;

use super::{
    follow::PAUSE_MAX,
    nodes::is_node_ready,
    pods::{image_of, is_ready, label, node_of},
    snapshot::{Snapshot, VERSION},
    words::listed,
};
use k8s_openapi::api::core::v1::Pod;
use line::check;
pub use line::{Check, Level};
use petiole_model::{
    api::names,
    model::{resource_name::ResourceName, typed_names::NodeName},
};
use std::collections::{BTreeMap, BTreeSet};

/// The admission policies of the chart, by the ends of their names.
const POLICIES: &[&str] = &[
    "-agent-instances",
    "-agent-reports",
    "-controller",
    "-controller-configurations",
    "-controller-evictions",
    "-node-status",
];

/// The values that were read of an installation.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    pub snapshot: Snapshot,
    /// True if the objects could not be read: the snapshot is empty, and says nothing of them.
    pub is_unread: bool,
    /// The results of `petiole check` for definitions, DaemonSets and Deployments.
    pub checked: Vec<Result<String, String>>,
    /// The number of DaemonSets of agents; `None` if they cannot be listed.
    pub daemon_sets: Option<usize>,
    /// The nodes that are to have an agent, and those that have the wanted one.
    pub rollout: Rollout,
    /// The number of Deployments of controllers; `None` if they cannot be listed.
    pub deployments: Option<usize>,
    pub rights: Vec<Right>,
    /// The entries that `petiole tidy` would remove: node and resource; `None` if that was not read.
    pub stale: Option<Vec<(NodeName, ResourceName)>>,
    /// The names of the cluster's admission policies; `None` if they cannot be listed.
    pub policies: Option<BTreeSet<String>>,
    /// The version of this program.
    pub version: String,
}

/// The state of an update of the agents, by the status of their DaemonSets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rollout {
    pub desired: i32,
    pub updated: i32,
}

/// A right, and whether the caller has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Right {
    pub verb: &'static str,
    /// The resource with its group, such as `daemonsets.apps`.
    pub resource: &'static str,
    /// The words for the place in which it is needed, such as ` in all namespaces`; empty for objects in no namespace.
    pub place: String,
    /// The command that needs it.
    pub command: &'static str,
    pub granted: Granted,
}

/// The part of a right that the caller has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Granted {
    Whole,
    /// The right in this namespace, and not in all.
    In(String),
    Nothing,
}

/// Returns the lines with the worst first.
pub fn checks(facts: &Facts) -> Vec<Check> {
    let mut checks = vec![];
    let kinds = [
        (facts.daemon_sets, "DaemonSet", "agents"),
        (facts.deployments, "Deployment", "controllers"),
    ];
    for (count, kind, what) in kinds {
        checks.extend(match count {
            None | Some(1) => None,
            Some(0) => Some(check(Level::Fail, format!("there is no {kind} of {what} in any namespace: install the chart, or complete the installation by `helm upgrade`"))),
            Some(_) => Some(check(Level::Fail, format!("there are several {kind}s of {what}: one installation is enough for a cluster; `helm list -A` shows them, remove one"))),
        });
    }
    checks.extend(facts.checked.iter().map(|outcome| match outcome {
        Ok(text) => check(Level::Ok, text),
        Err(text) => check(Level::Fail, text),
    }));
    checks.extend(rollout(facts));
    checks.extend(agents::nodes(&facts.snapshot));
    if !facts.is_unread {
        checks.extend(objects::configurations(&facts.snapshot));
    }
    checks.extend(objects::brokers(&facts.snapshot));
    checks.extend(objects::devices(&facts.snapshot));
    checks.extend(objects::held_twice(&facts.snapshot));
    checks.extend(versions(facts));
    checks.extend(unwatched(facts));
    checks.extend(stale(facts));
    checks.push(policies(facts));
    checks.extend(rights(facts));
    let unread = facts.snapshot.unread.iter();
    checks.extend(unread.map(|what| check(Level::Warn, what)));
    checks.sort_by_key(|check| std::cmp::Reverse(check.level));
    checks
}

/// Returns a line about an update of the agents that is not done, and the nodes that may hold it up.
fn rollout(facts: &Facts) -> Option<Check> {
    let Rollout { desired, updated } = facts.rollout;
    let lost = facts.snapshot.nodes.iter();
    let lost: Vec<&String> = lost
        .filter(|(_, node)| !is_node_ready(node))
        .map(|(name, _)| name)
        .collect();
    let why = if lost.is_empty() {
        "see kubectl rollout status of it".to_owned()
    } else {
        format!(
            "nodes that are not ready can hold it up ({}): mend them, or kubectl delete node",
            listed(&lost)
        )
    };
    (updated < desired).then(|| {
        check(
            Level::Warn,
            format!("the wanted version of the agents is on {updated} of {desired} nodes: {why}"),
        )
    })
}

fn versions(facts: &Facts) -> Vec<Check> {
    let pods = ["agent", "controller"];
    let pods: Vec<&Pod> = (pods.into_iter())
        .flat_map(|component| facts.snapshot.own_pods(component))
        .map(|(_, pod)| pod)
        .collect();
    let images: BTreeSet<&str> = pods.iter().map(|pod| image_of(pod)).collect();
    let versions: BTreeSet<&str> = (pods.iter())
        .filter_map(|pod| label(pod, VERSION).map(String::as_str))
        .collect();
    let list = |texts: &BTreeSet<&str>| listed(&Vec::from_iter(texts));
    let mut checks = vec![];
    match images.len() {
        0 => {}
        1 => checks.push(check(Level::Ok, format!("agents and controllers run the image {}", list(&images)))),
        _ => checks.push(check(Level::Warn, format!("agents and controllers run different images ({}): an update is in progress, or stopped; `kubectl get pods -A -o wide -l app.kubernetes.io/component=agent` shows where", list(&images)))),
    }
    let others: BTreeSet<&str> = versions
        .into_iter()
        .filter(|version| *version != facts.version)
        .collect();
    if !others.is_empty() {
        checks.push(check(
            Level::Warn,
            format!(
                "this program is version {}, and the installation is {}: use the same version",
                facts.version,
                list(&others)
            ),
        ));
    }
    checks
}

fn rights(facts: &Facts) -> Vec<Check> {
    let lacking = facts.rights.iter().filter_map(|right| {
        let Right { verb, resource, place, command, granted } = right;
        let text = match granted {
            Granted::Whole => return None,
            Granted::In(namespace) => format!("you may {verb} {resource} in the namespace {namespace} only, to which `petiole {command}` is limited"),
            // The commands that watch look from time to time instead.
            Granted::Nothing if *verb == "watch" => format!("you may not {verb} {resource}{place}, so `petiole {command}` looks every {} s", PAUSE_MAX.as_secs()),
            Granted::Nothing => format!("you may not {verb} {resource}{place}, which `petiole {command}` needs"),
        };
        Some(check(Level::Warn, format!("{text}: ask for the right, or name another --context")))
    });
    let mut checks: Vec<Check> = lacking.collect();
    if checks.is_empty() && !facts.rights.is_empty() {
        checks.push(check(
            Level::Ok,
            "you have the rights that the subcommands of petiole need",
        ));
    }
    checks
}

/// Returns a line about the Configurations that no agent reads.
fn unwatched(facts: &Facts) -> Option<Check> {
    let snapshot = &facts.snapshot;
    let keys = snapshot.configurations.keys();
    let keys = keys.filter(|key| !snapshot.is_watched(&key.namespace));
    let keys: Vec<String> = keys.map(ToString::to_string).collect();
    let watched = snapshot.watched().filter(|_| !keys.is_empty())?;
    Some(check(
        Level::Warn,
        format!(
            "Configurations in namespaces that no agent reads ({}): agents read {watched} (value `watchNamespaces`)",
            listed(&keys)
        ),
    ))
}

fn stale(facts: &Facts) -> Vec<Check> {
    let Some(stale) = &facts.stale else {
        return vec![];
    };
    if stale.is_empty() {
        return vec![check(
            Level::Ok,
            "no Node has capacity entries without a device",
        )];
    }
    let snapshot = &facts.snapshot;
    let agents = snapshot.own_pods("agent").filter(|(_, pod)| is_ready(pod));
    let with_agent: BTreeSet<&str> = agents.filter_map(|(_, pod)| node_of(pod)).collect();
    let tidy = tidy(snapshot);
    let mut by_remedy: BTreeMap<_, Vec<&(NodeName, ResourceName)>> = BTreeMap::new();
    for entry in stale {
        let remedy = match with_agent.contains(entry.0.as_str()) {
            true => (
                Level::Ok,
                "the agent there removes them within 6 minutes".to_owned(),
            ),
            false if snapshot.hidden.pods => (
                Level::Warn,
                format!("an agent removes them within 6 minutes; without one, {tidy} does"),
            ),
            false => (Level::Warn, format!("no agent removes them: {tidy}")),
        };
        by_remedy.entry(remedy).or_default().push(entry);
    }
    let lines = by_remedy.into_iter().map(|((level, remedy), entries)| {
        let nodes: BTreeSet<&str> = entries.iter().map(|(node, _)| node.as_str()).collect();
        let resources: BTreeSet<&str> = entries.iter().map(|(_, name)| name.as_str()).collect();
        let count = match entries.len() {
            1 => "1 capacity entry".to_owned(),
            n => format!("{n} capacity entries"),
        };
        let text = format!(
            "{count} without a device on {} ({}): {remedy}",
            listed(&Vec::from_iter(nodes)),
            listed(&Vec::from_iter(resources))
        );
        check(level, text)
    });
    lines.collect()
}

/// Returns the command that removes stale entries: it knows the prefixes of the chart only if it is told.
fn tidy(snapshot: &Snapshot) -> String {
    let prefixes = snapshot.prefixes().to_string().replace(", ", ",");
    if prefixes == names::GROUP {
        "petiole tidy --wait".to_owned()
    } else {
        format!("petiole tidy --wait --resource-prefixes {prefixes}")
    }
}

fn policies(facts: &Facts) -> Check {
    let Some(policies) = &facts.policies else {
        return check(
            Level::Warn,
            "the admission policies cannot be listed: whether agents are restricted to their own nodes is not known",
        );
    };
    let missing = POLICIES.iter().filter(|end| {
        let mut names = policies.iter();
        !names.any(|name| name.ends_with(**end))
    });
    let missing: Vec<&str> = missing.map(|end| &end[1..]).collect();
    match missing.as_slice() {
        [] => check(
            Level::Ok,
            "the admission policies of agents and controller are there",
        ),
        some => check(
            Level::Warn,
            format!(
                "admission policies are missing ({}): a stolen token of an agent or of the controller could write more than it should; `helm upgrade` creates them",
                some.join(", ")
            ),
        ),
    }
}

#[cfg(test)]
mod tests;
