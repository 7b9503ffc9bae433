//! The conditions of a Configuration, without their times. Pure.
use crate::{
    api::{
        broker,
        condition::{Condition, ConditionStatus, ConditionType},
        configuration::{Configuration, NodeReport, Problem},
        reason::Reason,
    },
    controller::{brokers::report::Report, clock::elapsed, pod_state::one_line, world::World},
};
use k8s_openapi::jiff::Timestamp;
use std::time::Duration;

/// The most late nodes that a condition names.
const NAMED_MAX: usize = 3;
/// The time after which it names them. Nodes validate a change within seconds.
const NAMED_AFTER: Duration = Duration::from_secs(15);

/// A condition without its time.
pub(super) struct Verdict {
    pub(super) status: ConditionStatus,
    pub(super) problem: Problem,
}

/// Returns the condition of the brokers; `None` of a Configuration without a broker spec.
pub(super) fn of_brokers(
    report: Option<&Report>,
    configuration: &Configuration,
) -> Option<(ConditionType, Verdict)> {
    if !wants_brokers(configuration) {
        return None;
    }
    let verdict = match report.filter(|r| r.wanted > 0 || r.refusal().is_some()) {
        None => Verdict {
            status: ConditionStatus::Unknown,
            problem: Problem::new(
                Reason::NoDevice,
                "there is no device that a broker could use",
            ),
        },
        Some(report) => Verdict {
            status: if report.is_ready() {
                ConditionStatus::True
            } else {
                ConditionStatus::False
            },
            problem: report.problem(),
        },
    };
    Some((ConditionType::BrokersReady, verdict))
}

pub(super) fn wants_brokers(configuration: &Configuration) -> bool {
    broker::wanted(configuration.spec.broker_spec.as_ref()).is_some()
}

/// Returns the problems that are new, each reason once.
pub(super) fn troubles(
    verdicts: &[(ConditionType, Verdict)],
    before: &[Condition],
) -> Vec<Problem> {
    let mut troubles: Vec<Problem> = vec![];
    for (type_, verdict) in verdicts {
        let new = new_trouble(Condition::of_type(before, *type_), verdict);
        let is_reported = |new: &Problem| {
            troubles
                .iter()
                .any(|reported| reported.reason == new.reason)
        };
        if let Some(new) = new.filter(|new| !is_reported(new)) {
            troubles.push(new);
        }
    }
    troubles
}

/// Returns the problem of a condition that has become false, or is false for another reason. Brokers that start are no
/// problem yet.
fn new_trouble(before: Option<&Condition>, now: &Verdict) -> Option<Problem> {
    let Verdict { status, problem } = now;
    let is_reported = before.is_some_and(|c| c.has_status(*status) && c.reason == problem.reason);
    let is_trouble = *status == ConditionStatus::False && problem.reason != Reason::BrokersStarting;
    (is_trouble && !is_reported).then(|| problem.clone())
}

pub(super) fn trouble(problem: Problem) -> Verdict {
    Verdict {
        status: ConditionStatus::False,
        problem,
    }
}

pub(super) fn not_reported(message: &str) -> Verdict {
    Verdict {
        status: ConditionStatus::Unknown,
        problem: Problem::new(Reason::NotReported, message),
    }
}

/// Returns the reports of the nodes that have no place for a Configuration: of all that they leave out they say one thing.
pub(super) fn left_out_by(
    world: &World,
    configuration: &Configuration,
    reports: &[NodeReport],
) -> Vec<NodeReport> {
    let objects = world.node_devices.iter();
    let left_out = objects.filter_map(|(node, object)| {
        let problem = object.spec.left_out.clone()?;
        let is_selected = configuration.selects(&world.nodes.get(node)?.labels);
        let is_reported = reports.iter().any(|report| report.name == *node);
        (is_selected && !is_reported).then(|| NodeReport {
            name: node.clone(),
            instances: 0,
            problems: vec![problem],
        })
    });
    left_out.collect()
}

/// Returns why the condition waits for nodes. A few nodes are named once the condition has waited for some time: before, each
/// of their reports would be another write of the status.
pub(super) fn awaits(late: &[&str], configuration: &Configuration, now: Timestamp) -> String {
    let is_named = named_in(late, configuration, now).is_some_and(|left| left.is_zero());
    let (who, place) = match (is_named, late) {
        (true, [node]) => (format!("node {node} has"), "there"),
        (true, nodes) => (format!("nodes {} have", nodes.join(", ")), "there"),
        (false, _) => ("some nodes have".to_owned(), "on all of them"),
    };
    format!(
        "{who} not looked at its current spec: see that petiole-agent runs {place}, and delete the NodeDevices of a node that has no agent any more"
    )
}

/// Returns the time until late nodes are named; `None` if they are too many, or the condition does not wait for them.
pub(super) fn named_in(
    late: &[&str],
    configuration: &Configuration,
    now: Timestamp,
) -> Option<Duration> {
    if late.is_empty() || late.len() > NAMED_MAX {
        return None;
    }
    let ready = configuration.condition(ConditionType::Ready)?;
    let since = ready.last_transition_time.parse().unwrap_or(now);
    ready
        .has_status(ConditionStatus::Unknown)
        .then(|| NAMED_AFTER.saturating_sub(elapsed(since, now)))
}

/// Returns the first trouble in one line.
pub(super) fn first_trouble(node: &str, problem: &Problem, others: usize) -> String {
    let message = one_line(&problem.message);
    match others {
        0 => format!("on {node}: {message}"),
        more => format!("on {node} and {more} more: {message}"),
    }
}
