//! How soon one thing may be done again. The world changes all the time, and each change of it makes a new plan: a
//! write that is refused, or that somebody else undoes, must not be repeated at each of them.
use crate::backoff::Backoff;
use std::{collections::BTreeMap, time::Duration};
use tokio::time::Instant;

/// What was done not long ago. What is done again and again waits longer each time, whether it was refused or undone.
#[derive(Debug)]
pub struct Pace<K> {
    first: Duration,
    longest: Duration,
    done: BTreeMap<K, Done>,
}

#[derive(Debug)]
struct Done {
    not_before: Instant,
    backoff: Backoff,
}

impl<K: Ord + Clone> Pace<K> {
    /// The first time something waits for `first`, and never for more than `longest`.
    pub fn new(first: Duration, longest: Duration) -> Self {
        Self {
            first,
            longest,
            done: BTreeMap::new(),
        }
    }

    /// Those of `wanted` that may be done now, and how long the first of the others has to wait. The first are taken
    /// to be done.
    pub fn due<T>(
        &mut self,
        wanted: Vec<T>,
        key: impl Fn(&T) -> K,
        now: Instant,
    ) -> (Vec<T>, Option<Duration>) {
        self.forget(now);
        let mut wait: Option<Duration> = None;
        let mut due = vec![];
        for one in wanted {
            match self.wait(&key(&one), now) {
                None => {
                    self.done(key(&one), now);
                    due.push(one);
                }
                Some(left) => wait = Some(wait.map_or(left, |wait| wait.min(left))),
            }
        }
        (due, wait)
    }

    /// How long this has to wait yet.
    pub fn wait(&self, key: &K, now: Instant) -> Option<Duration> {
        let left = self
            .done
            .get(key)?
            .not_before
            .saturating_duration_since(now);
        (!left.is_zero()).then_some(left)
    }

    /// It was done, and is to wait before it is done again.
    pub fn done(&mut self, key: K, now: Instant) {
        let done = self.done.entry(key).or_insert_with(|| Done {
            not_before: now,
            backoff: Backoff::new(self.first, self.longest),
        });
        done.not_before = now + done.backoff.next_wait();
    }

    /// It may be done again at once.
    pub fn reset(&mut self, key: &K) {
        self.done.remove(key);
    }

    pub fn knows(&self, key: &K) -> bool {
        self.done.contains_key(key)
    }

    /// What was left alone for long begins anew.
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
            assert_eq!(pace.due(vec!["a"], |k| *k, now), (vec!["a"], None));
            let (due, wait) = pace.due(vec!["a"], |k| *k, now);
            assert!(due.is_empty());
            waits.push(wait.unwrap());
            now += wait.unwrap();
        }
        assert!(waits[0] <= FIRST);
        assert!(waits[9] > LONGEST / 2 && waits[9] <= LONGEST, "{waits:?}");
        let (due, wait) = pace.due(vec!["b"], |k| *k, now);
        assert_eq!((due, wait), (vec!["b"], None));
    }

    #[test]
    fn what_was_left_alone_begins_anew_and_takes_no_memory() {
        let mut pace = Pace::new(FIRST, LONGEST);
        let now = Instant::now();
        pace.due(vec!["a"], |k| *k, now);
        pace.due(vec!["b"], |k| *k, now + LONGEST * 3);
        assert_eq!(pace.done.keys().collect::<Vec<_>>(), [&"b"]);
    }
}
