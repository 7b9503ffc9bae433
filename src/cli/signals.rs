//! Stops a process cleanly on SIGINT and SIGTERM.
use anyhow::Context as _;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Runs `work` with a token that the first SIGINT or SIGTERM cancels.
pub(super) async fn until_signal<F>(work: impl FnOnce(CancellationToken) -> F) -> anyhow::Result<()>
where
    F: Future<Output = anyhow::Result<()>>,
{
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let shutdown = CancellationToken::new();
    let work = work(shutdown.clone());
    tokio::pin!(work);
    loop {
        tokio::select! {
            outcome = &mut work => return outcome,
            _ = interrupt.recv() => shutdown.cancel(),
            _ = terminate.recv() => shutdown.cancel(),
        }
    }
}
