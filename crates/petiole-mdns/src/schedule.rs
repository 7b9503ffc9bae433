//! Schedules questions. Pure.
use std::time::Duration;

/// The time between a question and its first repetition (RFC 6762 5.2).
const FIRST_INTERVAL: Duration = Duration::from_secs(1);
/// The longest interval of a continuous question (RFC 6762 5.2).
pub(crate) const CONTINUOUS_MAX: Duration = Duration::from_secs(3600);
/// The longest interval between two questions for a missing record of a service.
pub(crate) const MISSING_MAX: Duration = Duration::from_secs(60);

/// The time within which our own question must be due to be replaced by that of another host.
const HEARD_WITHIN: Duration = Duration::from_millis(100);

/// Returns the time at which a question that is due at `next` counts as asked because another host has asked it at `now`
/// (RFC 6762 7.3). It returns `None` if ours is sent all the same: it is not due yet, or the one before was not ours
/// either. Who sends questions to this host alone must not keep all of ours from being sent.
fn stands_for(next: Duration, was_heard: bool, now: Duration) -> Option<Duration> {
    (!was_heard && next <= now + HEARD_WITHIN).then_some(next.max(now))
}

/// A question that is repeated at growing intervals: after 1, 2, 4, … seconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Series {
    pub next: Duration,
    interval: Duration,
    max: Duration,
    /// The number of questions so far.
    pub sent: u32,
    /// The last question was that of another host.
    was_heard: bool,
}

impl Series {
    pub(crate) fn new(first: Duration, max: Duration) -> Self {
        Self {
            next: first,
            interval: FIRST_INTERVAL,
            max,
            sent: 0,
            was_heard: false,
        }
    }

    pub(crate) fn is_due(&self, now: Duration) -> bool {
        self.next <= now
    }

    /// Records that the question was asked.
    pub(crate) fn asked(&mut self, now: Duration) {
        self.sent = self.sent.saturating_add(1);
        self.next = now + self.interval;
        self.interval = (self.interval * 2).min(self.max);
        self.was_heard = false;
    }

    /// Returns whether the question of another host would replace ours.
    pub(crate) fn is_due_soon(&self, now: Duration) -> bool {
        stands_for(self.next, self.was_heard, now).is_some()
    }

    /// Returns whether the question of another host, which was heard at `now`, replaces ours. Ours is then repeated
    /// `jitter` later, so that hosts which have heard the same question do not ask together.
    pub(crate) fn is_asked_by_other(&mut self, now: Duration, jitter: Duration) -> bool {
        let Some(at) = stands_for(self.next, self.was_heard, now) else {
            return false;
        };
        self.asked(at + jitter);
        self.was_heard = true;
        true
    }
}

/// The time after which an unanswered question is repeated. A responder that has just multicast a record must not do so
/// again for a second (RFC 6762 6).
pub(crate) const REPEATED_AFTER: Duration = Duration::from_millis(1100);

/// The time that each question of a confirmation waits for its answer. RFC 6762 10.4 requires two questions, and
/// suggests 10 s in total. If a tenth of the packets is lost in each direction, one question in five has no answer:
/// four questions all fail once in 770 confirmations, and seven once in 110,000.
const CONFIRM_WAITS: [Duration; 7] = [
    REPEATED_AFTER,
    REPEATED_AFTER,
    REPEATED_AFTER,
    REPEATED_AFTER,
    REPEATED_AFTER,
    Duration::from_millis(1300),
    Duration::from_millis(1500),
];

/// The confirmation of a service: questions that check whether it is still present (RFC 6762 10.4).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Confirm {
    sent: usize,
    /// The last question was that of another host.
    was_heard: bool,
    /// The time of the next question; after the last question, the time at which the confirmation fails.
    next: Duration,
}

impl Confirm {
    pub(crate) fn new(now: Duration) -> Self {
        Self {
            sent: 0,
            was_heard: false,
            next: now,
        }
    }

    pub(crate) fn next(&self) -> Duration {
        self.next
    }

    /// Returns the number of questions so far.
    pub(crate) fn sent(&self) -> usize {
        self.sent
    }

    pub(crate) fn is_due(&self, now: Duration) -> bool {
        self.sent < CONFIRM_WAITS.len() && self.next <= now
    }

    /// Records that a question was sent. Its wait begins at that time, not when it was due, because a machine that
    /// stood still has received nothing meanwhile.
    pub(crate) fn asked(&mut self, now: Duration) {
        self.next = now + CONFIRM_WAITS.get(self.sent).copied().unwrap_or_default();
        self.sent = (self.sent + 1).min(CONFIRM_WAITS.len());
        self.was_heard = false;
    }

    /// Returns whether the question of another host replaces ours, as [`Series::is_asked_by_other`] does. The waits are not
    /// shortened by it.
    pub(crate) fn is_asked_by_other(&mut self, now: Duration, jitter: Duration) -> bool {
        let is_left = self.sent < CONFIRM_WAITS.len();
        let at = stands_for(self.next, self.was_heard, now).filter(|_| is_left);
        let Some(at) = at else {
            return false;
        };
        self.asked(at + jitter);
        self.was_heard = true;
        true
    }

    pub(crate) fn has_failed(&self, now: Duration) -> bool {
        self.sent == CONFIRM_WAITS.len() && self.next <= now
    }
}

