//! How soon one thing may be done again. The world changes all the time, and each change of it makes a new plan: a
//! write that is refused, or that somebody else undoes, must not be repeated at each of them.
use crate::backoff::Backoff;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use std::{collections::BTreeMap, time::Duration};
use tokio::time::Instant;

/// What was done not long ago. What is done again and again waits longer each time, whether it was refused or undone.
#[derive(Debug)]
pub(crate) struct Pace<K> {
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
    pub(crate) fn new(first: Duration, longest: Duration) -> Self {
        Self {
            first,
            longest,
            done: BTreeMap::new(),
        }
    }

    /// Those of `wanted` that may be done now, and how long the first of the others has to wait. The first are taken
    /// to be done.
    pub(crate) fn due<T>(
        &mut self,
        wanted: Vec<T>,
        key: impl Fn(&T) -> K,
        now: Instant,
    ) -> (Vec<T>, Option<Duration>) {
        // What was left alone for so long begins anew.
        (self.done).retain(|_, done| done.not_before + self.longest * 2 > now);
        let mut wait: Option<Duration> = None;
        let mut due = vec![];
        for one in wanted {
            let done = self.done.entry(key(&one)).or_insert_with(|| Done {
                not_before: now,
                backoff: Backoff::new(self.first, self.longest),
            });
            if done.not_before <= now {
                done.not_before = now + done.backoff.next_wait();
                due.push(one);
            } else {
                let left = done.not_before - now;
                wait = Some(wait.map_or(left, |wait| wait.min(left)));
            }
        }
        (due, wait)
    }
}

/// A clock that starts at the machine's time and does not follow when that is set: a wait neither ends early nor lasts
/// for an hour because of it.
#[derive(Debug)]
pub(crate) struct SteadyClock {
    began: Instant,
    at: Timestamp,
}

impl SteadyClock {
    pub(crate) fn new() -> Self {
        Self {
            began: Instant::now(),
            at: Timestamp::now(),
        }
    }

    pub(crate) fn now(&self) -> Timestamp {
        let passed = SignedDuration::try_from(self.began.elapsed());
        let now = passed
            .ok()
            .and_then(|passed| self.at.checked_add(passed).ok());
        now.unwrap_or(Timestamp::MAX)
    }
}

/// The earlier of two times to look again.
pub(crate) fn sooner(a: Option<Duration>, b: Option<Duration>) -> Option<Duration> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (one, None) | (None, one) => one,
    }
}

/// How long ago `since` was. Clocks of two machines differ: what is yet to come is now.
pub(crate) fn elapsed(since: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(since)).unwrap_or_default()
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
