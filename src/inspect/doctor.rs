//! Judges an installation: its definitions, its Pods, each node, and what is left of earlier ones. Pure.
use super::{
    pods::{image_of, is_ready, label, node_of},
    snapshot::{Snapshot, VERSION},
};
use k8s_openapi::api::core::v1::Pod;
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
    /// How many DaemonSets of agents there are.
    pub daemon_sets: usize,
    pub deployments: usize,
    pub rights: Vec<Right>,
    /// The entries that `petiole tidy` would remove: node and resource.
    pub stale: Vec<(String, String)>,
    /// The names of the cluster's admission policies; `None` if they cannot be listed.
    pub policies: Option<BTreeSet<String>>,
    /// The version of this program.
    pub version: String,
}

/// A right of the caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Right {
    pub verb: &'static str,
    pub resource: &'static str,
    /// The command that needs it.
    pub command: &'static str,
    pub is_allowed: bool,
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
    for (_, kind, what) in kinds.into_iter().filter(|(count, ..)| *count != 1) {
        checks.push(match (facts.daemon_sets, facts.deployments) {
            (0, _) | (_, 0) => check(Level::Fail, format!("there is no {kind} of {what} in any namespace: install the chart, or complete the installation by `helm upgrade`")),
            _ => check(Level::Fail, format!("there are several {kind}s of {what}: one installation is enough for a cluster; `helm list -A` shows them, remove one")),
        });
    }
    checks.extend(versions(facts));
    checks.extend(rights(facts));
    checks.extend(nodes(facts));
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
    let denied = facts.rights.iter().filter(|right| !right.is_allowed);
    let mut checks: Vec<Check> = denied
        .map(|Right { verb, resource, command, .. }| {
            check(Level::Warn, format!("you may not {verb} {resource}, which `petiole {command}` needs: ask for the right, or name another --context"))
        })
        .collect();
    if checks.is_empty() && !facts.rights.is_empty() {
        checks.push(check(
            Level::Ok,
            "you have the rights that the subcommands of petiole need",
        ));
    }
    checks
}

/// Returns a line for each node: its agent, and what the agent reports.
fn nodes(facts: &Facts) -> Vec<Check> {
    let snapshot = &facts.snapshot;
    let nodes = snapshot.nodes.keys().map(|node| {
        let Some((key, agent)) = snapshot.agent_on(node) else {
            return check(Level::Warn, format!("node {node}: no agent, so it offers no device: see nodeSelector, affinity and tolerations of the agents (values `agent.*`)"));
        };
        if !is_ready(agent) {
            return check(Level::Fail, format!("node {node}: its agent is not ready: kubectl -n {} logs {}", key.namespace, key.name));
        }
        let Some(devices) = snapshot.node_devices.get(node) else {
            return check(Level::Fail, format!("node {node}: its agent runs and has written no NodeDevices {node}: kubectl -n {} logs {}", key.namespace, key.name));
        };
        let views = &devices.configurations;
        let problem = views.iter().find_map(|view| Some((view, view.problems.first()?)));
        let instances = snapshot.instances.values();
        let offered = instances.filter(|instance| instance.spec.names_node(node)).count();
        match problem {
            None => check(Level::Ok, format!("node {node}: agent ready, {} Configurations, {offered} devices offered", views.len())),
            Some((view, problem)) => check(Level::Warn, format!(
                "node {node}: agent ready, {offered} devices offered, and a problem with Configuration {}/{} ({}): petiole why -n {} configuration/{}",
                view.namespace, view.name, problem.reason, view.namespace, view.name
            )),
        }
    });
    nodes.collect()
}

