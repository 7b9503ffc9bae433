//! The process on each node: discovers devices, reports them, serves device plugins, and claims and releases slots.
//!
//! ```text
//! configurations ─ validated ─┬─> discovery sessions ─ discoveries ─┐
//!                             └─> instances <─────────────────────┤   reports to the store
//! store's Instances ─> plugins (one task a resource) <────────────┘   <─> kubelet
//!                      Allocate ─> slots (claims and releases) <─ reclaim <─ kubelet_records: pod resources, checkpoint
//! ResourceClaims ─> claims ──> slots                                  <─> kubelet
//! plugins' lists ──> capacity <─ own Node, pod resources   writes the Node's status
//! store's Instances ─> node_labels <─ own Node             writes the Node's labels
//! ```
//! Every arrow is a `watch` of whole values, except the requests to `slots`. The `run` of each task takes the receivers that
//! it reads as its `Inputs`, and the senders that it owns. This file only creates the channels and starts the tasks.
//! `configurations`, the discovery sessions, `node_only` and `brokers` run on a thread of their own, what answers the kubelet on another.
#[cfg(feature = "people")]
mod brokers;
mod capacity;
mod cdi_files;
mod claims;
mod claims_settings;
mod configurations;
pub(crate) mod connections;
pub(crate) mod device_state;
pub(crate) mod instances;
mod known_devices;
mod kubelet_folder;
pub(crate) mod kubelet_records;
mod node_labels;
pub(crate) mod node_only;
mod place;
pub(crate) mod plugins;
pub(crate) mod pod_resources;
mod property_sources;
mod readiness;
mod settings;
#[cfg(test)]
pub(crate) mod simulated;
pub(crate) mod slots;
mod startup;
mod tally;
mod tasks;
pub(crate) mod values;

#[cfg(feature = "people")]
pub(crate) use configurations::check;
#[cfg(feature = "fuzzing")]
pub use kubelet_records::fuzzing;
pub use place::Place;
pub use settings::{Claims, KUBELET_STARTUP_GRACE, LOOK_INTERVAL, RESOURCE_NAME_HOLD, Settings};
pub use startup::ask as ask_startup;

use crate::{
    discovery::session::Handlers, own_thread::OwnThread, store::Store, supervisor::Supervisor,
};
use anyhow::Context as _;
use std::{sync::Arc, time::Duration};
use tasks::Agent;
use tokio_util::sync::CancellationToken;

/// The time that tasks have to end after a signal.
const GRACE: Duration = Duration::from_secs(5);

/// Runs an agent until `shutdown`, or until one of its tasks fails. Instances stay. No other agent of this node may run.
pub async fn run(
    settings: Settings,
    store: Arc<dyn Store>,
    handlers: Handlers,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    run_in(Place::alone(), settings, store, handlers, shutdown).await
}

/// Runs an agent in its place on this node: it stands by until it holds the place, and at the end hands it over to an agent
/// that stands by.
pub async fn run_in(
    mut place: Place,
    settings: Settings,
    store: Arc<dyn Store>,
    handlers: Handlers,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let (thread, handlers) = (discovery_thread()?, Arc::new(handlers));
    let (stop, stop_plugins) = (CancellationToken::new(), CancellationToken::new());
    let mut tasks = Supervisor::new(stop.clone());
    let mut plugins = Supervisor::new(stop_plugins.clone());
    let left_over = plugins::LeftOver::of(&settings, &*store);
    let mut agent = Agent::new(settings, store, place.state());
    let readiness = agent.readiness(&thread);
    agent.spawn_looking(&mut tasks, thread.runtime(), &handlers);
    agent.spawn_kubelet_folder(&mut tasks);
    agent.spawn_probed(&mut tasks, &readiness);
    let lived = async {
        let taken = shutdown.run_until_cancelled(place.take(readiness.until_ready()));
        if tasks.until(taken).await?.is_none() {
            return Ok(()); // it never held the place
        }
        if !place.has_predecessor() {
            left_over.remove();
        }
        handlers.read_again();
        agent.begin();
        agent.spawn_telling(&mut tasks, thread.runtime(), handlers);
        agent.spawn_plugins(&mut tasks, &mut plugins);
        agent.spawn_own_node(&mut tasks);
        #[cfg(feature = "people")]
        agent.spawn_brokers(&mut tasks, thread.runtime());
        let stopped = async {
            if place.has_predecessor() {
                shutdown
                    .run_until_cancelled(readiness.until_registered())
                    .await;
                place.let_predecessor_end();
            }
            shutdown.cancelled().await;
        };
        plugins.until(tasks.until(stopped)).await?
    };
    let lived = lived.await;
    let ended = if lived.is_ok() && place.is_waited_for() {
        agent.decisions.give_up().await;
        stop.cancel();
        let ended = tasks.run(GRACE).await; // what it knows is written
        place.hand_over().await;
        agent.decisions.until_forwarded().await;
        stop_plugins.cancel();
        ended.and(plugins.run(GRACE).await)
    } else {
        stop.cancel();
        stop_plugins.cancel();
        let (ended, plugins) = tokio::join!(tasks.run(GRACE), plugins.run(GRACE));
        ended.and(plugins)
    };
    lived.and(ended)
}

/// Discovers and writes Instances until `answered` or `shutdown`. It needs no kubelet, and offers nothing.
#[cfg(feature = "people")]
pub async fn look(
    settings: Settings,
    store: Arc<dyn Store>,
    handlers: Handlers,
    answered: impl Future<Output = ()>,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let thread = discovery_thread()?;
    let mut tasks = Supervisor::new(shutdown.clone());
    let (agent, handlers) = (
        Agent::new(settings, store, Place::alone().state()),
        Arc::new(handlers),
    );
    agent.spawn_looking(&mut tasks, thread.runtime(), &handlers);
    agent.spawn_telling(&mut tasks, thread.runtime(), handlers);
    let looked = async {
        shutdown.run_until_cancelled(answered).await;
        shutdown.cancel();
    };
    let (ended, ()) = tokio::join!(tasks.run(GRACE), looked);
    // Its channels are open until the tasks have ended.
    drop(agent);
    ended
}

/// Starts the thread of the tasks whose work the LAN and the authors of Configurations cause. No client of the API server
/// may be used there: its connections belong to the runtime on which they were opened.
fn discovery_thread() -> anyhow::Result<OwnThread> {
    OwnThread::start("discovery").context("the thread of the discoveries cannot be started")
}
