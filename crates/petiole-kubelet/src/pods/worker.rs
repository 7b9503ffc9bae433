//! Runs one Pod from admission to its end: allocates devices, runs the init containers in order, then the main
//! containers.
use super::{
    expand::command_line,
    logs::log_path,
    manifest::{StaticPod, containers, is_sidecar, limits},
    orphans::RecordFolder,
    plan::reuse,
    process::Process,
    record::{ContainerRecord, Ended, RestartPolicy, State, restart_wait},
    table::Pods,
};
use crate::{
    device_manager::{StartError, manager::DeviceManager},
    settings::Settings,
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Container;
use std::{sync::Arc, time::Duration};
use tokio::{task::JoinSet, time::sleep};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

/// The default grace period in Kubernetes.
const DEFAULT_GRACE_SECONDS: i64 = 30;
/// The longest wait before the next attempt to start a container that waits for its devices (pod_workers.go:
/// `backOffPeriod`).
const LONGEST_RETRY: Duration = Duration::from_secs(10);

#[derive(Clone)]
pub(super) struct Worker {
    pub(super) settings: Arc<Settings>,
    pub(super) devices: DeviceManager,
    pub(super) pods: Pods,
    pub(super) pod: Arc<StaticPod>,
    pub(super) stop: CancellationToken,
}

/// The reason that a container does not start now.
enum NotStarted {
    /// The start is tried again, whatever the restart policy. `until` is the resource whose registration ends the wait
    /// early.
    Waiting { state: State, until: Option<String> },
    /// The start counts as a failed run.
    Failed(Ended),
}

impl Worker {
    pub(super) async fn run(self) {
        let admitted = tokio::select! {
            admitted = self.admit() => admitted,
            () = self.stop.cancelled() => Ok(()),
        };
        match admitted {
            Err(message) => {
                warn!(pod = %self.pod.key, %message, "pod not admitted");
                self.pods.update(&self.pod.key, |record| {
                    record.reject("UnexpectedAdmissionError", &message);
                });
            }
            Ok(()) => {
                self.run_containers().await;
                self.pods.update(&self.pod.key, |record| record.end());
            }
        }
        // The devices stay with the Pods of a kubelet that stops: they start again with the next kubelet.
        let is_kept = self.stop.is_cancelled() && !self.is_terminating();
        if !is_kept {
            self.devices.retain_pods(|uid| uid != self.pod.uid);
        }
    }

    fn is_terminating(&self) -> bool {
        let table = self.pods.table();
        table
            .get(&self.pod.key)
            .is_none_or(|record| record.is_terminating)
    }

    /// Allocates the devices of all containers, in the Go kubelet's order.
    async fn admit(&self) -> Result<(), String> {
        let unexpected =
            |e: &dyn std::fmt::Display| format!("Allocate failed due to {e}, which is unexpected");
        for container in containers(&self.pod.spec) {
            let holder = self.pod.holder(container);
            let limits = limits(container).map_err(|e| unexpected(&e))?;
            let reuse = reuse(&self.pod, container);
            let allocated = self.devices.allocate(&holder, &limits, &reuse).await;
            allocated.map_err(|e| unexpected(&e))?;
        }
        Ok(())
    }

    async fn run_containers(&self) {
        let spec = &self.pod.spec;
        let stop_sidecars = CancellationToken::new();
        let mut sidecars = JoinSet::new();
        for container in spec.init_containers.iter().flatten() {
            if self.stop.is_cancelled() {
                break;
            }
            if is_sidecar(container) {
                let (worker, stop) = (self.clone(), stop_sidecars.clone());
                let sidecar = container.clone();
                sidecars.spawn(async move {
                    worker
                        .keep_running(&sidecar, RestartPolicy::Always, &stop)
                        .await;
                });
                self.until_started(&container.name).await;
            } else {
                let policy = RestartPolicy::of_init(spec);
                if self.keep_running(container, policy, &self.stop).await != Some(0) {
                    stop_sidecars.cancel();
                    sidecars.join_all().await;
                    return;
                }
            }
        }
        let mut mains = JoinSet::new();
        for container in &spec.containers {
            let (worker, container) = (self.clone(), container.clone());
            mains.spawn(async move {
                let policy = RestartPolicy::of(&worker.pod.spec);
                worker.keep_running(&container, policy, &worker.stop).await
            });
        }
        mains.join_all().await;
        stop_sidecars.cancel();
        sidecars.join_all().await;
    }

    /// Runs the container repeatedly, as the policy says. Returns its last exit code.
    async fn keep_running(
        &self,
        container: &Container,
        policy: RestartPolicy,
        stop: &CancellationToken,
    ) -> Option<i32> {
        let backoff = self.settings.restart_backoff;
        let (mut last_wait, mut last_retry) = (None, None);
        while !stop.is_cancelled() {
            let started = tokio::select! {
                started = self.start(container) => started,
                () = stop.cancelled() => return None,
            };
            let ran = match started {
                Ok(process) => {
                    let ended = self.run_to_end(container, process, stop).await;
                    let ran = ended.finished.duration_since(ended.started).unsigned_abs();
                    if stop.is_cancelled() || !policy.restarts_after(ended.exit_code) {
                        return Some(ended.exit_code);
                    }
                    ran
                }
                Err(NotStarted::Failed(ended)) => {
                    let exit_code = ended.exit_code;
                    self.update(container, |record| record.state = State::Ended(ended));
                    if !policy.restarts_after(exit_code) {
                        return Some(exit_code);
                    }
                    Duration::ZERO
                }
                Err(NotStarted::Waiting { state, until }) => {
                    self.update(container, |record| record.state = state);
                    let wait = restart_wait(last_retry, Duration::ZERO, backoff).min(LONGEST_RETRY);
                    last_retry = Some(wait);
                    tokio::select! {
                        () = sleep(wait) => {}
                        () = stop.cancelled() => {}
                        () = self.devices.until_known(until.as_deref()) => {}
                    }
                    continue;
                }
            };
            last_retry = None;
            let wait = restart_wait(last_wait, ran, backoff);
            last_wait = Some(wait);
            self.update(container, |record| back_off(record, container, wait));
            tokio::select! {
                () = sleep(wait) => {}
                () = stop.cancelled() => {}
            }
        }
        None
    }

    async fn start(&self, container: &Container) -> Result<Process, NotStarted> {
        let limits = limits(container).map_err(|e| config_error(&e))?;
        let holder = self.pod.holder(container);
        let reuse = reuse(&self.pod, container);
        let edits = self.devices.start_options(&holder, &limits, &reuse);
        let edits = edits.await.map_err(|error| match &error {
            StartError::NotRegisteredYet(resource) => NotStarted::Waiting {
                state: State::waiting("DevicePluginNotReady", error.to_string()),
                until: Some(resource.clone()),
            },
            StartError::NoEndpoint(_)
            | StartError::NoDevices { .. }
            | StartError::Allocation(_) => config_error(&error),
        })?;
        let line = command_line(container, &edits.env).map_err(|e| config_error(&e))?;
        self.update(container, |record| record.edits = Some(edits));
        let key = &self.pod.key;
        let log = log_path(&self.settings.root_dir, key, &container.name);
        let working_dir = container.working_dir.as_deref();
        let records = RecordFolder::new(&self.settings.root_dir, self.grace());
        let started = Process::start(&line, &key.name, working_dir, &log, &records);
        started.map_err(|error| {
            let now = Timestamp::now();
            NotStarted::Failed(Ended {
                exit_code: 128,
                signal: None,
                start_error: Some(error.to_string()),
                started: now,
                finished: now,
            })
        })
    }

    async fn run_to_end(
        &self,
        container: &Container,
        process: Process,
        stop: &CancellationToken,
    ) -> Ended {
        let started = process.started();
        info!(pod = %self.pod.key, container = %container.name, "container started");
        self.update(container, |record| {
            record.state = State::Running { started };
        });
        let ended = process.end(stop, self.grace()).await;
        let ended = ended.unwrap_or_else(|error| Ended {
            exit_code: 255,
            signal: None,
            start_error: Some(error.to_string()),
            started,
            finished: Timestamp::now(),
        });
        info!(pod = %self.pod.key, container = %container.name, exit_code = ended.exit_code, "container ended");
        self.update(container, |record| {
            record.state = State::Ended(ended.clone());
        });
        ended
    }

    /// Returns the time between SIGTERM and SIGKILL.
    fn grace(&self) -> Duration {
        let seconds = self.pod.spec.termination_grace_period_seconds;
        let seconds = u64::try_from(seconds.unwrap_or(DEFAULT_GRACE_SECONDS));
        Duration::from_secs(seconds.unwrap_or(0))
    }

    /// Waits until a sidecar has started. A sidecar that has ended before counts as started.
    async fn until_started(&self, name: &str) {
        let mut changes = self.pods.table.subscribe();
        let started = changes.wait_for(|table| {
            let record = table.get(&self.pod.key);
            let record = record.and_then(|record| record.containers.get(name));
            record.is_none_or(|record| {
                record.restarts > 0
                    || matches!(record.state, State::Running { .. } | State::Ended(_))
            })
        });
        tokio::select! {
            started = started => drop(started),
            () = self.stop.cancelled() => {}
        }
    }

    fn update(&self, container: &Container, change: impl FnOnce(&mut ContainerRecord)) {
        self.pods.update(&self.pod.key, |record| {
            change(record.containers.entry(container.name.clone()).or_default());
        });
    }
}

fn config_error(error: &dyn std::fmt::Display) -> NotStarted {
    NotStarted::Waiting {
        state: State::waiting("CreateContainerConfigError", error.to_string()),
        until: None,
    }
}

/// Moves the end of a run to the last state, and sets the container to wait for its next start.
fn back_off(record: &mut ContainerRecord, container: &Container, wait: Duration) {
    if let State::Ended(ended) = &record.state {
        record.last = Some(ended.clone());
        record.restarts += 1;
        let message = format!("back-off {wait:?} restarting container {}", container.name);
        record.state = State::waiting("CrashLoopBackOff", message);
    }
}
