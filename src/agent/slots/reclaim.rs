//! Releases slots whose containers are gone: the kubelet has no call for that, so its pod resources are looked at.
pub(in crate::agent) use super::plan::is_listed;

use super::{
    Request, Requests,
    plan::{Looks, Missed, releases},
};
use crate::agent::{
    Node,
    pod_resources::{self, Ids},
};
use crate::supervisor::ChannelClosed;
use std::sync::Arc;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::debug;

/// Looks every few seconds while this node holds slots.
pub(in crate::agent) async fn run(
    node: Arc<Node>,
    requests: Requests,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let mut slots = node.slots.subscribe();
    let mut kubelet = node.kubelet.subscribe();
    let mut missed = Missed::new();
    let looks = async {
        loop {
            slots.wait_for(|slots| !slots.held().is_empty()).await?;
            if kubelet.has_changed()? {
                // A new kubelet lists nothing for a while, though containers run.
                kubelet.borrow_and_update();
                missed.clear();
            }
            let begun = node.uptime();
            match look(&node).await {
                Ok(Some(listed)) => {
                    let held = node.slots.borrow().held();
                    let looks = Looks {
                        begun,
                        apart: node.between_looks,
                    };
                    let (changes, still_missed) = releases(&held, &listed, looks, &missed);
                    missed = still_missed;
                    if !changes.is_empty() {
                        let release = Request::Release { changes, begun };
                        (requests.send(release).await).map_err(|_| ChannelClosed)?;
                    }
                }
                Ok(None) => missed.clear(),
                Err(e) => {
                    debug!(
                        "the kubelet's pod resources cannot be read, no slot is released: {e:#}"
                    );
                    missed.clear();
                }
            }
            sleep(node.between_looks / 2).await;
        }
    };
    tokio::select! {
        () = shutdown.cancelled() => Ok(()),
        ended = looks => ended,
    }
}

/// The ids that containers hold, or `None` where the answer cannot be trusted yet: for a while after its start a
/// kubelet lists nothing, while containers run, and so it does as long as it cannot reach the API server. A list with
/// the agent's own Pod is whole; an agent that is no Pod waits.
pub(in crate::agent) async fn look(node: &Node) -> anyhow::Result<Option<Ids>> {
    if let Some(own) = &node.own_pod {
        let held = pod_resources::held(node).await?;
        return Ok(held.pods.contains(own).then_some(held.ids));
    }
    let folder = node.kubelet_folder.borrow().clone();
    let by_clock = (folder.kubelet).and_then(|kubelet| kubelet.created.elapsed().ok());
    let known = folder.since.map(|since| since.elapsed());
    // The smaller: a clock that was set just now says anything.
    let Some(age) = by_clock.zip(known).map(|(a, b)| a.min(b)) else {
        return Ok(None);
    };
    if age < node.kubelet_settles {
        return Ok(None);
    }
    Ok(Some(pod_resources::held(node).await?.ids))
}
