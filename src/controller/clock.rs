//! Times of plans: a clock that does not step, and how long ago something was.
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use std::time::Duration;
use tokio::time::Instant;

/// A clock that starts at the machine's time and does not follow when that is set: a wait neither ends early nor lasts
/// for an hour because of it.
#[derive(Debug)]
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
