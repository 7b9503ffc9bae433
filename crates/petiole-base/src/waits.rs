//! Waits until a time that may not be set.
use tokio::time::{Instant, sleep_until};

/// Waits until `at`, or for ever if there is no time.
pub async fn sleep_until_or_never(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}
