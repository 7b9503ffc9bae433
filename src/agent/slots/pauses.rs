//! Decides how long an Instance is left alone after its slots were written, or could not be. Pure.
use crate::{
    backoff::doubled,
    model::{instance_name::InstanceKey, slot_table::SlotChange},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};
use tokio::time::Instant;

/// The waits after a write that the server did not answer, or was too busy for.
pub(super) const FIRST_RETRY: Duration = Duration::from_millis(500);
pub(super) const LAST_RETRY: Duration = Duration::from_secs(10);
/// The time for which an Instance is left alone whose write the server refused, or which somebody else changes back each time.
pub(super) const LONGEST_WAIT: Duration = Duration::from_secs(300);

/// The slots of one Instance that are to be written.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Due {
    pub(crate) key: InstanceKey,
    pub(crate) changes: Vec<SlotChange>,
}

/// What became of the write of an Instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Written,
    /// The Instance is another one now: the next round sees it.
    Changed,
    /// The server does not answer, or is too busy.
    Unavailable,
    Refused,
}

#[derive(Debug)]
struct Pause {
    until: Instant,
    wait: Option<Duration>,
    /// What was written; `None` if the write failed.
    written: Option<Vec<SlotChange>>,
}

/// The Instances that were written lately, and those whose write failed.
#[derive(Debug, Default)]
pub(super) struct Pauses(BTreeMap<InstanceKey, Pause>);

impl Pauses {
    /// Removes from `due` what must wait. What the table itself has changed since the last write never waits for somebody who
    /// changes the Instance back.
    pub(super) fn keep_back(&mut self, due: &mut Vec<Due>, now: Instant) {
        let keys: BTreeSet<&InstanceKey> = due.iter().map(|due| &due.key).collect();
        self.0.retain(|key, pause| {
            let is_of_use = pause.written.is_some() || keys.contains(key);
            is_of_use && now < pause.until + LONGEST_WAIT
        });
        due.retain(|Due { key, changes }| {
            let waits = |pause: &Pause| {
                let written = pause.written.as_deref();
                now < pause.until && written.is_none_or(|written| is_undone(written, changes))
            };
            !self.0.get(key).is_some_and(waits)
        });
    }

    /// Notes what became of a write.
    pub(super) fn note(&mut self, due: Due, outcome: Outcome, now: Instant) {
        let Due { key, changes } = due;
        let before = self.0.remove(&key);
        let (wait, written) = match outcome {
            Outcome::Changed => return,
            Outcome::Written => {
                let again = before.filter(|pause| {
                    (pause.written.as_deref()).is_some_and(|written| is_undone(written, &changes))
                });
                let wait = again.map(|pause| doubled(pause.wait, FIRST_RETRY, LONGEST_WAIT));
                (wait, Some(changes))
            }
            Outcome::Unavailable => {
                let failed = before.filter(|pause| pause.written.is_none());
                let last = failed.and_then(|pause| pause.wait);
                (Some(doubled(last, FIRST_RETRY, LAST_RETRY)), None)
            }
            Outcome::Refused => (Some(LONGEST_WAIT), None),
        };
        let pause = Pause {
            until: now + wait.unwrap_or_default(),
            wait,
            written,
        };
        self.0.insert(key, pause);
    }

    /// Returns the time until the next Instance need not wait any more.
    pub(super) fn next(&self, now: Instant) -> Option<Duration> {
        let until = self.0.values().map(|pause| pause.until);
        until
            .filter(|until| *until > now)
            .min()
            .map(|until| until - now)
    }
}

/// Returns whether all that is due was written last: somebody has undone it.
fn is_undone(written: &[SlotChange], due: &[SlotChange]) -> bool {
    let result = |one: &SlotChange| {
        (
            one.slot.clone(),
            one.to.clone(),
            one.connection_digest.clone(),
        )
    };
    let is_written = |one: &SlotChange| written.iter().any(|other| result(other) == result(one));
    due.iter().all(is_written)
}
