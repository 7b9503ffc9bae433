//! Holds the state of one Pod while it runs, and derives the Pod's phase from its containers. Pure.
use super::manifest::{StaticPod, containers, is_sidecar};
use crate::device_manager::edits::Edits;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::PodSpec;
use petiole_base::backoff::doubled;
use std::{collections::BTreeMap, time::Duration};

/// The Go kubelet's limit of the wait between restarts.
const LONGEST_WAIT: Duration = Duration::from_secs(300);
/// The run time after which the back-off starts anew, as in the Go kubelet.
const RESET_AFTER: Duration = Duration::from_secs(600);

#[derive(Debug, Clone)]
pub(crate) struct PodRecord {
    pub(crate) pod: StaticPod,
    pub(crate) started: Timestamp,
    pub(crate) phase: Phase,
    pub(crate) reason: Option<String>,
    pub(crate) message: Option<String>,
    /// The containers by name.
    pub(crate) containers: BTreeMap<String, ContainerRecord>,
    /// The manifest was removed or changed.
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
    /// The error, if the container could not start.
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
        let containers = containers(&pod.spec);
        let containers = containers.map(|c| (c.name.clone(), ContainerRecord::default()));
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

    /// Returns whether the Pod holds its devices and appears in pod resources.
    pub(crate) fn is_active(&self) -> bool {
        matches!(self.phase, Phase::Pending | Phase::Running)
    }

    /// Records that the Pod was not admitted. That is final until its manifest changes.
    pub(crate) fn reject(&mut self, reason: &str, message: &str) {
        self.phase = Phase::Failed;
        self.reason = Some(reason.to_owned());
        self.message = Some(format!("Pod was rejected: {message}"));
    }

    /// Derives the phase from the containers while they run.
    pub(crate) fn update_phase(&mut self) {
        let mains = self.pod.spec.containers.iter();
        let is_running = mains
            .filter_map(|container| self.containers.get(&container.name))
            .any(|record| record.last.is_some() || !matches!(record.state, State::Waiting { .. }));
        if self.phase == Phase::Pending && is_running {
            self.phase = Phase::Running;
        }
    }

    /// Sets the final phase. All containers have ended for good.
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

    /// Returns the policy of init containers: one that has succeeded never runs again.
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

/// Returns the wait before a container starts again. It doubles each time, from `first` up to 5 minutes.
pub(crate) fn restart_wait(last: Option<Duration>, ran: Duration, first: Duration) -> Duration {
    doubled(last.filter(|_| ran < RESET_AFTER), first, LONGEST_WAIT)
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
