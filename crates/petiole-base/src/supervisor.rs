//! Runs the long-lived tasks of a process. The first task that ends stops the others.
use anyhow::{Context as _, Error, Result, anyhow};
use std::{collections::HashMap, convert::Infallible, future::Future, pin::Pin, time::Duration};
use tokio::{
    runtime::Handle,
    sync::{oneshot, watch},
    task::{Id, JoinError, JoinSet},
    time::timeout,
};
use tokio_util::sync::CancellationToken;

/// The error of a task whose receiver has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("channel closed")]
pub struct ChannelClosed;

/// See [`endless`].
pub type EndlessTask = Pin<Box<dyn Future<Output = Result<()>> + Send>>;

/// A set of named tasks that live as long as the process.
pub struct Supervisor {
    shutdown: CancellationToken,
    tasks: JoinSet<Result<()>>,
    names: HashMap<Id, &'static str>,
}

impl Supervisor {
    pub fn new(shutdown: CancellationToken) -> Self {
        Self {
            shutdown,
            tasks: JoinSet::new(),
            names: HashMap::new(),
        }
    }

    /// Starts a task. Its token is cancelled when the process stops.
    pub fn spawn<F>(&mut self, name: &'static str, task: impl FnOnce(CancellationToken) -> F)
    where
        F: Future<Output = Result<()>> + Send + 'static,
    {
        self.spawn_on(&Handle::current(), name, task);
    }

    /// Starts a task on another runtime.
    pub fn spawn_on<F>(
        &mut self,
        runtime: &Handle,
        name: &'static str,
        task: impl FnOnce(CancellationToken) -> F,
    ) where
        F: Future<Output = Result<()>> + Send + 'static,
    {
        let task = task(self.shutdown.child_token());
        let handle = self.tasks.spawn_on(task, runtime);
        self.names.insert(handle.id(), name);
    }

    /// Waits for an event. Returns an error if a task ends before it.
    pub async fn until<T>(&mut self, event: impl Future<Output = T>) -> Result<T> {
        tokio::select! {
            biased; // a task that ends because of the event ended when asked
            happened = event => Ok(happened),
            Some(ended) = self.tasks.join_next_with_id() => self
                .ended(ended)
                .and_then(|name| Err(anyhow!("{name} ended while the process was running"))),
        }
    }

    /// Waits until every task has ended. Returns the error of the first task that failed or that ended before the
    /// shutdown. After the shutdown tasks end in any order, so a closed channel then is not an error.
    pub async fn run(mut self, grace: Duration) -> Result<()> {
        let mut outcome = Ok(());
        if !self.tasks.is_empty() {
            let stopped = self.shutdown.clone();
            outcome = self.until(stopped.cancelled()).await;
            self.shutdown.cancel();
        }
        let drained = timeout(grace, async {
            while let Some(ended) = self.tasks.join_next_with_id().await {
                if let Err(e) = self.ended(ended)
                    && outcome.is_ok()
                    && !is_closed_channel(&e)
                {
                    outcome = Err(e);
                }
            }
        })
        .await;
        if drained.is_err() {
            self.tasks.shutdown().await;
            return outcome.and(Err(anyhow!(
                "some tasks did not end within the grace period of {grace:?}"
            )));
        }
        outcome
    }

    fn ended(&self, ended: Result<(Id, Result<()>), JoinError>) -> Result<&'static str> {
        match ended {
            Ok((id, result)) => {
                let name = self.names[&id];
                result
                    .with_context(|| format!("{name} failed"))
                    .map(|()| name)
            }
            Err(e) => Err(anyhow!("{} panicked: {e}", self.names[&e.id()])),
        }
    }
}

/// Returns a task that runs `task` until the process stops, and drops it then: it leaves nothing half done.
pub fn endless(
    task: impl Future<Output = Result<Infallible>> + Send + 'static,
) -> impl FnOnce(CancellationToken) -> EndlessTask {
    // Pinned here, because `run_until_cancelled` would reserve the memory of the future twice.
    let task = Box::pin(task);
    |stop| {
        Box::pin(async move {
            match stop.run_until_cancelled(task).await {
                None => Ok(()),
                Some(Err(e)) => Err(e),
            }
        })
    }
}

