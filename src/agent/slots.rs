//! The one place where slots are claimed and released, one after another.
//!
//! Claims come from Allocate calls, releases and claims of what is in use already from [`reclaim`]. Being one task it sees a claim through even when the
//! kubelet hangs up half-way, and undoes what nobody waits for any more.
pub(crate) mod plan;
pub(super) mod reclaim;

use super::Node;
use crate::{
    api::{instance::Instance, names},
    model::{
        slot::SlotId,
        slot_table::{Claim, ClaimError, Resource, SlotChange},
    },
    store::{Exchange, StoreError},
};
use futures::{
    FutureExt as _, StreamExt as _,
    future::{BoxFuture, OptionFuture, join_all},
    stream::FuturesUnordered,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};
use tokio::{
    sync::{mpsc, oneshot},
    time::timeout,
};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

/// How long a write of slots may take: an Allocate call is answered within 3 s, because the kubelet admits one Pod at
/// a time and waits without end.
const WRITE_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a write that was too late is waited for, so that it is not undone before it is done.
const LATE_TIMEOUT: Duration = Duration::from_secs(30);
/// Another node may take the slot first, and the Configuration's resource has others to offer.
const TRIES: usize = 3;

pub(super) type Requests = mpsc::Sender<Request>;

/// What the keeper is asked for.
#[derive(Debug)]
pub(super) enum Request {
    Claim(ClaimRequest),
    /// Slots that no container held when the kubelet's books were looked at, at uptime `begun`.
    Release {
        changes: Vec<SlotChange>,
        begun: Duration,
    },
    /// Free slots that containers use.
    Adopt {
        changes: Vec<SlotChange>,
    },
}

#[derive(Debug)]
pub(super) struct ClaimRequest {
    pub(super) resource: Resource,
    /// The ids that each container asks for.
    pub(super) containers: Vec<Vec<String>>,
    /// Slots held by this node's other resource whose holder is known to be gone.
    pub(super) gone: BTreeSet<SlotId>,
    /// For each Instance: the digest of what the container will be told.
    pub(super) told: BTreeMap<String, String>,
    pub(super) reply: oneshot::Sender<Result<Claim, Refusal>>,
}

/// Why a claim was not made.
#[derive(Debug, Clone, thiserror::Error)]
pub(super) enum Refusal {
    #[error(transparent)]
    Slot(#[from] ClaimError),
    #[error("the claim could not be written: {0}")]
    Store(#[from] StoreError),
    #[error("the claim could not be written within {} s; it is tried again with the next Pod", WRITE_TIMEOUT.as_secs())]
    Timeout,
    #[error(
        "the devices behind these slots changed while they were looked at; the next try will see the new ones"
    )]
    Changed,
}

impl Refusal {
    /// One word for it, out of a few.
    pub(super) fn word(&self) -> &'static str {
        match self {
            Self::Slot(ClaimError::Unknown { .. }) => "unknown_slot",
            Self::Slot(ClaimError::BeyondCapacity { .. }) => "beyond_capacity",
            Self::Slot(ClaimError::HeldElsewhere { .. }) => "held_elsewhere",
            Self::Slot(ClaimError::HeldHere { .. }) => "held_here",
            Self::Slot(ClaimError::Full { .. }) => "full",
            Self::Slot(ClaimError::SameDevice { .. }) => "same_device",
            Self::Slot(ClaimError::Twice { .. }) => "twice",
            Self::Slot(ClaimError::Busy { .. }) => "busy",
            Self::Store(StoreError::SlotTaken { .. }) => "held_elsewhere",
            Self::Store(StoreError::Gone(_)) => "device_gone",
            Self::Store(
                StoreError::Exists(_)
                | StoreError::InUse { .. }
                | StoreError::Refused(_)
                | StoreError::Unavailable(_),
            ) => "store",
            Self::Timeout => "timeout",
            Self::Changed => "device_changed",
        }
    }

    /// Whether the same call may succeed a little later.
    pub(super) fn is_passing(&self) -> bool {
        match self {
            Self::Slot(ClaimError::Busy { .. })
            | Self::Store(
                StoreError::SlotTaken { .. }
                | StoreError::Gone(_)
                | StoreError::Exists(_)
                | StoreError::InUse { .. }
                | StoreError::Unavailable(_),
            )
            | Self::Timeout
            | Self::Changed => true,
            Self::Slot(
                ClaimError::Unknown { .. }
                | ClaimError::BeyondCapacity { .. }
                | ClaimError::HeldElsewhere { .. }
                | ClaimError::HeldHere { .. }
                | ClaimError::Full { .. }
                | ClaimError::SameDevice { .. }
                | ClaimError::Twice { .. },
            )
            | Self::Store(StoreError::Refused(_)) => false,
        }
    }
}

