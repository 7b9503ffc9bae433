//! Stops a process cleanly when it is told to end.
use anyhow::Context as _;
use tokio_util::sync::CancellationToken;

/// Runs `work` with a token that the first signal to end cancels: SIGINT, SIGTERM or SIGHUP, and Ctrl-C on Windows.
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
    /// The end of the terminal, unless `nohup` has said that it is no end.
    hangup: Option<Signal>,
}

#[cfg(unix)]
impl Signals {
    fn new() -> anyhow::Result<Self> {
        let interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
        let terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
        let hangup = (!ignores_hangup()).then(|| signal(SignalKind::hangup()));
        let hangup = hangup.transpose().context("cannot listen for SIGHUP")?;
        Ok(Self {
            interrupt,
            terminate,
            hangup,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            Some(_) = async { self.hangup.as_mut()?.recv().await } => {}
        }
    }
}

/// Returns whether this process was started to ignore SIGHUP, or whether that cannot be known: bit 0 of `SigIgn` in proc(5).
#[cfg(unix)]
fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok());
    ignored.is_none_or(|bits| bits & 1 == 1)
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
