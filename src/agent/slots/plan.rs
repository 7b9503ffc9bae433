//! Decides which slots of this node to release, and which ones in use to claim. Pure.
//!
//! A slot that is never released keeps its device from all other Pods, and its Instance from being deleted. A slot that is
//! released too early is given to a second container.
use crate::{
    backoff,
    model::{
        slot::SlotId,
        slot_table::{Adoptions, Held, HeldTwice, SETTLED_AFTER, SlotChange, SlotTable},
    },
    store::Instances,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// The begin of the first look that has missed each slot, if every look since has missed it. Times are uptimes.
pub(crate) type Missed = BTreeMap<SlotId, Duration>;

/// The uptime of the next try and the number of tries so far, for each slot that could not be claimed.
pub(crate) type Retries = BTreeMap<SlotId, (Duration, u32)>;

/// The longest time between two tries to claim a slot that a container uses: another node may give it away meanwhile.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// A look at the kubelet's records.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Look {
    /// The uptime at which it began.
    pub(crate) begun: Duration,
    /// The time that must lie between the two looks that miss a slot before it is released. It is shorter for slots that were
    /// claimed long ago, if the checkpoint is fresh: see [`Look::min_interval`].
    pub(crate) interval: Duration,
    /// True if the kubelet has written its checkpoint for this look.
    pub(crate) is_fresh: bool,
    /// The uptime at which this kubelet was first seen. A kubelet that has started forgets the Pods that were deleted
    /// meanwhile at once, and ends their containers some seconds later.
    pub(crate) kubelet_since: Duration,
}

impl Look {
    /// Returns the least time between two looks that both miss a slot before it is released: a Pod that is being admitted
    /// shows in the second. The shorter time is for slots whose Pods have been admitted long ago, and only with a
    /// checkpoint that contains all that the kubelet has in its memory.
    fn min_interval(self, held: &Held) -> Duration {
        // A kubelet that has started has ended the containers of deleted Pods by then, too.
        let age = self
            .begun
            .saturating_sub(held.answered.max(self.kubelet_since));
        if self.is_fresh && age >= SETTLED_AFTER {
            follow_up(self.interval)
        } else {
            self.interval
        }
    }
}

/// Returns the time between a look that misses a slot and the next look.
fn follow_up(interval: Duration) -> Duration {
    interval * 3 / 10
}

/// Returns the wait for the next look after one that had `begun`: shorter while a slot was missed once, and no longer than until that was `interval` ago; and
/// while slots wait to be confirmed, which the last `unconfirmed` looks could not do: then it grows up to less than an Allocate
/// call waits.
pub(crate) fn next_look(
    interval: Duration,
    missed: &Missed,
    unconfirmed: u32,
    begun: Duration,
    now: Duration,
) -> Duration {
    let (first, longest) = (interval / 40, interval / 5);
    let due = missed.values().map(|since| *since + interval);
    let due = due.filter(|due| *due > begun).min();
    let calm = match (missed.is_empty(), due) {
        (true, _) => interval / 2,
        (false, None) => follow_up(interval),
        (false, Some(due)) => follow_up(interval).min(due.saturating_sub(now)),
    };
    match unconfirmed.checked_sub(1) {
        None => calm,
        Some(tries) => backoff::after(tries, first, longest),
    }
}

/// Returns the claims to be made now: the first try at once, each further wait twice as long, up to [`LONGEST_WAIT`].
pub(crate) fn due_claims(
    adoptions: &Adoptions,
    look: Look,
    retries: &Retries,
) -> (Vec<SlotChange>, Retries) {
    let (mut due, mut retries_left) = (vec![], Retries::new());
    for change in &adoptions.changes {
        let (at, tries) = retries.get(&change.slot).copied().unwrap_or_default();
        let next = if at > look.begun {
            (at, tries)
        } else {
            due.push(change.clone());
            let wait = backoff::after(tries, look.interval / 2, LONGEST_WAIT);
            (look.begun + wait, tries + 1)
        };
        retries_left.insert(change.slot.clone(), next);
    }
    (due, retries_left)
}

/// Returns the slots held twice that the last look did not find, or found with another owner.
pub(crate) fn new_conflicts<'a>(now: &'a [HeldTwice], before: &[HeldTwice]) -> Vec<&'a HeldTwice> {
    now.iter().filter(|one| !before.contains(one)).collect()
}

/// Releases a slot when two looks, at least [`Look::min_interval`] apart, have missed it and both began after its claim was
/// answered.
pub(crate) fn releases(
    held: &[Held],
    listed: &BTreeSet<String>,
    look: Look,
    missed: &Missed,
) -> (Vec<SlotChange>, Missed) {
    let begun = look.begun;
    let mut still_missed = Missed::new();
    let mut releases = vec![];
    for slot in held
        .iter()
        .filter(|held| held.answered <= begun && !listed.contains(&held.id()))
    {
        let first = missed
            .get(&slot.slot)
            .copied()
            .filter(|first| *first >= slot.answered);
        match first {
            Some(first) if begun.saturating_sub(first) >= look.min_interval(slot) => {
                releases.push(slot.clone().release());
            }
            first => {
                still_missed.insert(slot.slot.clone(), first.unwrap_or(begun));
            }
        }
    }
    (releases, still_missed)
}

