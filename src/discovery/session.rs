//! The running discoveries: one task for each Configuration, whole device sets out.
pub use super::registry::Handlers;
use super::{
    damping::{Belief, Damper, Flapping},
    interface::{Discovery, SessionSpec, Task},
    part::{self, Bytes, DISCOVERED_BYTES_MAX, Part},
    progress::Progress,
    turns::Turns,
};
use crate::{
    backoff::Backoff,
    model::{
        device::{DeviceId, DeviceSet},
        start_stop::StartStop,
        typed_names::ConfigurationKey,
        variables::Variables,
    },
    telemetry::metrics,
};
use petiole_base::{collect::CollectMap as _, waits::sleep_until_or_never};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};
use tokio::{
    sync::{OwnedSemaphorePermit, watch},
    task::JoinSet,
    time::{Instant, sleep},
};
use tokio_util::{sync::CancellationToken, task::JoinMap};
use tracing::{Instrument as _, info_span, warn};

const FIRST_RETRY: Duration = Duration::from_millis(500);
const LAST_RETRY: Duration = Duration::from_secs(30);
/// The discoveries that begin at the same time. What they see first is cut to their parts before others see something.
const BEGIN_AT_ONCE: usize = 16;
/// The longest time for which a discovery that sees nothing keeps others from beginning.
const BEGIN_TIMEOUT: Duration = Duration::from_millis(500);

/// The most flapping devices that one log line names.
const FLAPPING_NAMED: usize = 5;

/// The devices that the discovery of each Configuration sees.
pub type Discoveries = BTreeMap<ConfigurationKey, DiscoveryState>;

/// The devices that the discovery of one Configuration sees now, and its error.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DiscoveryState {
    pub set: Arc<DeviceSet>,
    /// Devices that this run of the discovery saw while a look was not whole, whether or not they are there now. One of
    /// them that is missing has gone; any other may only be late, or left out.
    pub seen: Arc<BTreeSet<DeviceId>>,
    /// The devices that flap. Those that are held back are not in the set, though they are there.
    pub flapping: Arc<BTreeMap<DeviceId, Flapping>>,
    /// The reason why the discovery does not run now.
    pub error: Option<String>,
}

impl DiscoveryState {
    /// Returns whether the device is there, and counts as gone because it flaps.
    pub fn is_held_back(&self, id: &DeviceId) -> bool {
        (self.flapping.get(id)).is_some_and(|flapping| flapping.is_held_back)
    }

    /// Returns whether the device is known not to be there, or counts as gone.
    pub fn is_missing(&self, id: &DeviceId) -> bool {
        !self.set.devices.contains_key(id) && (self.set.is_whole() || self.seen.contains(id))
    }
}

/// The discoveries that run, each with what ends it.
type Running = BTreeMap<ConfigurationKey, (SessionSpec, CancellationToken)>;

/// Keeps one discovery running for each of `desired`, and publishes what they see to `seen`.
pub async fn run(
    handlers: Arc<Handlers>,
    mut desired: watch::Receiver<BTreeMap<ConfigurationKey, SessionSpec>>,
    seen: watch::Sender<Arc<Discoveries>>,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let mut tasks = JoinMap::new();
    let all = All::new(&seen);
    let mut running = Running::new();
    loop {
        let specs = (running.iter())
            .map(|(key, (spec, _))| (key.clone(), spec.clone()))
            .collect_map();
        let wanted = desired.borrow_and_update().clone();
        let StartStop { stop, start } = StartStop::new(&wanted, &specs);
        for key in stop {
            end(key, &mut running, &mut tasks).await;
            let mut last = None;
            seen.send_modify(|seen| last = Arc::make_mut(seen).remove(key));
            if !desired.borrow().contains_key(key) {
                metrics().forget_discovery(&key.name);
            }
        }
        for (key, spec) in start {
            let stop = shutdown.child_token();
            let span = info_span!("discovery", configuration = %key);
            let session = Session::new(&handlers, key, spec, &all);
            let task = session.run(handlers.clone(), stop.clone()).instrument(span);
            tasks.spawn(key.clone(), task);
            running.insert(key.clone(), (spec.clone(), stop));
        }
        if running.len() != desired.borrow().len() {
            continue; // one ended while another was waited for
        }
        tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            changed = desired.changed() => if changed.is_err() { break },
            Some((key, ended)) = tasks.join_next() => {
                // Only a panic ends a discovery unasked. It starts anew; the others are not disturbed.
                if let Err(e) = ended {
                    warn!(configuration = %key, "the discovery ended: {e}");
                }
                running.remove(&key);
            }
        }
    }
    for (_, stop) in running.into_values() {
        stop.cancel();
    }
    while tasks.join_next().await.is_some() {}
    Ok(())
}

