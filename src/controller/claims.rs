//! Offers the devices of Configurations with `allocation: DRA` to the scheduler: ResourceSlices with the devices, and a DeviceClass
//! for each Configuration. Only the holder of the Lease writes them.
//!
//! The loop of the controller says what is to be there, after each change; the two tasks here make it so.
mod classes;

use super::shared::Shared;
use crate::{model::dra, publish};
use petiole_dra::slices::{PoolState, Publisher, Scope};
use std::{collections::BTreeMap, sync::Arc};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

/// Keeps the objects as the loop wants them, until `shutdown`.
pub(super) async fn run(shared: Arc<Shared>, shutdown: CancellationToken) -> anyhow::Result<()> {
    let mut offered = shared.offered.subscribe();
    let keep = async {
        loop {
            let first = offered.wait_for(Option::is_some).await?.clone();
            let Some(first) = first else { continue };
            info!("devices are offered to the scheduler");
            let (pools, published) = watch::channel(first.pools.clone());
            let (classes, wanted) = watch::channel(first.classes.clone());
            let client = shared.client.clone();
            let publisher = Publisher::new(
                client.clone(),
                dra::DRIVER.to_owned(),
                Scope::Shared,
                published,
            );
            let states = publisher.states();
            let follow = async {
                loop {
                    offered.changed().await?;
                    let Some(now) = offered.borrow_and_update().clone() else {
                        return anyhow::Ok(());
                    };
                    publish::if_changed(&pools, now.pools.clone());
                    publish::if_changed(&classes, now.classes.clone());
                }
            };
            tokio::select! {
                () = publisher.run() => {}
                () = classes::keep(client, wanted) => {}
                () = report(states) => {}
                followed = follow => followed?,
            }
        }
    };
    shutdown
        .run_until_cancelled(Box::pin(keep))
        .await
        .unwrap_or(Ok(()))
}

/// Says which pools the API server did not take as they are.
async fn report(mut states: watch::Receiver<BTreeMap<String, PoolState>>) {
    while states.changed().await.is_ok() {
        for (pool, state) in states.borrow_and_update().iter() {
            match state {
                PoolState::Published => {}
                PoolState::Trimmed(device) => warn!(
                    pool,
                    device,
                    "the API server dropped fields of its devices, which are exclusive now: it needs Kubernetes 1.36 with the feature gate DRAConsumableCapacity"
                ),
                PoolState::Failed(error) => {
                    warn!(pool, error, "its devices are not offered: trying again");
                }
            }
        }
    }
}
