//! Shows in their Instances who holds the slots of devices that this node alone has. The slot table remembers it, and
//! `deviceUsage` follows within a second for the controller and for people: one patch for each Instance that differs.
//!
//! Nothing is kept of what is to be written: each round compares the table with the Instances, so that a write that failed
//! or was undone by somebody is due again. No container waits for it.
use super::{request::WRITE_TIMEOUT, table::SharedTable};
use crate::{
    agent::device_state,
    api::{instance::Instance, reason::Reason},
    backoff::Backoff,
    cluster::SIDE_BY_SIDE,
    model::{
        instance_name::InstanceKey,
        slot::{SlotId, SlotOwner},
        slot_table::{SlotTable, Unwritten},
        typed_names::NodeName,
    },
    store::{About, Exchange, Instances, Store, StoreError},
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
/// The waits after a round in which the server did not answer.
const FIRST_RETRY: Duration = Duration::from_millis(500);
const LAST_RETRY: Duration = Duration::from_secs(10);
/// The time for which an Instance is left alone whose write the server refused.
const REFUSED_WAIT: Duration = Duration::from_secs(300);

/// The slots of one Instance that are to be written.
type Due = (InstanceKey, Vec<Exchange>);

/// Returns the slots that an Instance shows as held, with the digests. A value that nobody can read is that of another node.
fn shown(key: &InstanceKey, instance: &Instance) -> BTreeMap<u32, (SlotOwner, Option<String>)> {
    let mut told = device_state::told(instance);
    let usage = instance.spec.device_usage.iter();
    let held = usage.filter_map(|(id, usage)| {
        let slot: SlotId = id.parse().ok()?;
        let owner = SlotOwner::from_usage(usage)
            .unwrap_or_else(|_| Some(SlotOwner::Node(usage.as_str().into())))?;
        (slot.instance == key.name).then(|| (slot.index, (owner, told.remove(&slot.index))))
    });
    held.collect()
}

/// Returns what is to be written, by Instance.
pub(crate) fn due(table: &SlotTable, instances: &Instances) -> Vec<Due> {
    let unwritten = table.unwritten(|key| Some(shown(key, instances.get(key)?)));
    let exchange = |Unwritten { change, told }| Exchange {
        change,
        connection_digest: told,
    };
    unwritten
        .map(|(key, all)| (key.clone(), all.into_iter().map(exchange).collect()))
        .collect()
}

/// Keeps the Instances up to date until `shutdown`.
pub(in crate::agent) async fn run(
    store: Arc<dyn Store>,
    table: SharedTable,
    node: NodeName,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let (mut slots, mut news) = (table.subscribe(), store.news());
    let mut backoff = Backoff::new(FIRST_RETRY, LAST_RETRY);
    let mut refused = BTreeMap::new();
    let rounds = async {
        let (mut gather, mut again) = (GATHER, Duration::MAX);
        loop {
            tokio::select! {
                changed = slots.changed() => changed?,
                changed = news.changed() => changed?,
                () = sleep(again) => {}
            }
            sleep(gather).await;
            slots.mark_unchanged();
            news.mark_unchanged();
            let mut due = due(&table.borrow(), &store.instances().borrow());
            let now = Instant::now();
            refused.retain(|key, until| *until > now && due.iter().any(|(due, _)| due == key));
            due.retain(|(key, _)| !refused.contains_key(key));
            let is_more = due.len() > PER_ROUND;
            due.truncate(PER_ROUND);
            match write(&*store, &node, due).await {
                Ok(new) => {
                    refused.extend(new.into_iter().map(|key| (key, now + REFUSED_WAIT)));
                    let later = match refused.is_empty() {
                        true => Duration::MAX,
                        false => REFUSED_WAIT,
                    };
                    (gather, again) = (GATHER, if is_more { Duration::ZERO } else { later });
                    backoff.reset();
                }
                Err(reason) => {
                    debug!("slots are written when the API server is back: {reason}");
                    (gather, again) = (backoff.next_wait(), Duration::ZERO);
                }
            }
        }
    };
    shutdown.run_until_cancelled(rounds).await.unwrap_or(Ok(()))
}

/// Writes the slots of Instances. Returns the Instances whose write was refused; an error if the server does not answer, after
/// which the others are not tried.
async fn write(
    store: &dyn Store,
    node: &NodeName,
    due: Vec<Due>,
) -> Result<Vec<InstanceKey>, String> {
    let write = |(key, exchanges): Due| async move {
        let written = timeout(WRITE_TIMEOUT, store.exchange(exchanges)).await;
        let late = || Err(StoreError::Unavailable("it does not answer".to_owned()));
        (key, written.unwrap_or_else(|_| late()))
    };
    let mut writes = stream::iter(due.into_iter().map(write)).buffer_unordered(SIDE_BY_SIDE);
    let mut refused = vec![];
    while let Some((key, written)) = writes.next().await {
        match written {
            // The Instance is another one now: the next round sees it.
            Ok(()) | Err(StoreError::SlotTaken { .. } | StoreError::Gone(_)) => {}
            Err(StoreError::Unavailable(reason)) => return Err(reason),
            Err(StoreError::Refused(reason)) => {
                let note = format!(
                    "node {node}: who holds the slots cannot be written to the Instance, and is tried again in {} s; containers keep their slots: {reason}",
                    REFUSED_WAIT.as_secs()
                );
                warn!(instance = %key, "{}: {note}", Reason::SlotsNotWritten);
                store.warn(&About::Instance(key.clone()), Reason::SlotsNotWritten, note);
                refused.push(key);
            }
        }
    }
    Ok(refused)
}

#[cfg(test)]
#[path = "usage_tests.rs"]
mod tests;
