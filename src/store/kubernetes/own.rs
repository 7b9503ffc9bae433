//! Writes this node's NodeDevices: one object with the agent's reports. It is written at each change of the reports,
//! and again if it was deleted or changed by another writer. The first changes are written at once; a network that changes all
//! the time causes a bounded load on the API server.
//!
//! A controller that considers this node lost deletes the object. When the object appears again, the controller knows
//! that the agent runs.
use super::{inner::Inner, own_plan};
use crate::{
    api::{configuration::Problem, names, node_devices::NodeDevices},
    backoff::Backoff,
    cluster::{
        WrittenBytes, created_by, is_conflict, is_not_found, patched_by, watch as objects,
        without_fields,
    },
    model::{budget::json_bytes, typed_names::NodeName},
    token_bucket::TokenBucket,
};
use kube::{Api, Client, api::Patch, runtime::watcher};
use own_plan::{Step, Urgency, Written};
use std::{sync::Arc, time::Duration};
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
const LAST_RETRY: Duration = Duration::from_secs(10);

/// Watches the object.
pub(super) async fn follow(
    inner: &Inner,
    own: watch::Sender<objects::Set<NodeDevices>>,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let name = &inner.settings.node_name;
    let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let selection = objects::Selection::new("this node's NodeDevices", config);
    let apis = vec![Api::all(inner.client.clone())];
    objects::run(apis, selection, without_fields, own, shutdown).await
}

/// Updates the object to the last report, at each change of the reports or of the object.
pub(super) async fn run(
    inner: &Inner,
    mut own: watch::Receiver<objects::Set<NodeDevices>>,
    shutdown: &CancellationToken,
) -> anyhow::Result<()> {
    let mut reports = inner.reports.subscribe();
    let mut configurations = inner.configurations.subscribe();
    let client = inner.client.clone();
    let mut writer = Writer::new(client, &inner.settings.node_name);
    let mut backoff = Backoff::new(FIRST_RETRY, LAST_RETRY);
    let started = Instant::now();
    let mut pace = WritePace::new();
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
            let seen = writer.look(&own.borrow_and_update(), is_news);
            let began = Instant::now();
            let urgency = match due {
                Some(due) if due <= began => Urgency::Due,
                _ => Urgency::Fresh,
            };
            let step = own_plan::step(&wanted, seen.as_deref(), &writer.written, urgency);
            if step == Step::Wait {
                let until = *due.get_or_insert(began + LOOK_DELAY);
                tokio::select! {
                    biased;
                    changed = reports.changed() => { changed?; reports.mark_changed(); }
                    () = sleep_until(until) => {}
                }
                continue;
            }
            due = None;
            match writer.carry_out(step, seen.as_deref()).await {
                // What could not be written for a while need not be written any more: the next failure is the first of a row.
                None => backoff.reset(),
                Some(true) => {
                    backoff.reset();
                    sleep_until(began + pace.next(json_bytes(&wanted), began - started)).await;
                    continue;
                }
                Some(false) => {
                    sleep(backoff.next_wait()).await;
                    continue;
                }
            }
            tokio::select! {
                biased;
                changed = reports.changed() => changed?,
                changed = configurations.changed() => changed?,
                changed = own.changed() => { changed?; own.mark_changed(); }
            }
        }
    };
    shutdown.run_until_cancelled(write).await.unwrap_or(Ok(()))
}

/// Bounds the writes, and their bytes.
struct WritePace {
    writes: TokenBucket,
    bytes: WrittenBytes,
}

impl WritePace {
    fn new() -> Self {
        Self {
            writes: TokenBucket::new(BURST, A_SECOND, Duration::ZERO),
            bytes: WrittenBytes::default(),
        }
    }

    /// Records a write of so many bytes, and returns the time until the next one, which has as many.
    fn next(&mut self, bytes: usize, now: Duration) -> Duration {
        self.writes.take(1, now);
        let wait = self.bytes.written(bytes, now);
        wait.max(self.writes.wait_for(1, now)).max(BETWEEN_WRITES)
    }
}

struct Writer {
    api: Api<NodeDevices>,
    name: NodeName,
    written: Written,
    /// The number of lists of the watch, and that at the last write.
    lists: usize,
    written_at: usize,
    /// The API server has dropped a part of what was written last.
    is_cut: bool,
}

impl Writer {
    fn new(client: Client, name: &NodeName) -> Self {
        Self {
            api: Api::all(client),
            name: name.clone(),
            written: Written::default(),
            lists: 0,
            written_at: 0,
            is_cut: false,
        }
    }

