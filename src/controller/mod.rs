//! The process that runs once in a cluster. It merges the NodeDevices of all nodes into Instances, handles lost nodes, and
//! writes brokers, Services and status.
//!
//! ```text
//! API server ─ watches ─> world ─┬─> brokers    Pods and Jobs for Instances
//!                                ├─> services   Services for Instances and Configurations
//!                                ├─> nodes      Instances from the NodeDevices of all nodes; lost nodes; Akri's finalizers
//!                                └─> status     conditions and counts
//! ```
//! Each reads the parts of the world that have changed (`parts.rs`), plans, and carries out what the plan says. Only the
//! holder of the Lease acts.
pub(crate) mod agenda;
pub(crate) mod brokers;
mod definitions;
#[cfg(test)]
mod fixtures;
mod lease;
#[cfg(feature = "fuzzing")]
pub mod measured;
pub(crate) mod nodes;
mod outcome;
pub(crate) mod pace;
pub(crate) mod parts;
mod pod_state;
mod services;
pub(crate) mod status;
mod tally;
pub(crate) mod touched;
pub(crate) mod world;

use crate::{
    api::names,
    cluster::{events, events::Events, watch as watched},
    model::{resource_name::ResourcePrefix, variables::Variables},
    supervisor::Supervisor,
    telemetry::{health::Health, http},
};
use agenda::{Agenda, Pass};
use kube::Client;
use parts::Parts;
use std::{net::SocketAddr, sync::Arc, time::Duration};
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;
use touched::touched;
use world::World;

/// The name of the Lease and of the reporter of Events.
const NAME: &str = names::CONTROLLER_MANAGER;
/// The time that tasks have to end after a signal: two requests that are not answered. A Pod is given 30 s.
const GRACE: Duration = Duration::from_secs(25);

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
    /// The variables that containers may get.
    pub variables: Variables,
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
    let (node_problems, nodes) = watch::channel(None);
    let shared = Arc::new(Shared {
        client: client.clone(),
        events,
        settings,
        world: world.subscribe(),
        is_leader: is_leader.subscribe(),
    });
    let workloads = status::Workloads {
        brokers,
        services,
        nodes,
    };
    let mut tasks = Supervisor::new(shutdown);
    tasks.spawn("events", |stop| writer.run(stop));
    tasks.spawn("lease watch", |stop| {
        let (apis, selection) = lease::watched(&shared);
        watched::run(apis, selection, lease::held, seen_lease, stop)
    });
    tasks.spawn("lease", |stop| {
        lease::run(shared.clone(), lease, is_leader, stop)
    });
    world::spawn(&mut tasks, &client, &shared.settings, world);
    tasks.spawn("definitions", |stop| definitions::run(shared.clone(), stop));
    tasks.spawn("brokers", |stop| {
        brokers::run(shared.clone(), reports, stop)
    });
    tasks.spawn("services", |stop| {
        services::run(shared.clone(), service_problems, stop)
    });
    tasks.spawn("nodes", |stop| {
        nodes::run(shared.clone(), node_problems, stop)
    });
    tasks.spawn("status", |stop| {
        status::run(shared.clone(), workloads, stop)
    });
    tasks.spawn("tally", |stop| tally::run(shared.clone(), stop));
    if let Some(address) = shared.settings.http_address {
        let world = shared.world.clone();
        let health = Health::new(move || missing(world.borrow().as_deref()));
        tasks.spawn("http", |stop| http::serve(address, health, stop));
    }
    tasks.run(GRACE).await
}

