//! Keeps the registered plugins equal to the desired ones: it collects requests and sockets, and runs one operation per
//! registration at a time.
use super::{
    folder, operation,
    plan::{self, Desired, Hold, Key, Operation, Source, plan},
    plugin::{Handlers, Registered, Request},
    report::{Entry, Report},
};
use crate::metrics::Metrics;
use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    time::Duration,
};
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
    time::{Instant, MissedTickBehavior, interval},
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

/// The interval of complete reconciliations, as in the Go kubelet. A new request or socket is handled at once.
const RECONCILE_INTERVAL: Duration = Duration::from_secs(1);
const REQUEST_QUEUE: usize = 256;

/// The state of all registrations.
pub(crate) struct PluginManager {
    handlers: Handlers,
    requests: mpsc::Receiver<Request>,
    folder: folder::Folder,
    started: Instant,
    generation: u64,
    desired: BTreeMap<Key, Desired>,
    registered: BTreeMap<Key, Registered>,
    /// The newest call of the Registration service for each key, until its operation begins.
    waiting: BTreeMap<Key, Request>,
    failing: BTreeMap<Key, Failing>,
    busy: BTreeSet<Key>,
    operations: JoinSet<Outcome>,
    report: watch::Sender<Report>,
    metrics: Metrics,
}

/// The retry state of a socket whose registration failed.
struct Failing {
    wait: Duration,
    /// The uptime before which no new attempt starts.
    not_before: Duration,
}

/// The result of a Register operation.
struct Outcome {
    key: Key,
    generation: u64,
    result: Result<Registered, Entry>,
}

impl PluginManager {
    /// Returns the manager, and the sender for the Registration service.
    pub(crate) fn new(
        handlers: Handlers,
        registry: PathBuf,
        metrics: Metrics,
    ) -> (Self, mpsc::Sender<Request>) {
        let (sender, requests) = mpsc::channel(REQUEST_QUEUE);
        let manager = Self {
            handlers,
            requests,
            folder: folder::Folder::new(registry),
            started: Instant::now(),
            generation: 0,
            desired: BTreeMap::new(),
            registered: BTreeMap::new(),
            waiting: BTreeMap::new(),
            failing: BTreeMap::new(),
            busy: BTreeSet::new(),
            operations: JoinSet::new(),
            report: watch::Sender::default(),
            metrics,
        };
        (manager, sender)
    }

    /// Returns the report of all registrations, which `run` updates.
    pub(crate) fn report(&self) -> watch::Receiver<Report> {
        self.report.subscribe()
    }

