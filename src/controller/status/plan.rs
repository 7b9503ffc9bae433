//! What the status of Configurations and Instances is to say. Pure.
use crate::{
    api::{
        condition::Condition,
        configuration::{Configuration, ConfigurationStatus, NodeReport, Problem},
        instance::Instance,
        names,
    },
    controller::{
        nodes::{is_working, settles_in, without_entry},
        pace::sooner,
        world::World,
    },
    model::names::ObjectKey,
    store::plan::with_availability,
};
use json_patch::Patch;
use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
    jiff::Timestamp,
};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    time::Duration,
};

#[derive(Debug, Default, PartialEq)]
pub(crate) struct Plan {
    pub(crate) actions: Vec<Action>,
    pub(crate) wake_in: Option<Duration>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Action {
    /// Writes the conditions of an Instance.
    Instance { key: ObjectKey, status: Value },
    /// Writes the condition and the counts of a Configuration, and says so where it does not work any more.
    Configuration {
        key: ObjectKey,
        status: Value,
        trouble: Option<Problem>,
    },
    /// Takes the reports of deleted nodes out of a Configuration.
    Forget {
        key: ObjectKey,
        gone: BTreeSet<String>,
        patch: Patch,
    },
}

pub(crate) fn plan(world: &World, now: Timestamp) -> Plan {
    let (instances, time) = (world.instances.iter(), clock(now));
    let of_instances = instances.filter_map(|(key, instance)| of_instance(key, instance, &time));
    let mut plan = Plan {
        actions: of_instances.collect(),
        wake_in: None,
    };
    let view = View {
        world,
        now,
        counts: counts(world),
        first: first_of_each_name(world),
    };
    for (key, configuration) in &world.configurations {
        if configuration.metadata.deletion_timestamp.is_some() {
            continue;
        }
        plan.actions.extend(view.written(key, configuration));
        plan.actions.extend(view.forgotten(key, configuration));
        let reports = reports(configuration).iter();
        let nodes = reports.filter_map(|report| world.nodes.get(&report.name));
        let settle = nodes.filter_map(|node| settles_in(node, now));
        let wake = settle.filter(|left| !left.is_zero()).min();
        plan.wake_in = sooner(plan.wake_in, wake);
    }
    plan
}

fn of_instance(key: &ObjectKey, instance: &Instance, now: &str) -> Option<Action> {
    let before = instance.status.clone().unwrap_or_default();
    // One that was just created: its agent has not said yet how it sees the device.
    let is_new = before.nodes.is_empty() && before.conditions.is_empty();
    let is_deleting = instance.metadata.deletion_timestamp.is_some();
    if is_deleting || is_new && !instance.spec.nodes.is_empty() {
        return None;
    }
    let conditions = before.conditions.clone();
    let after = with_availability(before, &instance.spec, now).conditions;
    (after != conditions).then(|| Action::Instance {
        key: key.clone(),
        status: applied(
            &instance.metadata,
            "Instance",
            json!({ "conditions": after }),
        ),
    })
}

/// RFC 3339, to the second as Kubernetes writes it.
fn clock(now: Timestamp) -> String {
    now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// With the uid: one that was made anew under the same name is another.
fn applied(metadata: &ObjectMeta, kind: &str, status: Value) -> Value {
    json!({
        "apiVersion": names::API_VERSION,
        "kind": kind,
        "metadata": {
            "name": metadata.name,
            "namespace": metadata.namespace,
            "uid": metadata.uid,
        },
        "status": status,
    })
}

fn counts(world: &World) -> BTreeMap<(&str, &str), i64> {
    let mut counts = BTreeMap::new();
    for (key, instance) in &world.instances {
        let configuration = instance.spec.configuration_name.as_str();
        *counts
            .entry((key.namespace.as_str(), configuration))
            .or_default() += 1;
    }
    counts
}

/// Of the Configurations of one name, the one whose resource the name is: the oldest, as agents see it too.
fn first_of_each_name(world: &World) -> BTreeMap<&str, &ObjectKey> {
    let age = |key: &ObjectKey| {
        let created: Option<&Time> = (world.configurations.get(key))
            .and_then(|configuration| configuration.metadata.creation_timestamp.as_ref());
        (created.map(|time| time.0), key.clone())
    };
    let mut first: BTreeMap<&str, &ObjectKey> = BTreeMap::new();
    for key in world.configurations.keys() {
        match first.entry(&key.name) {
            Entry::Vacant(entry) => {
                entry.insert(key);
            }
            Entry::Occupied(mut entry) if age(key) < age(entry.get()) => {
                entry.insert(key);
            }
            Entry::Occupied(_) => {}
        }
    }
    first
}

fn reports(configuration: &Configuration) -> &[NodeReport] {
    let status = configuration.status.as_ref();
    status.map_or(&[], |status| &status.nodes)
}

struct View<'a> {
    world: &'a World,
    now: Timestamp,
    /// The Instances of each Configuration, by its namespace and name.
    counts: BTreeMap<(&'a str, &'a str), i64>,
    first: BTreeMap<&'a str, &'a ObjectKey>,
}

/// A condition without its time.
struct Verdict {
    status: &'static str,
    problem: Problem,
}

impl View<'_> {
    fn written(&self, key: &ObjectKey, configuration: &Configuration) -> Option<Action> {
        let none = ConfigurationStatus::default();
        let before = configuration.status.as_ref().unwrap_or(&none);
        let Verdict { status, problem } = self.verdict(key, configuration);
        let ready = before.conditions.iter().find(|c| c.type_ == "Ready");
        let generation = configuration.metadata.generation;
        let condition = Condition {
            type_: "Ready".to_owned(),
            status: status.to_owned(),
            reason: problem.reason.clone(),
            message: problem.message.clone(),
            last_transition_time: (ready.filter(|ready| ready.status == status))
                .map_or_else(|| clock(self.now), |c| c.last_transition_time.clone()),
            observed_generation: generation,
        };
        let count = (key.namespace.as_str(), key.name.as_str());
        let instances = self.counts.get(&count).copied().unwrap_or_default();
        let is_new_trouble = status == "False"
            && ready.is_none_or(|c| (c.status.as_str(), &c.reason) != (status, &problem.reason));
        let conditions = vec![condition];
        if configuration.status.is_some()
            && before.conditions == conditions
            && before.instances == instances
            && before.observed_generation == generation
        {
            return None;
        }
        let written = json!({
            "observedGeneration": generation,
            "conditions": conditions,
            "instances": instances,
        });
        Some(Action::Configuration {
            key: key.clone(),
            status: applied(&configuration.metadata, "Configuration", written),
            trouble: is_new_trouble.then_some(problem),
        })
    }

