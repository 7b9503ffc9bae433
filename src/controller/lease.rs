//! Takes, renews and gives back the Lease of the replica that acts. It is watched, and believed as `plan.rs` says: a replica that
//! cannot renew it stops acting before another begins.
mod plan;

pub(super) use plan::held;

use super::shared::{NAME, Shared};
use crate::{
    backoff::Attempts,
    cluster::{
        code, created_by, patched_by,
        watch::{Selection, Set},
    },
    model::names::ObjectKey,
};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::{Api, api::Patch, runtime::watcher};
use plan::{Held, SeenLease};
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
/// The most writes that try to give the Lease back. All of them fit into the time that a controller has for its end.
const GIVEN_BACK_TRIES: usize = 3;

pub(super) fn selection() -> Selection {
    let config = watcher::Config::default().fields(&format!("metadata.name={NAME}"));
    Selection::new("lease", config)
}

/// Says whether this replica leads, and knows whether it can.
pub(super) struct Replica {
    pub(super) is_leader: watch::Sender<bool>,
    /// True once all objects are listed.
    pub(super) is_listed: watch::Receiver<bool>,
}

/// Takes the Lease when it is free and this replica can act, which it can once all objects are listed, and keeps it; gives it back
/// at `shutdown`, so that another replica need not wait for its end. An API server that is away is waited for.
pub(super) async fn run(
    shared: Arc<Shared>,
    api: Api<Lease>,
    lease: watch::Receiver<Set<Held>>,
    Replica {
        is_leader,
        mut is_listed,
    }: Replica,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let keeping = async {
        let can_act = async { is_listed.wait_for(|is_listed| *is_listed).await.is_ok() };
        match shutdown.run_until_cancelled(can_act).await {
            None | Some(false) => Ok(()),
            Some(true) => keep(&shared, api, lease.clone(), shutdown.clone()).await,
        }
    };
    let (published, kept) = tokio::join!(
        publish(&shared, lease.clone(), is_leader, shutdown.clone()),
        keeping
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
    let mut seen = SeenLease::default();
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
            biased; // the simulation gives the same history for the same seed
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
    let (mut seen, mut written) = (SeenLease::default(), None);
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
            // A write that is on its way is waited for, also at shutdown: what it leaves is given back.
            let outcome = write(&api, &seen.held, spec).await;
            let outcome = outcome.map(|held| written = held);
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
    give_back(shared, &api, lease, written).await;
    Ok(())
}

/// Ends the Lease, so that nobody has to wait for its end. The watch may not show yet what was `written` last.
async fn give_back(
    shared: &Shared,
    api: &Api<Lease>,
    mut lease: watch::Receiver<Set<Held>>,
    mut written: Option<Held>,
) {
    for _ in 0..GIVEN_BACK_TRIES {
        let shown = current(shared, &lease.borrow_and_update());
        let held = written.take().or(shown);
        let Some(held) = held.filter(|held| held.is_of(&shared.settings.identity)) else {
            return;
        };
        match write(api, &held, held.given_back()).await {
            Ok(Some(_)) => return info!("the Lease is given back"),
            // Another version: the watch will show it.
            Ok(None) => drop(timeout(SHOWN_WITHIN, lease.changed()).await),
            Err(why) => warn!("the Lease cannot be given back: {why}"),
        }
    }
    warn!("the Lease is not given back: another replica waits for its end");
}

/// Writes the Lease if it still is `held`, and returns it as it is then. It is no failure that another version was there: `None`.
async fn write(api: &Api<Lease>, held: &Held, spec: LeaseSpec) -> Result<Option<Held>, String> {
    let lease = held.replaced_by(NAME, spec);
    let written = async {
        if held.exists() {
            api.patch(NAME, &patched_by(NAME), &Patch::Merge(&lease))
                .await
        } else {
            api.create(&created_by(NAME), &lease).await
        }
    };
    match timeout(WRITTEN_WITHIN, written).await {
        Ok(Ok(lease)) => Ok(Some(plan::held(lease))),
        Ok(Err(e)) if code(&e) == Some(409) => Ok(None),
        Ok(Err(e)) => Err(e.to_string()),
        Err(_) => Err(format!("no answer within {WRITTEN_WITHIN:?}")),
    }
}
