//! Times of plans: the clock of the wall, one that does not step, and how long ago something was.
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use std::time::Duration;
use tokio::time::Instant;

/// The clock that the times of objects are compared with.
#[derive(Debug, Clone, Copy)]
pub(crate) enum WallClock {
    /// The machine's clock.
    System,
    /// The clock of a simulation, which runs with its paused time.
    #[cfg(test)]
    Simulated(SteadyClock),
}

impl WallClock {
    pub(crate) fn now(&self) -> Timestamp {
        match self {
            Self::System => Timestamp::now(),
            #[cfg(test)]
            Self::Simulated(clock) => clock.at(Instant::now()),
        }
    }
}

/// A clock that starts at the machine's time and does not follow when that is set: a wait neither ends early nor lasts
/// for an hour because of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SteadyClock {
    began: Instant,
    at: Timestamp,
}

impl SteadyClock {
    pub(crate) fn new(at: Timestamp, began: Instant) -> Self {
        Self { began, at }
    }

    pub(crate) fn at(&self, instant: Instant) -> Timestamp {
        let passed = SignedDuration::try_from(instant - self.began);
        let now = passed
            .ok()
            .and_then(|passed| self.at.checked_add(passed).ok());
        now.unwrap_or(Timestamp::MAX)
    }
}

/// Returns how long ago `since` was. Clocks of two machines differ: what is yet to come is now.
pub(crate) fn elapsed(since: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(since)).unwrap_or_default()
}
