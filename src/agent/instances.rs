//! Instances follow devices: what discovery sees is created, described, and deleted again.
pub(crate) mod plan;

use super::{Node, plan_inputs::Now, tally};
use crate::{
    backoff::Backoff,
    store::{InstanceChange, StoreError},
    telemetry::metrics,
};
use plan::{Absences, World, plan};
use std::{sync::Arc, time::Duration};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

const FIRST_RETRY: Duration = Duration::from_millis(200);
const LAST_RETRY: Duration = Duration::from_secs(10);
/// How long after a change all of it is looked at: what comes in one go makes one plan.
const SETTLE: Duration = Duration::from_millis(5);

/// Plans and carries out, at each change of what the plan depends on and when a grace period ends.
pub(super) async fn run(node: Arc<Node>, shutdown: CancellationToken) -> anyhow::Result<()> {
    let (mut judged, mut discoveries) = (node.judged.subscribe(), node.discoveries.subscribe());
    let (mut instances, mut configurations) = (node.store.instances(), node.store.configurations());
    let mut absences = Absences::new();
    let mut backoff = Backoff::new(FIRST_RETRY, LAST_RETRY);
    loop {
        let planned = plan(&World {
            node: &node.name,
            max_instances: node.max_instances,
            now: Now {
                uptime: node.uptime(),
                text: &node.clock(),
            },
            configurations: &configurations.borrow_and_update().clone(),
            judged: &judged.borrow_and_update().clone(),
            discoveries: &discoveries.borrow_and_update().clone(),
            instances: &instances.borrow_and_update().clone(),
            uses: node.uses.borrow().clone().as_deref(),
            absences: &absences,
        });
        absences = planned.absences;
        let mut is_done = true;
        if !planned.changes.is_empty() {
            let outcomes = node.store.apply(planned.changes.clone()).await;
            for (change, outcome) in planned.changes.iter().zip(outcomes) {
                is_done &= log(change, outcome);
            }
        }
        if let Err(e) = node.store.report(planned.reports).await {
            warn!("the status of Configurations cannot be written: {e}");
            is_done = false;
        }
        metrics().set_instances(&tally::instances(
            &node.store.instances().borrow(),
            &node.name,
        ));
        let wait = if is_done {
            backoff.reset();
            planned.wake_in.unwrap_or(Duration::MAX)
        } else {
            backoff.next_wait()
        };
        tokio::select! {
            () = shutdown.cancelled() => return Ok(()),
            changed = judged.changed() => changed?,
            changed = discoveries.changed() => changed?,
            changed = instances.changed() => changed?,
            changed = configurations.changed() => changed?,
            () = sleep(wait) => continue,
        }
        shutdown.run_until_cancelled(sleep(SETTLE)).await;
    }
}

/// Whether the change needs no other try.
fn log(change: &InstanceChange, outcome: Result<(), StoreError>) -> bool {
    let instance = change.key();
    match (change, outcome) {
        // It was there when it was to be created, and gone when it was to be joined: nothing will tell that it may be
        // created now.
        (InstanceChange::Create(_), Err(StoreError::Gone(_))) => false,
        // Somebody else was faster; the next plan sees what is there now.
        (_, Err(StoreError::Gone(_) | StoreError::Exists(_) | StoreError::InUse { .. })) => true,
        (_, Err(error)) => {
            warn!(%instance, "the Instance cannot be written: {error}");
            false
        }
        (InstanceChange::Create(_), Ok(())) => {
            info!(%instance, "device found: Instance created");
            true
        }
        (InstanceChange::Delete { reason, .. }, Ok(())) => {
            info!(%instance, %reason, "Instance deleted");
            true
        }
        (InstanceChange::Health { view, .. }, Ok(())) => {
            let health = if view.is_healthy { "seen" } else { "gone" };
            info!(%instance, %health, "device");
            true
        }
        (
            InstanceChange::Join(_) | InstanceChange::Leave(_) | InstanceChange::Describe { .. },
            Ok(()),
        ) => {
            info!(%instance, "Instance updated");
            true
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{api::instance::Instance, model::names::ObjectKey};

    #[test]
    fn what_was_gone_when_it_was_to_be_joined_is_created_at_the_next_try() {
        let key = ObjectKey::new("default", "cam-1");
        let gone = || Err(StoreError::Gone(key.clone()));
        let create = InstanceChange::Create(Box::new(Instance::new("cam-1", Default::default())));
        assert!(!log(&create, gone()));
        assert!(log(&InstanceChange::Join(key.clone()), gone()));
        assert!(log(&create, Err(StoreError::Exists(key.clone()))));
    }
}
