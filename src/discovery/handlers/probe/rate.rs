//! Bounds how often something begins: a token bucket with room for one token.
use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};
use tokio::time::{Instant, sleep_until};

/// A rate that discoveries may share.
pub(super) struct Rate {
    gap: Duration,
    /// When the next one may begin.
    next: Mutex<Option<Instant>>,
}

impl Rate {
    pub(super) fn new(per_second: u64) -> Self {
        Self {
            gap: Duration::from_secs(1).div_f64(per_second as f64),
            next: Mutex::new(None),
        }
    }

    /// Waits until one more may begin.
    pub(super) async fn turn(&self) {
        let now = Instant::now();
        let mine = {
            // A panic of another holder leaves a valid time.
            let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
            let mine = next.map_or(now, |next| next.max(now));
            *next = Some(mine + self.gap);
            mine
        };
        sleep_until(mine).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn turns_have_their_gap_and_idle_time_is_not_saved() {
        let rate = Rate::new(100);
        let began = Instant::now();
        for _ in 0..51 {
            rate.turn().await;
        }
        assert_eq!(began.elapsed(), Duration::from_millis(500));
        tokio::time::advance(Duration::from_secs(10)).await;
        let began = Instant::now();
        for _ in 0..3 {
            rate.turn().await;
        }
        assert_eq!(began.elapsed(), Duration::from_millis(20));
    }
}
