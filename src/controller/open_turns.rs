//! Keeps the turns that wait for answers, and decides how many requests there are at a time and which one is sent next.
use super::turn::{Request, Stage, Turn};
use crate::cluster::SIDE_BY_SIDE;
use std::collections::BTreeMap;

/// The most requests of all parts together. One part has at most [`SIDE_BY_SIDE`], so that a few of them which are not
/// answered leave room for others.
pub(super) const OPEN_AT_ONCE: usize = 4 * SIDE_BY_SIDE;
/// The most requests about brokers, Services and evictions. A webhook may hold each one for 10 s.
const ADMITTED_AT_ONCE: usize = OPEN_AT_ONCE - SIDE_BY_SIDE;

/// The turns that wait for answers, or for a place among the requests that are sent.
#[derive(Debug, Default)]
pub(crate) struct OpenTurns {
    pub(crate) turns: BTreeMap<String, Turn>,
}

impl OpenTurns {
    /// Gives up what is not sent, because this replica does not lead any more.
    pub(crate) fn lose(&mut self) {
        // A turn that waits for no answer would never end.
        self.turns.retain(|_, turn| turn.open > 0);
        for turn in self.turns.values_mut() {
            turn.queue.clear();
            turn.is_valid = false;
        }
    }

    /// Gives up the evictions that are not sent of parts that have changed since: the device may be back. These parts are
    /// planned again in any case, because they have changed.
    pub(crate) fn drop_outdated_evictions(&mut self) {
        self.turns.retain(|_, turn| {
            if turn.is_touched && turn.stage == Stage::Evictions {
                turn.queue.clear();
            }
            turn.open > 0 || !turn.queue.is_empty()
        });
    }

    /// Returns whether what a turn plans could be sent now.
    pub(crate) fn has_room(&self) -> bool {
        let [admitted, others] = self.count(Turn::places);
        admitted.min(ADMITTED_AT_ONCE) + others < OPEN_AT_ONCE
    }

    /// Returns the places that no broker and no Service takes or waits for.
    pub(crate) fn places_for_admitted(&self) -> usize {
        let [admitted, _] = self.count(Turn::places);
        ADMITTED_AT_ONCE.saturating_sub(admitted)
    }

    /// Returns the request that is sent next, if there is room: one of the part that waits for the fewest answers.
    pub(crate) fn send_next(&mut self) -> Option<(String, Request)> {
        let [admitted, others] = self.count(|turn| turn.open);
        let waiting = self.turns.iter_mut().filter(|(_, turn)| {
            let has_place = !turn.stage.is_admitted() || admitted < ADMITTED_AT_ONCE;
            has_place && !turn.queue.is_empty() && turn.open < SIDE_BY_SIDE
        });
        let waiting = waiting.filter(|_| admitted + others < OPEN_AT_ONCE);
        let (part, turn) = waiting.min_by_key(|(_, turn)| turn.open)?;
        let request = turn.queue.pop_front()?;
        turn.open += 1;
        turn.sent += 1;
        turn.has_sent = true;
        Some((part.clone(), request))
    }

    /// Counts something of the turns in the stages of brokers and Services, and of the others.
    fn count(&self, of: impl Fn(&Turn) -> usize) -> [usize; 2] {
        let mut counts = [0, 0];
        for turn in self.turns.values() {
            counts[usize::from(!turn.stage.is_admitted())] += of(turn);
        }
        counts
    }
}

impl Turn {
    /// Returns the places among all requests that it takes or waits for.
    fn places(&self) -> usize {
        (self.open + self.queue.len()).min(SIDE_BY_SIDE)
    }

    /// Returns whether what is not sent yet is planned anew, after an answer. A device that is there again is not deleted, and
    /// one that more nodes have reported meanwhile is one write instead of two. Each turn sends some, so that none is planned for
    /// ever.
    pub(crate) fn is_outdated(&self, is_failed: bool) -> bool {
        // What admits Pods and Services may take 10 s for each, and devices and statuses must not wait for all of them.
        is_failed && self.stage.is_admitted() || self.is_touched && self.sent >= SIDE_BY_SIDE
    }
}
