//! Stops a process cleanly when it is told to end.
use anyhow::Context as _;
use tokio_util::sync::CancellationToken;

/// Runs `work` with a token that the first signal to end cancels: SIGINT or SIGTERM, and Ctrl-C on Windows.
pub async fn until_signal<F>(work: impl FnOnce(CancellationToken) -> F) -> anyhow::Result<()>
where
    F: Future<Output = anyhow::Result<()>>,
{
    let mut signals = Signals::new()?;
    let shutdown = CancellationToken::new();
    let work = work(shutdown.clone());
    tokio::pin!(work);
    loop {
        tokio::select! {
            outcome = &mut work => return outcome,
            () = signals.next() => shutdown.cancel(),
        }
    }
}

#[cfg(unix)]
use tokio::signal::unix::{Signal, SignalKind, signal};

#[cfg(unix)]
struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

#[cfg(unix)]
impl Signals {
    fn new() -> anyhow::Result<Self> {
        let interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
        let terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
        Ok(Self {
            interrupt,
            terminate,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

#[cfg(windows)]
struct Signals(tokio::signal::windows::CtrlC);

#[cfg(windows)]
impl Signals {
    fn new() -> anyhow::Result<Self> {
        let interrupt = tokio::signal::windows::ctrl_c();
        Ok(Self(interrupt.context("cannot listen for Ctrl-C")?))
    }

    async fn next(&mut self) {
        self.0.recv().await;
    }
}
