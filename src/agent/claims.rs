//! Prepares ResourceClaims, by which the scheduler gives out the devices of Configurations with `allocation: DRA`: the agent is the
//! kubelet plugin of the driver. The controller publishes the devices.
//!
//! A claim takes slots in the same table as an Allocate call does ([`super::slots`]), so a device has no two holders while its
//! Configuration moves from the one to the other. What a container gets is computed by the same function, and reaches it by a CDI
//! file of the claim, because the kubelet takes nothing else.
pub(super) mod driver;
mod health;
mod moved;
mod plan;

use super::{
    claims_settings::Claims,
    plugins::{Allocator, Inputs},
    slots::Requests,
};
use crate::backoff::Backoff;
use driver::Prepare;
use moved::Folders;
use petiole_dra::Plugin;
use std::{sync::Arc, time::Duration};
use tokio::{
    sync::watch,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

/// The waits between attempts to listen for the kubelet.
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LAST_RETRY: Duration = Duration::from_secs(60);

/// Serves the kubelet until `shutdown`. What it cannot do, such as making its sockets, it tries again.
pub(super) async fn run(
    claims: Claims,
    inputs: Inputs,
    requests: Requests,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let (health, reports) = watch::channel(vec![]);
    let folders = Folders::new(claims.folder.clone(), claims.metadata());
    let held = health::Held {
        book: claims.book.clone(),
        folders: folders.clone(),
        inputs: inputs.clone(),
    };
    let look = held.report(health, shutdown.clone());
    let allocator = Arc::new(Allocator::new(inputs, requests));
    let serve = async {
        let mut backoff = Backoff::new(FIRST_RETRY, LAST_RETRY);
        while !shutdown.is_cancelled() {
            let driver = Prepare {
                allocator: allocator.clone(),
                folders: folders.clone(),
            };
            let plugin = Plugin::new(claims.settings.clone(), driver, claims.client.clone());
            let served = match plugin {
                Ok(plugin) => {
                    let began = Instant::now();
                    info!("ResourceClaims are prepared");
                    let plugin = plugin.with_health(reports.clone());
                    let ended = plugin.run(shutdown.clone()).await;
                    if began.elapsed() > LAST_RETRY {
                        backoff.reset(); // it went well for a while: this is another failure, not the next of a row
                    }
                    ended
                }
                Err(error) => Err(error),
            };
            if let Err(error) = served {
                warn!(%error, "the kubelet cannot have ResourceClaims prepared; trying again");
                shutdown
                    .run_until_cancelled(sleep(backoff.next_wait()))
                    .await;
            }
        }
    };
    let ((), looked) = tokio::join!(serve, look);
    looked
}
