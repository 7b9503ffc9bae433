//! Decides which parts of the world a job plans, and when: those that have changed, those whose last pass was not carried
//! out, and those whose time has come. Pure.
use super::parts::Parts;
use crate::backoff::doubled;
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};
use tokio::time::Instant;

const FIRST_RETRY: Duration = Duration::from_millis(500);
const LAST_RETRY: Duration = Duration::from_secs(30);
/// The time after which the whole world is planned again though nothing has changed. It bounds how long an error in what
/// counts as touched can last, and a kubelet reports on an unchanged Node as often, so it adds no load of another order.
const ALL_AGAIN: Duration = Duration::from_mins(5);

/// The parts of created objects are planned once more after this time. An object that is deleted before the next look is in
/// neither of the two worlds that are compared.
pub(crate) const CREATED_AGAIN: Duration = Duration::from_secs(1);

/// The waits until parts are planned again though nothing has changed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Waits {
    /// The wait until the whole world is planned.
    all: Option<Duration>,
    parts: BTreeMap<String, Duration>,
}

/// The result of a pass over some parts of the world.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Pass {
    /// The parts in which something that was planned was not carried out.
    pub(crate) failed: BTreeSet<String>,
    pub(crate) waits: Waits,
}

/// The parts that are due, and the times at which others will be. A new agenda begins with the whole world.
#[derive(Debug)]
pub(crate) struct Agenda {
    due: Parts,
    times: BTreeMap<String, Instant>,
    /// The time at which the whole world is due.
    all_at: Option<Instant>,
    /// The time of the next plan of the whole world though nothing has changed.
    all_again_at: Option<Instant>,
    /// The last wait of each part whose last pass was not carried out.
    retries: BTreeMap<String, Duration>,
}

impl Waits {
    /// Returns waits of which one is for the whole world.
    pub(crate) fn of_all(all: Option<Duration>) -> Self {
        Self {
            all,
            parts: BTreeMap::new(),
        }
    }

    /// Adds the wait of a part. The shortest one counts.
    pub(crate) fn add(&mut self, part: &str, wait: Duration) {
        match self.parts.get_mut(part) {
            Some(known) => *known = wait.min(*known),
            None => drop(self.parts.insert(part.to_owned(), wait)),
        }
    }

    /// Returns the shortest wait.
    #[cfg(test)]
    pub(crate) fn first(&self) -> Option<Duration> {
        self.parts.values().chain(&self.all).min().copied()
    }
}

impl Agenda {
    pub(crate) fn new() -> Self {
        Self {
            due: Parts::All,
            times: BTreeMap::new(),
            all_at: None,
            all_again_at: None,
            retries: BTreeMap::new(),
        }
    }

    /// Makes parts due now.
    pub(crate) fn touch(&mut self, parts: Parts) {
        match (&mut self.due, parts) {
            (Parts::All, _) => {}
            (due, Parts::All) => *due = Parts::All,
            (Parts::Named(due), Parts::Named(parts)) => due.extend(parts),
        }
    }

    /// Returns the parts that are due, and takes them off the agenda. `None` if there are none.
    pub(crate) fn take(&mut self, now: Instant) -> Option<Parts> {
        let is_all = [self.all_at, self.all_again_at].into_iter().flatten();
        if self.due == Parts::All || is_all.min().is_some_and(|at| at <= now) {
            *self = Self {
                due: Parts::Named(BTreeSet::new()),
                all_again_at: Some(now + ALL_AGAIN),
                retries: std::mem::take(&mut self.retries),
                ..Self::new()
            };
            return Some(Parts::All);
        }
        let Parts::Named(due) = &mut self.due else {
            return None;
        };
        let mut due = std::mem::take(due);
        let times = self.times.iter();
        due.extend(
            times
                .filter(|(_, at)| **at <= now)
                .map(|(part, _)| part.clone()),
        );
        self.times.retain(|part, _| !due.contains(part));
        (!due.is_empty()).then_some(Parts::Named(due))
    }

    /// Records the result of the pass over `parts`.
    pub(crate) fn done(&mut self, parts: &Parts, pass: Pass, now: Instant) {
        let Pass { failed, waits } = pass;
        let all_at = waits.all.and_then(|wait| now.checked_add(wait));
        self.all_at = match parts {
            Parts::All => all_at,
            // The pass of a part says what it knows, and takes no time of the others away.
            Parts::Named(_) => self.all_at.into_iter().chain(all_at).min(),
        };
        (self.retries).retain(|part, _| failed.contains(part) || !parts.includes(part));
        let mut times = waits.parts;
        for part in failed {
            let last = self.retries.get(&part).copied();
            let wait = doubled(last, FIRST_RETRY, LAST_RETRY);
            let time = times.entry(part.clone()).or_insert(wait);
            *time = wait.min(*time);
            self.retries.insert(part, wait);
        }
        for (part, wait) in times {
            let Some(at) = now.checked_add(wait) else {
                continue;
            };
            let known = self.times.get(&part).copied();
            let earlier = known.filter(|known| !parts.includes(&part) && *known < at);
            self.times.insert(part, earlier.unwrap_or(at));
        }
    }

    /// Returns the time at which the next part is due.
    pub(crate) fn next(&self) -> Option<Instant> {
        let all = [self.all_at, self.all_again_at].into_iter().flatten();
        self.times.values().copied().chain(all).min()
    }
}

