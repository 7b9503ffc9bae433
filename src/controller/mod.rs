//! The process that runs once in a cluster. It merges the NodeDevices of all nodes into Instances, handles lost nodes, and
//! writes brokers, Services and status.
//!
//! ```text
//! API server ─ watches ─> world ─┬─> brokers    Pods and Jobs for Instances
//!                                ├─> services   Services for Instances and Configurations
//!                                ├─> nodes      Instances from the NodeDevices of all nodes; lost nodes; Akri's finalizers
//!                                └─> status     conditions and counts
//! ```
//! Each reads the whole world at each change of it, plans, and carries out what the plan says. Only the holder of the
//! Lease acts.
pub(crate) mod brokers;
mod definitions;
#[cfg(test)]
mod fixtures;
mod lease;
pub(crate) mod nodes;
mod outcome;
pub(crate) mod pace;
mod pod_state;
mod services;
pub(crate) mod status;
mod tally;
pub(crate) mod world;

use crate::{
    api::names,
    backoff::Backoff,
    cluster::{events, events::Events, watch as watched},
    model::resource_name::ResourcePrefix,
    supervisor::Supervisor,
    telemetry::http::{self, Health},
};
use kube::Client;
use std::{net::SocketAddr, sync::Arc, time::Duration};
use tokio::{sync::watch, time::sleep};
use tokio_util::sync::CancellationToken;
use world::World;

/// The name of the Lease and of the reporter of Events.
const NAME: &str = names::CONTROLLER_MANAGER;
/// The time that tasks have to end after a signal: two requests that are not answered. A Pod is given 30 s.
const GRACE: Duration = Duration::from_secs(25);
const FIRST_RETRY: Duration = Duration::from_millis(500);
const LAST_RETRY: Duration = Duration::from_secs(30);

/// The settings of a controller.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The name of this replica's Pod, which no other replica has.
    pub identity: String,
    /// The namespace of the Lease.
    pub namespace: String,
    /// The namespaces that are watched; all of them if it is empty.
    pub watch_namespaces: Vec<String>,
    /// The prefix of the resources that agents register, such as `akri.sh`.
    pub resource_prefix: ResourcePrefix,
    /// The address that serves metrics, health and readiness.
    pub http_address: Option<SocketAddr>,
}

/// Runs the controller until `shutdown`, or until a task of it fails.
pub async fn run(
    settings: Settings,
    client: Client,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let (events, writer) = events::events(client.clone(), NAME, &settings.identity);
    let (world, is_leader) = (watch::Sender::new(None), watch::Sender::new(false));
    let (seen_lease, lease) = watch::channel(None);
    let (reports, brokers) = watch::channel(None);
    let (service_problems, services) = watch::channel(None);
    let shared = Arc::new(Shared {
        client: client.clone(),
        events,
        settings,
        world: world.subscribe(),
        is_leader: is_leader.subscribe(),
    });
    let workloads = status::Workloads { brokers, services };
    let mut tasks = Supervisor::new(shutdown);
    tasks.spawn("events", |stop| writer.run(stop));
    tasks.spawn("lease watch", |stop| {
        let (apis, selection) = lease::watched(&shared);
        watched::run(apis, selection, lease::held, seen_lease, stop)
    });
    tasks.spawn("lease", |stop| {
        lease::run(shared.clone(), lease, is_leader, stop)
    });
    let namespaces = &shared.settings.watch_namespaces;
    world::spawn(&mut tasks, &client, namespaces, world);
    tasks.spawn("definitions", |stop| definitions::run(shared.clone(), stop));
    tasks.spawn("brokers", |stop| {
        brokers::run(shared.clone(), reports, stop)
    });
    tasks.spawn("services", |stop| {
        services::run(shared.clone(), service_problems, stop)
    });
    tasks.spawn("nodes", |stop| nodes::run(shared.clone(), stop));
    tasks.spawn("status", |stop| {
        status::run(shared.clone(), workloads, stop)
    });
    tasks.spawn("tally", |stop| tally::run(shared.clone(), stop));
    if let Some(address) = shared.settings.http_address {
        let world = shared.world.clone();
        let health = Health::new(move || missing(world.borrow().is_some()));
        tasks.spawn("http", |stop| http::serve(address, health, stop));
    }
    tasks.run(GRACE).await
}

/// Returns a line for each thing that this replica waits for. A replica that waits for the Lease is ready.
fn missing(has_world: bool) -> Vec<String> {
    match has_world {
        true => vec![],
        false => vec!["the cluster's objects have not been listed yet".to_owned()],
    }
}

/// The values that the controller's tasks share.
struct Shared {
    client: Client,
    events: Events,
    settings: Settings,
    /// `None` until everything was listed.
    world: watch::Receiver<Option<Arc<World>>>,
    /// True if this replica holds the Lease.
    is_leader: watch::Receiver<bool>,
}

/// The result of a pass over the world.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Pass {
    /// True if everything that was planned was carried out.
    is_done: bool,
    /// The time until the next look if nothing changes before.
    wake_in: Option<Duration>,
}

/// The loop of each job: it looks at the world at each change, and at the time that its last pass asked for.
struct Turns {
    world: watch::Receiver<Option<Arc<World>>>,
    is_leader: watch::Receiver<bool>,
    backoff: Backoff,
    wait: Duration,
}

impl Turns {
    fn new(shared: &Shared) -> Self {
        Self {
            world: shared.world.clone(),
            is_leader: shared.is_leader.clone(),
            backoff: Backoff::new(FIRST_RETRY, LAST_RETRY),
            wait: Duration::ZERO,
        }
    }

    /// Returns the world when it is time for a pass and this replica is the leader; `None` after `shutdown`.
    async fn next(&mut self, shutdown: &CancellationToken) -> anyhow::Result<Option<Arc<World>>> {
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return Ok(None),
                changed = self.world.changed() => changed?,
                changed = self.is_leader.changed() => changed?,
                () = sleep(self.wait) => {}
            }
            self.wait = Duration::MAX;
            let now = self.world.borrow_and_update().clone();
            let leads = *self.is_leader.borrow_and_update();
            if let Some(world) = now.filter(|_| leads) {
                return Ok(Some(world));
            }
        }
    }

    /// Looks at the world again, though it has not changed.
    fn again(&mut self) {
        self.wait = Duration::ZERO;
    }

    fn done(&mut self, pass: Pass) {
        let retry = match pass.is_done {
            true => {
                self.backoff.reset();
                Duration::MAX
            }
            false => self.backoff.next_wait(),
        };
        self.wait = pass.wake_in.unwrap_or(Duration::MAX).min(retry);
    }
}
