//! Schedules questions. Pure.
use std::time::Duration;

/// The time between a question and its first repetition (RFC 6762 5.2).
const FIRST_INTERVAL: Duration = Duration::from_secs(1);
/// The longest interval of a continuous question (RFC 6762 5.2).
pub const CONTINUOUS_MAX: Duration = Duration::from_secs(3600);
/// The longest interval between two questions for a missing record of a service.
pub const MISSING_MAX: Duration = Duration::from_secs(60);

/// A question that is repeated at growing intervals: after 1, 2, 4, … seconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Series {
    pub next: Duration,
    interval: Duration,
    max: Duration,
    /// The number of questions so far.
    pub sent: u32,
}

impl Series {
    pub fn new(first: Duration, max: Duration) -> Self {
        Self {
            next: first,
            interval: FIRST_INTERVAL,
            max,
            sent: 0,
        }
    }

    pub fn is_due(&self, now: Duration) -> bool {
        self.next <= now
    }

    /// Records that the question was asked, by this host or by another one (RFC 6762 7.3).
    pub fn asked(&mut self, now: Duration) {
        self.sent = self.sent.saturating_add(1);
        self.next = now + self.interval;
        self.interval = (self.interval * 2).min(self.max);
    }
}

/// The time after which an unanswered question is repeated. A responder that has just multicast a record must not do so
/// again for a second (RFC 6762 6).
pub const REPEATED_AFTER: Duration = Duration::from_millis(1100);

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
pub struct Confirm {
    sent: usize,
    /// The time of the next question; after the last question, the time at which the confirmation fails.
    next: Duration,
}

impl Confirm {
    pub fn new(now: Duration) -> Self {
        Self { sent: 0, next: now }
    }

    pub fn next(&self) -> Duration {
        self.next
    }

    /// Returns the number of questions so far.
    pub fn sent(&self) -> usize {
        self.sent
    }

    pub fn is_due(&self, now: Duration) -> bool {
        self.sent < CONFIRM_WAITS.len() && self.next <= now
    }

    /// Records that a question was sent. Its wait begins at that time, not when it was due, because a machine that
    /// stood still has received nothing meanwhile.
    pub fn asked(&mut self, now: Duration) {
        self.next = now + CONFIRM_WAITS.get(self.sent).copied().unwrap_or_default();
        self.sent = (self.sent + 1).min(CONFIRM_WAITS.len());
    }

    pub fn has_failed(&self, now: Duration) -> bool {
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
pub struct Search {
    began: Duration,
    interval: Duration,
    pub next: Duration,
    last: Option<Duration>,
}

impl Search {
    pub fn new(now: Duration) -> Self {
        Self {
            began: now,
            interval: SEARCH_INTERVAL,
            next: now + SEARCH_INTERVAL,
            last: None,
        }
    }

    pub fn is_due(&self, now: Duration) -> bool {
        self.next <= now
    }

    /// Restarts the search, because another service was lost.
    pub fn renew(&mut self, now: Duration) {
        *self = Self {
            last: self.last,
            next: self.next.min(now + SEARCH_INTERVAL),
            ..Self::new(now)
        };
    }

    pub fn asked(&mut self, now: Duration) {
        if now.saturating_sub(self.began) > SEARCH_STEADY {
            self.interval = (self.interval * 2).min(SEARCH_MAX);
        }
        self.last = Some(now);
        self.next = now + self.interval;
    }

    pub fn has_ended(&self, now: Duration) -> bool {
        now.saturating_sub(self.began) > SEARCH_END
    }

    /// Moves the next question forward, because a host of a lost service has sent a packet.
    pub fn search_soon(&mut self, now: Duration, wait: Duration) {
        let earliest = self.last.map_or(now, |last| last + SEARCH_PAUSE);
        self.next = self.next.min(earliest.max(now + wait));
    }
}

/// The most packets in a burst by one interface. The next constant is the rate per second in the long run.
const PACKETS_BURST: f64 = 100.0;
const PACKETS_PER_SECOND: f64 = 25.0;

/// Bounds the packets that are sent. One turn may exceed the bound; a pause follows.
#[derive(Debug, Clone)]
pub struct Pace {
    left: f64,
    since: Duration,
}

impl Pace {
    pub fn new(now: Duration) -> Self {
        Self {
            left: PACKETS_BURST,
            since: now,
        }
    }

    /// Returns the time from which packets may be sent; `None` means now.
    pub fn wait(&mut self, now: Duration) -> Option<Duration> {
        let passed = now.saturating_sub(self.since).as_secs_f64();
        self.left = (self.left + passed * PACKETS_PER_SECOND).min(PACKETS_BURST);
        self.since = now;
        (self.left < 1.0).then(|| {
            let missing = (1.0 - self.left) / PACKETS_PER_SECOND;
            now + Duration::from_secs_f64(missing) + Duration::from_millis(1)
        })
    }

    pub fn sent(&mut self, packets: usize) {
        self.left -= u32::try_from(packets).map_or(f64::MAX, f64::from);
        self.left = self.left.max(-10.0 * PACKETS_BURST);
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

    #[test]
    fn what_is_sent_in_a_second_is_bounded() {
        let (mut pace, mut sent) = (Pace::new(ms(0)), 0);
        for millis in 0..10_000 {
            if pace.wait(ms(millis)).is_none() {
                pace.sent(1);
                sent += 1;
            }
        }
        assert!((340..=350).contains(&sent), "{sent}");
    }
}
