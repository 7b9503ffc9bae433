//! Decides which part of the cluster is planned next, and when: those that have changed, and those whose time has come. Pure.
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};
use tokio::time::Instant;

/// The first change of a part is looked at at once; what comes within this time after it is looked at together.
const SETTLE: Duration = Duration::from_millis(20);
/// The parts that have changed themselves are planned before those that a change of a node touches; after as many of them,
/// one of the others.
const IN_A_ROW: usize = 8;

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

/// Why a part is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Cause {
    /// The part itself.
    Itself,
    /// Something that every part shows.
    All,
}

/// The parts that are due, those of each cause first in first out, and the times at which others will be.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    due: BTreeMap<(Cause, u64), String>,
    /// The place of each part in `due`.
    places: BTreeMap<String, (Cause, u64)>,
    /// The number of parts that were ever due.
    arrived: u64,
    /// The number of parts that were taken since one of those that something else touches.
    in_a_row: usize,
    times: BTreeMap<String, Instant>,
    /// The same by time.
    by_time: BTreeSet<(Instant, String)>,
    /// The times before which parts are not planned again, because their last turn has just begun.
    settling: BTreeMap<String, Instant>,
}

impl Queue {
    /// Makes a part due now, or as soon as it has settled.
    pub(crate) fn touch(&mut self, part: &str) {
        self.add(part, Cause::Itself);
    }

    /// Makes a part due behind those that have changed themselves.
    pub(crate) fn touch_later(&mut self, part: &str) {
        self.add(part, Cause::All);
    }

    fn add(&mut self, part: &str, cause: Cause) {
        if let Some(at) = self.settling.get(part).copied() {
            return self.wake(part, at);
        }
        match self.places.get(part) {
            Some((known, _)) if *known <= cause => return,
            Some(place) => drop(self.due.remove(place)),
            None => {}
        }
        let place = (cause, self.arrived);
        self.arrived += 1;
        self.due.insert(place, part.to_owned());
        self.places.insert(part.to_owned(), place);
    }

    /// Makes a part due at a time, or earlier if it is known to be.
    pub(crate) fn wake(&mut self, part: &str, at: Instant) {
        if self.times.get(part).is_some_and(|known| *known <= at) {
            return;
        }
        self.forget_time(part);
        self.times.insert(part.to_owned(), at);
        self.by_time.insert((at, part.to_owned()));
    }

    fn forget_time(&mut self, part: &str) {
        if let Some((part, at)) = self.times.remove_entry(part) {
            self.by_time.remove(&(at, part));
        }
    }

    /// Returns the next part that is due and free, and takes it off the queue.
    pub(crate) fn take(&mut self, now: Instant, is_free: impl Fn(&str) -> bool) -> Option<String> {
        self.settling.retain(|_, until| *until > now);
        while let Some((at, part)) = self.by_time.pop_first() {
            if at > now {
                self.by_time.insert((at, part));
                break;
            }
            self.times.remove(&part);
            self.touch(&part);
        }
        let others = (self.due.range((Cause::All, 0)..)).filter(|_| self.in_a_row >= IN_A_ROW);
        let mut parts = others.chain(&self.due).filter(|(_, part)| is_free(part));
        let place = parts.next().map(|(place, _)| *place)?;
        let part = self.due.remove(&place)?;
        self.in_a_row = if place.0 == Cause::Itself {
            self.in_a_row + 1
        } else {
            0
        };
        self.places.remove(&part);
        // It is planned now, whatever its time was.
        self.forget_time(&part);
        self.settling.insert(part.clone(), now + SETTLE);
        Some(part)
    }

    /// Returns the time at which the next part is due that is free; `Some(now)` if there is one.
    pub(crate) fn next(&self, now: Instant, is_free: impl Fn(&str) -> bool) -> Option<Instant> {
        if self.due.values().any(|part| is_free(part)) {
            return Some(now);
        }
        let mut times = self.by_time.iter().filter(|(_, part)| is_free(part));
        times.next().map(|(at, _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(queue: &mut Queue, now: Instant) -> Vec<String> {
        std::iter::from_fn(|| queue.take(now, |_| true)).collect()
    }

    #[test]
    fn what_has_changed_itself_comes_before_what_a_node_touches_and_does_not_hold_it_up() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        for part in ["a", "b", "tv"] {
            queue.touch_later(part);
        }
        queue.touch("cam");
        queue.touch("tv");
        assert_eq!(all(&mut queue, now), ["cam", "tv", "a", "b"]);
        let later = now + SETTLE;
        queue.take(later, |_| true);
        queue.touch_later("all");
        for n in 0..20 {
            queue.touch(&format!("part-{n}"));
        }
        let taken = all(&mut queue, later);
        let place = taken.iter().position(|part| part == "all");
        assert_eq!(place, Some(IN_A_ROW), "{taken:?}");
        assert_eq!(taken.len(), 21);
    }

    #[test]
    fn a_part_has_one_time_and_the_earliest_counts() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        let at = |millis| now + Duration::from_millis(millis);
        queue.wake("cam", at(300));
        queue.wake("cam", at(100));
        queue.wake("cam", at(200));
        queue.wake("tv", at(250));
        assert_eq!(queue.next(now, |_| true), Some(at(100)));
        assert_eq!(queue.next(now, |part| part != "cam"), Some(at(250)));
        assert_eq!(queue.take(at(99), |_| true), None);
        assert_eq!(all(&mut queue, at(100)), ["cam"]);
        assert_eq!(all(&mut queue, at(1_000)), ["tv"]);
    }
}
