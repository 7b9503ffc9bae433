//! Limits the rate of an action with a token bucket: a burst first, then a constant rate. Pure.
use std::time::Duration;

/// The parts of a token. Time is counted in microseconds, so nothing is rounded.
const PARTS: u64 = 1_000_000;

/// A bucket with at most `size` tokens, refilled at `per_second`. Times are relative to any fixed start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenBucket {
    size: u64,
    per_second: u64,
    /// The content at the time `at`.
    parts: u64,
    at: Duration,
}

impl TokenBucket {
    /// Creates a full bucket.
    pub fn new(size: usize, per_second: u32, now: Duration) -> Self {
        let size = parts(size);
        Self {
            size,
            per_second: u64::from(per_second.max(1)),
            parts: size,
            at: now,
        }
    }

    /// Changes the size. A larger bucket gains the difference; a smaller one loses what exceeds its size.
    pub fn resize(&mut self, size: usize) {
        let size = parts(size);
        let more = size.saturating_sub(self.size);
        self.parts = self.parts.saturating_add(more).min(size);
        self.size = size;
    }

    /// Returns the number of tokens that may be taken now.
    pub fn available(&self, now: Duration) -> usize {
        usize::try_from(self.parts_at(now) / PARTS).unwrap_or(usize::MAX)
    }

    /// Takes `count` tokens, or all if there are fewer.
    pub fn take(&mut self, count: usize, now: Duration) {
        self.parts = self.parts_at(now).saturating_sub(parts(count));
        self.at = now;
    }

    /// Returns the time until the next whole token.
    pub fn next_in(&self, now: Duration) -> Duration {
        let lacks = PARTS - self.parts_at(now) % PARTS;
        Duration::from_micros(lacks.div_ceil(self.per_second))
    }

    /// Returns the time until so many tokens may be taken, or as many as the bucket holds.
    pub fn wait_for(&self, count: usize, now: Duration) -> Duration {
        let lacks = parts(count)
            .min(self.size)
            .saturating_sub(self.parts_at(now));
        Duration::from_micros(lacks.div_ceil(self.per_second))
    }

    fn parts_at(&self, now: Duration) -> u64 {
        let age = now.saturating_sub(self.at).as_micros();
        let age = u64::try_from(age).unwrap_or(u64::MAX);
        let flowed = age.saturating_mul(self.per_second);
        self.parts.saturating_add(flowed).min(self.size)
    }
}

fn parts(tokens: usize) -> u64 {
    let tokens = u64::try_from(tokens).unwrap_or(u64::MAX);
    tokens.saturating_mul(PARTS)
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
    fn who_wants_more_than_there_is_waits_for_it_and_no_longer_than_for_all() {
        let mut bucket = TokenBucket::new(100, 2, ms(0));
        assert_eq!(bucket.wait_for(100, ms(0)), ms(0));
        bucket.take(90, ms(0));
        assert_eq!(bucket.wait_for(20, ms(0)), ms(5000));
        assert_eq!(bucket.wait_for(20, ms(4000)), ms(1000));
        assert_eq!(bucket.wait_for(1000, ms(0)), ms(45_000));
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
                    prop_assert!(bucket.available(now + next - Duration::from_micros(1)) == before);
                }
            }
            prop_assert!(taken <= 20 + usize::try_from(now.as_millis()).unwrap() * 3 / 1000);
        }
    }
}
