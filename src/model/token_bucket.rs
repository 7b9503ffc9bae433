//! How often something may be done: much of it at once, and then only so often.
use std::time::Duration;

/// Holds `size` tokens at most, and is refilled by `per_second`. The time is that since any one beginning.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenBucket {
    size: f64,
    per_second: f64,
    tokens: f64,
    at: Duration,
}

impl TokenBucket {
    /// A full one.
    pub fn new(size: usize, per_second: u32, now: Duration) -> Self {
        let size = as_f64(size);
        Self {
            size,
            per_second: f64::from(per_second),
            tokens: size,
            at: now,
        }
    }

    /// With what a larger one has more, and without what a smaller one has not.
    pub fn resize(&mut self, size: usize) {
        let size = as_f64(size);
        self.tokens = (self.tokens + (size - self.size).max(0.0)).min(size);
        self.size = size;
    }

    /// How many may be taken now.
    pub fn available(&self, now: Duration) -> usize {
        // A token that is there but for the rounding is there.
        let whole = (self.tokens_at(now) + 1e-6).floor();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it is whole and not below zero"
        )]
        let whole = whole.max(0.0) as usize;
        whole
    }

    /// Takes as many, or all that there are.
    pub fn take(&mut self, count: usize, now: Duration) {
        self.tokens = (self.tokens_at(now) - as_f64(count)).max(0.0);
        self.at = now;
    }

    /// When there will be one more whole token.
    pub fn next_in(&self, now: Duration) -> Duration {
        let tokens = self.tokens_at(now) + 1e-6;
        let lacks = tokens.floor() + 1.0 - tokens;
        Duration::from_secs_f64(lacks / self.per_second)
    }

    fn tokens_at(&self, now: Duration) -> f64 {
        let age = now.saturating_sub(self.at).as_secs_f64();
        (self.tokens + age * self.per_second).min(self.size)
    }
}

fn as_f64(count: usize) -> f64 {
    u32::try_from(count).map_or(f64::from(u32::MAX), f64::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::{collection::vec, prelude::*};

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn all_may_be_taken_at_once_and_then_so_many_a_second() {
        let mut bucket = TokenBucket::new(100, 2, ms(0));
        assert_eq!(bucket.available(ms(0)), 100);
        bucket.take(100, ms(0));
        assert_eq!(
            (bucket.available(ms(0)), bucket.next_in(ms(0))),
            (0, ms(500))
        );
        assert_eq!(bucket.available(ms(499)), 0);
        assert_eq!(bucket.available(ms(500)), 1);
        assert_eq!(bucket.available(ms(10_000)), 20);
        assert_eq!(bucket.available(ms(1_000_000)), 100);
    }

    #[test]
    fn a_larger_one_has_more_at_once_and_a_smaller_one_less() {
        let mut bucket = TokenBucket::new(10, 2, ms(0));
        bucket.take(10, ms(0));
        bucket.resize(15);
        assert_eq!(bucket.available(ms(0)), 5);
        bucket.resize(3);
        assert_eq!(bucket.available(ms(0)), 3);
    }

    proptest! {
        #[test]
        fn a_wait_for_the_next_token_is_never_in_vain_and_no_more_are_taken_than_flow_in(
            steps in vec((0..2000_u64, 0..8_usize), 0..60),
        ) {
            let mut bucket = TokenBucket::new(20, 3, ms(0));
            let (mut now, mut taken) = (ms(0), 0);
            for (millis, wanted) in steps {
                now += ms(millis);
                let count = wanted.min(bucket.available(now));
                bucket.take(count, now);
                taken += count;
                let before = bucket.available(now);
                if before < 20 {
                    let next = bucket.next_in(now);
                    prop_assert!(bucket.available(now + next) > before, "{bucket:?}");
                }
            }
            prop_assert!(taken as f64 <= 20.0 + now.as_secs_f64() * 3.0 + 0.01);
        }
    }
}
