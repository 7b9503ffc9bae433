//! Which Pods to start and to stop, and what comes after a container's end. Pure.
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// As the kubelet: the wait before a restart doubles up to this, and starts over after a run twice as long.
const LAST_RESTART: Duration = Duration::from_secs(300);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AfterEnd {
    Over,
    Restart {
        wait: Duration,
        /// The wait before the one after.
        next: Duration,
    },
}

/// What a restart policy says of a container that ended with `code` after `ran`.
pub(super) fn after_end(policy: &str, code: i32, ran: Duration, wait: Duration) -> AfterEnd {
    let is_over = match policy {
        "Never" => true,
        "OnFailure" => code == 0,
        _ => false,
    };
    if is_over {
        return AfterEnd::Over;
    }
    let next = if ran >= 2 * LAST_RESTART {
        wait
    } else {
        (wait * 2).min(LAST_RESTART)
    };
    AfterEnd::Restart { wait, next }
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// By `namespace/name`.
    Stop(String),
    Start(String),
}

/// Pods by `namespace/name` with their uids. A changed manifest is another Pod: the old one is stopped, and the new one
/// starts when that has ended.
pub(super) fn plan(
    desired: &BTreeMap<String, String>,
    running: &BTreeMap<String, String>,
) -> Vec<Action> {
    let stops = (running.iter())
        .filter(|(key, uid)| desired.get(*key) != Some(uid))
        .map(|(key, _)| Action::Stop(key.clone()));
    let running: BTreeSet<&String> = running.keys().collect();
    let starts = (desired.keys())
        .filter(|key| !running.contains(key))
        .map(|key| Action::Start(key.clone()));
    stops.chain(starts).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::{collection::btree_map, prelude::*};

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn restarts_follow_the_policy() {
        for (policy, code, is_over) in [
            ("Always", 0, false),
            ("Always", 1, false),
            ("OnFailure", 0, true),
            ("OnFailure", 1, false),
            ("Never", 1, true),
        ] {
            let over = after_end(policy, code, SECOND, SECOND) == AfterEnd::Over;
            assert_eq!(over, is_over, "{policy} {code}");
        }
    }

    #[test]
    fn waits_double_to_the_limit_and_stay_after_a_long_run() {
        let next = |ran, wait| match after_end("Always", 1, ran, wait) {
            AfterEnd::Restart { next, .. } => next,
            AfterEnd::Over => unreachable!(),
        };
        assert_eq!(next(SECOND, SECOND), 2 * SECOND);
        assert_eq!(next(SECOND, LAST_RESTART), LAST_RESTART);
        assert_eq!(next(2 * LAST_RESTART, SECOND), SECOND);
    }

    proptest! {
        #[test]
        fn executing_the_plan_twice_leaves_nothing_to_do(
            desired in btree_map("[a-c]", "[x-z]", 0..4),
            running in btree_map("[a-c]", "[x-z]", 0..4),
        ) {
            let mut after = running.clone();
            for _ in 0..2 {
                for action in plan(&desired, &after.clone()) {
                    match action {
                        Action::Stop(key) => drop(after.remove(&key)),
                        Action::Start(key) => drop(after.insert(key.clone(), desired[&key].clone())),
                    }
                }
            }
            prop_assert_eq!(plan(&desired, &after), vec![]);
        }
    }
}