/// Returns whether a task ended because the task at the other end of a channel had ended.
fn is_closed_channel(error: &Error) -> bool {
    error.chain().any(|cause| {
        cause.is::<ChannelClosed>()
            || cause.is::<watch::error::RecvError>()
            || cause.is::<oneshot::error::RecvError>()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    const GRACE: Duration = Duration::from_secs(5);
    async fn until_cancelled(token: CancellationToken) -> Result<()> {
        token.cancelled().await;
        Ok(())
    }

    #[tokio::test(start_paused = true)]
    async fn a_signal_ends_everything_cleanly() {
        let shutdown = CancellationToken::new();
        let mut s = Supervisor::new(shutdown.clone());
        s.spawn("a", until_cancelled);
        s.spawn("b", until_cancelled);
        shutdown.cancel();
        s.run(GRACE).await.unwrap();
    }
    #[tokio::test]
    async fn a_task_that_ends_with_the_signal_is_no_failure() {
        for _ in 0..100 {
            let shutdown = CancellationToken::new();
            let mut s = Supervisor::new(shutdown.clone());
            s.spawn("signals", |_| async move {
                shutdown.cancel();
                Ok(())
            });
            s.run(GRACE).await.unwrap();
        }
    }
    /// Spawns a task that reads a channel and can see it close before the shutdown.
    fn follower(s: &mut Supervisor, mut values: watch::Receiver<()>) {
        s.spawn("follower", |_| async move {
            loop {
                values.changed().await.context("values are gone")?;
            }
        });
    }

    #[tokio::test(start_paused = true)]
    async fn a_channel_that_closes_after_the_signal_is_no_failure() {
        let (values, seen) = watch::channel(());
        let shutdown = CancellationToken::new();
        let mut s = Supervisor::new(shutdown.clone());
        follower(&mut s, seen);
        s.spawn("sender", |stop| async move {
            stop.cancelled().await;
            drop(values);
            Err(ChannelClosed.into())
        });
        shutdown.cancel();
        s.run(GRACE).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_channel_that_closes_without_a_signal_is_a_failure() {
        let (values, seen) = watch::channel(());
        let mut s = Supervisor::new(CancellationToken::new());
        follower(&mut s, seen);
        drop(values);
        let error = format!("{:#}", s.run(GRACE).await.unwrap_err());
        assert!(
            error.starts_with("follower failed: values are gone"),
            "{error}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn another_failure_after_the_signal_is_one() {
        let shutdown = CancellationToken::new();
        let mut s = Supervisor::new(shutdown.clone());
        s.spawn("saver", |stop| async move {
            stop.cancelled().await;
            Err(anyhow!("disk full"))
        });
        shutdown.cancel();
        let error = format!("{:#}", s.run(GRACE).await.unwrap_err());
        assert_eq!(error, "saver failed: disk full");
    }
    #[tokio::test(start_paused = true)]
    async fn one_failure_stops_the_rest_and_is_named() {
        let mut s = Supervisor::new(CancellationToken::new());
        s.spawn("good", until_cancelled);
        s.spawn("registrar", |_| async { anyhow::bail!("no kubelet") });
        let e = format!("{:#}", s.run(GRACE).await.unwrap_err());
        assert_eq!(e, "registrar failed: no kubelet");
    }
    #[tokio::test(start_paused = true)]
    async fn a_panic_is_a_failure_too() {
        let mut s = Supervisor::new(CancellationToken::new());
        s.spawn("watcher", |_| async { panic!("boom") });
        assert!(
            s.run(GRACE)
                .await
                .unwrap_err()
                .to_string()
                .starts_with("watcher panicked")
        );
    }
    #[tokio::test(start_paused = true)]
    async fn an_early_ok_is_a_failure() {
        let mut s = Supervisor::new(CancellationToken::new());
        s.spawn("watch", |_| async { Ok(()) });
        assert_eq!(
            s.run(GRACE).await.unwrap_err().to_string(),
            "watch ended while the process was running"
        );
    }
    #[tokio::test(start_paused = true)]
    async fn an_endless_task_is_dropped_at_the_signal_and_its_failure_is_one() {
        let shutdown = CancellationToken::new();
        let mut s = Supervisor::new(shutdown.clone());
        s.spawn("loop", endless(std::future::pending()));
        shutdown.cancel();
        s.run(GRACE).await.unwrap();
        let mut s = Supervisor::new(CancellationToken::new());
        s.spawn("loop", endless(async { anyhow::bail!("no kubelet") }));
        let e = format!("{:#}", s.run(GRACE).await.unwrap_err());
        assert_eq!(e, "loop failed: no kubelet");
    }
    #[tokio::test(start_paused = true)]
    async fn stragglers_are_aborted_after_the_grace_period() {
        let shutdown = CancellationToken::new();
        let mut s = Supervisor::new(shutdown.clone());
        s.spawn("stuck", |_| std::future::pending());
        shutdown.cancel();
        assert!(
            s.run(GRACE)
                .await
                .unwrap_err()
                .to_string()
                .contains("grace")
        );
    }
}