    /// What the nodes do with it counts; where none has said anything, what can be seen from here.
    fn verdict(&self, key: &ObjectKey, configuration: &Configuration) -> Verdict {
        let mut counted: Vec<&NodeReport> = reports(configuration)
            .iter()
            .filter(|report| self.is_counted(report))
            .collect();
        counted.sort_by(|a, b| a.name.cmp(&b.name));
        let troubled: Vec<_> = (counted.iter())
            .filter_map(|report| Some((&report.name, report.problems.first()?)))
            .collect();
        if let [(node, problem), others @ ..] = troubled.as_slice() {
            return trouble(&problem.reason, first_trouble(node, problem, others.len()));
        }
        if !counted.is_empty() {
            return Verdict {
                status: "True",
                problem: Problem::new("Working", "every device that is found is offered"),
            };
        }
        if let Some(first) = self
            .first
            .get(key.name.as_str())
            .filter(|first| **first != key)
        {
            let message = format!(
                "{first} has the same name and goes on: of Configurations with one name only one works, whatever their namespaces; rename this one"
            );
            return trouble("NameTaken", message);
        }
        let has_worked = !reports(configuration).is_empty()
            || configuration
                .status
                .iter()
                .flat_map(|s| &s.conditions)
                .any(|c| c.type_ == "Ready" && c.status != "Unknown");
        if has_worked {
            let message = "no node that is ready works with it: see that petiole-agent runs on the nodes near the devices";
            return trouble("NoAgent", message.to_owned());
        }
        Verdict {
            status: "Unknown",
            problem: Problem::new(
                "NotReported",
                "no node has said yet what it makes of it: petiole-agent may not run",
            ),
        }
    }

    /// A node that restarts goes on counting.
    fn is_counted(&self, report: &NodeReport) -> bool {
        let node = self.world.nodes.get(&report.name);
        node.is_some_and(|node| is_working(node, self.now))
    }

    fn forgotten(&self, key: &ObjectKey, configuration: &Configuration) -> Option<Action> {
        let mut gone = BTreeSet::new();
        let mut operations = vec![];
        // From the end: what is removed moves what comes after it.
        for (n, report) in reports(configuration).iter().enumerate().rev() {
            if !self.world.nodes.contains_key(&report.name) {
                gone.insert(report.name.clone());
                operations.extend(without_entry(n, &report.name));
            }
        }
        (!gone.is_empty()).then(|| Action::Forget {
            key: key.clone(),
            gone,
            patch: Patch(operations),
        })
    }
}

fn trouble(reason: &str, message: String) -> Verdict {
    Verdict {
        status: "False",
        problem: Problem::new(reason, message),
    }
}

fn first_trouble(node: &str, problem: &Problem, others: usize) -> String {
    let message = format!("node {node}: {}", problem.message);
    match others {
        0 => message,
        1 => format!("{message} (1 other node has a problem too)"),
        _ => format!("{message} ({others} other nodes have problems too)"),
    }
}

#[cfg(test)]
mod tests;
