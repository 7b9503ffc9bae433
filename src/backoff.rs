//! How long to wait before the next try of something that fails.
use std::time::Duration;

/// Doubles from `first` to `cap`; each wait is shortened by up to a quarter, so that many do not try in step.
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

    /// The wait after one more failure.
    pub fn next_wait(&mut self) -> Duration {
        let wait = self.next.mul_f64(1.0 - fastrand::f64() / 4.0);
        self.next = (self.next * 2).min(self.cap);
        wait
    }

    /// To be called after a success.
    pub fn reset(&mut self) {
        self.next = self.first;
    }
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
