//! Checks an installation: its definitions, its Pods, each node, and what is left of earlier ones. Pure.
use super::{
    follow::UNWATCHED_PAUSE,
    nodes::is_node_ready,
    pods::{image_of, inspection, is_ready, label, node_of},
    snapshot::{Snapshot, VERSION},
};
use k8s_openapi::api::core::v1::Pod;
use petiole_model::model::{resource_name::ResourceName, typed_names::NodeName};
use std::collections::{BTreeMap, BTreeSet};

/// The admission policies of the chart, by the ends of their names.
const POLICIES: &[&str] = &[
    "-agent-instances",
    "-agent-reports",
    "-controller",
    "-node-status",
];

/// The values that were read of an installation.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    pub snapshot: Snapshot,
    /// The results of `petiole check` for definitions, DaemonSets and Deployments.
    pub checked: Vec<Result<String, String>>,
    /// The number of DaemonSets of agents; `None` if they cannot be listed.
    pub daemon_sets: Option<usize>,
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

/// A right, and whether the caller has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Right {
    pub verb: &'static str,
    /// The resource with its group, such as `daemonsets.apps`.
    pub resource: String,
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

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    Ok,
    Warn,
    Fail,
}

/// One line of `petiole doctor`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    pub level: Level,
    pub text: String,
}

fn check(level: Level, text: impl Into<String>) -> Check {
    let text = text.into();
    Check { level, text }
}

/// Returns the lines in the order in which they should be read.
pub fn checks(facts: &Facts) -> Vec<Check> {
    let mut checks = vec![];
    checks.extend(facts.checked.iter().map(|outcome| match outcome {
        Ok(text) => check(Level::Ok, text),
        Err(text) => check(Level::Fail, text),
    }));
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
    checks.extend(versions(facts));
    checks.extend(rights(facts));
    checks.extend(nodes(facts));
    checks.extend(unwatched(facts));
    checks.extend(stale(facts));
    checks.push(policies(facts));
    let unread = facts.snapshot.unread.iter();
    checks.extend(unread.map(|what| check(Level::Warn, what)));
    checks
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
    let list = |texts: &BTreeSet<&str>| texts.iter().copied().collect::<Vec<_>>().join(", ");
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
            Granted::Nothing if *verb == "watch" => format!("you may not {verb} {resource}{place}, so `petiole {command}` looks every {} s", UNWATCHED_PAUSE.as_secs()),
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

/// Returns a line for each node: its agent, and what the agent reports. A node whose agent or report cannot be read has none.
fn nodes(facts: &Facts) -> Vec<Check> {
    let snapshot = &facts.snapshot;
    let nodes = snapshot.nodes.iter().filter_map(|(node, object)| {
        if !is_node_ready(object) {
            return Some(check(Level::Fail, format!("node {node} is not ready, so its devices cannot be used: kubectl describe node {node}")));
        }
        let Some((key, agent)) = snapshot.agent_on(node) else {
            if snapshot.hidden.pods {
                return None;
            }
            return Some(check(Level::Warn, format!("node {node}: no agent, so it offers no device: see nodeSelector, affinity and tolerations of the agents (values `agent.*`), and the Events of kubectl describe daemonsets -A -l app.kubernetes.io/component=agent")));
        };
        if !is_ready(agent) {
            return Some(check(Level::Fail, format!("node {node}: its agent is not ready: {}", inspection(key, agent))));
        }
        let Some(devices) = snapshot.node_devices.get(node) else {
            if snapshot.hidden.node_devices {
                return None;
            }
            // An agent writes this object when it has a Configuration to report about.
            let labels = object.metadata.labels.clone().unwrap_or_default();
            let looks = snapshot.configurations.iter();
            let mut looks = looks.filter(|(key, configuration)| snapshot.is_watched(&key.namespace) && configuration.selects(&labels));
            if looks.next().is_none() {
                return Some(check(Level::Ok, format!("node {node}: agent ready, no Configuration{} for this node yet", snapshot.readable_objects())));
            }
            return Some(check(Level::Fail, format!("node {node}: its agent runs and has written no NodeDevices {node}: kubectl -n {} logs {}", key.namespace, key.name)));
        };
        let views = &devices.configurations;
        let readable = snapshot.readable_objects();
        let problem = views.iter().find_map(|view| Some((view, view.problems.first()?)));
        let instances = snapshot.instances.values();
        let offered = instances.filter(|instance| instance.spec.names_node(node)).count();
        Some(match problem {
            None => check(Level::Ok, format!("node {node}: agent ready, {} Configurations, {offered} devices offered{readable}", views.len())),
            Some((view, problem)) => check(Level::Warn, format!(
                "node {node}: agent ready, {offered} devices offered{readable}, and a problem with Configuration {}/{} ({}): petiole why -n {} configuration/{}",
                view.namespace, view.name, problem.reason, view.namespace, view.name
            )),
        })
    });
    nodes.collect()
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
            keys.join(", ")
        ),
    ))
}

fn stale(facts: &Facts) -> Vec<Check> {
    let Some(stale) = &facts.stale else {
        return vec![];
    };
    let mut by_node: BTreeMap<&NodeName, Vec<&str>> = BTreeMap::new();
    for (node, resource) in stale {
        by_node.entry(node).or_default().push(resource);
    }
    if by_node.is_empty() {
        return vec![check(
            Level::Ok,
            "no Node has capacity entries without a device",
        )];
    }
    let lines = by_node.into_iter().map(|(node, resources)| {
        let has_agent = facts
            .snapshot
            .agent_on(node)
            .is_some_and(|(_, pod)| is_ready(pod) && node_of(pod) == Some(node.as_str()));
        let what = match has_agent {
            true => "its agent removes them within 6 minutes",
            false if facts.snapshot.hidden.pods => {
                "an agent removes them within 6 minutes; without one, petiole tidy --wait does"
            }
            false => "no agent removes them: petiole tidy --wait",
        };
        check(
            Level::Warn,
            format!(
                "node {node}: capacity entries without a device ({}): {what}",
                resources.join(", ")
            ),
        )
    });
    lines.collect()
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
                "admission policies are missing ({}): a stolen token of an agent could write other nodes' objects; `helm upgrade` creates them",
                some.join(", ")
            ),
        ),
    }
}

#[cfg(test)]
mod tests;
