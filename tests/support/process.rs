//! Runs a part of the program like a process: on a thread and a runtime of its own, so that it can be killed with
//! everything it has spawned, and with its log in a file.
use std::{fs::File, path::Path, sync::Mutex, thread::JoinHandle, time::Duration};
use tokio::{sync::oneshot, time::timeout};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::{filter::Targets, layer::SubscriberExt as _};

const PATIENCE: Duration = Duration::from_secs(60);

pub struct Process {
    shutdown: CancellationToken,
    killed: CancellationToken,
    /// The result of its `main`. It is dropped without a value when the process is killed.
    outcome: oneshot::Receiver<anyhow::Result<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Process {
    pub fn start<F>(log: &Path, main: impl FnOnce(CancellationToken) -> F + Send + 'static) -> Self
    where
        F: Future<Output = anyhow::Result<()>>,
    {
        let file = File::options().create(true).append(true).open(log).unwrap();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::DEBUG)
            .with_ansi(false)
            .with_writer(Mutex::new(file));
        let ours: Targets = "petiole=debug".parse().unwrap();
        let dispatch = tracing::Dispatch::new(subscriber.finish().with(ours));
        let (ended, outcome) = oneshot::channel();
        let (shutdown, killed) = (CancellationToken::new(), CancellationToken::new());
        let (stop, kill) = (shutdown.clone(), killed.clone());
        let thread = std::thread::spawn(move || {
            tracing::dispatcher::with_default(&dispatch, || {
                let mut builder = tokio::runtime::Builder::new_current_thread();
                let runtime = builder.enable_all().build().unwrap();
                let run = runtime.block_on(kill.run_until_cancelled(main(stop)));
                runtime.shutdown_timeout(PATIENCE);
                if let Some(run) = run {
                    ended.send(run).ok();
                }
            });
        });
        Self {
            shutdown,
            killed,
            outcome,
            thread: Some(thread),
        }
    }

    pub fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Stops it as SIGTERM does, and returns its result.
    pub async fn stop(mut self) -> anyhow::Result<()> {
        self.shutdown.cancel();
        timeout(PATIENCE, &mut self.outcome)
            .await
            .expect("it ends when it is told to")
            .expect("it does not panic")
    }

    /// Kills it. When this returns, nothing of it runs any more. Unlike after `kill -9` its destructors have run.
    pub fn kill(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.killed.cancel();
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}
