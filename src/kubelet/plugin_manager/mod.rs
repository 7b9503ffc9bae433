//! Which plugins want to be registered, which are, and what brings the second to the first.
//!
//! The Registration service (`device-plugins/kubelet.sock`) and the watch of `plugins_registry` both feed the
//! desired state; the reconciler runs one operation per registration at a time, through a [`PluginHandler`].
mod folder;
mod operation;
pub(crate) mod plan;
pub(crate) mod report;
pub(crate) mod service;

use super::metrics::Metrics;
use futures::future::BoxFuture;
use plan::{Desired, Hold, Key, Operation, Source, plan};
use report::{Refusal, Report};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};
use tokio::{
    sync::{mpsc, oneshot, watch},
    task::JoinSet,
    time::{Instant, MissedTickBehavior, interval},
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

/// How often everything is looked at, as the kubelet does. A registration is acted on at once.
const RECONCILE: Duration = Duration::from_secs(1);
const REQUEST_QUEUE: usize = 256;

/// What a plugin says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PluginInfo {
    /// The driver's name; a device plugin's resource.
    pub(crate) name: String,
    pub(crate) endpoint: PathBuf,
    pub(crate) versions: Vec<String>,
    /// Tells this registration from all others of this kubelet.
    pub(crate) generation: u64,
    pub(crate) source: Source,
}

/// What a type of plugin needs from the kubelet. Errors are told to the plugin.
pub(crate) trait PluginHandler: Send + Sync {
    fn validate(&self, plugin: &PluginInfo) -> Result<(), String>;
    fn register(&self, plugin: PluginInfo) -> BoxFuture<'static, Result<(), String>>;
    fn deregister(&self, plugin: &PluginInfo);
    /// Whether that registration still stands: a plugin that died, or was replaced, is no longer wanted.
    fn is_registered(&self, plugin: &PluginInfo) -> bool;
}

/// By the type that plugins say they are of.
pub(crate) type Handlers = BTreeMap<&'static str, Arc<dyn PluginHandler>>;
pub(crate) const DEVICE_PLUGIN: &str = "DevicePlugin";
pub(crate) const CSI_PLUGIN: &str = "CSIPlugin";
pub(crate) const DRA_PLUGIN: &str = "DRAPlugin";

/// A call of the Registration service, answered when the plugin is registered or refused.
#[derive(Debug)]
pub(crate) struct Request {
    name: String,
    endpoint: PathBuf,
    version: String,
    reply: oneshot::Sender<Result<(), String>>,
}

impl Request {
    /// Only the newest call for a key has its turn; a plugin that is not told so would wait for ever.
    fn replaced(self) {
        let (name, endpoint) = (&self.name, self.endpoint.display());
        let error = format!(
            "registration of {name:?} at {endpoint}: replaced by a newer registration of the same resource and socket"
        );
        debug!(%error, "plugin not registered");
        if self.reply.send(Err(error)).is_err() {
            debug!("a plugin went away before it was told");
        }
    }
}

pub(crate) struct PluginManager {
    handlers: Handlers,
    requests: mpsc::Receiver<Request>,
    folder: folder::Folder,
    started: Instant,
    generation: u64,
    desired: BTreeMap<Key, Desired>,
    registered: BTreeMap<Key, Registered>,
    /// The last call of the Registration service for each key, until its operation begins.
    waiting: BTreeMap<Key, Request>,
    failing: BTreeMap<Key, Failing>,
    busy: BTreeSet<Key>,
    operations: JoinSet<Outcome>,
    report: watch::Sender<Report>,
    metrics: Metrics,
}

/// A socket that was not registered.
struct Failing {
    wait: Duration,
    /// Uptime.
    not_before: Duration,
}

struct Registered {
    handler: Arc<dyn PluginHandler>,
    kind: &'static str,
    info: PluginInfo,
}

/// How a Register operation ended.
struct Outcome {
    key: Key,
    generation: u64,
    result: Result<Registered, Refusal>,
}

impl PluginManager {
    /// The sender is for the Registration service.
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

    /// How each registration went.
    pub(crate) fn report(&self) -> watch::Receiver<Report> {
        self.report.subscribe()
    }

    pub(crate) async fn run(mut self, shutdown: CancellationToken) -> anyhow::Result<()> {
        let mut tick = interval(RECONCILE);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return Ok(()),
                Some(request) = self.requests.recv() => self.receive(request),
                Some(outcome) = self.operations.join_next() => self.finish(outcome?),
                () = self.folder.changed() => self.look_at_folder(),
                _ = tick.tick() => {
                    // Sub-folders have no watch of their own.
                    self.look_at_folder();
                    self.reconcile_all();
                }
            }
            self.measure();
        }
    }

    /// As in the kubelet, sockets in the folder only.
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
        // Nobody waits for the answer, and it would take the place of a call that someone waits for.
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

    fn look_at_folder(&mut self) {
        let changes = self.folder.look();
        for (path, error) in changes.unreadable {
            warn!(path = %path.display(), %error, "cannot look for plugins there: those that were seen stay");
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
            // Only another call of the Registration service brings it back.
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
                warn!(socket = %key.socket.display(), error = %refusal.error, "plugin not registered");
                if self.is_wanted(&key) {
                    self.report.send_modify(|report| {
                        report.refused(&key, generation, refusal);
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

    /// A call of the Registration service is over with its answer; a socket in the folder is tried again.
    fn fail(&mut self, key: &Key, generation: u64) {
        if key.resource.is_some() {
            if self
                .desired
                .get(key)
                .is_some_and(|d| d.generation == generation)
            {
                self.desired.remove(key);
                // An older registration of the same socket stays, if it still stands.
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
