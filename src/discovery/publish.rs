//! Publishes what a discovery sees, if it is something else than before.
use crate::model::device::DeviceSet;
use std::collections::HashSet;
use tokio::sync::watch;
use tracing::warn;

/// The most new problems of a set that the log names.
const PROBLEMS_NAMED: usize = 5;

/// Publishes a set that is another one, and logs the problems that are new.
pub(super) fn publish(set: DeviceSet, found: &watch::Sender<DeviceSet>) {
    found.send_if_modified(|last| {
        if *last == set {
            return false;
        }
        let known: HashSet<&String> = last.problems.iter().collect();
        let is_new = |problem: &&String| !known.contains(problem);
        let new: Vec<&String> = set
            .problems
            .iter()
            .filter(is_new)
            .take(PROBLEMS_NAMED + 1)
            .collect();
        for problem in new.iter().take(PROBLEMS_NAMED) {
            warn!("{problem}");
        }
        if new.len() > PROBLEMS_NAMED {
            warn!("and there are more problems: {} in all", set.problems.len());
        }
        *last = set;
        true
    });
}
