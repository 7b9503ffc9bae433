//! Limits how often one thing is done again. The cluster changes all the time, and each change leads to a new plan. A
//! write that was rejected, or that someone else undid, must not be repeated for each plan.
use crate::backoff::Backoff;
use std::{collections::BTreeMap, time::Duration};
use tokio::time::Instant;

/// The things that were done recently. A thing that is repeated waits longer each time, whether it was rejected or
/// undone.
#[derive(Debug, Clone)]
pub struct Pace<K> {
    first: Duration,
    longest: Duration,
    done: BTreeMap<K, Done>,
}

#[derive(Debug, Clone)]
struct Done {
    not_before: Instant,
    backoff: Backoff,
}

impl<K: Ord + Clone> Pace<K> {
    /// Returns an empty record. The first repetition waits for `first`, and no repetition waits longer than `longest`.
    pub fn new(first: Duration, longest: Duration) -> Self {
        Self {
            first,
            longest,
            done: BTreeMap::new(),
        }
    }

    /// Returns the remaining wait for this key; `None` if it may be done now.
    pub fn wait(&self, key: &K, now: Instant) -> Option<Duration> {
        let left = self
            .done
            .get(key)?
            .not_before
            .saturating_duration_since(now);
        (!left.is_zero()).then_some(left)
    }

    /// Records that it was done now.
    pub fn done(&mut self, key: K, now: Instant) {
        let done = self.done.entry(key).or_insert_with(|| Done {
            not_before: now,
            backoff: Backoff::new(self.first, self.longest),
        });
        done.not_before = now + done.backoff.next_wait();
    }

    /// Allows the next repetition at once.
    pub fn reset(&mut self, key: &K) {
        self.done.remove(key);
    }

    /// Drops the entries whose last repetition is long ago. They start over with the first wait.
    pub fn forget(&mut self, now: Instant) {
        (self.done).retain(|_, done| done.not_before + self.longest * 2 > now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Duration = Duration::from_millis(500);
    const LONGEST: Duration = Duration::from_secs(30);

    #[test]
    fn what_is_done_again_waits_longer_each_time_and_the_others_do_not_wait() {
        let mut pace = Pace::new(FIRST, LONGEST);
        let mut now = Instant::now();
        let mut waits = vec![];
        for _ in 0..10 {
            assert_eq!(pace.wait(&"a", now), None);
            pace.done("a", now);
            let wait = pace.wait(&"a", now).unwrap();
            waits.push(wait);
            now += wait;
        }
        assert!(waits[0] <= FIRST);
        assert!(waits[9] > LONGEST / 2 && waits[9] <= LONGEST, "{waits:?}");
        assert_eq!(pace.wait(&"b", now), None);
    }

    #[test]
    fn what_was_left_alone_begins_anew_and_takes_no_memory() {
        let mut pace = Pace::new(FIRST, LONGEST);
        let now = Instant::now();
        pace.done("a", now);
        pace.done("b", now + LONGEST * 3);
        pace.forget(now + LONGEST * 3);
        assert_eq!(pace.done.keys().collect::<Vec<_>>(), [&"b"]);
    }
}
