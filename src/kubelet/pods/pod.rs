//! The life of one Pod: admission, init containers one after another, then the others side by side.
use super::{
    Context,
    manifest::{StaticPod, device_limits, is_sidecar},
    plan::{AfterEnd, after_end},
    process::{Process, environment},
    status::{Now, Phase, Reporter},
};
use crate::kubelet::device_manager::{Holder, Request};
use futures::future::join_all;
use k8s_openapi::{api::core::v1::Container, jiff::Timestamp};
use std::{sync::Arc, time::Duration};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

/// As in a PodSpec without the field.
const DEFAULT_GRACE: i64 = 30;

pub(super) struct PodRun {
    pub(super) context: Arc<Context>,
    pub(super) pod: Arc<StaticPod>,
    pub(super) reporter: Reporter,
    pub(super) stop: CancellationToken,
}

impl PodRun {
    /// Runs the Pod to its end, or until it is stopped. A Pod that has ended stays as it ended until its manifest
    /// changes.
    pub(super) async fn run(self) {
        match self.admit().await {
            Ok(()) => self.run_containers().await,
            Err(message) => {
                warn!(pod = self.pod.key(), "not admitted: {message}");
                self.reporter.fail("UnexpectedAdmissionError", message);
            }
        }
        if !self.stop.is_cancelled() {
            self.context.release_ended();
            self.stop.cancelled().await;
        }
        self.reporter.clone().remove();
        self.context.release_ended();
    }

    async fn admit(&self) -> Result<(), String> {
        let mut requests = vec![];
        let init = self
            .pod
            .init_containers()
            .iter()
            .map(|c| (c, !is_sidecar(c)));
        for (container, is_init) in init.chain(self.pod.containers().iter().map(|c| (c, false))) {
            requests.push(Request {
                container: container.name.clone(),
                is_init,
                limits: device_limits(container)?,
            });
        }
        let admission = self.context.devices.admit(&self.pod.uid, &requests);
        self.stop
            .run_until_cancelled(admission)
            .await
            .unwrap_or(Ok(()))
    }

    async fn run_containers(&self) {
        let (sidecars, init): (Vec<_>, Vec<_>) = self
            .pod
            .init_containers()
            .iter()
            .partition(|container| is_sidecar(container));
        for container in init {
            let policy = match self.policy() {
                "Always" => "OnFailure",
                policy => policy,
            };
            let code = self.run_container(container, policy).await;
            if self.stop.is_cancelled() {
                return;
            }
            if code != 0 {
                let message = format!("init container {:?} ended with {code}", container.name);
                return self.reporter.fail("InitContainerFailed", message);
            }
        }
        self.reporter.phase(Phase::Running);
        let sidecars = sidecars
            .into_iter()
            .map(|container| self.run_container(container, "Always"));
        let main = self
            .pod
            .containers()
            .iter()
            .map(|c| self.run_container(c, self.policy()));
        let sidecars = async {
            join_all(sidecars).await;
            std::future::pending().await
        };
        // Sidecars do not keep a Pod going: they end with its containers.
        let codes = tokio::select! {
            codes = join_all(main) => codes,
            never = sidecars => never,
        };
        match codes.iter().find(|code| **code != 0) {
            _ if self.stop.is_cancelled() => {}
            None => self.reporter.phase(Phase::Succeeded),
            Some(code) => self
                .reporter
                .fail("ContainerFailed", format!("a container ended with {code}")),
        }
    }

    /// Runs a container, and again as its policy says. The code of its last end.
    async fn run_container(&self, container: &Container, policy: &str) -> i32 {
        let mut wait = self.context.settings.first_restart;
        loop {
            let started = Instant::now();
            let code = self.run_once(container).await;
            let after = match self.stop.is_cancelled() {
                true => AfterEnd::Over,
                false => after_end(policy, code, started.elapsed(), wait),
            };
            match after {
                AfterEnd::Over => return code,
                AfterEnd::Restart { wait: now, next } => {
                    wait = next;
                    self.stop.run_until_cancelled(sleep(now)).await;
                    if self.stop.is_cancelled() {
                        return code;
                    }
                    self.reporter
                        .container(&container.name, |state| state.restarts += 1);
                }
            }
        }
    }

    async fn run_once(&self, container: &Container) -> i32 {
        let name = &container.name;
        let process = match self.start(container).await {
            Ok(process) => process,
            Err((reason, message)) => {
                warn!(pod = self.pod.key(), container = %name, %reason, "{message}");
                self.reporter.container(name, |state| {
                    state.now = Now::Waiting {
                        reason: reason.to_owned(),
                        message,
                    }
                });
                return -1;
            }
        };
        let pid = process.pid();
        info!(pod = self.pod.key(), container = %name, pid, "container started");
        let since = Timestamp::now();
        self.reporter
            .container(name, |state| state.now = Now::Running { since, pid });
        let code = process.ended(&self.stop, self.grace()).await;
        info!(pod = self.pod.key(), container = %name, code, "container ended");
        self.reporter.container(name, |state| {
            state.now = Now::Ended {
                code,
                at: Timestamp::now(),
            }
        });
        code
    }

    async fn start(&self, container: &Container) -> Result<Process, (&'static str, String)> {
        let holder = Holder {
            pod_uid: self.pod.uid.clone(),
            container: container.name.clone(),
        };
        let bad = |message| ("CreateContainerConfigError", message);
        let prepared = self
            .stop
            .run_until_cancelled(self.context.devices.prepare(&holder))
            .await;
        let given = prepared
            .unwrap_or_else(|| Err("the Pod is stopping".to_owned()))
            .map_err(bad)?;
        for (kind, count) in [
            ("mounts", given.mounts.len()),
            ("device nodes", given.devices.len()),
            ("CDI devices", given.cdi_devices.len()),
        ] {
            if count > 0 {
                warn!(
                    pod = self.pod.key(),
                    count,
                    "{kind} are recorded and not applied: containers are plain processes here"
                );
            }
        }
        let env = environment(container, given.envs).map_err(bad)?;
        let log = self
            .context
            .log_of(&self.pod.namespace, &self.pod.name, &container.name);
        Process::start(container, &env, &log).map_err(|message| ("RunContainerError", message))
    }

    fn policy(&self) -> &str {
        let spec = self.pod.pod.spec.as_ref();
        spec.and_then(|spec| spec.restart_policy.as_deref())
            .unwrap_or("Always")
    }

    fn grace(&self) -> Duration {
        let spec = self.pod.pod.spec.as_ref();
        let seconds = spec
            .and_then(|spec| spec.termination_grace_period_seconds)
            .unwrap_or(DEFAULT_GRACE);
        Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
    }
}
