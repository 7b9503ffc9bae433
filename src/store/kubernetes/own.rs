//! Writes this node's NodeDevices: one object with the agent's reports. It is written at each change of the reports,
//! and again if it was deleted or changed by another writer. The first changes are written at once; a network that changes all
//! the time causes a bounded load on the API server.
//!
//! A controller that considers this node lost deletes the object. When the object appears again, the controller knows
//! that the agent runs.
use super::{Inner, own_plan};
use crate::{
    api::{configuration::Problem, names, node_devices::NodeDevices},
    backoff::Backoff,
    cluster::{is_conflict, is_not_found, watch as objects},
    model::token_bucket::TokenBucket,
};
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
    runtime::watcher,
};
use own_plan::{Step, Urgency, Written};
use std::time::Duration;
use tokio::{
    sync::watch,
    time::{Instant, sleep, sleep_until},
};
use tokio_util::sync::CancellationToken;
use tracing::warn;

/// The shortest time between two writes. Changes within it are written together.
const BETWEEN_WRITES: Duration = Duration::from_millis(100);
/// The number of writes that may follow each other so closely.
const BURST: usize = 30;
/// The rate of the writes after that, per second.
const A_SECOND: u32 = 2;
/// The time within which the object says that a node looks for devices: what is found meanwhile is written with it.
const LOOK_DELAY: Duration = Duration::from_secs(2);
const FIRST_RETRY: Duration = Duration::from_millis(100);
const LAST_RETRY: Duration = Duration::from_secs(30);

/// Watches the object.
pub(super) async fn follow(
    inner: &Inner,
    own: watch::Sender<objects::Set<NodeDevices>>,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let name = &inner.settings.node_name;
    let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let selection = objects::Selection::new("this node's NodeDevices", config);
    let slim = |mut object: NodeDevices| {
        object.metadata.managed_fields = None;
        object
    };
    let apis = vec![Api::all(inner.client.clone())];
    objects::run(apis, selection, slim, own, shutdown).await
}

/// Updates the object to the last report, at each change of the reports or of the object.
pub(super) async fn run(
    inner: &Inner,
    mut own: watch::Receiver<objects::Set<NodeDevices>>,
    shutdown: &CancellationToken,
) -> anyhow::Result<()> {
    let mut reports = inner.reports.subscribe();
    let mut configurations = inner.configurations.subscribe();
    let mut written = Written::default();
    let mut backoff = Backoff::new(FIRST_RETRY, LAST_RETRY);
    let (started, mut bucket) = (
        Instant::now(),
        TokenBucket::new(BURST, A_SECOND, Duration::ZERO),
    );
    let mut due: Option<Instant> = None;
    let write = async {
        // No report exists yet, and the content of the object is not known.
        reports.wait_for(Option::is_some).await?;
        own.wait_for(Option::is_some).await?;
        loop {
            let left_out = configurations.borrow_and_update().clone();
            let wanted = (reports.borrow_and_update().as_ref())
                .map(|reports| own_plan::wanted(reports, &left_out.left_out));
            let wanted = wanted.unwrap_or_default();
            let is_news = own.has_changed()?;
            let seen = objects::named(&own.borrow_and_update(), &inner.settings.node_name);
            if is_news && seen.is_none() {
                written.note_deletion();
            }
            let began = Instant::now();
            let urgency = match due {
                Some(due) if due <= began => Urgency::Due,
                _ => Urgency::Fresh,
            };
            let step = own_plan::step(&wanted, seen.as_deref(), &written, urgency);
            if step == Step::Wait {
                let until = *due.get_or_insert(began + LOOK_DELAY);
                tokio::select! {
                    changed = reports.changed() => { changed?; reports.mark_changed(); }
                    () = sleep_until(until) => {}
                }
                continue;
            }
            due = None;
            match carry_out(inner, step, &mut written, seen.as_deref()).await {
                None => {}
                Some(true) => {
                    backoff.reset();
                    sleep_until(began + next_write(&mut bucket, began - started)).await;
                    continue;
                }
                Some(false) => {
                    sleep(backoff.next_wait()).await;
                    continue;
                }
            }
            tokio::select! {
                changed = reports.changed() => changed?,
                changed = configurations.changed() => changed?,
                changed = own.changed() => { changed?; own.mark_changed(); }
            }
        }
    };
    shutdown.run_until_cancelled(write).await.unwrap_or(Ok(()))
}

/// Records a write, and returns the time until the next one.
fn next_write(bucket: &mut TokenBucket, now: Duration) -> Duration {
    bucket.take(1, now);
    match bucket.available(now) {
        0 => bucket.next_in(now).max(BETWEEN_WRITES),
        _ => BETWEEN_WRITES,
    }
}

/// Executes a step. Returns whether the object was written; `None` if there was nothing to write.
async fn carry_out(
    inner: &Inner,
    step: Step<'_>,
    written: &mut Written,
    seen: Option<&NodeDevices>,
) -> Option<bool> {
    let api: Api<NodeDevices> = Api::all(inner.client.clone());
    let name = &inner.settings.node_name;
    let manager = Some(names::AGENT_MANAGER.to_owned());
    let before = written.reported(seen);
    let outcome = match step {
        Step::Nothing | Step::Wait => return None,
        Step::Create(spec) => {
            let params = PostParams {
                field_manager: manager,
                ..PostParams::default()
            };
            api.create(&params, &NodeDevices::new(name, spec.clone()))
                .await
        }
        Step::Patch(spec) => {
            let params = PatchParams {
                field_manager: manager,
                ..PatchParams::default()
            };
            api.patch(name, &params, &Patch::Merge(own_plan::patch(spec)))
                .await
        }
    };
    match outcome {
        Ok(object) => {
            written.set_written(object);
            tell(&own_plan::new_problems(&before, &written.reported(None)));
            Some(true)
        }
        Err(e) if is_not_found(&e) => {
            written.note_missing();
            Some(true)
        }
        Err(e) if is_conflict(&e) => {
            written.note_other();
            Some(true)
        }
        Err(e) => {
            warn!("cannot write this node's report, and tries again: {e}");
            Some(false)
        }
    }
}

/// The controller writes the Event: one for all nodes.
fn tell(problems: &own_plan::Problems) {
    for (configuration, problem) in problems {
        let Problem { reason, message } = problem;
        warn!(%configuration, reason, "{message}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changes_all_the_time_is_written_at_once_at_first_and_then_twice_a_second() {
        let mut bucket = TokenBucket::new(BURST, A_SECOND, Duration::ZERO);
        let (mut now, mut writes) = (Duration::ZERO, vec![]);
        while now < Duration::from_secs(60) {
            writes.push(now);
            now += next_write(&mut bucket, now);
        }
        assert_eq!(writes[20], 20 * BETWEEN_WRITES);
        let later = writes.iter().filter(|at| **at >= Duration::from_secs(30));
        assert_eq!(later.count(), 60);
        // After a minute of rest all is as at first.
        now += Duration::from_secs(60);
        assert_eq!(next_write(&mut bucket, now), BETWEEN_WRITES);
    }
}
