//! Decides the status of each Configuration. Pure.
use super::{
    instances,
    learned::{held, is_held},
    verdict::{
        Verdict, awaits, first_trouble, left_out_by, named_in, not_reported, of_brokers, trouble,
        troubles, wants_brokers,
    },
};
use crate::{
    api::{
        condition::{self, Condition, ConditionStatus, ConditionType},
        configuration::{Configuration, ConfigurationStatus, NodeReport, Problem},
        instance::Instance,
        node_devices::ConfigurationView,
        reason::Reason,
        same_name::{Winner, name_taken},
        without_instances,
    },
    controller::{
        brokers::report::{Report, Reports},
        clock::elapsed,
        nodes::{is_working, settles_in},
        outcome::Problems,
        queue::Waits,
        world::World,
    },
    model::{
        budget::json_bytes,
        instance_name::InstanceKey,
        limits,
        patch::{add, remove, test},
        typed_names::{ConfigurationKey, NodeName},
    },
};
use json_patch::Patch;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The most bytes of the entries of nodes in a status, which each agent reads. Beyond it: the status has those that come first by name,
/// and the condition counts all.
const ENTRIES_BYTES_MAX: usize = 128 << 10;

#[derive(Debug, Default, PartialEq)]
pub(crate) struct Plan {
    pub(crate) actions: Vec<Action>,
    pub(crate) waits: Waits,
}

/// An object with a status that the controller writes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Object {
    Configuration(ConfigurationKey),
    Instance(InstanceKey),
}

/// A write of the status of a Configuration or an Instance.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Action {
    pub(crate) object: Object,
    pub(crate) patch: Patch,
    /// The problems of Events: of each condition that has become false or has another reason.
    pub(crate) troubles: Vec<Problem>,
}

/// The inputs of a plan.
#[derive(Clone, Copy)]
pub(crate) struct StatusInputs<'a> {
    pub(crate) world: &'a World,
    pub(crate) brokers: &'a Reports,
    /// The problems with Services and with the names of Instances.
    pub(crate) problems: &'a Problems,
    /// The time by which this replica has tried what it has written, and knows what is refused; `None` if it does.
    pub(crate) learns_until: Option<Timestamp>,
}

pub(crate) fn plan(seen: StatusInputs<'_>, now: Timestamp) -> Plan {
    let world = seen.world;
    let mut plan = Plan::default();
    let view = View {
        world,
        seen,
        now,
        first: world.oldest_of_each_name(),
        views: views(world),
    };
    for (key, configuration) in &world.configurations {
        if configuration.metadata.deletion_timestamp.is_some() {
            continue;
        }
        let reports = view.reports(key, configuration);
        plan.actions
            .extend(view.written(key, configuration, &reports));
        let nodes = reports
            .iter()
            .filter_map(|report| world.nodes.get(&report.name));
        let until = seen.learns_until.filter(|_| is_held(configuration));
        until
            .into_iter()
            .for_each(|until| plan.waits.add(elapsed(now, until)));
        let settle = nodes.filter_map(|node| settles_in(node, now));
        let named = named_in(&view.late(key, configuration), configuration, now);
        for left in settle.chain(named).filter(|left| !left.is_zero()) {
            plan.waits.add(left);
        }
    }
    let patches = instances::patches(world, seen.brokers, now).into_iter();
    (plan.actions).extend(patches.map(|(key, patch)| Action {
        object: Object::Instance(key),
        patch,
        troubles: vec![],
    }));
    plan
}

type Views<'a> = BTreeMap<ConfigurationKey, Vec<(&'a NodeName, &'a ConfigurationView)>>;

/// Returns the reports about each Configuration in all NodeDevices.
fn views(world: &World) -> Views<'_> {
    let mut views = Views::new();
    for (node, view) in world.views() {
        let key = ConfigurationKey::new(&view.namespace, view.name.as_str());
        // A node that the nodeSelector leaves out has nothing to say about it, whatever it reports.
        if world.selects(&key, node) {
            views.entry(key).or_default().push((node, view));
        }
    }
    views
}

struct View<'a> {
    world: &'a World,
    seen: StatusInputs<'a>,
    now: Timestamp,
    first: BTreeMap<&'a str, &'a ConfigurationKey>,
    views: Views<'a>,
}

