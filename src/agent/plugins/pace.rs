//! Decides when the plugins' next round is due: soon after a change, and later the longer rounds take. Pure.
use std::time::Duration;
use tokio::time::Instant;

/// The wait between a change and the round that takes it over: a claim makes three changes, and is answered before its slots
/// are listed anew.
const SETTLE: Duration = Duration::from_millis(5);
/// The longest such wait.
const LONGEST_SETTLE: Duration = Duration::from_millis(100);
/// The wait is this many times as long as the last round took, with the turns of other tasks in between. So a round takes
/// over the more changes the more rounds cost and the busier the agent is.
const WAIT_PER_ROUND: u32 = 10;

pub(super) struct Pace {
    due: Option<Instant>,
    wait: Duration,
    ended: Instant,
}

impl Pace {
    /// The first round is due at once.
    pub(super) fn new(now: Instant) -> Self {
        Self {
            due: Some(now),
            wait: SETTLE,
            ended: now,
        }
    }

    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Records a change. One that comes after a rest waits for no others: it may be the only one.
    pub(super) fn change(&mut self, now: Instant) {
        let is_rested = now.duration_since(self.ended) > LONGEST_SETTLE;
        let wait = if is_rested { SETTLE } else { self.wait };
        self.due.get_or_insert(now + wait);
    }

    /// Records that a round has ended.
    pub(super) fn end_round(&mut self, began: Instant, now: Instant) {
        self.due = None;
        self.wait = (now.duration_since(began) * WAIT_PER_ROUND).clamp(SETTLE, LONGEST_SETTLE);
        self.ended = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Returns the wait for a round after a change, `rest` after a round that took `took`.
    fn wait(took: Duration, rest: Duration) -> Duration {
        let began = Instant::now();
        let mut pace = Pace::new(began);
        assert_eq!(pace.due(), Some(began));
        let ended = began + took;
        pace.end_round(began, ended);
        assert_eq!(pace.due(), None);
        let changed = ended + rest;
        pace.change(changed);
        pace.change(changed + MS);
        pace.due().unwrap() - changed
    }

    #[test]
    fn a_change_waits_for_others_the_longer_the_more_the_last_round_cost() {
        let cases = [
            (Duration::ZERO, SETTLE),
            (2 * MS, 20 * MS),
            (10 * MS, LONGEST_SETTLE),
            (500 * MS, LONGEST_SETTLE),
        ];
        for (took, expected) in cases {
            assert_eq!(wait(took, MS), expected, "{took:?}");
        }
    }

    #[test]
    fn the_first_change_after_a_rest_waits_for_little() {
        assert_eq!(wait(500 * MS, LONGEST_SETTLE), LONGEST_SETTLE);
        assert_eq!(wait(500 * MS, LONGEST_SETTLE + MS), SETTLE);
    }
}
