//! Instances follow devices: what discovery sees is created, described, and deleted again.
mod bounds;
pub(crate) mod plan;
mod writes;

use super::{Node, plan_inputs::Now, tally};
use crate::{
    api::instance::Instance,
    backoff::Backoff,
    model::names::ObjectKey,
    store::{InstanceChange, Report, StoreError, key_of},
    telemetry::metrics,
};
use plan::{Absences, Arrivals, World, plan};
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};
use writes::{Outcome, Writes};

const FIRST_RETRY: Duration = Duration::from_millis(200);
const LAST_RETRY: Duration = Duration::from_secs(10);
/// How long after a change all of it is looked at: what comes in one go makes one plan.
const SETTLE: Duration = Duration::from_millis(5);
/// The least time between two looks at changed Instances. Most of their changes are what others wrote, and what is found
/// or lost does not wait for this.
const BETWEEN_LOOKS: Duration = Duration::from_millis(100);

/// Plans and carries out, at each change of what the plan depends on and when a time that it waits for has come.
pub(super) async fn run(node: Arc<Node>, shutdown: CancellationToken) -> anyhow::Result<()> {
    let (mut judged, mut discoveries) = (node.judged.subscribe(), node.discoveries.subscribe());
    let (mut instances, mut configurations) = (node.store.instances(), node.store.configurations());
    let mut uses = node.uses.subscribe();
    let mut keeper = Keeper::new(node.clone());
    let mut backoff = Backoff::new(FIRST_RETRY, LAST_RETRY);
    loop {
        let look_again = Instant::now() + BETWEEN_LOOKS;
        let known = instances.borrow_and_update().clone();
        let planned = plan(&World {
            node: &node.name,
            merges: node.store.merges(),
            max_instances: node.max_instances,
            now: Now {
                uptime: node.uptime(),
                text: &node.clock(),
            },
            configurations: &configurations.borrow_and_update().clone(),
            judged: &judged.borrow_and_update().clone(),
            discoveries: &discoveries.borrow_and_update().clone(),
            instances: &known,
            uses: uses.borrow_and_update().clone().as_deref(),
            absences: &keeper.absences,
            arrivals: &keeper.arrivals,
            failing: &keeper.writes.failing(),
        });
        (keeper.absences, keeper.arrivals) = (planned.absences, planned.arrivals);
        let due = (keeper.writes).due(planned.changes, &known, Instant::now());
        let again = keeper.carry_out(due.changes).await;
        // A controller takes a device that is left out of a report to be gone.
        let is_reported = planned.is_whole || !node.store.merges();
        let report = match is_reported {
            true => report(&node, planned.reports, &mut backoff).await,
            false => None,
        };
        metrics().set_instances(&tally::instances(
            &node.store.instances().borrow(),
            &node.name,
        ));
        let waits = [planned.wake_in, due.wake_in, again, report];
        let wait = waits.into_iter().flatten().min();
        tokio::select! {
            () = shutdown.cancelled() => return Ok(()),
            changed = judged.changed() => changed?,
            changed = discoveries.changed() => changed?,
            changed = async { sleep_until(look_again).await; instances.changed().await } => changed?,
            changed = configurations.changed() => changed?,
            changed = uses.changed() => changed?,
            () = sleep(wait.unwrap_or(Duration::MAX)) => continue,
        }
        shutdown.run_until_cancelled(sleep(SETTLE)).await;
    }
}

/// Reports to the store. Returns when to do it again, where it failed.
async fn report(
    node: &Node,
    reports: BTreeMap<ObjectKey, Report>,
    backoff: &mut Backoff,
) -> Option<Duration> {
    match node.store.report(reports).await {
        Ok(()) => {
            backoff.reset();
            None
        }
        Err(e) => {
            warn!("the status of Configurations cannot be written: {e}");
            Some(backoff.next_wait())
        }
    }
}

/// What is remembered from one plan to the next.
struct Keeper {
    node: Arc<Node>,
    absences: Absences,
    arrivals: Arrivals,
    writes: Writes,
}

impl Keeper {
    fn new(node: Arc<Node>) -> Self {
        Self {
            writes: Writes::new(&node.name, Instant::now()),
            absences: Absences::new(),
            arrivals: Arrivals::default(),
            node,
        }
    }

    /// Writes, and says what has become of it. When to plan again, if something has failed.
    async fn carry_out(&mut self, changes: Vec<InstanceChange>) -> Option<Duration> {
        if changes.is_empty() {
            return None;
        }
        let outcomes = self.node.store.apply(changes.clone()).await;
        let (now, uptime) = (Instant::now(), self.node.uptime());
        let (mut failures, mut again) = (vec![], None);
        for (change, outcome) in changes.iter().zip(outcomes) {
            if let (InstanceChange::Create(instance), Ok(())) = (change, &outcome) {
                self.arrivals.created(&configuration_of(instance), uptime);
            }
            match self.writes.done(change, outcome, now) {
                Outcome::Done => log(change),
                Outcome::Overtaken => {}
                Outcome::FailsStill => {
                    debug!(instance = %change.key(), "the Instance cannot be written yet");
                    again = Some(Duration::ZERO); // the next plan knows how long it waits
                }
                Outcome::Fails(error) => {
                    failures.push((change.key(), error));
                    again = Some(Duration::ZERO);
                }
            }
        }
        tell(&failures);
        again
    }
}

fn configuration_of(instance: &Instance) -> ObjectKey {
    let namespace = key_of(&instance.metadata).namespace;
    ObjectKey::new(namespace, &instance.spec.configuration_name)
}

/// What fails together has one cause as a rule: one line.
fn tell(failures: &[(ObjectKey, StoreError)]) {
    if let [(instance, error), others @ ..] = failures {
        let others = match others.len() {
            0 => String::new(),
            n => format!(" (and {n} more with it)"),
        };
        warn!(%instance, "the Instance cannot be written, and is tried again: {error}{others}");
    }
}

fn log(change: &InstanceChange) {
    let instance = change.key();
    match change {
        InstanceChange::Create(_) => info!(%instance, "device found: Instance created"),
        InstanceChange::Delete { reason, .. } => info!(%instance, %reason, "Instance deleted"),
        InstanceChange::Health { view, .. } => {
            let health = if view.is_healthy { "seen" } else { "gone" };
            let trouble = view.trouble.as_ref().map(|trouble| trouble.reason);
            info!(%instance, %health, trouble, "device");
        }
        InstanceChange::Join(_) | InstanceChange::Leave(_) | InstanceChange::Describe { .. } => {
            info!(%instance, "Instance updated");
        }
    }
}