    /// Runs until `shutdown`. It receives the requests of the Registration service and watches the folder; it is the only
    /// task that sends the report.
    pub(crate) async fn run(mut self, shutdown: CancellationToken) -> anyhow::Result<()> {
        let mut tick = interval(RECONCILE_INTERVAL);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return Ok(()),
                Some(request) = self.requests.recv() => self.receive(request),
                Some(outcome) = self.operations.join_next() => self.finish(outcome?),
                () = self.folder.changed() => self.rescan_folder(),
                _ = tick.tick() => {
                    // Sub-folders are not watched.
                    self.rescan_folder();
                    self.reconcile_all();
                }
            }
            self.measure();
        }
    }

    /// Updates the gauges of plugins. As in the Go kubelet, they count the sockets in the folder only.
    fn measure(&self) {
        let in_folder = |key: &&Key| key.resource.is_none();
        let desired = self.desired.keys().filter(in_folder);
        let actual = self.registered.keys().filter(in_folder);
        self.metrics.set_plugins(
            &desired.map(|key| key.socket.as_path()).collect(),
            &actual.map(|key| key.socket.as_path()).collect(),
        );
    }

    fn receive(&mut self, request: Request) {
        self.metrics.count_registration(&request.name);
        // The caller has gone, and this request must not displace one whose caller still waits.
        if request.reply.is_closed() {
            return;
        }
        let key = Key {
            socket: request.endpoint.clone(),
            resource: Some(request.name.clone()),
        };
        self.want(&key, Source::Service);
        if let Some(older) = self.waiting.insert(key.clone(), request) {
            older.replaced();
        }
        self.reconcile(&key);
    }

    fn rescan_folder(&mut self) {
        let changes = self.folder.rescan();
        for (path, error) in changes.unreadable {
            warn!(path = %path.display(), %error, "cannot search for plugins; those that were found before stay registered");
        }
        for key in changes.gone {
            self.desired.remove(&key);
            self.failing.remove(&key);
            self.report.send_modify(|report| report.forget(&key));
            self.reconcile(&key);
        }
        for key in changes.new {
            self.failing.remove(&key);
            self.want(&key, Source::Folder);
            self.reconcile(&key);
        }
    }

    fn want(&mut self, key: &Key, source: Source) {
        self.generation += 1;
        let generation = self.generation;
        self.desired
            .insert(key.clone(), Desired { generation, source });
    }

    fn reconcile_all(&mut self) {
        let died = self.registered.iter().filter(|(key, registered)| {
            let desired = self.desired.get(key);
            desired.is_some_and(|d| {
                d.source == Source::Service && d.generation == registered.info.generation
            }) && !registered.handler.is_registered(&registered.info)
        });
        let died: Vec<Key> = died.map(|(key, _)| key.clone()).collect();
        for key in died {
            // The plugin must call the Registration service again to come back.
            self.desired.remove(&key);
        }
        let keys = self.desired.keys().chain(self.registered.keys());
        let keys: BTreeSet<Key> = keys.cloned().collect();
        for key in keys {
            self.reconcile(&key);
        }
    }

    fn reconcile(&mut self, key: &Key) {
        let hold = Hold {
            is_busy: self.busy.contains(key),
            not_before: self.failing.get(key).map(|failing| failing.not_before),
        };
        let registered = self.registered.get(key).map(|r| r.info.generation);
        let desired = self.desired.get(key).copied();
        for operation in plan(desired, registered, hold, self.started.elapsed()) {
            match operation {
                Operation::Unregister => {
                    if let Some(Registered { handler, info, .. }) = self.registered.remove(key) {
                        debug!(socket = %key.socket.display(), "plugin unregistered");
                        handler.deregister(&info);
                        self.report.send_modify(|report| report.forget(key));
                    }
                }
                Operation::Register { generation } => self.register(key.clone(), generation),
            }
        }
    }

    fn register(&mut self, key: Key, generation: u64) {
        self.busy.insert(key.clone());
        let handlers = self.handlers.clone();
        let request = self.waiting.remove(&key);
        self.operations.spawn(async move {
            let result = match request {
                Some(request) => operation::answer(&handlers, request, generation).await,
                None => operation::introduce(&handlers, &key.socket, generation).await,
            };
            Outcome {
                key,
                generation,
                result,
            }
        });
    }

    fn finish(&mut self, outcome: Outcome) {
        let Outcome {
            key,
            generation,
            result,
        } = outcome;
        self.busy.remove(&key);
        match result {
            Ok(registered) => {
                self.failing.remove(&key);
                self.report.send_modify(|report| {
                    report.registered(&key, registered.kind, &registered.info);
                });
                self.registered.insert(key.clone(), registered);
            }
            Err(refusal) => {
                let error = refusal.refused.as_deref().unwrap_or_default();
                warn!(socket = %key.socket.display(), error, "plugin not registered");
                if self.is_wanted(&key) {
                    self.report.send_modify(|report| {
                        report.refused(&key, refusal);
                    });
                }
                self.fail(&key, generation);
            }
        }
        self.reconcile(&key);
    }

    fn is_wanted(&self, key: &Key) -> bool {
        self.desired.contains_key(key)
    }

    /// Handles a failed registration. A call of the Registration service ends with its answer; a socket in the folder
    /// is retried later.
    fn fail(&mut self, key: &Key, generation: u64) {
        if key.resource.is_some() {
            if self
                .desired
                .get(key)
                .is_some_and(|d| d.generation == generation)
            {
                self.desired.remove(key);
                // An older registration of the same socket stays if it is still valid.
                if let Some(older) = self.registered.get(key)
                    && older.handler.is_registered(&older.info)
                {
                    let (generation, source) = (older.info.generation, Source::Service);
                    self.desired
                        .insert(key.clone(), Desired { generation, source });
                }
            }
            return;
        }
        let wait = plan::next_wait(self.failing.get(key).map(|failing| failing.wait));
        let not_before = self.started.elapsed() + wait;
        self.failing
            .insert(key.clone(), Failing { wait, not_before });
    }
}
