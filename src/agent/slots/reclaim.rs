//! Looks at the kubelet's books again and again: slots whose containers are gone are released, because the kubelet has no
//! call for that, and slots that containers use and no Instance shows are claimed.
pub(in crate::agent) use super::plan::is_listed;

use super::{
    Request, Requests,
    plan::{Asked, Looks, Missed, due_claims, new_conflicts, releases},
};
use crate::{
    agent::{
        Node,
        books::{self, Books, Checkpoint, Confirmed},
        configurations::Judged,
    },
    api::reason::Reason,
    model::slot_table::{HeldTwice, SlotTable},
    store::About,
    supervisor::ChannelClosed,
    telemetry::metrics,
};
use std::{sync::Arc, time::Duration};
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

/// How long after an Instance has come a look is taken: those that come in one go are looked at together. A part of the
/// time between looks.
const AFTER_ARRIVAL: u32 = 20;

/// What one look leaves for the next.
#[derive(Default)]
struct Memory {
    missed: Missed,
    asked: Asked,
    twice: Vec<HeldTwice>,
    confirmed: Option<Confirmed>,
    /// What was wrong with the checkpoint.
    unreadable: Option<String>,
}

/// Looks every few seconds while this node has Instances, or may have some soon: by a Configuration, or because a
/// container has a device.
pub(in crate::agent) async fn run(
    node: Arc<Node>,
    requests: Requests,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let (mut slots, mut judged) = (node.slots.subscribe(), node.judged.subscribe());
    let mut kubelet = node.kubelet.subscribe();
    let mut memory = Memory::default();
    let looks = async {
        loop {
            if node.uses.borrow().as_deref().is_none_or(<[_]>::is_empty) {
                until_needed(&mut slots, &mut judged).await?;
            }
            if kubelet.has_changed()? {
                // A new kubelet lists nothing for a while, though containers run.
                kubelet.borrow_and_update();
                memory.missed.clear();
                memory.confirmed = None;
            }
            let begun = node.uptime();
            let (held, arrivals) = {
                let slots = slots.borrow_and_update();
                (slots.held(), slots.arrivals())
            };
            match books::look(&node, &held, &mut memory.confirmed).await {
                Ok(Some(books)) => {
                    for request in memory.decide(&node, &books, begun) {
                        (requests.send(request).await).map_err(|_| ChannelClosed)?;
                    }
                }
                Ok(None) => memory.know_nothing(&node),
                Err(e) => {
                    debug!("the kubelet's books cannot be read, no slot is released: {e:#}");
                    memory.know_nothing(&node);
                }
            }
            // What this node has just created may be of a device that a container has.
            if is_soon(&mut slots, arrivals, node.between_looks / 2).await? {
                sleep(node.between_looks / AFTER_ARRIVAL).await;
            }
        }
    };
    tokio::select! {
        () = shutdown.cancelled() => Ok(()),
        ended = looks => ended,
    }
}

/// Waits until there is an Instance, or a Configuration that may get one.
async fn until_needed(
    slots: &mut watch::Receiver<SlotTable>,
    judged: &mut watch::Receiver<Arc<Judged>>,
) -> anyhow::Result<()> {
    tokio::select! {
        some = slots.wait_for(|slots| !slots.is_empty()) => drop(some?),
        some = judged.wait_for(|judged| !judged.accepted.is_empty()) => drop(some?),
    }
    Ok(())
}

/// Waits for the next look. Whether an Instance has come before it.
async fn is_soon(
    slots: &mut watch::Receiver<SlotTable>,
    arrivals: u64,
    wait: Duration,
) -> anyhow::Result<bool> {
    let arrival = slots.wait_for(|slots| slots.arrivals() != arrivals);
    match timeout(wait, arrival).await {
        Ok(arrived) => Ok(arrived.map(|_| true)?),
        Err(_) => Ok(false),
    }
}

impl Memory {
    /// Nothing counts of a time at which the kubelet could not be believed. What was claimed stays so.
    fn know_nothing(&mut self, node: &Node) {
        self.missed.clear();
        node.set_uses(None);
    }

    fn decide(&mut self, node: &Node, books: &Books, begun: Duration) -> Vec<Request> {
        let looks = Looks {
            begun,
            apart: node.between_looks,
        };
        // The table as it is now: what was claimed since the look is not to be claimed again.
        let uses = books.uses();
        let (held, adoptions) = {
            let slots = node.slots.borrow();
            (slots.held(), slots.adoptions(&uses))
        };
        self.report_checkpoint(&books.checkpoint);
        let released = match books.held() {
            Some(listed) => {
                let (changes, missed) = releases(&held, &listed, looks, &self.missed);
                self.missed = missed;
                changes
            }
            None => {
                self.missed.clear();
                vec![]
            }
        };
        let (claimed, asked) = due_claims(&adoptions, looks, &self.asked);
        self.asked = asked;
        self.report_conflicts(node, adoptions.twice);
        node.set_uses(Some(uses.into()));
        let release = (!released.is_empty()).then_some(Request::Release {
            changes: released,
            begun,
        });
        let adopt = (!claimed.is_empty()).then_some(Request::Adopt { changes: claimed });
        release.into_iter().chain(adopt).collect()
    }

    /// Says once what is wrong with the checkpoint, and that it can be read again.
    fn report_checkpoint(&mut self, checkpoint: &Checkpoint) {
        let now = match checkpoint {
            Checkpoint::Unreadable(error) => Some(error.to_string()),
            Checkpoint::Missing | Checkpoint::Read { .. } => None,
        };
        if self.unreadable != now {
            match &now {
                Some(error) => warn!(
                    "the kubelet's checkpoint cannot be read, and no slot is released until it can: {error}"
                ),
                None => info!("the kubelet's checkpoint can be read again"),
            }
        }
        self.unreadable = now;
    }

    fn report_conflicts(&mut self, node: &Node, twice: Vec<HeldTwice>) {
        for one in new_conflicts(&twice, &self.twice) {
            let HeldTwice {
                slot, id, owner, ..
            } = one;
            let name = &node.name;
            let note = format!(
                "slot {slot} is held by {owner}, and a container on node {name} uses it too, as {id}: delete one of the two Pods. Until then the slot is Unhealthy on node {name}"
            );
            warn!(instance = %one.key, "{}: {note}", Reason::SlotHeldTwice);
            (node.store).warn(
                &About::Instance(one.key.clone()),
                Reason::SlotHeldTwice,
                note,
            );
        }
        metrics().set_slots_held_twice(twice.len());
        self.twice = twice;
    }
}