    /// Returns the object as the watch has it. A list since a write is believed, whatever its version: the server may have been restored
    /// from a backup. If it is older than the write after all, the same is written once more.
    fn look(&mut self, own: &objects::Set<NodeDevices>, is_news: bool) -> Option<Arc<NodeDevices>> {
        let seen = objects::named(own, &self.name);
        self.lists = own.as_ref().map_or(0, |own| own.lists);
        if is_news && (seen.is_none() || self.lists > self.written_at) {
            self.written.forget();
        }
        seen
    }

    /// Executes a step. Returns whether the object was written, and no other attempt would do more; `None` if there was nothing
    /// to write.
    async fn carry_out(&mut self, step: Step<'_>, seen: Option<&NodeDevices>) -> Option<bool> {
        let before = self.written.reported(seen);
        let is_patch = matches!(step, Step::Patch(_));
        let (outcome, wanted) = match step {
            Step::Nothing | Step::Wait => return None,
            Step::Create(spec) => {
                let params = created_by(names::AGENT_MANAGER);
                let object = NodeDevices::new(&self.name, spec.clone());
                (self.api.create(&params, &object).await, spec)
            }
            Step::Patch(spec) => {
                let params = patched_by(names::AGENT_MANAGER);
                let patch = Patch::Merge(own_plan::patch(spec));
                (self.api.patch(&self.name, &params, &patch).await, spec)
            }
        };
        match outcome {
            Ok(object) => {
                let is_kept = own_plan::is_kept(&object.spec, wanted);
                self.note_cut(!is_kept);
                self.written.set_written(object);
                self.written_at = self.lists;
                tell(&own_plan::new_problems(
                    &before,
                    &self.written.reported(None),
                ));
                Some(is_kept)
            }
            // To a creation it says that there is no such definition.
            Err(e) if is_not_found(&e) && is_patch => {
                self.written.note_missing();
                Some(true)
            }
            Err(e) if is_conflict(&e) => {
                self.written.note_other();
                Some(true)
            }
            Err(e) => {
                warn!("cannot write this node's report, and tries again: {e}");
                Some(false)
            }
        }
    }