/// Ends a discovery and waits for that. Others that end meanwhile do not run any more.
async fn end(
    key: &ConfigurationKey,
    running: &mut Running,
    tasks: &mut JoinMap<ConfigurationKey, ()>,
) {
    if let Some((_, stop)) = running.remove(key) {
        stop.cancel();
    }
    while tasks.contains_key(key) {
        let ended = tasks.join_next().await;
        running.retain(|key, _| ended.as_ref().is_none_or(|(ended, _)| ended != key));
    }
}

/// The values that a discovery keeps from one of its runs to the next.
struct Past {
    part: Part,
    damper: Damper,
    began: Instant,
}

/// What all sessions share.
#[derive(Clone)]
struct All {
    seen: watch::Sender<Arc<Discoveries>>,
    begin: Turns,
    /// The sessions take over what their discoveries see one after another.
    turns: Turns,
    bytes: Bytes,
}

impl All {
    fn new(seen: &watch::Sender<Arc<Discoveries>>) -> Self {
        Self {
            seen: seen.clone(),
            begin: Turns::new(BEGIN_AT_ONCE),
            turns: Turns::new(1),
            bytes: Bytes::new(DISCOVERED_BYTES_MAX),
        }
    }
}

struct Session {
    key: ConfigurationKey,
    spec: SessionSpec,
    /// The variables that its devices may set although they are refused by default.
    variables: Variables,
    all: All,
}

impl Session {
    fn new(handlers: &Handlers, key: &ConfigurationKey, spec: &SessionSpec, all: &All) -> Self {
        Self {
            key: key.clone(),
            spec: spec.clone(),
            variables: handlers.variables().clone(),
            all: all.clone(),
        }
    }

    async fn run(self, handlers: Arc<Handlers>, stop: CancellationToken) {
        let mut backoff = Backoff::new(FIRST_RETRY, LAST_RETRY);
        let mut past = Past {
            part: Part::new(&self.all.bytes, &self.key),
            damper: Damper::default(),
            began: Instant::now(),
        };
        while !stop.is_cancelled() {
            let Some(Ok(discovery)) = handlers.prepare(&self.spec) else {
                self.publish(|state| state.error = Some("its details are not accepted".to_owned()));
                return stop.cancelled().await;
            };
            let begun = Instant::now();
            let error = self.run_once(discovery, &mut past, &stop).await;
            if begun.elapsed() > LAST_RETRY {
                backoff.reset(); // it went well for a while: this is another failure, not the next of a row
            }
            if stop.is_cancelled() {
                return;
            }
            let error = error.unwrap_or_else(|| "it ended by itself".to_owned());
            metrics().count_failed_discovery(&self.spec.handler);
            let wait = backoff.next_wait();
            warn!(retry_in = ?wait, "discovery failed: {error}");
            self.publish(|state| state.error = Some(error));
            stop.run_until_cancelled(sleep(wait)).await;
        }
    }

    /// Runs the discovery and forwards its sets, as far as they are believed; returns why it ended.
    async fn run_once(
        &self,
        discovery: Discovery,
        past: &mut Past,
        stop: &CancellationToken,
    ) -> Option<String> {
        let begin = stop.run_until_cancelled(self.all.begin.begin()).await?;
        let found = watch::Sender::new(DeviceSet::default());
        let forward = self.forward(found.clone(), found.subscribe(), begin, past);
        // A task of its own: its panic is an error like another, and is tried again after a wait like another.
        let mut run = JoinSet::new();
        let task = Task {
            configuration: self.key.clone(),
            found,
        };
        run.spawn(discovery.run(task).in_current_span());
        tokio::select! {
            biased;
            () = stop.cancelled() => {
                // The next discovery of the Configuration does not run beside it.
                run.shutdown().await;
                None
            }
            Some(ended) = run.join_next() => match ended {
                Ok(ended) => ended.err().map(|e| e.to_string()),
                Err(panicked) => Some(panicked.to_string()),
            },
            () = forward => None,
        }
    }

