//! Creates, updates and deletes Instances as discovery finds and loses devices.
mod bounds;
pub(crate) mod plan;
mod writes;

use super::{
    settings::{Clock, Settings},
    tally,
    values::{Now, ValidatedConfigurations},
};
use crate::{
    api::instance::Instance,
    backoff::Backoff,
    discovery::session::Discoveries,
    model::{instance_name::InstanceKey, slot_table::Use, typed_names::ConfigurationKey},
    store::{Configurations, InstanceChange, Instances, Report, Store, StoreError, instance_key},
    telemetry::metrics,
};
use plan::{Absences, Arrivals, Plan, World, plan};
use std::{collections::BTreeMap, mem, sync::Arc, time::Duration};
use tokio::{
    sync::watch,
    task::spawn_blocking,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};
use writes::{Outcome, Writes};

const FIRST_RETRY: Duration = Duration::from_millis(200);
const LAST_RETRY: Duration = Duration::from_secs(10);
/// The wait between a change and the plan, so that changes of one moment make one plan.
const SETTLE: Duration = Duration::from_millis(5);
/// The least time between two looks at changed Instances. What is found or lost does not wait for this.
const BETWEEN_LOOKS: Duration = Duration::from_millis(100);

/// The inputs of the plan. Configurations and Instances come from the store.
pub(super) struct Inputs {
    pub(super) settings: Arc<Settings>,
    pub(super) clock: Clock,
    pub(super) store: Arc<dyn Store>,
    pub(super) validated: watch::Receiver<Arc<ValidatedConfigurations>>,
    pub(super) discoveries: watch::Receiver<Arc<Discoveries>>,
    /// The devices that containers use; `None` if that is not known.
    pub(super) uses: watch::Receiver<Option<Arc<[Use]>>>,
}

/// Plans at each change of the inputs, and at the times that the last plan names. Writes Instances and reports to the
/// store.
pub(super) async fn run(inputs: Inputs, shutdown: CancellationToken) -> anyhow::Result<()> {
    let Inputs {
        settings,
        clock,
        store,
        mut validated,
        mut discoveries,
        mut uses,
    } = inputs;
    let (instances, mut news) = (store.instances(), store.news());
    let mut configurations = store.configurations();
    let mut state = PlanState::new(settings, clock, store.clone());
    let node = state.settings.node_name.clone();
    let mut backoff = Backoff::new(FIRST_RETRY, LAST_RETRY);
    loop {
        news.mark_unchanged();
        let known = instances.borrow().clone();
        let planned = state.plan(Seen {
            configurations: configurations.borrow_and_update().clone(),
            validated: validated.borrow_and_update().clone(),
            discoveries: discoveries.borrow_and_update().clone(),
            instances: known.clone(),
            uses: uses.borrow_and_update().clone(),
        });
        let planned = planned.await?;
        (state.absences, state.arrivals) = (planned.absences, planned.arrivals);
        let due = (state.writes).due(planned.changes, &known, Instant::now());
        let again = state.carry_out(due.changes).await;
        // A controller takes a device that is left out of a report to be gone.
        let is_reported = planned.is_whole || !store.merges();
        let report = match is_reported {
            true => report(&*store, planned.reports, &mut backoff).await,
            false => None,
        };
        metrics().set_instances(&tally::instances(&store.instances().borrow(), &node));
        let waits = [planned.wake_in, due.wake_in, again, report];
        let wait = waits.into_iter().flatten().min();
        tokio::select! {
            () = shutdown.cancelled() => return Ok(()),
            changed = validated.changed() => changed?,
            changed = discoveries.changed() => changed?,
            changed = async { sleep(BETWEEN_LOOKS).await; news.changed().await } => changed?,
            changed = configurations.changed() => changed?,
            changed = uses.changed() => changed?,
            () = sleep(wait.unwrap_or(Duration::MAX)) => continue,
        }
        shutdown.run_until_cancelled(sleep(SETTLE)).await;
    }
}

/// Reports to the store. Returns when to do it again, where it failed.
async fn report(
    store: &dyn Store,
    reports: BTreeMap<ConfigurationKey, Report>,
    backoff: &mut Backoff,
) -> Option<Duration> {
    match store.report(reports).await {
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

/// The inputs as they are at one time.
struct Seen {
    configurations: Arc<Configurations>,
    validated: Arc<ValidatedConfigurations>,
    discoveries: Arc<Discoveries>,
    instances: Arc<Instances>,
    uses: Option<Arc<[Use]>>,
}

/// The state that one plan leaves for the next.
struct PlanState {
    settings: Arc<Settings>,
    clock: Clock,
    store: Arc<dyn Store>,
    absences: Absences,
    arrivals: Arrivals,
    writes: Writes,
}

impl PlanState {
    fn new(settings: Arc<Settings>, clock: Clock, store: Arc<dyn Store>) -> Self {
        Self {
            writes: Writes::new(&settings.node_name, Instant::now()),
            absences: Absences::new(),
            arrivals: Arrivals::default(),
            settings,
            clock,
            store,
        }
    }

    /// Plans on a thread of its own: a plan looks at every device that a discovery sees, and containers wait for this
    /// thread.
    async fn plan(&mut self, seen: Seen) -> anyhow::Result<Plan> {
        let (settings, merges) = (self.settings.clone(), self.store.merges());
        let (uptime, time_of_day) = (self.clock.uptime(), Clock::time_of_day());
        let (absences, arrivals) = (mem::take(&mut self.absences), mem::take(&mut self.arrivals));
        let failing = self.writes.failing();
        let planned = spawn_blocking(move || {
            plan(&World {
                node: &settings.node_name,
                merges,
                max_instances: settings.max_instances,
                now: Now {
                    uptime,
                    text: &time_of_day,
                },
                configurations: &seen.configurations,
                validated: &seen.validated,
                discoveries: &seen.discoveries,
                instances: &seen.instances,
                uses: seen.uses.as_deref(),
                absences: &absences,
                arrivals: &arrivals,
                failing: &failing,
            })
        });
        Ok(planned.await?)
    }

    /// Writes, and says what has become of it. When to plan again, if something has failed.
    async fn carry_out(&mut self, changes: Vec<InstanceChange>) -> Option<Duration> {
        if changes.is_empty() {
            return None;
        }
        let outcomes = self.store.apply(changes.clone()).await;
        let (now, uptime) = (Instant::now(), self.clock.uptime());
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

fn configuration_of(instance: &Instance) -> ConfigurationKey {
    let namespace = instance_key(&instance.metadata).namespace;
    instance.spec.configuration_key(&namespace)
}

/// Logs failures in one line, because failures at the same time usually have one cause.
fn tell(failures: &[(InstanceKey, StoreError)]) {
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
        InstanceChange::Health { health, .. } => {
            let state = if health.is_healthy { "seen" } else { "gone" };
            let trouble = health
                .trouble
                .as_ref()
                .map(|trouble| trouble.reason.as_str());
            info!(%instance, health = state, trouble, "device");
        }
        InstanceChange::Join(_) | InstanceChange::Leave(_) | InstanceChange::Describe { .. } => {
            info!(%instance, "Instance updated");
        }
    }
}
