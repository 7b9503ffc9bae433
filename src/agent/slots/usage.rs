//! Shows in their Instances who holds the slots of devices that this node alone has. The slot table remembers it, and
//! `deviceUsage` follows within a second for the controller and for people: one patch for each Instance that differs.
//!
//! Nothing is kept of what is to be written ([`super::pauses`] says only who waits): each round compares the table with the
//! Instances, so that a write that failed or was undone by somebody is due again. No container waits for it.
use super::{
    pauses::{Due, FIRST_RETRY, LAST_RETRY, LONGEST_WAIT, Outcome, Pauses},
    request::{Requests, WRITE_TIMEOUT},
    table::SharedTable,
};
use crate::{
    agent::device_state,
    api::{instance::Instance, reason::Reason},
    backoff::Backoff,
    cluster::SIDE_BY_SIDE,
    model::{
        instance_name::InstanceKey,
        slot::{SlotOwner, owners},
        slot_table::SlotTable,
        typed_names::NodeName,
    },
    store::{About, Instances, Store, StoreError},
};
use futures::{StreamExt as _, stream};
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

/// The time in which changes are gathered for one round.
const GATHER: Duration = Duration::from_millis(250);
/// The most Instances that are written in a round. Beyond it: the others are written in the next one.
const PER_ROUND: usize = 100;
/// The time for the last claims to be written when the agent ends.
const LAST_ROUND: Duration = Duration::from_secs(2);

/// Returns the slots that an Instance shows as held, with the digests.
fn shown(key: &InstanceKey, instance: &Instance) -> BTreeMap<u32, (SlotOwner, Option<String>)> {
    let mut told = device_state::told(instance);
    owners(&key.name, &instance.spec.device_usage)
        .map(|(index, owner)| (index, (owner, told.remove(&index))))
        .collect()
}

/// Returns what is to be written, by Instance.
pub(crate) fn due(table: &SlotTable, instances: &Instances) -> Vec<Due> {
    let unwritten = table.unwritten(|key| Some(shown(key, instances.get(key)?)));
    unwritten
        .map(|(key, changes)| Due {
            key: key.clone(),
            changes,
        })
        .collect()
}

/// Keeps the Instances up to date until `shutdown`. The last claims are written after those who serve `requests` have ended.
pub(in crate::agent) async fn run(
    store: Arc<dyn Store>,
    table: SharedTable,
    node: NodeName,
    requests: Requests,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let (mut slots, mut news) = (table.subscribe(), store.news());
    let mut backoff = Backoff::new(FIRST_RETRY, LAST_RETRY);
    let mut pauses = Pauses::default();
    let rounds = async {
        let (mut gather, mut again) = (GATHER, Duration::MAX);
        loop {
            tokio::select! {
                biased;
                changed = slots.changed() => changed?,
                changed = news.changed() => changed?,
                () = sleep(again) => {}
            }
            sleep(gather).await;
            slots.mark_unchanged();
            news.mark_unchanged();
            let mut due = due(&table.borrow(), &store.instances().borrow());
            pauses.keep_back(&mut due, Instant::now());
            let is_more = due.len() > PER_ROUND;
            due.truncate(PER_ROUND);
            let written = write(&*store, &node, due).await;
            let is_away = !written.is_empty() && is_away(&written);
            let now = Instant::now();
            for (due, outcome) in written {
                pauses.note(due, outcome, now);
            }
            if is_away {
                debug!("slots are written when the API server is back");
                (gather, again) = (backoff.next_wait(), Duration::ZERO);
                continue;
            }
            backoff.reset();
            let later = pauses.next(now).unwrap_or(Duration::MAX);
            (gather, again) = (GATHER, if is_more { Duration::ZERO } else { later });
        }
    };
    if let Some(ended) = shutdown.run_until_cancelled(rounds).await {
        return ended;
    }
    let last = async {
        requests.closed().await;
        let mut due = due(&table.borrow(), &store.instances().borrow());
        due.truncate(PER_ROUND);
        write(&*store, &node, due).await;
    };
    timeout(LAST_ROUND, last).await.ok();
    Ok(())
}

/// Returns whether the server was away or too busy for all of these writes.
fn is_away(written: &[(Due, Outcome)]) -> bool {
    (written.iter()).all(|(_, outcome)| *outcome == Outcome::Unavailable)
}

/// Writes the slots of Instances. Returns what became of each. If the server is away or too busy for all of the first, the others
/// are not tried.
async fn write(store: &dyn Store, node: &NodeName, due: Vec<Due>) -> Vec<(Due, Outcome)> {
    let write = |due: Due| async move {
        let written = timeout(WRITE_TIMEOUT, store.exchange(due.changes.clone())).await;
        let late = || Err(StoreError::Unavailable("it does not answer".to_owned()));
        (due, written.unwrap_or_else(|_| late()))
    };
    let mut writes = stream::iter(due.into_iter().map(write)).buffer_unordered(SIDE_BY_SIDE);
    let mut outcomes = vec![];
    while let Some((due, written)) = writes.next().await {
        let outcome = match written {
            Ok(()) => Outcome::Written,
            Err(StoreError::SlotTaken { .. } | StoreError::Gone(_)) => Outcome::Changed,
            Err(StoreError::Unavailable(reason)) => {
                debug!(instance = %due.key, "slots could not be written now: {reason}");
                Outcome::Unavailable
            }
            Err(StoreError::Refused(reason)) => {
                let key = &due.key;
                let note = format!(
                    "node {node}: who holds the slots cannot be written to the Instance, and is tried again in {} s; containers keep their slots: {reason}",
                    LONGEST_WAIT.as_secs()
                );
                warn!(instance = %key, "{}: {note}", Reason::SlotsNotWritten);
                store.warn(&About::Instance(key.clone()), Reason::SlotsNotWritten, note);
                Outcome::Refused
            }
        };
        outcomes.push((due, outcome));
        if outcomes.len() == SIDE_BY_SIDE && is_away(&outcomes) {
            break;
        }
    }
    outcomes
}

#[cfg(test)]
#[path = "usage_tests.rs"]
mod tests;