fn stale(facts: &Facts) -> Vec<Check> {
    let mut by_node: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (node, resource) in &facts.stale {
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
            .is_some_and(|(_, pod)| is_ready(pod) && node_of(pod) == Some(node));
        let what = match has_agent {
            true => "its agent removes them within 6 minutes",
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
mod tests {
    use super::*;
    use crate::model::names::ObjectKey;
    use serde_json::{Value, json};

    fn own(component: &str, image: &str, node: &str) -> (ObjectKey, Pod) {
        let pod = json!({
            "metadata": {"labels": {
                "app.kubernetes.io/component": component, "app.kubernetes.io/version": "1.2.3",
                "helm.sh/chart": "petiole-1.2.3",
            }},
            "spec": {"nodeName": node, "containers": [{"name": component, "image": image}]},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        });
        let key = ObjectKey::new("petiole", format!("{component}-{node}"));
        (key, serde_json::from_value(pod).unwrap())
    }

    fn node_devices(problems: &Value) -> crate::api::node_devices::NodeDevicesSpec {
        let view = json!({"namespace": "default", "name": "cam", "problems": problems});
        serde_json::from_value(json!({"configurations": [view]})).unwrap()
    }

    /// An installation on one node without a fault.
    fn well() -> Facts {
        let policies = [
            "agent-instances",
            "agent-reports",
            "controller",
            "node-status",
        ];
        let policies = policies.map(|policy| format!("leaf-{policy}"));
        let mut facts = Facts {
            daemon_sets: 1,
            deployments: 1,
            policies: Some(policies.into()),
            version: "1.2.3".to_owned(),
            ..Facts::default()
        };
        let snapshot = &mut facts.snapshot;
        snapshot.pods.extend([
            own("agent", "i:1", "node-1"),
            own("controller", "i:1", "node-1"),
        ]);
        snapshot
            .nodes
            .insert("node-1".to_owned(), Default::default());
        let devices = node_devices(&json!([]));
        snapshot.node_devices.insert("node-1".to_owned(), devices);
        facts
    }

    /// Returns the lines that are not ok.
    fn troubles(facts: &Facts) -> Vec<(Level, String)> {
        let checks = checks(facts).into_iter();
        let troubles = checks.filter(|check| check.level != Level::Ok);
        troubles.map(|check| (check.level, check.text)).collect()
    }

    /// Asserts that there is one trouble, of this level, which says this.
    fn one(change: impl FnOnce(&mut Facts), level: Level, says: &str) {
        let mut facts = well();
        change(&mut facts);
        let troubles = troubles(&facts);
        let [(its, text)] = troubles.as_slice() else {
            panic!("{says}: {troubles:?}");
        };
        assert!(*its == level && text.contains(says), "{says}: {troubles:?}");
    }

    #[test]
    fn an_installation_without_a_fault_is_ok() {
        assert_eq!(troubles(&well()), []);
    }

    #[test]
    #[expect(clippy::too_many_lines, reason = "it is a table")]
    fn each_fault_is_one_line_that_says_what_to_do() {
        let (warn, fail) = (Level::Warn, Level::Fail);
        one(
            |f| f.checked = vec![Err("lacks a field".to_owned())],
            fail,
            "lacks a field",
        );
        one(|f| f.daemon_sets = 0, fail, "no DaemonSet of agents");
        one(|f| f.deployments = 0, fail, "no Deployment of controllers");
        one(|f| f.daemon_sets = 2, fail, "several DaemonSets of agents");
        one(
            |f| f.version = "1.3.0".to_owned(),
            warn,
            "is version 1.3.0, and the installation is 1.2.3",
        );
        one(
            |f| f.snapshot.pods.extend([own("controller", "i:2", "node-2")]),
            warn,
            "different images (i:1, i:2)",
        );
        one(
            |f| f.snapshot.node_devices.clear(),
            fail,
            "has written no NodeDevices node-1",
        );
        one(
            |f| {
                drop(
                    f.snapshot
                        .nodes
                        .insert("node-2".to_owned(), Default::default()),
                )
            },
            warn,
            "node node-2: no agent",
        );
        one(|f| f.policies = None, warn, "cannot be listed");
        one(
            |f| f.policies = Some(["leaf-controller".to_owned()].into()),
            warn,
            "missing (agent-instances, agent-reports, node-status)",
        );
        one(
            |f| f.stale = vec![("node-1".to_owned(), "akri.sh/a".to_owned())],
            warn,
            "(akri.sh/a): its agent removes them",
        );
        one(
            |f| f.stale = vec![("node-9".to_owned(), "akri.sh/a".to_owned())],
            warn,
            "petiole tidy --wait",
        );
        one(
            |f| f.snapshot.unread = vec!["cannot list nodes".to_owned()],
            warn,
            "cannot list nodes",
        );
        let problem = json!([{"reason": "UnknownHandler", "message": ""}]);
        one(
            |f| {
                drop(
                    f.snapshot
                        .node_devices
                        .insert("node-1".to_owned(), node_devices(&problem)),
                )
            },
            warn,
            "(UnknownHandler): petiole why -n default configuration/cam",
        );
        let denied = Right {
            verb: "patch",
            resource: "nodes/status",
            command: "tidy",
            is_allowed: false,
        };
        one(
            |f| f.rights = vec![denied],
            warn,
            "you may not patch nodes/status, which `petiole tidy` needs",
        );
    }

    #[test]
    fn an_agent_that_is_not_ready_fails() {
        let not_ready = |facts: &mut Facts| {
            let agent = facts.snapshot.pods.values_mut().next().unwrap();
            agent.status = None;
        };
        one(
            not_ready,
            Level::Fail,
            "kubectl -n petiole logs agent-node-1",
        );
    }
}
