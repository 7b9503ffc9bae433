//! Times of plans: the pace of what is done again, which is earlier, how long ago something was.
pub(super) use crate::pace::Pace;
use k8s_openapi::jiff::Timestamp;
use std::time::Duration;

/// The earlier of two times to look again.
pub(super) fn sooner(a: Option<Duration>, b: Option<Duration>) -> Option<Duration> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (one, None) | (None, one) => one,
    }
}

/// How long ago `since` was. Clocks of two machines differ: what is yet to come is now.
pub(super) fn elapsed(since: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(since)).unwrap_or_default()
}