/// Serves requests until `shutdown`: claims one after another, so that two never want one slot; releases and what is
/// late beside them, so that a server that does not answer keeps no container waiting.
pub(super) async fn run(
    node: Arc<Node>,
    mut requests: mpsc::Receiver<Request>,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let node = &*node;
    let mut beside: FuturesUnordered<BoxFuture<'_, ()>> = FuturesUnordered::new();
    let mut claiming: OptionFuture<BoxFuture<'_, Option<BoxFuture<'_, ()>>>> = None.into();
    let mut is_claiming = false;
    loop {
        tokio::select! {
            // A claim that has begun is seen through.
            () = shutdown.cancelled(), if !is_claiming => return Ok(()),
            Some(late) = &mut claiming, if is_claiming => {
                is_claiming = false;
                beside.extend(late);
            }
            Some(()) = beside.next() => {}
            request = requests.recv(), if !is_claiming => match request {
                None => return Ok(()),
                Some(Request::Claim(request)) => {
                    claiming = Some(claim(node, request).boxed()).into();
                    is_claiming = true;
                }
                Some(Request::Release { changes, begun }) => {
                    beside.push(release(node, changes, begun).boxed());
                }
                Some(Request::Adopt { changes }) => beside.push(adopt(node, changes).boxed()),
            }
        }
    }
}

fn release(
    node: &Node,
    changes: Vec<SlotChange>,
    begun: Duration,
) -> impl Future<Output = ()> + use<'_> {
    // What was claimed again since that look is held again.
    let held = node.slots.borrow().held();
    let is_still = |change: &SlotChange| {
        held.iter().any(|held| {
            held.slot == change.slot
                && Some(&held.owner) == change.from.as_ref()
                && held.answered <= begun
        })
    };
    let exchanges = (changes.into_iter().filter(is_still))
        .map(|change| Exchange { change, told: None })
        .collect();
    write_back(node, exchanges, "slot released")
}

/// Claims slots that were free when the kubelet's books were looked at. What was told to the containers is not known.
fn adopt(node: &Node, changes: Vec<SlotChange>) -> impl Future<Output = ()> + use<'_> {
    let is_still = |change: &SlotChange| node.slots.borrow().is_free(&change.slot);
    let exchanges = (changes.into_iter().filter(is_still))
        .map(|change| Exchange { change, told: None })
        .collect();
    write_back(
        node,
        exchanges,
        "a container uses a slot that was free: claimed again",
    )
}

/// What is returned goes on after the answer.
async fn claim(node: &Node, request: ClaimRequest) -> Option<BoxFuture<'_, ()>> {
    if request.reply.is_closed() {
        return None; // whoever asked has gone while others were served
    }
    let mut tries = 0;
    let (claim, undo) = loop {
        tries += 1;
        match prepared(node, &request) {
            Err(refusal) => {
                answer(request.reply, Err(refusal));
                return None;
            }
            Ok((claim, exchanges, undo)) => match write(node, &claim, exchanges).await {
                Written::Done => break (claim, undo),
                Written::Refused(StoreError::SlotTaken { .. }) if tries < TRIES => {
                    write_back(node, undo, "claim undone").await;
                }
                Written::Refused(error) => {
                    answer(request.reply, Err(Refusal::Store(error)));
                    return Some(write_back(node, undo, "claim undone").boxed());
                }
                Written::Late(rest) => {
                    answer(request.reply, Err(Refusal::Timeout));
                    return Some(undo_late(node, &claim, rest, undo).boxed());
                }
            },
        }
    };
    if request.reply.send(Ok(claim)).is_err() && !undo.is_empty() {
        info!(
            resource = request.resource.name(),
            "an Allocate call was given up: its claim is undone"
        );
        return Some(write_back(node, undo, "claim undone").boxed());
    }
    None
}

/// A write that was too late may still be carried out: it is undone after that, not before. Its slots count as being
/// written until then.
fn undo_late<'a>(
    node: &'a Node,
    claim: &Claim,
    rest: BoxFuture<'a, Result<(), StoreError>>,
    undo: Vec<Exchange>,
) -> impl Future<Output = ()> + use<'a> {
    let changes: Vec<SlotChange> = claim.changes().cloned().collect();
    async move {
        timeout(LATE_TIMEOUT, rest).await.map(drop).ok();
        node.slots.send_modify(|slots| slots.settle(&changes, None));
        write_back(node, undo, "claim undone").await;
    }
}