impl View<'_> {
    /// Returns the reports of all nodes.
    fn reports(&self, key: &ConfigurationKey, configuration: &Configuration) -> Vec<NodeReport> {
        let views = self.views.get(key).into_iter().flatten();
        let seen = views.map(|(node, view)| NodeReport {
            name: (*node).clone(),
            instances: 0,
            problems: if view.is_late(configuration) {
                vec![]
            } else {
                view.problems.clone()
            },
        });
        let mut reports: Vec<NodeReport> = seen.collect();
        reports.extend(left_out_by(self.world, configuration, &reports));
        reports.sort_by(|a, b| a.name.cmp(&b.name));
        // A node may say anything of itself, and the status has it once.
        reports.dedup_by(|a, b| a.name == b.name);
        reports
    }

    /// Returns the entries of the nodes with problems.
    fn entries(&self, key: &ConfigurationKey, reports: &[NodeReport]) -> Vec<NodeReport> {
        let is_entered = |report: &&NodeReport| {
            !report.problems.is_empty() && self.world.nodes.contains_key(&report.name)
        };
        let entry = |report: &NodeReport| NodeReport {
            instances: self.count(key, |instance| instance.spec.nodes.contains(&report.name)),
            ..report.clone()
        };
        let entered = reports.iter().filter(is_entered).take(limits::NODES_MAX);
        let mut bytes = 0;
        let fits = |entry: &NodeReport| {
            bytes += json_bytes(entry);
            bytes <= ENTRIES_BYTES_MAX
        };
        entered.map(entry).take_while(fits).collect()
    }

    /// Counts the Instances of a Configuration that `is_counted` selects. In a part, a namespace has mostly one Configuration.
    fn count(&self, key: &ConfigurationKey, is_counted: impl Fn(&Instance) -> bool) -> i64 {
        let first = InstanceKey::new(&key.namespace, "");
        let from = self.world.instances.range(first..);
        let of_namespace = from.take_while(|(of, _)| of.namespace == key.namespace);
        let counted = of_namespace.filter(|(_, instance)| {
            instance.spec.configuration_name == key.name && is_counted(instance)
        });
        i64::try_from(counted.count()).unwrap_or(i64::MAX)
    }

    fn written(
        &self,
        key: &ConfigurationKey,
        configuration: &Configuration,
        reports: &[NodeReport],
    ) -> Option<Action> {
        let none = ConfigurationStatus::default();
        let before = configuration.status.as_ref().unwrap_or(&none);
        let generation = configuration.metadata.generation;
        let ready = self.verdict(key, configuration, reports);
        let seen = self.seen.brokers.get(key);
        // A report about an earlier generation says nothing of this one: what was written stays, with its generation.
        let is_late = seen.is_some_and(|report| report.generation != generation);
        let brokers = of_brokers(seen, configuration).filter(|_| !is_late);
        let verdicts = [Some((ConditionType::Ready, ready)), brokers];
        let is_early = self.seen.learns_until.is_some();
        let held = |(type_, verdict)| (type_, held(configuration, type_, verdict, is_early));
        let verdicts: Vec<_> = verdicts.into_iter().flatten().map(held).collect();
        let troubles = troubles(&verdicts, &before.conditions);
        let condition = |(type_, Verdict { status, problem })| {
            let Problem { reason, message } = problem;
            let time = condition::time(self.now);
            let condition = Condition {
                observed_generation: generation,
                ..Condition::new(type_, status, &reason, message, &time)
            };
            condition.replacing(&before.conditions)
        };
        let mut conditions: Vec<_> = verdicts.into_iter().map(condition).collect();
        let kept = Condition::of_type(&before.conditions, ConditionType::BrokersReady);
        conditions.extend(
            kept.filter(|_| is_late && wants_brokers(configuration))
                .cloned(),
        );
        let brokers = wants_brokers(configuration).then(|| match seen {
            Some(_) if is_late => before.brokers.clone().unwrap_or_default(),
            Some(report) => report.ratio(),
            None => "0/0".to_owned(),
        });
        let instances = self.count(key, |_| true);
        let nodes = self.entries(key, reports);
        if configuration.status.is_some()
            && before.conditions == conditions
            && before.instances == instances
            && before.brokers == brokers
            && before.nodes == nodes
            && before.observed_generation == generation
        {
            return None;
        }
        let after = ConfigurationStatus {
            observed_generation: generation,
            conditions,
            instances,
            brokers,
            nodes,
        };
        Some(Action {
            object: Object::Configuration(key.clone()),
            patch: patch(configuration, &after),
            troubles,
        })
    }

    /// Returns the condition by the reports of the nodes, or without a report by what the controller knows.
    fn verdict(
        &self,
        key: &ConfigurationKey,
        configuration: &Configuration,
        reports: &[NodeReport],
    ) -> Verdict {
        // Agents read no specs of brokers and Services.
        if let Err(message) = without_instances::check(&configuration.spec) {
            return trouble(Problem::new(Reason::BadSpec, message));
        }
        let counted: Vec<&NodeReport> = (reports.iter())
            .filter(|report| self.is_counted(report))
            .collect();
        let troubled: Vec<_> = (counted.iter())
            .filter_map(|report| Some((&report.name, report.problems.first()?)))
            .collect();
        if let [(node, problem), others @ ..] = troubled.as_slice() {
            let message = first_trouble(node, problem, others.len());
            return trouble(problem.with_message(message));
        }
        let brokers = self.seen.brokers.get(key).and_then(Report::refusal);
        if let Some(refused) = brokers.or_else(|| self.seen.problems.get(key).cloned()) {
            return trouble(refused);
        }
        if self.leaves_all_out(configuration) {
            let message = "spec.nodeSelector leaves out every node that petiole-agent runs on: compare it with `kubectl get nodes --show-labels`";
            return trouble(Problem::new(Reason::NoNodeSelected, message));
        }
        let late = self.late(key, configuration);
        if !late.is_empty() {
            return not_reported(&awaits(&late, configuration, self.now));
        }
        if !counted.is_empty() {
            return Verdict {
                status: ConditionStatus::True,
                problem: Problem::new(Reason::Working, "every device that is found is offered"),
            };
        }
        if let Some(first) = self
            .first
            .get(key.name.as_str())
            .filter(|first| **first != key)
        {
            return trouble(name_taken(first, Winner::Works));
        }
        let ready = configuration.condition(ConditionType::Ready);
        let has_worked = !reports.is_empty()
            || ready.is_some_and(|ready| !ready.has_status(ConditionStatus::Unknown));
        if has_worked {
            let message = "no node that is ready works with it: see that petiole-agent runs on the nodes near the devices";
            return trouble(Problem::new(Reason::NoAgent, message));
        }
        not_reported("no node has said yet what it makes of it: petiole-agent may not run")
    }

    /// Returns the nodes that work and whose last report is about an earlier generation.
    fn late(&self, key: &ConfigurationKey, configuration: &Configuration) -> Vec<&str> {
        let views = self.views.get(key).into_iter().flatten();
        let late = views.filter(|(name, view)| {
            let node = self.world.nodes.get(*name);
            view.is_late(configuration) && node.is_some_and(|node| is_working(node, self.now))
        });
        late.map(|(name, _)| name.as_str()).collect()
    }

    /// Returns whether there are nodes with an agent, and `spec.nodeSelector` selects none of them.
    fn leaves_all_out(&self, configuration: &Configuration) -> bool {
        let world = self.world;
        let with_agent = (world.node_devices.keys()).filter_map(|name| world.nodes.get(name));
        let mut working = with_agent
            .filter(|node| is_working(node, self.now))
            .peekable();
        working.peek().is_some() && !working.any(|node| configuration.selects(&node.labels))
    }

    /// A node that restarts goes on counting.
    fn is_counted(&self, report: &NodeReport) -> bool {
        let node = self.world.nodes.get(&report.name);
        node.is_some_and(|node| is_working(node, self.now))
    }
}

/// Returns the patch of the status. It does not apply to a later object of the same name.
fn patch(configuration: &Configuration, after: &ConfigurationStatus) -> Patch {
    let mut patch = vec![test(
        &["metadata", "uid"],
        json!(configuration.metadata.uid),
    )];
    let mut status = json!(after);
    let fields = status
        .as_object_mut()
        .filter(|_| configuration.status.is_some());
    if let Some(fields) = fields.map(std::mem::take) {
        let before = configuration.status.as_ref();
        if after.brokers.is_none() && before.is_some_and(|before| before.brokers.is_some()) {
            patch.push(remove(&["status", "brokers"]));
        }
        let fields = fields.into_iter();
        patch.extend(fields.map(|(field, value)| add(&["status", &field], value)));
    } else {
        patch.push(test(&["status"], Value::Null));
        patch.push(add(&["status"], status));
    }
    Patch(patch)
}

#[cfg(test)]
mod tests;
