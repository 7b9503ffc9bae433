//! What became of each Pod: the one home of it, and its words in Kubernetes' terms.
use super::manifest::StaticPod;
use k8s_openapi::jiff::Timestamp;
use std::{collections::BTreeMap, sync::Arc};
use tokio::sync::watch;

/// Every Pod there is, by `namespace/name`.
pub(in crate::kubelet) type Pods = BTreeMap<String, Arc<PodState>>;

#[derive(Debug, Clone, PartialEq)]
pub(in crate::kubelet) struct PodState {
    pub(in crate::kubelet) pod: Arc<StaticPod>,
    pub(in crate::kubelet) phase: Phase,
    /// Why a Pod failed as a whole, and the message.
    pub(in crate::kubelet) failure: Option<(String, String)>,
    pub(in crate::kubelet) started: Timestamp,
    /// Init containers first, in the order of the manifest.
    pub(in crate::kubelet) containers: BTreeMap<String, ContainerState>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::kubelet) enum Phase {
    Pending,
    Running,
    Succeeded,
    Failed,
}

impl Phase {
    pub(in crate::kubelet) fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Running => "Running",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
        }
    }

    /// A Pod that has ended holds no devices any more.
    pub(in crate::kubelet) fn is_over(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(in crate::kubelet) struct ContainerState {
    pub(in crate::kubelet) restarts: i32,
    pub(in crate::kubelet) now: Now,
}

#[derive(Debug, Clone, PartialEq)]
pub(in crate::kubelet) enum Now {
    Waiting { reason: String, message: String },
    Running { since: Timestamp, pid: u32 },
    Ended { code: i32, at: Timestamp },
}

/// Writes one Pod's state.
#[derive(Debug, Clone)]
pub(super) struct Reporter {
    pods: watch::Sender<Pods>,
    key: String,
}

impl Reporter {
    /// Begins a Pod's life.
    pub(super) fn new(pods: watch::Sender<Pods>, pod: Arc<StaticPod>) -> Self {
        let key = pod.key();
        let state = PodState {
            pod,
            phase: Phase::Pending,
            failure: None,
            started: Timestamp::now(),
            containers: BTreeMap::new(),
        };
        pods.send_modify(|pods| drop(pods.insert(key.clone(), Arc::new(state))));
        Self { pods, key }
    }

    pub(super) fn update(&self, change: impl FnOnce(&mut PodState)) {
        self.pods.send_modify(|pods| {
            if let Some(state) = pods.get_mut(&self.key) {
                change(Arc::make_mut(state));
            }
        });
    }

    pub(super) fn container(&self, name: &str, change: impl FnOnce(&mut ContainerState)) {
        self.update(|state| {
            let container =
                state
                    .containers
                    .entry(name.to_owned())
                    .or_insert_with(|| ContainerState {
                        restarts: 0,
                        now: Now::Waiting {
                            reason: "PodInitializing".to_owned(),
                            message: String::new(),
                        },
                    });
            change(container);
        });
    }

    /// Ends a Pod that could not start, or did not end well.
    pub(super) fn fail(&self, reason: &str, message: String) {
        self.update(|state| {
            state.phase = Phase::Failed;
            state.failure = Some((reason.to_owned(), message));
        });
    }

    pub(super) fn phase(&self, phase: Phase) {
        self.update(|state| state.phase = phase);
    }

    /// Ends the Pod's life: its manifest is gone.
    pub(super) fn remove(self) {
        self.pods.send_modify(|pods| drop(pods.remove(&self.key)));
    }
}