impl Parts {
    fn includes(&self, part: &str) -> bool {
        match self {
            Self::All => true,
            Self::Named(names) => names.contains(part),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(parts: &[&str]) -> Parts {
        Parts::Named(parts.iter().map(|part| (*part).to_owned()).collect())
    }

    fn failed(parts: &[&str]) -> Pass {
        Pass {
            failed: parts.iter().map(|part| (*part).to_owned()).collect(),
            waits: Waits::default(),
        }
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// Returns an agenda that has planned the whole world, and the time at which it has.
    fn begun() -> (Agenda, Instant) {
        let (mut agenda, now) = (Agenda::new(), Instant::now());
        assert_eq!(agenda.take(now), Some(Parts::All));
        agenda.done(&Parts::All, Pass::default(), now);
        (agenda, now)
    }

    #[test]
    fn it_begins_with_the_whole_world_and_then_has_what_was_touched() {
        let (mut agenda, now) = begun();
        assert_eq!(agenda.take(now), None);
        agenda.touch(named(&[]));
        assert_eq!(agenda.take(now), None);
        agenda.touch(named(&["b"]));
        agenda.touch(named(&["a"]));
        assert_eq!(agenda.take(now), Some(named(&["a", "b"])));
        assert_eq!(agenda.take(now), None);
        agenda.touch(named(&["a"]));
        agenda.touch(Parts::All);
        agenda.touch(named(&["b"]));
        assert_eq!(agenda.take(now), Some(Parts::All));
    }

    #[test]
    fn a_part_is_due_when_its_time_has_come_and_only_its_own_pass_sets_another() {
        let (mut agenda, now) = begun();
        let mut pass = Pass::default();
        pass.waits.add("a", seconds(9));
        pass.waits.add("a", seconds(3));
        pass.waits.add("b", seconds(5));
        agenda.done(&Parts::All, pass, now);
        assert_eq!(agenda.next(), Some(now + seconds(3)));
        agenda.touch(named(&["c"]));
        assert_eq!(agenda.take(now), Some(named(&["c"])));
        agenda.done(&named(&["c"]), Pass::default(), now);
        assert_eq!(agenda.take(now + seconds(4)), Some(named(&["a"])));
        agenda.done(&named(&["a"]), Pass::default(), now + seconds(4));
        agenda.touch(named(&["b"]));
        assert_eq!(agenda.take(now + seconds(4)), Some(named(&["b"])));
        agenda.done(&named(&["b"]), Pass::default(), now + seconds(4));
        assert_eq!(agenda.next(), Some(now + ALL_AGAIN));
    }

    #[test]
    fn the_pass_of_a_part_puts_off_no_other_and_not_the_whole_world() {
        let (mut agenda, now) = begun();
        let mut pass = Pass {
            waits: Waits::of_all(Some(seconds(7))),
            ..Pass::default()
        };
        pass.waits.add("a", seconds(3));
        agenda.done(&Parts::All, pass, now);
        agenda.touch(named(&["b"]));
        agenda.take(now);
        let mut pass = Pass::default();
        pass.waits.add("a", seconds(60));
        agenda.done(&named(&["b"]), pass, now);
        assert_eq!(agenda.take(now + seconds(3)), Some(named(&["a"])));
        assert_eq!(agenda.take(now + seconds(7)), Some(Parts::All));
    }

    #[test]
    fn what_was_not_carried_out_is_tried_again_less_and_less_often_whatever_else_happens() {
        let (mut agenda, mut now) = begun();
        agenda.touch(named(&["a"]));
        let mut waits = vec![];
        for _ in 0..8 {
            assert_eq!(agenda.take(now), Some(named(&["a"])));
            agenda.done(&named(&["a"]), failed(&["a"]), now);
            agenda.touch(named(&["b"]));
            assert_eq!(agenda.take(now), Some(named(&["b"])));
            agenda.done(&named(&["b"]), Pass::default(), now);
            let at = agenda.next().unwrap();
            waits.push((at - now).as_millis());
            now = at;
        }
        assert_eq!(waits, [500, 1000, 2000, 4000, 8000, 16000, 30000, 30000]);
        assert_eq!(agenda.take(now), Some(named(&["a"])));
        agenda.done(&named(&["a"]), Pass::default(), now);
        agenda.touch(named(&["a"]));
        agenda.take(now);
        agenda.done(&named(&["a"]), failed(&["a"]), now);
        assert_eq!(agenda.next(), Some(now + FIRST_RETRY));
    }

    #[test]
    fn the_whole_world_is_due_at_its_time_and_from_time_to_time() {
        let (mut agenda, now) = begun();
        let pass = Pass {
            waits: Waits::of_all(Some(seconds(7))),
            ..Pass::default()
        };
        agenda.touch(named(&["a"]));
        agenda.take(now);
        agenda.done(&named(&["a"]), pass, now);
        assert_eq!(agenda.take(now + seconds(6)), None);
        assert_eq!(agenda.take(now + seconds(7)), Some(Parts::All));
        agenda.done(&Parts::All, Pass::default(), now + seconds(7));
        assert_eq!(agenda.next(), Some(now + seconds(7) + ALL_AGAIN));
        assert_eq!(agenda.take(now + seconds(7) + ALL_AGAIN), Some(Parts::All));
    }
}
