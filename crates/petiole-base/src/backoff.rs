//! Computes the wait before the next attempt at an operation that fails.
use std::time::Duration;

/// A back-off that doubles from `first` to `cap`. Each wait is shortened at random by up to a quarter, so that many
/// processes do not retry at the same moment.
#[derive(Debug, Clone)]
pub struct Backoff {
    first: Duration,
    cap: Duration,
    next: Duration,
}

impl Backoff {
    pub fn new(first: Duration, cap: Duration) -> Self {
        Self {
            first,
            cap,
            next: first,
        }
    }

    /// Returns the wait after one more failure.
    pub fn next_wait(&mut self) -> Duration {
        let wait = self.next.mul_f64(1.0 - fastrand::f64() / 4.0);
        self.next = doubled(Some(self.next), self.first, self.cap);
        wait
    }

    /// Starts over after a success.
    pub fn reset(&mut self) {
        self.next = self.first;
    }
}

/// Returns the wait after `last`: `first` if there was none, else the double, up to `cap`. It is the rule of [`Backoff`]
/// without its random part.
pub fn doubled(last: Option<Duration>, first: Duration, cap: Duration) -> Duration {
    last.map_or(first, |last| last.saturating_mul(2)).min(cap)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_cap_and_start_over_after_a_success() {
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(5));
        for expected in [1, 2, 4, 5, 5] {
            let wait = backoff.next_wait().as_secs_f64();
            let expected = f64::from(expected);
            assert!(
                (expected * 0.75..=expected).contains(&wait),
                "{wait} is not about {expected}"
            );
        }
        backoff.reset();
        assert!(backoff.next_wait() <= Duration::from_secs(1));
    }
}
