//! Reports the devices that discovery finds and loses. Instances are made of the reports: by the controller of a cluster, or by
//! the store without one.
mod bounds;
pub(crate) mod plan;

use super::{
    node_only::plan::NodeOnly,
    settings::{Clock, Settings},
    tally,
    values::ValidatedConfigurations,
};
use crate::{
    backoff::Backoff,
    discovery::session::Discoveries,
    model::slot_table::Use,
    own_thread::aside,
    store::{Reports, Store},
    telemetry::metrics,
};
use plan::{Absences, Arrivals, World, plan};
use std::{sync::Arc, time::Duration};
use tokio::{sync::watch, time::sleep};
use tokio_util::sync::CancellationToken;
use tracing::warn;

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
    /// The devices that are offered without Instances.
    pub(super) node_only: watch::Receiver<Arc<NodeOnly>>,
    /// The devices that containers use; `None` if that is not known.
    pub(super) uses: watch::Receiver<Option<Arc<[Use]>>>,
}

/// Plans at each change of the inputs, and at the times that the last plan names. Reports to the store.
pub(super) async fn run(inputs: Inputs, shutdown: CancellationToken) -> anyhow::Result<()> {
    let Inputs {
        settings,
        clock,
        store,
        mut validated,
        mut discoveries,
        mut node_only,
        mut uses,
    } = inputs;
    let (instances, mut news) = (store.instances(), store.news());
    let mut configurations = store.configurations();
    let (mut absences, mut arrivals) = (Absences::new(), Arrivals::default());
    let mut backoff = Backoff::new(FIRST_RETRY, LAST_RETRY);
    loop {
        news.mark_unchanged();
        let world = World {
            node: settings.node_name.clone(),
            max_instances: settings.max_instances,
            uptime: clock.uptime(),
            configurations: configurations.borrow_and_update().clone(),
            validated: validated.borrow_and_update().clone(),
            discoveries: discoveries.borrow_and_update().clone(),
            instances: instances.borrow().clone(),
            node_only: node_only.borrow_and_update().clone(),
            uses: uses.borrow_and_update().clone(),
            absences,
            arrivals,
        };
        // A plan looks at every device that a discovery sees, and containers wait for this thread.
        let planned = aside(move || plan(&world)).await?;
        (absences, arrivals) = (planned.absences, planned.arrivals);
        let report = report(&*store, planned.reports, &mut backoff).await;
        metrics().set_instances(&tally::instances(&instances.borrow(), &settings.node_name));
        let wait = planned.wake_in.into_iter().chain(report).min();
        tokio::select! {
            biased;
            () = shutdown.cancelled() => return Ok(()),
            changed = validated.changed() => changed?,
            changed = discoveries.changed() => changed?,
            changed = node_only.changed() => changed?,
            changed = async { sleep(BETWEEN_LOOKS).await; news.changed().await } => changed?,
            changed = configurations.changed() => changed?,
            changed = uses.changed() => changed?,
            () = sleep(wait.unwrap_or(Duration::MAX)) => continue,
        }
        shutdown.run_until_cancelled(sleep(SETTLE)).await;
    }
}

/// Reports to the store. Returns when to do it again, where it failed.
async fn report(store: &dyn Store, reports: Reports, backoff: &mut Backoff) -> Option<Duration> {
    match store.report(reports).await {
        Ok(()) => {
            backoff.reset();
            None
        }
        Err(e) => {
            warn!("what this node reports cannot be written: {e}");
            Some(backoff.next_wait())
        }
    }
}