    fn note_cut(&mut self, is_cut: bool) {
        if is_cut && !self.is_cut {
            warn!(
                "the API server drops a part of this node's report: the definition of NodeDevices is older than this agent, and the devices that this node alone has are not seen; apply the definitions of this version, as docs/operations.md says"
            );
        }
        self.is_cut = is_cut;
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
    use crate::{
        api::node_devices::{ConfigurationView, NodeDevicesSpec},
        model::{names::ObjectKey, typed_names::ConfigurationKey},
        store::{
            interface::{Report, Reports, Store as _},
            kubernetes::{KubernetesStore, Settings},
        },
    };
    use axum::http::{Request, Response};
    use kube::client::Body;
    use std::{
        convert::Infallible,
        sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    };

    /// Returns the writer of a node, and an API server that answers with this object.
    fn writer(answer: &NodeDevices) -> Writer {
        let answer = serde_json::to_vec(answer).unwrap();
        let answer = move |_: Request<Body>| {
            let body = Body::from(answer.clone());
            async move { Ok::<_, Infallible>(Response::new(body)) }
        };
        let client = Client::new(tower::service_fn(answer), "default");
        Writer::new(client, &"a".into())
    }

    #[tokio::test]
    async fn a_report_of_which_an_older_definition_drops_a_part_is_not_written_again_at_once() {
        let spec = |own| {
            let view = ConfigurationView {
                own,
                ..ConfigurationView::default()
            };
            NodeDevicesSpec {
                configurations: vec![view],
                left_out: None,
            }
        };
        let wanted = spec(Some(vec![]));
        for (kept, is_kept) in [(None, false), (Some(vec![]), true)] {
            for step in [Step::Create(&wanted), Step::Patch(&wanted)] {
                let mut writer = writer(&NodeDevices::new("a", spec(kept.clone())));
                assert_eq!(writer.carry_out(step, None).await, Some(is_kept));
                assert_eq!(writer.is_cut, !is_kept);
            }
        }
    }

    /// Returns a store whose API server counts what it is asked for, and refuses it or answers with this object.
    fn counted(
        object: &NodeDevices,
        state: &std::path::Path,
    ) -> (KubernetesStore, Arc<AtomicUsize>, Arc<AtomicBool>) {
        let (asked, refuses) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
        let answer = serde_json::to_vec(object).unwrap();
        let (count, is_busy) = (asked.clone(), refuses.clone());
        let answer = move |_: Request<Body>| {
            count.fetch_add(1, Ordering::Relaxed);
            let status = if is_busy.load(Ordering::Relaxed) {
                503
            } else {
                200
            };
            let response = Response::builder().status(status);
            let response = response.body(Body::from(answer.clone())).unwrap();
            async move { Ok::<_, Infallible>(response) }
        };
        let settings = Settings {
            node_name: "a".into(),
            namespaces: vec![],
            state: state.to_owned(),
            max_configurations: 100,
        };
        let client = Client::new(tower::service_fn(answer), "default");
        let store = KubernetesStore::new(client, settings).unwrap();
        (store, asked, refuses)
    }

    #[tokio::test(start_paused = true)]
    async fn what_no_longer_had_to_be_written_makes_the_next_failure_the_first_of_a_row() {
        let reports = |generation| {
            let report = Report {
                complete: true,
                generation: Some(generation),
                ..Report::default()
            };
            let of = [(ConfigurationKey::new("default", "cam".to_owned()), report)].into();
            Reports { of, is_whole: true }
        };
        let stands = NodeDevices::new("a", own_plan::wanted(&reports(1).of, &[].into()));
        let state = tempfile::tempdir().unwrap();
        let (store, asked, refuses) = counted(&stands, state.path());
        let own = watch::Sender::new(objects::Set::default());
        own.send_replace(Some(Arc::new(objects::Objects {
            objects: [(ObjectKey::new("", "a"), Arc::new(stands))].into(),
            ..objects::Objects::default()
        })));
        refuses.store(true, Ordering::Relaxed);
        let test = async {
            for (generation, seconds) in [(2, 300), (1, 60)] {
                store.report(reports(generation)).await.unwrap();
                sleep(Duration::from_secs(seconds)).await;
            }
            let before = asked.load(Ordering::Relaxed);
            store.report(reports(2)).await.unwrap();
            sleep(2 * FIRST_RETRY).await;
            let again = asked.load(Ordering::Relaxed) - before;
            assert!((2..5).contains(&again), "{again} writes");
        };
        let shutdown = CancellationToken::new();
        tokio::select! {
            ended = run(&store.inner, own.subscribe(), &shutdown) => panic!("{ended:?}"),
            () = test => {}
        }
    }

    #[tokio::test]
    async fn a_list_since_a_write_is_believed_because_the_server_may_have_been_restored() {
        let object = |version: &str, complete| {
            let view = ConfigurationView {
                complete,
                ..ConfigurationView::default()
            };
            let spec = NodeDevicesSpec {
                configurations: vec![view],
                left_out: None,
            };
            let mut object = NodeDevices::new("a", spec);
            object.metadata.resource_version = Some(version.to_owned());
            object
        };
        let (written, older) = (object("95", true), object("40", false));
        let shown = |lists| {
            let objects = [(ObjectKey::new("", "a"), Arc::new(older.clone()))].into();
            let of = objects::Objects {
                objects,
                lists,
                ..objects::Objects::default()
            };
            Some(Arc::new(of))
        };
        let mut writer = writer(&written);
        writer.look(&shown(1), true);
        let step = Step::Patch(&written.spec);
        assert_eq!(writer.carry_out(step, None).await, Some(true));
        for (lists, is_written) in [(1, false), (2, true)] {
            let seen = writer.look(&shown(lists), true);
            let wanted = &written.spec;
            let step = own_plan::step(wanted, seen.as_deref(), &writer.written, Urgency::Due);
            assert_eq!(step == Step::Patch(wanted), is_written, "{lists} lists");
        }
    }

    #[test]
    fn what_changes_all_the_time_is_written_at_once_at_first_and_then_twice_a_second() {
        let mut pace = WritePace::new();
        let (mut now, mut writes) = (Duration::ZERO, vec![]);
        while now < Duration::from_secs(60) {
            writes.push(now);
            now += pace.next(1000, now);
        }
        assert_eq!(writes[20], 20 * BETWEEN_WRITES);
        let later = writes.iter().filter(|at| **at >= Duration::from_secs(30));
        assert_eq!(later.count(), 60);
        // After a minute of rest all is as at first.
        now += Duration::from_secs(60);
        assert_eq!(pace.next(1000, now), BETWEEN_WRITES);
    }

    #[test]
    fn a_large_object_waits_for_its_bytes() {
        let (mut pace, now) = (WritePace::new(), Duration::ZERO);
        let waits: Vec<Duration> = (0..5).map(|_| pace.next(1 << 20, now)).collect();
        assert_eq!(waits[..3], [BETWEEN_WRITES; 3]);
        assert!(
            waits[3..]
                .iter()
                .all(|wait| *wait > Duration::from_secs(10))
        );
    }
}
