//! Computes the wait before the next attempt at an operation that fails, and which failures are news.
use std::{fmt::Display, time::Duration};

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

/// Attempts at an operation that begins again whenever it ends.
#[derive(Debug)]
pub struct Attempts {
    backoff: Backoff,
    reported: Option<String>,
}

impl Attempts {
    pub fn new(first: Duration, cap: Duration) -> Self {
        Self {
            backoff: Backoff::new(first, cap),
            reported: None,
        }
    }

    /// Takes the end of an attempt. Returns the wait before the next one: none after a success. `report` gets a failure, unless the
    /// attempt before failed in the same way.
    pub fn ended<E: Display>(
        &mut self,
        outcome: Result<(), E>,
        report: impl FnOnce(&str),
    ) -> Duration {
        let failure = outcome.err().map(|e| e.to_string());
        if let Some(why) = failure.as_ref().filter(|_| failure != self.reported) {
            report(why);
        }
        let wait = match failure {
            Some(_) => self.backoff.next_wait(),
            None => {
                self.backoff.reset();
                Duration::ZERO
            }
        };
        self.reported = failure;
        wait
    }
}

/// Returns the wait after `last`: `first` if there was none, else the double, up to `cap`. It is the rule of [`Backoff`]
/// without its random part.
pub fn doubled(last: Option<Duration>, first: Duration, cap: Duration) -> Duration {
    last.map_or(first, |last| last.saturating_mul(2)).min(cap)
}

/// Returns the wait after `first` has doubled so many times, up to `cap`: [`doubled`] for those who count the failures.
pub fn after(doublings: u32, first: Duration, cap: Duration) -> Duration {
    let factor = 2_u32.saturating_pow(doublings);
    first.saturating_mul(factor).min(cap)
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

    #[test]
    fn the_wait_after_any_number_of_failures_is_that_of_one_after_the_other() {
        let (first, cap) = (Duration::from_millis(300), Duration::from_secs(600));
        let mut wait = None;
        for failures in 0..100 {
            wait = Some(doubled(wait, first, cap));
            assert_eq!(wait, Some(after(failures, first, cap)));
        }
        assert_eq!(after(u32::MAX, first, cap), cap);
    }

    #[test]
    fn one_failure_is_reported_once_until_there_is_a_success_or_another_failure() {
        let (first, cap) = (Duration::from_secs(1), Duration::from_secs(5));
        let mut attempts = Attempts::new(first, cap);
        let mut reported = vec![];
        let mut waits = vec![];
        for outcome in [Err("a"), Err("a"), Err("b"), Ok(()), Err("b")] {
            waits.push(attempts.ended(outcome, |why| reported.push(why.to_owned())));
        }
        assert_eq!(reported, ["a", "b", "b"]);
        assert!(waits[2] > first * 2, "{waits:?}");
        assert!(waits[3].is_zero() && waits[4] <= first, "{waits:?}");
    }
}
