//! Says of each Configuration how many of its brokers run, and why others do not. Pure.
use crate::{
    api::{configuration::Problem, reason::Reason},
    model::{instance_name::InstanceKey, typed_names::ConfigurationKey},
};
use std::collections::BTreeMap;

/// The reports of all Configurations that ask for brokers and have a device.
pub(crate) type Reports = BTreeMap<ConfigurationKey, Report>;

/// The number of brokers that a Configuration or an Instance can have, the number that run, and the first reason why others
/// do not.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Report {
    /// The generation of the Configuration that it is about.
    pub(crate) generation: Option<i64>,
    pub(crate) wanted: usize,
    pub(crate) running: usize,
    /// The number of those that the scheduler puts on no node, of Instances that have a broker elsewhere.
    pub(crate) spare: usize,
    /// The worst problem. Of two alike it is the one of the first object by name.
    pub(crate) first: Option<BrokerProblem>,
    /// The reports of the Instances whose brokers do not all run.
    pub(crate) instances: BTreeMap<InstanceKey, Report>,
}

/// A problem of one broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BrokerProblem {
    /// The Pod, the Job or the Instance; empty for a problem of the whole Configuration.
    pub(crate) of: String,
    pub(crate) problem: Problem,
}

/// The reasons from the worst to the mildest: first what the user must correct.
const ORDER: [Reason; 9] = [
    Reason::BrokerSpecInvalid,
    Reason::BrokerRefused,
    Reason::BrokerImage,
    Reason::BrokerCrashes,
    Reason::BrokerNotStarted,
    Reason::BrokerFailed,
    Reason::BrokerUnschedulable,
    Reason::SlotsHeldByLostNode,
    Reason::BrokersStarting,
];

impl Report {
    pub(crate) fn add(&mut self, found: BrokerProblem) {
        let rank = |found: &BrokerProblem| {
            let place = ORDER
                .iter()
                .position(|reason| found.problem.reason == *reason);
            (place.unwrap_or(ORDER.len()), found.of.clone())
        };
        if self
            .first
            .as_ref()
            .is_none_or(|first| rank(&found) < rank(first))
        {
            self.first = Some(found);
        }
    }

    /// Adds the brokers of an Instance.
    pub(crate) fn add_instance(&mut self, instance: &InstanceKey, of: Self) {
        self.wanted += of.wanted;
        self.running += of.running;
        self.spare += of.spare;
        if let Some(found) = of.first.clone() {
            self.add(found);
        }
        if !of.is_ready() {
            self.instances.insert(instance.clone(), of);
        }
    }

    /// Returns the reason and the message of the condition `BrokersReady` of an Instance; `None` if its brokers run.
    pub(crate) fn problem_of(&self, instance: &InstanceKey) -> Option<Problem> {
        let mut of = self.instances.get(instance)?.clone();
        if self.is_refused() {
            of.first.clone_from(&self.first);
        }
        Some(of.problem())
    }

    /// Returns `n/m`, as the column BROKERS has it.
    pub(crate) fn ratio(&self) -> String {
        format!("{}/{}", self.running, self.wanted)
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.running + self.spare >= self.wanted && !self.is_refused()
    }

    /// Returns the problem of the broker spec itself, if it is refused.
    pub(crate) fn refusal(&self) -> Option<Problem> {
        let first = self.first.as_ref()?;
        self.is_refused().then(|| first.problem.clone())
    }

    fn is_refused(&self) -> bool {
        let first = self.first.as_ref();
        first.is_some_and(|first| first.problem.reason == Reason::BrokerSpecInvalid)
    }

    /// Returns the reason and the message of the condition `BrokersReady`.
    pub(crate) fn problem(&self) -> Problem {
        let Self {
            wanted,
            running,
            spare,
            ..
        } = self;
        let count = format!("{running} of {wanted} brokers run");
        match &self.first {
            _ if self.is_ready() && *spare > 0 => Problem::new(
                Reason::BrokersRunOnFewer,
                format!(
                    "{count}: each device has a broker, and the scheduler puts {spare} more on none of the other nodes that see it"
                ),
            ),
            _ if self.is_ready() => Problem::new(Reason::BrokersRun, count),
            Some(BrokerProblem { of, problem }) if of.is_empty() => {
                problem.with_message(format!("{count}: {}", problem.message))
            }
            Some(BrokerProblem { of, problem }) => {
                problem.with_message(format!("{count}; {of}: {}", problem.message))
            }
            None => Problem::new(Reason::BrokersStarting, count),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(reason: Reason, of: &str) -> BrokerProblem {
        BrokerProblem {
            of: of.to_owned(),
            problem: Problem::new(reason, "why"),
        }
    }

    #[test]
    fn the_first_reason_is_what_a_user_can_correct_and_does_not_depend_on_the_order() {
        let all = [
            found(Reason::BrokersStarting, "a"),
            found(Reason::BrokerImage, "c"),
            found(Reason::BrokerImage, "b"),
            found(Reason::BrokerUnschedulable, "a"),
        ];
        for turned in 0..all.len() {
            let mut all = all.to_vec();
            all.rotate_left(turned);
            let mut report = Report {
                wanted: 4,
                ..Report::default()
            };
            all.into_iter().for_each(|one| report.add(one));
            let problem = report.problem();
            assert_eq!(problem.reason, "BrokerImage");
            assert_eq!(problem.message, "0 of 4 brokers run; b: why");
        }
    }

    #[test]
    fn brokers_that_find_no_node_are_no_problem_while_their_devices_have_others() {
        let of = |running, spare| Report {
            wanted: 2,
            running,
            spare,
            ..Report::default()
        };
        let mut report = Report::default();
        report.add_instance(&InstanceKey::new("ns", "a"), of(1, 1));
        report.add_instance(&InstanceKey::new("ns", "b"), of(2, 0));
        assert!(report.is_ready() && report.instances.is_empty());
        assert_eq!(report.ratio(), "3/4");
        assert_eq!(report.problem().reason, "BrokersRunOnFewer");
        report.add_instance(&InstanceKey::new("ns", "c"), of(0, 0));
        assert_eq!(report.problem().reason, "BrokersStarting");
    }

    #[test]
    fn a_refused_spec_is_a_problem_while_the_old_brokers_run() {
        let mut report = Report {
            wanted: 1,
            running: 1,
            ..Report::default()
        };
        assert!(report.is_ready() && report.refusal().is_none());
        report.add(found(Reason::BrokerSpecInvalid, ""));
        assert!(!report.is_ready());
        assert_eq!(report.problem().message, "1 of 1 brokers run: why");
        assert_eq!(report.refusal().unwrap().message, "why");
    }
}
