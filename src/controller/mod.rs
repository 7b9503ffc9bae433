//! The process that runs once in a cluster. It merges the NodeDevices of all nodes into Instances, handles lost nodes, and
//! writes brokers, Services and status.
//!
//! ```text
//! API server ─ watches ─> parts ─> queue ─> turns ─┬─ 1. nodes      Instances from the NodeDevices of all nodes; lost nodes
//!     ▲                     ▲                      ├─ 2. brokers    Pods and Jobs for Instances
//!     │                     │ answers              ├─ 3. services   Services for Instances and Configurations
//!     │                     │                      ├─ 4. lists      ConfigMaps that list the devices of Configurations
//!     │                     │                      ├─ 5. status     conditions and counts
//!     └───── requests ──────┴──────── run ─────────┴─ 6. evictions  Pods that have lost their device
//! ```
//! One loop (`run.rs`) takes each object into its part of the cluster as it arrives (`parts.rs`). A part that has changed, or
//! whose time has come (`queue.rs`), has a turn (`turns.rs`) of these six stages. Each plans by what the stages before it have
//! written, because answers go into the part, too (`shown.rs`). What has failed waits, and holds up nothing else
//! (`throttle.rs`). Only the holder of the Lease acts; lists of devices are served by every replica (`lists/serve.rs`).
pub(crate) mod brokers;
pub(crate) mod clock;
mod definitions;
pub(crate) mod evictions;
#[cfg(test)]
mod fixtures;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
pub(crate) mod index;
mod lease;
pub(crate) mod lists;
pub(crate) mod news;
pub(crate) mod nodes;
pub(crate) mod open_turns;
pub(crate) mod outcome;
pub(crate) mod parts;
pub(crate) mod pod_state;
pub(crate) mod queue;
mod run;
pub(crate) mod services;
mod settle;
mod shared;
pub(crate) mod shown;
pub(crate) mod status;
mod tally;
mod throttle;
pub(crate) mod turn;
pub(crate) mod turns;
mod watches;
pub(crate) mod world;

pub use shared::Settings;

use crate::{
    cluster::{events, watch as watched},
    supervisor::Supervisor,
    telemetry::{health::Health, http},
};
use kube::Client;
use shared::{NAME, Shared};
use std::{sync::Arc, time::Duration};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use watches::Watches;

/// The time that tasks have to end after a signal: two requests that are not answered. A Pod is given 30 s.
const GRACE: Duration = Duration::from_secs(25);

/// Runs the controller until `shutdown`, or until a task of it fails.
pub async fn run(
    settings: Settings,
    client: Client,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let (events, writer) = events::events(client.clone(), NAME, &settings.identity);
    let is_leader = watch::Sender::new(false);
    let (seen_lease, lease) = watch::channel(None);
    let (listed, is_listed) = watch::channel(false);
    let shared = Arc::new(Shared {
        client: client.clone(),
        events,
        settings,
        is_leader: is_leader.subscribe(),
    });
    let mut tasks = Supervisor::new(shutdown);
    tasks.spawn("events", |stop| writer.run(stop));
    tasks.spawn("lease watch", |stop| {
        let (apis, selection) = lease::watched(&shared);
        watched::run(apis, selection, lease::held, seen_lease, stop)
    });
    tasks.spawn("lease", |stop| {
        lease::run(shared.clone(), lease, is_leader, stop)
    });
    tasks.spawn("definitions", |stop| definitions::run(shared.clone(), stop));
    let watches = Watches::spawn(&mut tasks, &client, &shared.settings);
    let (lists, questions) = lists::serve::routes(client, is_listed.clone());
    tasks.spawn("loop", |stop| {
        let shared = shared.clone();
        async move { run::run(&shared, watches, questions, listed, stop).await }
    });
    if let Some(prefixes) = shared.settings.refused_pods.clone() {
        tasks.spawn("refused Pods", |stop| {
            evictions::refused::run(shared.clone(), prefixes, stop)
        });
    }
    if let Some(address) = shared.settings.http_address {
        let routes = http::routes(Health::new(move || missing(*is_listed.borrow())));
        let routes = match shared.settings.device_lists {
            true => routes.merge(lists),
            false => routes,
        };
        tasks.spawn("http", |stop| http::serve(address, routes, stop));
    }
    tasks.run(GRACE).await
}

/// Returns a line for each thing that this replica waits for. A replica that waits for the Lease is ready.
fn missing(is_listed: bool) -> Vec<String> {
    if is_listed {
        vec![]
    } else {
        vec!["the cluster's objects have not been listed yet".to_owned()]
    }
}