/// Whoever asked may have hung up.
fn answer(reply: oneshot::Sender<Result<Claim, Refusal>>, result: Result<Claim, Refusal>) {
    reply.send(result).ok();
}

/// A claim as it would be now, how to write it, and what takes it back: only what it changes.
fn prepared(
    node: &Node,
    request: &ClaimRequest,
) -> Result<(Claim, Vec<Exchange>, Vec<Exchange>), Refusal> {
    let claim =
        node.slots
            .borrow()
            .plan_claim(&request.resource, &request.containers, &request.gone)?;
    let instances = node.store.instances().borrow().clone();
    let mut exchanges = vec![];
    let mut undo = vec![];
    for change in claim.changes() {
        let told = request
            .told
            .get(&change.slot.name)
            .ok_or(Refusal::Changed)?;
        exchanges.push(Exchange {
            change: change.clone(),
            told: Some(told.clone()),
        });
        if change.from != change.to {
            let back = SlotChange {
                from: change.to.clone(),
                to: change.from.clone(),
                ..change.clone()
            };
            let before = instances.get(&change.key);
            let told = before
                .and_then(|instance| told_of(instance, change.slot.index))
                .cloned();
            undo.push(Exchange { change: back, told });
        }
    }
    Ok((claim, exchanges, undo))
}

/// What the container that holds a slot was told, as the Instance remembers it.
pub(super) fn told_of(instance: &Instance, index: u32) -> Option<&String> {
    let annotations = instance.metadata.annotations.as_ref()?;
    annotations.get(&names::told(index))
}

enum Written<'a> {
    Done,
    Refused(StoreError),
    /// Not in time. The rest of the write goes on.
    Late(BoxFuture<'a, Result<(), StoreError>>),
}

async fn write<'a>(node: &'a Node, claim: &Claim, exchanges: Vec<Exchange>) -> Written<'a> {
    let changes: Vec<SlotChange> = claim.changes().cloned().collect();
    node.slots.send_modify(|slots| slots.begin(&changes));
    let mut exchange = node.store.exchange(exchanges);
    let Ok(written) = timeout(WRITE_TIMEOUT, &mut exchange).await else {
        return Written::Late(exchange);
    };
    let answered = written.is_ok().then(|| node.uptime());
    node.slots
        .send_modify(|slots| slots.settle(&changes, answered));
    match written {
        Ok(()) => Written::Done,
        Err(error) => Written::Refused(error),
    }
}

/// Writes new owners of slots, side by side: where the Instance shows the owner they are to be taken from. They count as
/// being written from now on.
fn write_back<'a>(
    node: &'a Node,
    exchanges: Vec<Exchange>,
    what: &'static str,
) -> impl Future<Output = ()> + use<'a> {
    let instances = node.store.instances().borrow().clone();
    // Otherwise never written, or somebody else's by now.
    let stands = |Exchange { change, .. }: &Exchange| {
        let usage = (instances.get(&change.key))
            .and_then(|instance| instance.spec.device_usage.get(&change.slot.to_string()));
        usage.filter(|usage| !usage.is_empty())
            == change.from.as_ref().map(ToString::to_string).as_ref()
    };
    let exchanges: Vec<_> = exchanges.into_iter().filter(stands).collect();
    let changes: Vec<_> = exchanges.iter().map(|e| e.change.clone()).collect();
    node.slots.send_modify(|slots| slots.begin(&changes));
    let writes = exchanges.into_iter().map(move |e| give_back(node, e, what));
    join_all(writes).map(drop)
}

async fn give_back(node: &Node, exchange: Exchange, what: &'static str) {
    let change = exchange.change.clone();
    let slot = &change.slot;
    let written = timeout(WRITE_TIMEOUT, node.store.exchange(vec![exchange])).await;
    match &written {
        Ok(Ok(())) => info!(%slot, "{what}"),
        // Not ours any more: that is what was wanted.
        Ok(Err(StoreError::SlotTaken { .. } | StoreError::Gone(_))) => {}
        Ok(Err(e)) => {
            warn!(%slot, "{what}: not written, the next looks at the kubelet will tell: {e}")
        }
        Err(_) => {
            warn!(%slot, "{what}: not written in time, the next looks at the kubelet will tell")
        }
    }
    let done = matches!(written, Ok(Ok(()))).then(|| node.uptime());
    node.slots
        .send_modify(|slots| slots.settle(std::slice::from_ref(&change), done));
}
