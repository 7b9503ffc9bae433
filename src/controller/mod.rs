//! The process once per cluster: brokers, Services, Instances of lost nodes, status.
//!
//! ```text
//! API server ─ watches ─> world ─┬─> brokers    Pods and Jobs for Instances
//!                                ├─> services   Services for Instances and Configurations
//!                                ├─> nodes      lost nodes leave Instances; Akri's finalizers go
//!                                └─> status     conditions and counts
//! ```
//! Each reads the whole world at each change of it, plans, and carries out what the plan says. Only the holder of the
//! Lease acts.
#![cfg_attr(
    not(test),
    expect(dead_code, reason = "wired up with the command of the controller")
)]

#[cfg(test)]
mod fixtures;
mod nodes;
mod outcome;
mod pace;
mod services;
mod status;
mod world;

use crate::{backoff::Backoff, cluster::events::Events};
use kube::Client;
use std::{future::Future, sync::Arc, time::Duration};
use tokio::{sync::watch, time::sleep};
use tokio_util::sync::CancellationToken;
use world::World;

const FIRST_RETRY: Duration = Duration::from_millis(500);
const LAST_RETRY: Duration = Duration::from_secs(30);

/// What a controller is told by its flags.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Tells this replica from the others: the name of its Pod.
    pub identity: String,
    /// Where the Lease is.
    pub namespace: String,
    /// The namespaces that are watched; all of them where none is named.
    pub watch_namespaces: Vec<String>,
    /// The prefix of the resources that agents register, such as `akri.sh`.
    pub resource_prefix: String,
}

/// What the controller's tasks share.
struct Shared {
    client: Client,
    events: Events,
    settings: Settings,
    /// `None` until everything was listed.
    world: watch::Receiver<Option<Arc<World>>>,
    /// Whether this replica holds the Lease.
    is_leader: watch::Receiver<bool>,
}

/// What a pass over the world leaves to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Pass {
    /// Whether everything that was planned was carried out.
    is_done: bool,
    /// When to look again if nothing changes before.
    wake_in: Option<Duration>,
}

/// Calls `pass` with the whole world at each change of it, while this replica is the leader.
async fn follow<F>(
    shared: &Shared,
    mut pass: impl FnMut(Arc<World>) -> F,
    shutdown: CancellationToken,
) -> anyhow::Result<()>
where
    F: Future<Output = Pass>,
{
    let (mut world, mut is_leader) = (shared.world.clone(), shared.is_leader.clone());
    let mut backoff = Backoff::new(FIRST_RETRY, LAST_RETRY);
    loop {
        let now = world.borrow_and_update().clone();
        let leads = *is_leader.borrow_and_update();
        let wait = match now.filter(|_| leads) {
            None => Duration::MAX,
            Some(now) => {
                let done = pass(now).await;
                if done.is_done {
                    backoff.reset();
                    done.wake_in.unwrap_or(Duration::MAX)
                } else {
                    backoff.next_wait()
                }
            }
        };
        tokio::select! {
            () = shutdown.cancelled() => return Ok(()),
            changed = world.changed() => changed?,
            changed = is_leader.changed() => changed?,
            () = sleep(wait) => {}
        }
    }
}