    async fn forward(
        &self,
        found: watch::Sender<DeviceSet>,
        mut sets: watch::Receiver<DeviceSet>,
        begin: OwnedSemaphorePermit,
        past: &mut Past,
    ) {
        let mut begin = Some(begin);
        let mut progress = Progress::default();
        let begun = Instant::now();
        let mut wake = None;
        let mut said = Arc::new(DeviceSet::default());
        loop {
            let is_news = tokio::select! {
                biased;
                changed = sets.changed() => changed.is_ok(),
                () = sleep_until_or_never(wake) => false,
                () = sleep_until_or_never(begin.as_ref().map(|_| begun + BEGIN_TIMEOUT)) => {
                    begin = None;
                    continue;
                }
            };
            let turn = self.all.turns.take(|| {
                if is_news {
                    let now = self.admitted(&found, &mut past.part, &said);
                    let before = std::mem::replace(&mut said, Arc::new(now));
                    self.measure(&mut progress, &said, begun);
                    progress.see(&before, &said, past.part.most());
                }
                let is_missing = |id: &DeviceId| said.is_whole() || progress.seen.contains(id);
                let belief = past.damper.turn(&said, is_missing, past.began.elapsed());
                let wake = belief.wake.map(|wake| past.began + wake);
                self.show(belief, &progress.seen);
                wake
            });
            wake = turn.await;
            begin = begin.filter(|_| !is_news);
        }
    }

    /// Returns what the discovery has published, without the devices beyond the Configuration's part. They are removed from
    /// `found`, too, so that nothing keeps them.
    fn admitted(
        &self,
        found: &watch::Sender<DeviceSet>,
        part: &mut Part,
        before: &DeviceSet,
    ) -> DeviceSet {
        let (mut now, mut removed) = (DeviceSet::default(), 0);
        found.send_if_modified(|set| {
            removed = part.admit(before, set);
            now = set.clone();
            false
        });
        if removed > 0 {
            now.left_out = true;
            now.problems.push(part::problem(removed));
        }
        self.variables.remove_refused(&mut now);
        now
    }

    /// Publishes what is believed, where it is something else than before.
    fn show(&self, belief: Belief, seen: &Arc<BTreeSet<DeviceId>>) {
        let now = DiscoveryState {
            set: belief.set,
            seen: seen.clone(),
            flapping: Arc::new(belief.flapping),
            error: None,
        };
        // Nobody else writes this entry. It is compared and dropped without the lock, for which other threads wait.
        let mut last = self.all.seen.borrow().get(&self.key).cloned();
        if last.as_ref() == Some(&now) {
            return;
        }
        tell_of_flapping(last.as_ref().map(|last| &*last.flapping), &now.flapping);
        self.all.seen.send_modify(|all| {
            last = Arc::make_mut(all).insert(self.key.clone(), now);
        });
    }

    /// The first answer of a run, and how long its first complete look took.
    fn measure(&self, progress: &mut Progress, said: &DeviceSet, begun: Instant) {
        // What cannot be reached counts itself.
        if !said.complete && !said.troubles.is_empty() {
            return;
        }
        if !std::mem::replace(&mut progress.has_answered, true) {
            metrics().count_first_answer(&self.spec.handler);
        }
        if said.complete && !std::mem::replace(&mut progress.has_completed, true) {
            metrics().observe_discovery(&self.key.name, begun.elapsed());
        }
    }

    fn publish(&self, change: impl FnOnce(&mut DiscoveryState)) {
        self.all
            .seen
            .send_modify(|seen| change(Arc::make_mut(seen).entry(self.key.clone()).or_default()));
    }
}

/// Says once of each device that it flaps.
fn tell_of_flapping(
    before: Option<&BTreeMap<DeviceId, Flapping>>,
    now: &BTreeMap<DeviceId, Flapping>,
) {
    let is_new = |(id, _): &(&DeviceId, &Flapping)| before.is_none_or(|b| !b.contains_key(*id));
    let new: Vec<_> = now.iter().filter(is_new).collect();
    for (id, flapping) in new.iter().take(FLAPPING_NAMED) {
        warn!(device = %id, "{flapping}");
    }
    if let Some(more @ 1..) = new.len().checked_sub(FLAPPING_NAMED) {
        warn!("and so it is with {more} more devices");
    }
}

#[cfg(test)]
mod tests;
