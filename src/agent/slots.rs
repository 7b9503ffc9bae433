//! The one place where slots are claimed and released, one after another.
//!
//! Claims come from Allocate calls, releases from [`reclaim`]. Being one task it sees a claim through even when the
//! kubelet hangs up half-way, and undoes what nobody waits for any more.
mod plan;
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
use futures::future::BoxFuture;
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
    /// Slots that no container held when the pod resources were looked at, at uptime `begun`.
    Release {
        changes: Vec<SlotChange>,
        begun: Duration,
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
            Self::Store(StoreError::Exists(_) | StoreError::Unavailable(_)) => "store",
            Self::Timeout => "timeout",
            Self::Changed => "device_changed",
        }
    }

    /// Whether the same call may succeed a little later.
    pub(super) fn is_passing(&self) -> bool {
        match self {
            Self::Slot(ClaimError::Busy { .. })
            | Self::Store(_)
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
            ) => false,
        }
    }
}

/// Serves requests until `shutdown`.
pub(super) async fn run(
    node: Arc<Node>,
    mut requests: mpsc::Receiver<Request>,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    while let Some(request) = shutdown
        .run_until_cancelled(requests.recv())
        .await
        .flatten()
    {
        match request {
            Request::Claim(request) => claim(&node, request).await,
            Request::Release { changes, begun } => {
                // What was claimed again since that look is held again.
                let held = node.slots.borrow().held();
                let is_still = |change: &SlotChange| {
                    held.iter().any(|held| {
                        held.slot == change.slot
                            && Some(&held.owner) == change.from.as_ref()
                            && held.answered <= begun
                    })
                };
                let changes = changes.into_iter().filter(is_still);
                let exchanges = changes
                    .map(|change| Exchange { change, told: None })
                    .collect();
                write_back(&node, exchanges, "slot released").await;
            }
        }
    }
    Ok(())
}

async fn claim(node: &Node, request: ClaimRequest) {
    if request.reply.is_closed() {
        return; // whoever asked has gone while others were served
    }
    let mut tries = 0;
    let (claim, undo) = loop {
        tries += 1;
        match prepared(node, &request) {
            Err(refusal) => return answer(request.reply, Err(refusal)),
            Ok((claim, exchanges, undo)) => {
                match write(node, &claim, exchanges).await {
                    Written::Done => break (claim, undo),
                    Written::Refused(StoreError::SlotTaken { .. }) if tries < TRIES => {
                        write_back(node, undo, "claim undone").await;
                    }
                    Written::Refused(error) => {
                        answer(request.reply, Err(Refusal::Store(error)));
                        return write_back(node, undo, "claim undone").await;
                    }
                    Written::Late(rest) => {
                        answer(request.reply, Err(Refusal::Timeout));
                        // It may still be carried out: it is undone after that, not before.
                        timeout(LATE_TIMEOUT, rest).await.map(drop).ok();
                        return write_back(node, undo, "claim undone").await;
                    }
                }
            }
        }
    };
    if request.reply.send(Ok(claim)).is_err() && !undo.is_empty() {
        info!(
            resource = request.resource.name(),
            "an Allocate call was given up: its claim is undone"
        );
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
    annotations.get(&format!("{}{index}", names::TOLD_PREFIX))
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
    let written = timeout(WRITE_TIMEOUT, &mut exchange).await;
    let answered = matches!(written, Ok(Ok(()))).then(|| node.uptime());
    node.slots
        .send_modify(|slots| slots.settle(&changes, answered));
    match written {
        Ok(Ok(())) => Written::Done,
        Ok(Err(error)) => Written::Refused(error),
        Err(_) => Written::Late(exchange),
    }
}

/// Gives slots back, those whose Instance shows the owner they are to be taken from.
async fn write_back(node: &Node, exchanges: Vec<Exchange>, what: &'static str) {
    for exchange in exchanges {
        let change = exchange.change.clone();
        let slot = &change.slot;
        let instances = node.store.instances().borrow().clone();
        let usage = instances
            .get(&change.key)
            .and_then(|i| i.spec.device_usage.get(&slot.to_string()));
        if usage != change.from.as_ref().map(ToString::to_string).as_ref() {
            continue; // never written, or somebody else's by now
        }
        node.slots
            .send_modify(|slots| slots.begin(std::slice::from_ref(&change)));
        let written = timeout(WRITE_TIMEOUT, node.store.exchange(vec![exchange])).await;
        match &written {
            Ok(Ok(())) => info!(%slot, "{what}"),
            // Not ours any more: that is what was wanted.
            Ok(Err(StoreError::SlotTaken { .. } | StoreError::Gone(_))) => {}
            Ok(Err(e)) => warn!(%slot, "{what}: not written, pod resources will tell: {e}"),
            Err(_) => warn!(%slot, "{what}: not written in time, pod resources will tell"),
        }
        let done = matches!(written, Ok(Ok(()))).then(|| node.uptime());
        node.slots
            .send_modify(|slots| slots.settle(std::slice::from_ref(&change), done));
    }
}
