//! Releases slots whose containers are gone: the kubelet has no call for that, so its pod resources are looked at.
use super::{
    Request, Requests,
    plan::{HeldIds, Looks, Missed, releases},
};

pub(in crate::agent) use super::plan::is_listed;

use crate::{agent::Node, proto::pod_resources as v1, uds};
use std::{sync::Arc, time::Duration};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::debug;

const LOOK_TIMEOUT: Duration = Duration::from_secs(2);

/// Looks every few seconds while this node holds slots.
pub(in crate::agent) async fn run(
    node: Arc<Node>,
    requests: Requests,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let mut slots = node.slots.subscribe();
    let mut folder = node.kubelet_folder.subscribe();
    let mut missed = Missed::new();
    let looks = async {
        loop {
            slots.wait_for(|slots| !slots.held().is_empty()).await?;
            if folder.has_changed()? {
                // A new kubelet lists nothing for a while, though containers run.
                folder.borrow_and_update();
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
                        requests.send(Request::Release(changes)).await?;
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
/// kubelet lists nothing, while containers run.
pub(in crate::agent) async fn look(node: &Node) -> anyhow::Result<Option<HeldIds>> {
    let started = node
        .kubelet_folder
        .borrow()
        .kubelet
        .map(|kubelet| kubelet.created);
    let Some(age) = started.and_then(|started| started.elapsed().ok()) else {
        return Ok(None);
    };
    if age < node.kubelet_settles {
        return Ok(None);
    }
    let answer = timeout(LOOK_TIMEOUT, async {
        let channel = uds::dial(&node.pod_resources_socket).await?;
        let mut client = v1::pod_resources_lister_client::PodResourcesListerClient::new(channel);
        anyhow::Ok(
            client
                .list(v1::ListPodResourcesRequest {})
                .await?
                .into_inner(),
        )
    })
    .await??;
    Ok(Some(held_ids(answer, &node.resource_prefix)))
}

/// One entry a device id is what the kubelet sends; they are merged by resource.
fn held_ids(answer: v1::ListPodResourcesResponse, prefix: &str) -> HeldIds {
    let mut held = HeldIds::new();
    let containers = answer
        .pod_resources
        .into_iter()
        .flat_map(|pod| pod.containers);
    for devices in containers.flat_map(|container| container.devices) {
        let name = devices
            .resource_name
            .strip_prefix(prefix)
            .and_then(|rest| rest.strip_prefix('/'));
        if let Some(name) = name {
            held.entry(name.to_owned())
                .or_default()
                .extend(devices.device_ids);
        }
    }
    held
}
