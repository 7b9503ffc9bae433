//! Claims and releases the slots of this node, one after another.
//!
//! Slots of a device that this node alone has are given out by the [`table`], which remembers them; [`usage`] writes them to
//! their Instances after that. Slots of a shared device are claimed by guarded writes.
//!
//! Allocate calls send claims, and so do Prepare calls for ResourceClaims. [`reclaim`] compares the slots with the kubelet's
//! records ([`super::kubelet_records`]), and sends releases, and claims of slots that are in use already; [`plan`] decides
//! which. All requests are served by one task, so a claim is completed even if the kubelet ends its call early. A claim that
//! nobody waits for any more is undone.
mod pauses;
pub(crate) mod plan;
pub(super) mod reclaim;
mod request;
mod table;
pub(crate) mod usage;

pub(super) use request::{ClaimRequest, Refusal, Request, Requests, Wanted};
pub(super) use table::SharedTable;

use super::{connections, settings::Clock};
use crate::{
    model::slot_table::{Claim, ClaimError, SlotChange},
    store::{Store, StoreError},
};
use futures::{
    FutureExt as _, StreamExt as _,
    future::{BoxFuture, join_all},
    stream::FuturesUnordered,
};
use request::WRITE_TIMEOUT;
use std::{future::pending, sync::Arc, time::Duration};
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, timeout, timeout_at},
};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

/// The longest wait for a write that was too late, before it is undone. It could arrive after its undo otherwise.
const LATE_TIMEOUT: Duration = Duration::from_secs(30);
/// The number of times that one claim is tried, if other nodes take its slots first.
const TRIES: usize = 3;
/// The longest wait until another write of a slot that is claimed is done.
const BUSY_WAIT: Duration = Duration::from_secs(1);
/// The longest wait until the table shows that another node has a slot. The store knows it by then.
const OBSERVED_WITHIN: Duration = Duration::from_millis(300);

/// The claims and releases of one node, and what they need.
pub(super) struct Slots {
    pub(super) store: Arc<dyn Store>,
    pub(super) clock: Clock,
    pub(super) table: SharedTable,
}

/// A write that goes on after its request was answered.
type Late<'a> = BoxFuture<'a, ()>;

/// The claim that is being served.
enum Claiming<'a> {
    Idle,
    Busy(BoxFuture<'a, Option<Late<'a>>>),
}

impl<'a> Claiming<'a> {
    fn is_idle(&self) -> bool {
        matches!(self, Self::Idle)
    }

    /// Waits until the claim is answered. Returns what is left to write.
    async fn answered(&mut self) -> Option<Late<'a>> {
        let late = match self {
            Self::Idle => pending().await,
            Self::Busy(claim) => claim.await,
        };
        *self = Self::Idle;
        late
    }
}

/// Serves `requests` until `shutdown`, and writes the slots to the store. Claims are served one after another, so that no
/// two want the same slot. Releases and late writes go on beside them, so that a server that does not answer keeps no
/// container waiting.
pub(super) async fn run(
    slots: Slots,
    mut requests: mpsc::Receiver<Request>,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let slots = &slots;
    let mut beside: FuturesUnordered<Late<'_>> = FuturesUnordered::new();
    let mut claiming = Claiming::Idle;
    loop {
        let is_idle = claiming.is_idle();
        tokio::select! {
            biased;
            // A claim that has begun is completed.
            () = shutdown.cancelled(), if is_idle => return Ok(()),
            late = claiming.answered(), if !is_idle => beside.extend(late),
            Some(()) = beside.next() => {}
            request = requests.recv(), if is_idle => match request {
                None => return Ok(()),
                Some(Request::Claim(request)) => {
                    claiming = Claiming::Busy(claim(slots, request).boxed());
                }
                Some(Request::Release { changes, begun }) => {
                    beside.push(release(slots, changes, begun).boxed());
                }
                Some(Request::Adopt { changes, begun }) => {
                    beside.push(adopt(slots, changes, begun).boxed());
                }
            }
        }
    }
}