/// Returns the releases of slots that no claim has taken since the look began.
pub(crate) fn still_unused(
    mut changes: Vec<SlotChange>,
    held: &[Held],
    begun: Duration,
) -> Vec<SlotChange> {
    changes.retain(|change| {
        held.iter().any(|held| {
            held.slot == change.slot
                && Some(&held.owner) == change.from.as_ref()
                && held.answered <= begun
        })
    });
    changes
}

/// Returns the claims of slots that are free now and were not freed since the look began: what it saw may be of the last holder.
pub(crate) fn still_free(
    mut changes: Vec<SlotChange>,
    table: &SlotTable,
    begun: Duration,
) -> Vec<SlotChange> {
    changes
        .retain(|change| table.is_free(&change.slot) && !table.is_freed_after(&change.slot, begun));
    changes
}

/// Divides changes into those of slots that the table remembers, and the others.
pub(crate) fn divided(
    changes: Vec<SlotChange>,
    table: &SlotTable,
) -> (Vec<SlotChange>, Vec<SlotChange>) {
    (changes.into_iter()).partition(|change| table.is_own(&change.slot))
}

/// The same, and the slots that the table remembers only as far as they have the owner `from`.
pub(crate) fn remembered(
    changes: Vec<SlotChange>,
    table: &SlotTable,
) -> (Vec<SlotChange>, Vec<SlotChange>) {
    let (mut own, others) = divided(changes, table);
    own.retain(|change| table.settled_owner(&change.slot) == Ok(change.from.as_ref()));
    (own, others)
}

