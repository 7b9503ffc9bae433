//! Times of plans: the clock of the wall, and how long ago something was.
use k8s_openapi::jiff::Timestamp;
use std::time::Duration;
#[cfg(test)]
use tokio::time::Instant;

/// The clock that the times of objects are compared with.
#[derive(Debug, Clone, Copy)]
pub(crate) enum WallClock {
    /// The machine's clock.
    System,
    /// The clock of a simulation, which runs with its paused time.
    #[cfg(test)]
    Simulated { epoch: Timestamp, began: Instant },
}

impl WallClock {
    pub(crate) fn now(&self) -> Timestamp {
        match self {
            Self::System => Timestamp::now(),
            #[cfg(test)]
            Self::Simulated { epoch, began } => *epoch + (Instant::now() - *began),
        }
    }
}

/// Returns how long ago `since` was. Clocks of two machines differ: what is yet to come is now.
pub(crate) fn elapsed(since: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(since)).unwrap_or_default()
}