/// The first interval of a search for services that did not answer. Intervals grow from the start in RFC 6762 5.2. Here
/// they grow only after [`SEARCH_STEADY`], because an outage of a minute must not cost another minute.
const SEARCH_INTERVAL: Duration = Duration::from_millis(1500);
const SEARCH_STEADY: Duration = Duration::from_secs(120);
const SEARCH_MAX: Duration = Duration::from_secs(60);
/// The time after which the search ends. The continuous question and announcements continue.
const SEARCH_END: Duration = Duration::from_secs(900);
/// The shortest time between two questions of a search that was moved forward.
const SEARCH_PAUSE: Duration = Duration::from_secs(1);

/// The search for services that did not answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Search {
    began: Duration,
    interval: Duration,
    pub next: Duration,
    last: Option<Duration>,
}

impl Search {
    pub(crate) fn new(now: Duration) -> Self {
        Self {
            began: now,
            interval: SEARCH_INTERVAL,
            next: now + SEARCH_INTERVAL,
            last: None,
        }
    }

    pub(crate) fn is_due(&self, now: Duration) -> bool {
        self.next <= now
    }

    /// Restarts the search, because another service was lost.
    pub(crate) fn renew(&mut self, now: Duration) {
        *self = Self {
            last: self.last,
            next: self.next.min(now + SEARCH_INTERVAL),
            ..Self::new(now)
        };
    }

    pub(crate) fn asked(&mut self, now: Duration) {
        if now.saturating_sub(self.began) > SEARCH_STEADY {
            self.interval = (self.interval * 2).min(SEARCH_MAX);
        }
        self.last = Some(now);
        self.next = now + self.interval;
    }

    pub(crate) fn has_ended(&self, now: Duration) -> bool {
        now.saturating_sub(self.began) > SEARCH_END
    }

    /// Moves the next question forward, because a host of a lost service has sent a packet.
    pub(crate) fn search_soon(&mut self, now: Duration, wait: Duration) {
        let earliest = self.last.map_or(now, |last| last + SEARCH_PAUSE);
        self.next = self.next.min(earliest.max(now + wait));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn a_continuous_question_is_repeated_after_1_2_4_seconds_and_at_last_once_an_hour() {
        let mut series = Series::new(ms(50), CONTINUOUS_MAX);
        let mut asked = vec![];
        for _ in 0..16 {
            asked.push(series.next.as_secs());
            series.asked(series.next);
        }
        assert_eq!(asked[..8], [0, 1, 3, 7, 15, 31, 63, 127]);
        assert_eq!(asked[15] - asked[14], 3600);
    }

    #[test]
    fn a_confirmation_asks_seven_times_and_gives_up_after_eight_seconds() {
        let mut confirm = Confirm::new(ms(1000));
        let mut asked = vec![];
        while confirm.is_due(confirm.next()) {
            asked.push(confirm.next());
            confirm.asked(confirm.next());
        }
        assert_eq!(asked, [1000, 2100, 3200, 4300, 5400, 6500, 7800].map(ms));
        assert!(!confirm.has_failed(ms(9299)) && confirm.has_failed(ms(9300)));
    }

    #[test]
    fn a_question_of_another_host_counts_once_in_its_time_and_not_twice_in_a_row() {
        let mut confirm = Confirm::new(ms(1000));
        assert!(!confirm.is_asked_by_other(ms(899), ms(0)));
        // All that is heard, every 10 ms, does not shorten the time in which seven questions are asked.
        let (mut heard, mut own) = (vec![], vec![]);
        for now in (900..)
            .step_by(10)
            .map(ms)
            .take_while(|now| *now < ms(10_000))
        {
            if confirm.is_asked_by_other(now, ms(30)) {
                heard.push(now);
            } else if confirm.is_due(now) {
                confirm.asked(now);
                own.push(now);
            }
        }
        assert_eq!(heard, [900, 3130, 5360, 7790].map(ms));
        assert_eq!(own, [2130, 4360, 6590].map(ms));
        let mut series = Series::new(ms(1000), CONTINUOUS_MAX);
        let asked =
            [899, 900, 950, 1900, 2000, 2100].map(|n| series.is_asked_by_other(ms(n), ms(0)));
        assert_eq!(asked, [false, true, false, false, false, false]);
        assert_eq!(series.next, ms(2000));
        series.asked(ms(2000));
        assert!(series.is_asked_by_other(ms(3900), ms(20)));
        assert_eq!(series.next, ms(8020));
    }

    #[test]
    fn a_machine_that_stood_still_asks_again_before_it_gives_up() {
        let mut confirm = Confirm::new(ms(0));
        confirm.asked(ms(0));
        for _ in 1..CONFIRM_WAITS.len() {
            assert!(confirm.is_due(ms(60_000).max(confirm.next())));
            confirm.asked(ms(60_000).max(confirm.next()));
        }
        assert!(!confirm.has_failed(ms(65_000)));
    }

    #[test]
    fn lost_services_are_looked_for_at_short_intervals_for_two_minutes() {
        let mut search = Search::new(ms(0));
        let mut looks = vec![];
        while !search.has_ended(search.next) {
            looks.push(search.next);
            search.asked(search.next);
        }
        let early = looks.iter().filter(|at| **at <= SEARCH_STEADY).count();
        assert_eq!(early, 80);
        assert!(looks.len() < 100, "{}", looks.len());
    }
}
