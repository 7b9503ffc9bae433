//! What is known of one Pod while it runs, and how its end follows from its containers'. Pure.
use super::manifest::{StaticPod, is_sidecar};
use crate::kubelet::device_manager::edits::Edits;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::PodSpec;
use std::{collections::BTreeMap, time::Duration};

/// The kubelet's cap for waits between restarts.
const LONGEST_WAIT: Duration = Duration::from_secs(300);
/// A container that ran for so long starts with the first wait again, as in the kubelet.
const RAN_WELL: Duration = Duration::from_secs(600);

#[derive(Debug, Clone)]
pub(crate) struct PodRecord {
    pub(crate) pod: StaticPod,
    pub(crate) started: Timestamp,
    pub(crate) phase: Phase,
    pub(crate) reason: Option<String>,
    pub(crate) message: Option<String>,
    /// By container.
    pub(crate) containers: BTreeMap<String, ContainerRecord>,
    /// Its manifest is gone or has changed.
    pub(crate) is_terminating: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    Pending,
    Running,
    Succeeded,
    Failed,
}

#[derive(Debug, Clone)]
pub(crate) struct ContainerRecord {
    pub(crate) state: State,
    pub(crate) last: Option<Ended>,
    pub(crate) restarts: i32,
    pub(crate) edits: Option<Edits>,
}

#[derive(Debug, Clone)]
pub(crate) enum State {
    Waiting { reason: String, message: String },
    Running { started: Timestamp },
    Ended(Ended),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) exit_code: i32,
    pub(crate) signal: Option<i32>,
    /// Why it could not start at all.
    pub(crate) start_error: Option<String>,
    pub(crate) started: Timestamp,
    pub(crate) finished: Timestamp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RestartPolicy {
    Always,
    OnFailure,
    Never,
}

impl PodRecord {
    pub(crate) fn new(pod: StaticPod, now: Timestamp) -> Self {
        let spec = &pod.spec;
        let all = spec
            .init_containers
            .iter()
            .flatten()
            .chain(&spec.containers);
        let containers = all.map(|c| (c.name.clone(), ContainerRecord::default()));
        Self {
            containers: containers.collect(),
            started: now,
            phase: Phase::Pending,
            reason: None,
            message: None,
            is_terminating: false,
            pod,
        }
    }

    /// Whether it holds its devices, and shows in pod resources.
    pub(crate) fn is_active(&self) -> bool {
        matches!(self.phase, Phase::Pending | Phase::Running)
    }

    /// The Pod was not admitted: final until its manifest changes.
    pub(crate) fn reject(&mut self, reason: &str, message: &str) {
        self.phase = Phase::Failed;
        self.reason = Some(reason.to_owned());
        self.message = Some(format!("Pod was rejected: {message}"));
    }

    /// The phase that follows from its containers, while they run.
    pub(crate) fn update_phase(&mut self) {
        let mains = self.pod.spec.containers.iter();
        let is_running = mains
            .filter_map(|container| self.containers.get(&container.name))
            .any(|record| record.last.is_some() || !matches!(record.state, State::Waiting { .. }));
        if self.phase == Phase::Pending && is_running {
            self.phase = Phase::Running;
        }
    }

    /// All containers have ended for good.
    pub(crate) fn end(&mut self) {
        let spec = &self.pod.spec;
        let init = spec.init_containers.iter().flatten();
        let init = init.filter(|container| !is_sidecar(container));
        let counted = init.chain(&spec.containers);
        let all_well = counted
            .filter_map(|container| self.containers.get(&container.name))
            .all(|record| matches!(&record.state, State::Ended(ended) if ended.exit_code == 0));
        self.phase = if all_well {
            Phase::Succeeded
        } else {
            Phase::Failed
        };
    }
}

impl Default for ContainerRecord {
    fn default() -> Self {
        Self {
            state: State::waiting("PodInitializing", ""),
            last: None,
            restarts: 0,
            edits: None,
        }
    }
}

impl State {
    pub(crate) fn waiting(reason: &str, message: impl Into<String>) -> Self {
        Self::Waiting {
            reason: reason.to_owned(),
            message: message.into(),
        }
    }
}

impl RestartPolicy {
    pub(crate) fn of(spec: &PodSpec) -> Self {
        match spec.restart_policy.as_deref() {
            Some("Never") => Self::Never,
            Some("OnFailure") => Self::OnFailure,
            Some(_) | None => Self::Always,
        }
    }

    /// An init container that has done its work is never run again.
    pub(crate) fn of_init(spec: &PodSpec) -> Self {
        match Self::of(spec) {
            Self::Never => Self::Never,
            Self::Always | Self::OnFailure => Self::OnFailure,
        }
    }

    pub(crate) fn restarts_after(self, exit_code: i32) -> bool {
        match self {
            Self::Always => true,
            Self::OnFailure => exit_code != 0,
            Self::Never => false,
        }
    }
}

/// The wait before a container is started again: doubled each time, from `first` up to 5 minutes.
pub(crate) fn restart_wait(last: Option<Duration>, ran: Duration, first: Duration) -> Duration {
    match last {
        Some(last) if ran < RAN_WELL => (last * 2).min(LONGEST_WAIT),
        Some(_) | None => first.min(LONGEST_WAIT),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_decide_by_exit_code() {
        use RestartPolicy::{Always, Never, OnFailure};
        for (policy, after_0, after_1) in [
            (Always, true, true),
            (OnFailure, false, true),
            (Never, false, false),
        ] {
            assert_eq!(policy.restarts_after(0), after_0, "{policy:?}");
            assert_eq!(policy.restarts_after(1), after_1, "{policy:?}");
        }
    }

    #[test]
    fn waits_double_up_to_five_minutes_and_start_over_after_ten_good_ones() {
        let seconds = Duration::from_secs;
        let wait = |last, ran| restart_wait(last, seconds(ran), seconds(10));
        assert_eq!(wait(None, 0), seconds(10));
        assert_eq!(wait(Some(seconds(10)), 1), seconds(20));
        assert_eq!(wait(Some(seconds(200)), 1), seconds(300));
        assert_eq!(wait(Some(seconds(300)), 600), seconds(10));
    }
}