fn release(
    slots: &Slots,
    changes: Vec<SlotChange>,
    begun: Duration,
) -> impl Future<Output = ()> + use<'_> {
    let changes = plan::still_unused(changes, &slots.table.borrow().held(), begun);
    write_each(slots, changes, "slot released")
}

/// Claims slots that were free when the kubelet's records were looked at. What the containers were given is not known.
fn adopt(
    slots: &Slots,
    changes: Vec<SlotChange>,
    begun: Duration,
) -> impl Future<Output = ()> + use<'_> {
    let changes = plan::still_free(changes, &slots.table.borrow(), begun);
    let what = "a container uses a slot that was free: claimed again";
    write_each(slots, changes, what)
}

/// Makes a claim and answers it. Returns the writes that go on after the answer.
async fn claim(slots: &Slots, request: ClaimRequest) -> Option<BoxFuture<'_, ()>> {
    if request.reply.is_closed() {
        return None; // the kubelet has ended its call
    }
    let mut tries = 0;
    let (mut table, until) = (slots.table.subscribe(), Instant::now() + BUSY_WAIT);
    let (claim, undo) = loop {
        table.mark_unchanged();
        match prepared(slots, &request) {
            // What the kubelet's records say of the container itself is being written: a look at them was quicker than its call.
            Err(Refusal::Slot(ClaimError::Busy { .. }))
                if matches!(timeout_at(until, table.changed()).await, Ok(Ok(()))) => {}
            Err(refusal) => {
                answer(request.reply, Err(refusal));
                return None;
            }
            Ok(PreparedClaim {
                claim,
                writes,
                undo,
            }) => match write(slots, writes).await {
                Written::Done => break (claim, undo),
                Written::Refused(StoreError::SlotTaken { .. }) if tries + 1 < TRIES => {
                    tries += 1;
                    write_each(slots, undo, "claim undone").await;
                    observed(slots, &request, &claim).await;
                }
                Written::Refused(error) => {
                    answer(request.reply, Err(Refusal::Store(error)));
                    return Some(write_each(slots, undo, "claim undone").boxed());
                }
                Written::Late(rest) => {
                    answer(request.reply, Err(Refusal::Timeout));
                    return Some(undo_late(slots, &claim, rest, undo).boxed());
                }
            },
        }
    };
    if request.reply.send(Ok(claim)).is_err() && !undo.is_empty() {
        info!(of = %request.wanted, "a call was given up: its claim is undone");
        return Some(write_each(slots, undo, "claim undone").boxed());
    }
    None
}

/// Waits until the table plans another claim than one whose slot another node has taken: all nodes prefer the same slots,
/// so the same claim would fail again.
async fn observed(slots: &Slots, request: &ClaimRequest, failed: &Claim) {
    let mut table = slots.table.subscribe();
    let is_observed = table.wait_for(|table| request.wanted.plan(table).as_ref() != Ok(failed));
    timeout(OBSERVED_WITHIN, is_observed).await.map(drop).ok();
}

/// A write that was too late may still be carried out: it is undone after that, not before. Its slots count as being
/// written until then.
fn undo_late<'a>(
    slots: &'a Slots,
    claim: &Claim,
    rest: BoxFuture<'a, Result<(), StoreError>>,
    undo: Vec<SlotChange>,
) -> impl Future<Output = ()> + use<'a> {
    let written: Vec<SlotChange> = claim.changes().cloned().collect();
    async move {
        timeout(LATE_TIMEOUT, rest).await.map(drop).ok();
        slots.table.settle(&written, None);
        write_each(slots, undo, "claim undone").await;
    }
}

/// Answers a claim. The kubelet may have ended its call.
fn answer(reply: oneshot::Sender<Result<Claim, Refusal>>, result: Result<Claim, Refusal>) {
    reply.send(result).ok();
}

/// A claim that can be written.
struct PreparedClaim {
    claim: Claim,
    /// The writes that make the claim.
    writes: Vec<SlotChange>,
    /// The writes that undo it. They contain only the slots that it changes.
    undo: Vec<SlotChange>,
}

