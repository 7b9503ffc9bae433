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
//! whose time has come (`queue.rs`), has a turn (`turns.rs`) of these six stages. Stages between which nothing is sent look at one
//! view of the reports (`reported.rs`). Each plans by what the stages before it have written, because answers go into the part, too
//! (`shown.rs`). What has failed waits, and holds up nothing else
//! (`throttle.rs`). What the scheduler gives out is published beside it (`claims.rs`). Only the holder of the Lease acts; lists of devices are served by every replica (`lists/serve.rs`).
mod acting;
mod brokers;
mod claims;
pub(crate) mod clock;
mod definitions;
mod evictions;
#[cfg(test)]
pub(crate) mod fixtures;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod held_before;
mod index;
mod lease;
mod lists;
mod news;
mod nodes;
mod offered;
mod open_turns;
mod outcome;
mod parts;
mod pod_state;
mod queue;
mod reported;
mod run;
mod services;
mod settle;
mod shared;
mod shown;
mod status;
mod tally;
mod throttle;
mod turn;
mod turns;
mod watches;
pub(crate) mod world;

pub use shared::Settings;

use crate::{
    cluster::{events, watch as watched},
    supervisor::Supervisor,
    telemetry::{health::Health, http},
};
use axum::Router;
use clock::WallClock;
use kube::{Api, Client};
use shared::{NAME, Shared};
use std::{sync::Arc, time::Duration};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use watches::Watches;

/// The time that tasks have to end after a signal: two requests that are not answered. A Pod is given 30 s.
pub(crate) const GRACE: Duration = Duration::from_secs(25);

/// Runs the controller until `shutdown`, or until a task of it fails.
pub async fn run(
    settings: Settings,
    client: Client,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let mut tasks = Supervisor::new(shutdown);
    let Begun {
        shared,
        is_listed,
        lists,
    } = begin(&mut tasks, settings, client, WallClock::System);
    tasks.spawn("definitions", |stop| definitions::run(shared.clone(), stop));
    if let Some(prefixes) = shared.settings.refused_pods.clone() {
        tasks.spawn("refused Pods", |stop| {
            evictions::refused::run(shared.clone(), prefixes, stop)
        });
    }
    if let Some(address) = shared.settings.http_address {
        let routes = http::routes(Health::new(move || missing(*is_listed.borrow())));
        let routes = if shared.settings.device_lists {
            routes.merge(lists)
        } else {
            routes
        };
        tasks.spawn("http", |stop| http::serve(address, routes, stop));
    }
    tasks.run(GRACE).await
}

/// What follows the cluster and acts on it, as it was started.
pub(crate) struct Begun {
    shared: Arc<Shared>,
    is_listed: watch::Receiver<bool>,
    lists: Router,
}

impl Begun {
    /// Returns whether this replica acts.
    #[cfg(test)]
    pub(crate) fn is_leader(&self) -> watch::Receiver<bool> {
        self.shared.is_leader.clone()
    }
}

/// Starts the Lease, the watches, the loop, what publishes devices and the writer of Events.
pub(crate) fn begin(
    tasks: &mut Supervisor,
    settings: Settings,
    client: Client,
    clock: WallClock,
) -> Begun {
    let (events, writer) = events::events(client.clone(), NAME, &settings.identity);
    let (listed, is_listed) = watch::channel(false);
    let (leads, is_leader) = watch::channel(false);
    let watches = Watches::spawn(tasks, &client, &settings);
    let (lists, questions) = lists::serve::routes(client.clone(), is_listed.clone());
    let shared = Arc::new(Shared {
        client: acting::client(client.clone(), is_leader.clone()),
        clock,
        events,
        settings,
        is_leader,
        offered: watch::Sender::default(),
        recalled: watch::Sender::default(),
        not_offered: watch::Sender::default(),
    });
    let (seen_lease, lease) = watch::channel(None);
    let api = Api::namespaced(client.clone(), &shared.settings.namespace);
    tasks.spawn("lease watch", |stop| {
        watched::run(vec![api], lease::selection(), lease::held, seen_lease, stop)
    });
    tasks.spawn("lease", |stop| {
        let api = Api::namespaced(client, &shared.settings.namespace);
        let replica = lease::Replica {
            is_leader: leads,
            is_listed: is_listed.clone(),
        };
        lease::run(shared.clone(), api, lease, replica, stop)
    });
    tasks.spawn("events", |stop| writer.run(stop));
    tasks.spawn("loop", |stop| {
        let shared = shared.clone();
        async move { run::run(&shared, watches, questions, listed, stop).await }
    });
    if shared.settings.claims.is_some() {
        tasks.spawn("claims", |stop| claims::run(shared.clone(), stop));
    }
    Begun {
        shared,
        is_listed,
        lists,
    }
}

/// Returns a line for each thing that this replica waits for. A replica that waits for the Lease is ready.
fn missing(is_listed: bool) -> Vec<String> {
    if is_listed {
        vec![]
    } else {
        vec!["the cluster's objects have not been listed yet".to_owned()]
    }
}
