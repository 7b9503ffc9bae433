//! The one place where slots are claimed and released, one after another.
//!
//! Claims come from Allocate calls, releases from [`reclaim`]. Being one task it sees a claim through even when the
//! kubelet hangs up half-way, and undoes what nobody waits for any more.
mod plan;
pub(super) mod reclaim;

use super::Node;
use crate::{
    model::{
        slot::SlotId,
        slot_table::{Claim, ClaimError, Resource, SlotChange},
    },
    store::{Exchange, StoreError},
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
/// Another node may take the slot first, and the Configuration's resource has others to offer.
const TRIES: usize = 3;

pub(super) type Requests = mpsc::Sender<Request>;

/// What the keeper is asked for.
#[derive(Debug)]
pub(super) enum Request {
    Claim(ClaimRequest),
    /// Slots of this node that no container holds any more.
    Release(Vec<SlotChange>),
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
            Request::Release(changes) => release(&node, changes).await,
        }
    }
    Ok(())
}

async fn claim(node: &Node, request: ClaimRequest) {
    if request.reply.is_closed() {
        return; // whoever asked has gone while others were served
    }
    let mut outcome = try_claim(node, &request).await;
    for _ in 1..TRIES {
        match &outcome {
            Err(Refusal::Store(StoreError::SlotTaken { .. })) => {
                outcome = try_claim(node, &request).await
            }
            Ok(_) | Err(_) => break,
        }
    }
    let undo = outcome.as_ref().ok().map(undone);
    if request.reply.send(outcome).is_err()
        && let Some(undo) = undo.filter(|undo| !undo.is_empty())
    {
        info!(
            resource = request.resource.name(),
            "an Allocate call was given up: its claim is undone"
        );
        release(node, undo).await;
    }
}

async fn try_claim(node: &Node, request: &ClaimRequest) -> Result<Claim, Refusal> {
    let claim =
        node.slots
            .borrow()
            .plan_claim(&request.resource, &request.containers, &request.gone)?;
    let exchanges: Option<Vec<Exchange>> = claim
        .changes()
        .map(|change| {
            let told = Some(request.told.get(&change.slot.name)?.clone());
            Some(Exchange {
                change: change.clone(),
                told,
            })
        })
        .collect();
    let exchanges = exchanges.ok_or(Refusal::Changed)?;
    let changes: Vec<SlotChange> = claim.changes().cloned().collect();
    node.slots.send_modify(|slots| slots.begin(&changes));
    let written = timeout(WRITE_TIMEOUT, node.store.exchange(exchanges)).await;
    let answered = matches!(written, Ok(Ok(()))).then(|| node.uptime());
    node.slots
        .send_modify(|slots| slots.settle(&changes, answered));
    match written {
        Ok(Ok(())) => Ok(claim),
        outcome => {
            // Some Instances of the claim may have been written, or all, too late.
            release(node, undone(&claim)).await;
            Err(outcome.map_or(Refusal::Timeout, |failed| {
                failed.err().map_or(Refusal::Changed, Refusal::Store)
            }))
        }
    }
}

/// What takes a claim back: only what it changed.
fn undone(claim: &Claim) -> Vec<SlotChange> {
    let changed = claim.changes().filter(|change| change.from != change.to);
    changed
        .map(|change| SlotChange {
            from: change.to.clone(),
            to: change.from.clone(),
            ..change.clone()
        })
        .collect()
}

async fn release(node: &Node, changes: Vec<SlotChange>) {
    node.slots.send_modify(|slots| slots.begin(&changes));
    for change in &changes {
        let exchange = Exchange {
            change: change.clone(),
            told: None,
        };
        let written = timeout(WRITE_TIMEOUT, node.store.exchange(vec![exchange])).await;
        let slot = &change.slot;
        match &written {
            Ok(Ok(())) => info!(%slot, "slot released"),
            // Not ours any more: that is what a release is for.
            Ok(Err(StoreError::SlotTaken { .. } | StoreError::Gone(_))) => {}
            Ok(Err(e)) => warn!(%slot, "the slot cannot be released, and is tried again: {e}"),
            Err(_) => warn!(%slot, "the slot could not be released in time, and is tried again"),
        }
        let done = matches!(written, Ok(Ok(()))).then(|| node.uptime());
        node.slots
            .send_modify(|slots| slots.settle(std::slice::from_ref(change), done));
    }
}
