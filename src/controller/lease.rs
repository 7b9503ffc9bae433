//! Takes, renews and gives back the Lease of the replica that acts. It is watched, and believed as `plan.rs` says: a replica that
//! cannot renew it stops acting before another begins.
mod plan;

pub(super) use plan::held;

use super::shared::{NAME, Shared};
use crate::{
    backoff::Attempts,
    cluster::{
        code,
        watch::{Selection, Set},
    },
    model::names::ObjectKey,
};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
    runtime::watcher,
};
use plan::{Held, Seen};
use std::{sync::Arc, time::Duration};
use tokio::{
    sync::watch,
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

/// A write that takes longer is tried again: two of them fit into the time before the end of the Lease.
const WRITTEN_WITHIN: Duration = Duration::from_secs(2);
/// The time in which the watch shows what was written.
const SHOWN_WITHIN: Duration = Duration::from_millis(500);
const LAST_RETRY: Duration = Duration::from_secs(2);

pub(super) fn selection() -> Selection {
    let config = watcher::Config::default().fields(&format!("metadata.name={NAME}"));
    Selection::new("lease", config)
}

/// Takes the Lease when it is free and keeps it; gives it back at `shutdown`, so that another replica need not wait
/// for its end. An API server that is away is waited for.
pub(super) async fn run(
    shared: Arc<Shared>,
    api: Api<Lease>,
    lease: watch::Receiver<Set<Held>>,
    is_leader: watch::Sender<bool>,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let (published, kept) = tokio::join!(
        publish(&shared, lease.clone(), is_leader, shutdown.clone()),
        keep(&shared, api, lease, shutdown)
    );
    published.and(kept)
}

/// Returns the Lease as the watch shows it, once it shows anything.
fn current(shared: &Shared, lease: &Set<Held>) -> Option<Held> {
    let key = ObjectKey::new(&shared.settings.namespace, NAME);
    let known = lease.as_ref()?.objects.get(&key);
    Some(known.map(|held| (**held).clone()).unwrap_or_default())
}

/// Says whether this replica leads, as the Lease has it.
async fn publish(
    shared: &Shared,
    mut lease: watch::Receiver<Set<Held>>,
    is_leader: watch::Sender<bool>,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let identity = &shared.settings.identity;
    let mut seen = Seen::default();
    loop {
        let current = current(shared, &lease.borrow_and_update());
        seen.notice(current.unwrap_or_default(), Instant::now());
        let left = seen.leads_for(identity, shared.clock.now(), Instant::now());
        let left = left.filter(|_| !shutdown.is_cancelled());
        is_leader.send_if_modified(|leads| {
            let is_changed = *leads != left.is_some();
            *leads = left.is_some();
            match (is_changed, *leads) {
                (false, _) => {}
                (true, true) => info!(%identity, "leads: holds the Lease"),
                (true, false) => info!(%identity, holder = seen.held.holder, "leads no more"),
            }
            is_changed
        });
        if shutdown.is_cancelled() {
            return Ok(());
        }
        tokio::select! {
            () = shutdown.cancelled() => {}
            changed = lease.changed() => changed?,
            () = sleep(left.unwrap_or(Duration::MAX)) => {}
        }
    }
}

/// Takes and renews the Lease.
async fn keep(
    shared: &Shared,
    api: Api<Lease>,
    mut lease: watch::Receiver<Set<Held>>,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let identity = &shared.settings.identity;
    let mut seen = Seen::default();
    let mut attempts = Attempts::new(SHOWN_WITHIN, LAST_RETRY);
    while !shutdown.is_cancelled() {
        let current = current(shared, &lease.borrow_and_update());
        let wait = match current {
            None => Duration::MAX,
            Some(held) => {
                seen.notice(held, Instant::now());
                seen.due_in(identity, shared.clock.now(), Instant::now())
            }
        };
        let wait = if wait.is_zero() {
            let spec = seen.held.taken(identity, shared.clock.now());
            let Some(outcome) = shutdown
                .run_until_cancelled(write(&api, &seen.held, spec))
                .await
            else {
                break;
            };
            let failed = attempts.ended(outcome, |why| {
                warn!("the Lease cannot be taken or renewed, tried again until it can: {why}");
            });
            failed.max(SHOWN_WITHIN)
        } else {
            wait
        };
        tokio::select! {
            biased;
            () = shutdown.cancelled() => {}
            changed = lease.changed() => changed?,
            () = sleep(wait) => {}
        }
    }
    let held = current(shared, &lease.borrow()).filter(|held| held.is_of(identity));
    if let Some(held) = held {
        match write(&api, &held, held.given_back()).await {
            Ok(()) => info!("the Lease is given back"),
            Err(e) => warn!("the Lease is not given back, it ends by itself: {e}"),
        }
    }
    Ok(())
}

/// Writes the Lease if it still is `held`. It is no failure that another replica was faster.
async fn write(api: &Api<Lease>, held: &Held, spec: LeaseSpec) -> Result<(), String> {
    let lease = held.replaced_by(NAME, spec);
    let written = async {
        if held.exists() {
            let params = PatchParams {
                field_manager: Some(NAME.to_owned()),
                ..PatchParams::default()
            };
            api.patch(NAME, &params, &Patch::Merge(&lease)).await
        } else {
            let params = PostParams {
                field_manager: Some(NAME.to_owned()),
                ..PostParams::default()
            };
            api.create(&params, &lease).await
        }
    };
    match timeout(WRITTEN_WITHIN, written).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(e)) if code(&e) == Some(409) => Ok(()),
        Ok(Err(e)) => Err(e.to_string()),
        Err(_) => Err(format!("no answer within {WRITTEN_WITHIN:?}")),
    }
}