/// Plans a claim.
///
/// The caller has planned the same claim before, to learn which devices it must wait for. This plan is the one that is
/// written, because no other claim can come between it and the write. It fails with [`Refusal::Changed`] if it has an
/// Instance that the first plan did not have.
fn prepared(slots: &Slots, request: &ClaimRequest) -> Result<PreparedClaim, Refusal> {
    let claim = request.wanted.plan(&slots.table.borrow())?;
    let instances = slots.store.instances().borrow().clone();
    let mut writes = vec![];
    let mut undo = vec![];
    // What another node holds for the same ResourceClaim is not written.
    let mine = (claim.changes()).filter(|change| slots.table.borrow().is_mine(change));
    for change in mine {
        let connection = request
            .connections
            .get(&change.slot.instance)
            .ok_or(Refusal::Changed)?;
        writes.push(SlotChange {
            connection_digest: Some(connection.clone()),
            ..change.clone()
        });
        if change.from != change.to {
            let connection_digest =
                connections::given(&slots.table.borrow(), &instances, &change.key, &change.slot);
            undo.push(SlotChange {
                from: change.to.clone(),
                to: change.from.clone(),
                connection_digest,
                ..change.clone()
            });
        }
    }
    Ok(PreparedClaim {
        claim,
        writes,
        undo,
    })
}

/// The outcome of the write of a claim.
enum Written<'a> {
    Done,
    Refused(StoreError),
    /// The write has taken too long. The rest of it goes on.
    Late(BoxFuture<'a, Result<(), StoreError>>),
}

async fn write(slots: &Slots, changes: Vec<SlotChange>) -> Written<'_> {
    slots.table.begin(&changes);
    // A device may become one of several nodes during the write: what was not written is remembered also then.
    let (own, others) = plan::divided(changes, &slots.table.borrow());
    let mut exchange = if others.is_empty() {
        async { Ok(()) }.boxed()
    } else {
        slots.store.exchange(others.clone())
    };
    let Ok(written) = timeout(WRITE_TIMEOUT, &mut exchange).await else {
        return Written::Late(exchange);
    };
    let answered = written.is_ok().then(|| slots.clock.uptime());
    slots.table.settle_own(&own, answered);
    slots.table.settle(&others, answered);
    match written {
        Ok(()) => Written::Done,
        Err(error) => Written::Refused(error),
    }
}

/// Writes each change whose slot still has the owner `from`, all concurrently. Slots that the table remembers are changed, and
/// the others marked as being written, when this function is called, not when its future is polled.
fn write_each<'a>(
    slots: &'a Slots,
    changes: Vec<SlotChange>,
    what: &'static str,
) -> impl Future<Output = ()> + use<'a> {
    let instances = slots.store.instances().borrow().clone();
    let (own, others) = plan::remembered(changes, &slots.table.borrow());
    for change in &own {
        info!(slot = %change.slot, "{what}");
    }
    slots.table.settle_own(&own, Some(slots.clock.uptime()));
    let changes = plan::still_written(others, &instances);
    slots.table.begin(&changes);
    let writes = changes
        .into_iter()
        .map(move |change| write_one(slots, change, what));
    join_all(writes).map(drop)
}

async fn write_one(slots: &Slots, change: SlotChange, what: &'static str) {
    let slot = &change.slot;
    let written = timeout(WRITE_TIMEOUT, slots.store.exchange(vec![change.clone()])).await;
    match &written {
        Ok(Ok(())) => info!(%slot, "{what}"),
        // Another owner has the slot, or the Instance is gone: there is nothing left to write.
        Ok(Err(StoreError::SlotTaken { .. } | StoreError::Gone(_))) => {}
        Ok(Err(e)) => {
            warn!(%slot, "{what}: the slot could not be written; the next look at the kubelet decides again: {e}")
        }
        Err(_) => {
            warn!(%slot, "{what}: the slot could not be written in time; the next look at the kubelet decides again")
        }
    }
    let done = matches!(written, Ok(Ok(()))).then(|| slots.clock.uptime());
    slots.table.settle(std::slice::from_ref(&change), done);
}

#[cfg(test)]
mod tests;
