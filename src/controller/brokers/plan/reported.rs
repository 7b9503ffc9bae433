//! Says of each Instance how many of its Pods run, and why the others do not. Pure.
use super::{
    super::report::{BrokerProblem, Report},
    planner::{Planner, SeeingNode, Serving, Target, WantedPods},
};
use crate::{
    api::{configuration::Problem, reason::Reason},
    controller::{nodes::notices::is_used_up, pod_state::one_line, world::BrokerPod},
    model::names::ObjectKey,
};
use std::time::Duration;

/// A Pod for which the scheduler finds no node counts as starting for so long: a new node or resource may need a moment.
const REFUSED_FOR: Duration = Duration::from_secs(5);
/// The same for a Pod of a device whose slots are all in use: the slot of a Pod that has ended is released 3 to 15 s later.
const SLOT_WAIT: Duration = Duration::from_secs(30);
/// A container that crashed and was started again counts as crashing for so long.
const RUNS_AGAIN: Duration = Duration::from_secs(10);

/// Why there are fewer Pods than are wanted.
#[derive(Default)]
pub(super) struct Gaps {
    /// The names of the Pods that are created now, or again later.
    pub(super) absent: Vec<ObjectKey>,
    /// True if somebody else's Pods have the names of others.
    pub(super) is_nameless: bool,
    /// True if a Pod has ended and has no successor yet.
    pub(super) has_ended: bool,
    /// The number of slots that lost nodes hold.
    pub(super) lost: usize,
}

impl<'a> Planner<'a> {
    /// Adds the brokers of an Instance to the report of its Configuration.
    pub(super) fn report_pods(
        &mut self,
        wanted: WantedPods<'a, '_>,
        places: &[SeeingNode<'a>],
        serving: &[Serving<'a>],
        gaps: &Gaps,
    ) {
        let target = wanted.target;
        let capacity = usize::try_from(target.subject.instance.spec.capacity).unwrap_or(0);
        let fit = places.iter().filter(|place| place.is_fit).count();
        let mut report = Report {
            wanted: capacity.min(fit.max(serving.len())),
            ..Report::default()
        };
        let mut waiting = vec![];
        for Serving { key, pod } in serving {
            let found = |problem| BrokerProblem {
                of: key.name.clone(),
                problem,
            };
            match self.trouble(target, pod).or_else(|| starting(pod)) {
                None => report.running += 1,
                Some(why) if why.reason == Reason::BrokerUnschedulable => waiting.push(found(why)),
                Some(why) => report.add(found(why)),
            }
        }
        match report.running {
            0 => waiting.into_iter().for_each(|found| report.add(found)),
            _ => report.spare = waiting.len(),
        }
        if serving.len() < report.wanted {
            report.add(self.missing(wanted, gaps));
        }
        self.report(target, report);
    }

    /// Returns why a Pod does not run. What is usual while it starts is none for some seconds.
    pub(super) fn trouble(&mut self, target: Target<'a>, pod: &BrokerPod) -> Option<Problem> {
        if let Some((since, crash)) = &pod.restarted
            && !self.has_passed(RUNS_AGAIN, *since)
        {
            return Some(crash.clone());
        }
        if pod.is_available {
            return None;
        }
        if pod.trouble.is_some() {
            return pod.trouble.clone();
        }
        let refusal = pod.unscheduled.as_ref().filter(|_| pod.node.is_none())?;
        let patience = if is_used_up(target.subject.instance) {
            SLOT_WAIT
        } else {
            REFUSED_FOR
        };
        if refusal
            .since
            .is_some_and(|since| !self.has_passed(patience, since))
        {
            return None;
        }
        let says = one_line(&refusal.message);
        let message = format!(
            "it waits, because the scheduler puts it on none of the nodes that see the device: {says}"
        );
        Some(Problem::new(Reason::BrokerUnschedulable, message))
    }

    /// Returns why a broker that is wanted has no Pod.
    fn missing(&self, wanted: WantedPods<'a, '_>, gaps: &Gaps) -> BrokerProblem {
        let WantedPods { target, digest, .. } = wanted;
        let failures = &self.input.memory.failures;
        let refusal = |key: &ObjectKey| {
            let message = one_line(failures.refusal(key, digest)?);
            Some(BrokerProblem {
                of: key.name.clone(),
                problem: Problem::new(Reason::BrokerRefused, message),
            })
        };
        if let Some(refusal) = gaps.absent.iter().find_map(refusal) {
            return refusal;
        }
        let fails = |key: &ObjectKey| failures.count(key, digest) > 0;
        let (reason, message) = if gaps.is_nameless {
            let message = "other Pods have the names of its brokers: delete or rename them";
            (Reason::BrokerRefused, message)
        } else if gaps.has_ended || gaps.absent.iter().any(fails) {
            (Reason::BrokerFailed, "a broker ended, and another follows")
        } else if gaps.lost > 0 {
            let message = "a lost node holds the slots of the device";
            (Reason::SlotsHeldByLostNode, message)
        } else {
            (Reason::BrokersStarting, "a broker is being created")
        };
        BrokerProblem {
            of: target.subject.key.name.to_string(),
            problem: Problem::new(reason, message),
        }
    }
}

fn starting(pod: &BrokerPod) -> Option<Problem> {
    (!pod.is_available).then(|| Problem::new(Reason::BrokersStarting, "it starts"))
}
