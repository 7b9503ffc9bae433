//! Decides which part of the cluster is planned next, and when: those that have changed, and those whose time has come. Pure.
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};
use tokio::time::Instant;

/// The first change of a part is looked at at once; what comes within this time after it is looked at together.
const SETTLE: Duration = Duration::from_millis(20);

/// The waits after which a plan is made again though nothing has changed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Waits {
    first: Option<Duration>,
}

impl Waits {
    /// Adds a wait. The shortest one counts.
    pub(crate) fn add(&mut self, wait: Duration) {
        self.first = Some(self.first.map_or(wait, |first| first.min(wait)));
    }

    /// Adds the waits of others.
    pub(crate) fn extend(&mut self, others: Self) {
        others.first.into_iter().for_each(|wait| self.add(wait));
    }

    /// Returns the shortest wait.
    pub(crate) fn first(&self) -> Option<Duration> {
        self.first
    }
}

/// The parts that are due, first in first out, and the times at which others will be.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    due: VecDeque<String>,
    /// The parts in `due`.
    is_due: BTreeSet<String>,
    times: BTreeMap<String, Instant>,
    /// The times before which parts are not planned again, because their last turn has just begun.
    settling: BTreeMap<String, Instant>,
}

impl Queue {
    /// Makes a part due now, or as soon as it has settled.
    pub(crate) fn touch(&mut self, part: &str) {
        if let Some(at) = self.settling.get(part).copied() {
            self.wake(part, at);
        } else if self.is_due.insert(part.to_owned()) {
            self.due.push_back(part.to_owned());
        }
    }

    /// Makes a part due at a time, or earlier if it is known to be.
    pub(crate) fn wake(&mut self, part: &str, at: Instant) {
        if let Some(known) = self.times.get_mut(part) {
            *known = at.min(*known);
        } else {
            self.times.insert(part.to_owned(), at);
        }
    }

    /// Returns the next part that is due and free, and takes it off the queue.
    pub(crate) fn take(&mut self, now: Instant, is_free: impl Fn(&str) -> bool) -> Option<String> {
        self.settling.retain(|_, until| *until > now);
        let times = self.times.extract_if(.., |_, at| *at <= now);
        for part in times.map(|(part, _)| part).collect::<Vec<_>>() {
            self.touch(&part);
        }
        let place = self.due.iter().position(|part| is_free(part))?;
        let part = self.due.remove(place)?;
        self.is_due.remove(&part);
        // It is planned now, whatever its time was.
        self.times.remove(&part);
        self.settling.insert(part.clone(), now + SETTLE);
        Some(part)
    }

    /// Returns the time at which the next part is due that is free; `Some(now)` if there is one.
    pub(crate) fn next(&self, now: Instant, is_free: impl Fn(&str) -> bool) -> Option<Instant> {
        if self.due.iter().any(|part| is_free(part)) {
            return Some(now);
        }
        let times = self.times.iter().filter(|(part, _)| is_free(part));
        times.map(|(_, at)| *at).min()
    }
}