/// Returns the changes of slots that have the owner `from` in the Instance. With another owner the claim was never
/// written, or another node has the slot: there is nothing to undo.
pub(crate) fn still_written(
    mut changes: Vec<SlotChange>,
    instances: &Instances,
) -> Vec<SlotChange> {
    changes.retain(|change| {
        let usage = (instances.get(&change.key))
            .and_then(|instance| instance.spec.device_usage.get(&change.slot.to_string()));
        usage.filter(|usage| !usage.is_empty())
            == change.from.as_ref().map(ToString::to_string).as_ref()
    });
    changes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{instance_name::InstanceKey, slot::SlotOwner};

    fn held(answered: u64, owner: SlotOwner) -> Held {
        Held {
            key: InstanceKey::new("default", "cam-8120fe"),
            slot: SlotId::new("cam-8120fe", 0),
            owner,
            answered: Duration::from_secs(answered),
        }
    }

    fn by_instance(answered: u64) -> Held {
        held(answered, SlotOwner::Node("a".into()))
    }

    /// A look with a checkpoint that may be old.
    fn at(seconds: u64) -> Look {
        Look {
            begun: Duration::from_secs(seconds),
            interval: Duration::from_secs(10),
            is_fresh: false,
            kubelet_since: Duration::ZERO,
        }
    }

    /// Looks at the given seconds, all missing the slot: the second at which it is released.
    fn released_at(held: &Held, looks: &[u64]) -> Option<u64> {
        let mut missed = Missed::new();
        for look in looks {
            let (releases, still) = releases(
                std::slice::from_ref(held),
                &BTreeSet::new(),
                at(*look),
                &missed,
            );
            missed = still;
            if !releases.is_empty() {
                return Some(*look);
            }
        }
        None
    }

    #[test]
    fn two_looks_ten_seconds_apart_release_a_slot() {
        assert_eq!(released_at(&by_instance(0), &[5, 10, 15, 20]), Some(15));
        assert_eq!(released_at(&by_instance(0), &[5, 6, 7, 8]), None);
    }

    #[test]
    fn a_slot_that_was_claimed_long_ago_is_released_after_three_seconds_by_a_fresh_checkpoint() {
        let missed = Missed::from([(by_instance(0).slot, Duration::from_secs(50))]);
        let released = |answered, look| {
            let held = [by_instance(answered)];
            !releases(&held, &BTreeSet::new(), look, &missed)
                .0
                .is_empty()
        };
        let fresh = |seconds| Look {
            is_fresh: true,
            ..at(seconds)
        };
        assert!(!released(0, fresh(52)));
        assert!(released(0, fresh(53)));
        assert!(released(23, fresh(53)));
        let restarted = |seconds| Look {
            kubelet_since: Duration::from_secs(seconds),
            ..fresh(53)
        };
        assert!(released(0, restarted(23)));
        // The kubelet may still end containers, the Pod may be in admission, or the checkpoint may be older than that.
        assert!(!released(0, restarted(24)));
        assert!(!released(24, fresh(53)));
        assert!(!released(0, at(59)));
        assert!(released(49, at(60)));
    }

    #[test]
    fn a_slot_that_was_missed_once_makes_the_next_look_come_sooner() {
        let interval = at(0).interval;
        let missed = Missed::from([(by_instance(0).slot, Duration::ZERO)]);
        let next = |missed, now| {
            let now = Duration::from_secs(now);
            next_look(interval, missed, 0, now, now).as_secs()
        };
        let none = Missed::new();
        assert_eq!(next(&none, 1), 5);
        let waits = [0, 3, 6, 9, 10, 11].map(|now| next(&missed, now));
        assert_eq!(waits, [3, 3, 3, 1, 3, 3]);
        // A look that took longer than until then had begun too early.
        let [begun, now] = [9_900, 10_100].map(Duration::from_millis);
        assert_eq!(next_look(interval, &missed, 0, begun, now), Duration::ZERO);
        let zero = Duration::ZERO;
        let waits = (1..7).map(|tries| next_look(interval, &missed, tries, zero, zero));
        let waits = waits.map(|wait| wait.as_millis());
        assert_eq!(
            waits.collect::<Vec<_>>(),
            [250, 500, 1000, 2000, 2000, 2000]
        );
    }

    #[test]
    fn looks_begun_before_the_claim_was_answered_do_not_count() {
        assert_eq!(released_at(&by_instance(12), &[0, 10, 20]), None);
        assert_eq!(released_at(&by_instance(12), &[0, 10, 20, 30]), Some(30));
    }

    #[test]
    fn a_slot_that_was_claimed_again_between_the_looks_stays() {
        let missed = Missed::from([(SlotId::new("cam-8120fe", 0), Duration::from_secs(5))]);
        let (releases, still) = releases(&[by_instance(10)], &BTreeSet::new(), at(16), &missed);
        assert!(releases.is_empty());
        assert_eq!(
            still.into_values().collect::<Vec<_>>(),
            [Duration::from_secs(16)]
        );
    }

    #[test]
    fn a_look_that_lists_the_slot_starts_the_count_again() {
        let missed = Missed::from([(SlotId::new("cam-8120fe", 0), Duration::from_secs(5))]);
        let listed = BTreeSet::from(["cam-8120fe-0".to_owned()]);
        let decided = releases(&[by_instance(0)], &listed, at(30), &missed);
        assert_eq!(decided, (vec![], Missed::new()));
    }

    #[test]
    fn a_claim_that_cannot_be_written_is_tried_less_and_less_often() {
        let change = SlotChange {
            key: InstanceKey::new("default", "cam-8120fe"),
            slot: SlotId::new("cam-8120fe", 0),
            from: None,
            to: Some(SlotOwner::Node("a".into())),
            connection_digest: None,
        };
        let adoptions = Adoptions {
            changes: vec![change],
            ..Adoptions::default()
        };
        let mut retries = Retries::new();
        let mut tries = vec![];
        for second in (0..2000).step_by(5) {
            let (due, still) = due_claims(&adoptions, at(second), &retries);
            retries = still;
            tries.extend((!due.is_empty()).then_some(second));
        }
        assert_eq!(tries[..6], [0, 5, 15, 35, 65, 95]);
        assert!(
            tries.windows(2).all(|two| two[1] - two[0] <= 30),
            "{tries:?}"
        );
        let (_, none) = due_claims(&Adoptions::default(), at(2000), &retries);
        assert!(none.is_empty(), "what was claimed begins anew");
    }

    #[test]
    fn a_conflict_is_new_once_and_again_with_another_owner() {
        let by = |owner: &str| HeldTwice {
            key: InstanceKey::new("default", "cam-8120fe"),
            slot: SlotId::new("cam-8120fe", 0),
            id: "cam-8120fe-0".parse().unwrap(),
            owner: SlotOwner::Node(owner.into()),
        };
        assert_eq!(new_conflicts(&[by("b")], &[]).len(), 1);
        assert_eq!(new_conflicts(&[by("b")], &[by("b")]).len(), 0);
        assert_eq!(new_conflicts(&[by("c")], &[by("b")]).len(), 1);
    }

    #[test]
    fn a_holder_is_looked_for_under_the_resource_it_used() {
        let by_configuration = |slot: &str| {
            held(
                0,
                SlotOwner::Configuration {
                    slot: slot.to_owned(),
                    node: "a".into(),
                },
            )
        };
        let missed = |held: Held, id: &str| {
            let listed = BTreeSet::from([id.to_owned()]);
            !releases(&[held], &listed, at(20), &Missed::new())
                .1
                .is_empty()
        };
        assert!(!missed(by_configuration("cam-3"), "cam-3"));
        assert!(!missed(by_configuration("3"), "cam-3"));
        assert!(missed(by_configuration("cam-3"), "cam-8120fe-0"));
        assert!(missed(by_instance(0), "cam-0"));
    }
}