/// Returns a line for each thing that this replica waits for. A replica that waits for the Lease is ready.
fn missing(world: Option<&World>) -> Vec<String> {
    match world {
        Some(_) => vec![],
        None => vec!["the cluster's objects have not been listed yet".to_owned()],
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

/// The loop of each job: it looks at the parts of the world that have changed, and at others when their time has come.
struct Turns {
    world: watch::Receiver<Option<Arc<World>>>,
    is_leader: watch::Receiver<bool>,
    agenda: Agenda,
    /// The world of the last look; `None` if this replica did not lead then.
    before: Option<Arc<World>>,
}

/// The parts of the world that a job is to plan now.
struct Turn {
    parts: Parts,
    world: Arc<World>,
}

impl Turns {
    fn new(shared: &Shared) -> Self {
        Self {
            world: shared.world.clone(),
            is_leader: shared.is_leader.clone(),
            agenda: Agenda::new(),
            before: None,
        }
    }

    /// Returns the next turn, while this replica is the leader; `None` after `shutdown`.
    async fn next(&mut self, shutdown: &CancellationToken) -> anyhow::Result<Option<Turn>> {
        loop {
            if shutdown.is_cancelled() {
                return Ok(None);
            }
            if let Some(turn) = self.turn() {
                return Ok(Some(turn));
            }
            let at = self.agenda.next().filter(|_| self.before.is_some());
            let due = async {
                match at {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = shutdown.cancelled() => return Ok(None),
                changed = self.world.changed() => changed?,
                changed = self.is_leader.changed() => changed?,
                () = due => {}
            }
        }
    }

    fn turn(&mut self) -> Option<Turn> {
        let world = self.world.borrow_and_update().clone();
        let leads = *self.is_leader.borrow_and_update();
        let before = std::mem::replace(&mut self.before, world.filter(|_| leads));
        let Some(world) = &self.before else {
            self.agenda = Agenda::new();
            return None;
        };
        match before {
            Some(before) if Arc::ptr_eq(&before, world) => {}
            Some(before) => self.agenda.touch(touched(&before, world)),
            None => self.agenda = Agenda::new(),
        }
        let parts = self.agenda.take(Instant::now())?;
        let world = world.part(&parts);
        Some(Turn { parts, world })
    }

    /// Makes parts due that have not changed.
    fn touch(&mut self, parts: Parts) {
        self.agenda.touch(parts);
    }

    fn done(&mut self, turn: &Turn, pass: Pass) {
        self.agenda.done(&turn.parts, pass, Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fixtures::{Fake, configuration, instance};
    use serde_json::json;
    use tokio::time::timeout;

    const MOMENT: Duration = Duration::from_secs(1);

    /// Returns the parts of the next turn; `None` if there is none in a moment.
    async fn parts(turns: &mut Turns) -> Option<Parts> {
        let stop = CancellationToken::new();
        let turn = timeout(MOMENT, turns.next(&stop)).await.ok()?;
        let turn = turn.unwrap().unwrap();
        turns.done(&turn, Pass::default());
        Some(turn.parts)
    }

    #[tokio::test(start_paused = true)]
    async fn a_leader_plans_the_whole_world_once_and_then_what_changes() {
        let mut fake = Fake::new(|_| (200, json!({})));
        let (worlds, leads) = (watch::Sender::new(None), watch::Sender::new(false));
        (fake.shared.world, fake.shared.is_leader) = (worlds.subscribe(), leads.subscribe());
        let mut turns = Turns::new(&fake.shared);
        let world = World::default().with_configuration(configuration("cam", json!({})));
        worlds.send_replace(Some(Arc::new(world.clone())));
        assert_eq!(parts(&mut turns).await, None);
        leads.send_replace(true);
        assert_eq!(parts(&mut turns).await, Some(Parts::All));
        worlds.send_replace(Some(Arc::new(world.clone())));
        assert_eq!(parts(&mut turns).await, None);
        let changed = world.with_instance(instance("cam-1", json!({})));
        worlds.send_replace(Some(Arc::new(changed)));
        let cam = Parts::Named(["cam".to_owned()].into());
        assert_eq!(parts(&mut turns).await, Some(cam));
        // Another replica may have led meanwhile.
        leads.send_replace(false);
        assert_eq!(parts(&mut turns).await, None);
        leads.send_replace(true);
        assert_eq!(parts(&mut turns).await, Some(Parts::All));
    }

    #[tokio::test(start_paused = true)]
    async fn a_shutdown_ends_the_turns_also_when_something_is_due() {
        let mut fake = Fake::new(|_| (200, json!({})));
        fake.shared.world = watch::channel(Some(Arc::new(World::default()))).1;
        let mut turns = Turns::new(&fake.shared);
        let stop = CancellationToken::new();
        stop.cancel();
        assert!(turns.next(&stop).await.unwrap().is_none());
    }
}
