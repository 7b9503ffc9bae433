//! The device manager: which plugins there are, what devices they list, and which container has which of them.
//!
//! ```text
//! plugin_manager ─ register ─▶ endpoint ─ ListAndWatch ─▶ inventory ─▶ node status, pod resources, Pods' statuses
//! pods ─ allocate ─▶ plan ─▶ inventory ─▶ endpoint (Allocate) ─▶ inventory ─▶ checkpoint ─▶ edits
//! ```
//! The inventory lives in one `watch`; every change is one call of one of its pure functions.
//!
//! Where it differs from the Go kubelet, on purpose: a registration that replaces another closes the old stream and
//! is not touched by its end; a registration that fails leaves an older one alone; calls to plugins have limits; of
//! devices that serve equally well the first by id is taken, not a random one; containers that the checkpoint lists
//! wait for their plugin after a restart; a resource whose grace is over leaves the node instead of staying as "0".
mod allocation;
pub(crate) mod checkpoint;
pub(crate) mod edits;
mod endpoint;
pub(crate) mod inventory;
mod keeper;
mod plan;
pub(crate) mod resource_name;
#[cfg(test)]
mod tests;

pub(crate) use allocation::StartError;
pub(crate) use endpoint::Plugin;
pub(crate) use plan::Reuse;

use super::{
    CallLimits, Settings,
    metrics::Metrics,
    plugin_manager::{PluginHandler, PluginInfo, plan::Source},
    texts,
};
use crate::proto::device_plugin::VERSION;
use crate::supervisor::Supervisor;
use futures::future::BoxFuture;
use inventory::{Endpoint, Holder, Inventory};
use keeper::{Keeper, SaveRequest};
use std::{collections::BTreeSet, path::Path, sync::Arc, time::Duration};
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

/// Registrations that wait for their stream to be opened.
const STREAM_QUEUE: usize = 64;
const SAVE_QUEUE: usize = 64;

/// The way to the device manager; all clones are one.
#[derive(Clone)]
pub(crate) struct DeviceManager {
    shared: Arc<Shared>,
}

struct Shared {
    inventory: watch::Sender<Inventory<Plugin>>,
    started: Instant,
    endpoint_grace: Duration,
    call_limits: CallLimits,
    metrics: Metrics,
    /// Containers that had their devices when the kubelet started.
    restored: BTreeSet<Holder>,
    streams: mpsc::Sender<Stream>,
    saves: mpsc::Sender<SaveRequest>,
}

struct Stream {
    resource: String,
    generation: u64,
    plugin: Plugin,
}

/// What [`DeviceManager::start`] leaves to be run.
pub(crate) struct Tasks {
    manager: DeviceManager,
    streams: mpsc::Receiver<Stream>,
    keeper: Keeper,
}

impl DeviceManager {
    /// Takes over what the checkpoint in `folder` says.
    pub(crate) fn start(folder: &Path, settings: &Settings, metrics: Metrics) -> (Self, Tasks) {
        let restored = keeper::read(folder);
        let holders = restored.claims.iter().map(|(_, holder, _)| holder.clone());
        let holders = holders.collect();
        let mut inventory = Inventory::default();
        restored.put_into(&mut inventory, Duration::ZERO);
        let (streams, streams_rx) = mpsc::channel(STREAM_QUEUE);
        let (saves, requests) = mpsc::channel(SAVE_QUEUE);
        let (inventory, inventory_rx) = watch::channel(inventory);
        let shared = Shared {
            inventory,
            started: Instant::now(),
            endpoint_grace: settings.endpoint_grace,
            call_limits: settings.call_limits,
            metrics,
            restored: holders,
            streams,
            saves,
        };
        let manager = Self {
            shared: Arc::new(shared),
        };
        let tasks = Tasks {
            manager: manager.clone(),
            streams: streams_rx,
            keeper: Keeper::new(folder, inventory_rx, requests),
        };
        (manager, tasks)
    }

    pub(crate) fn inventory(&self) -> watch::Ref<'_, Inventory<Plugin>> {
        self.shared.inventory.borrow()
    }

    /// Frees what Pods hold that are not active.
    pub(crate) fn retain_pods(&self, is_active: impl Fn(&str) -> bool) {
        self.shared
            .inventory
            .send_if_modified(|inventory| inventory.retain_pods(is_active));
    }

    fn uptime(&self) -> Duration {
        self.shared.started.elapsed()
    }

    async fn connect(&self, info: PluginInfo) -> Result<(), String> {
        let connected = Plugin::connect(&info.endpoint, self.shared.call_limits).await;
        let (plugin, options) = connected.map_err(|e| e.to_string())?;
        let endpoint = Endpoint {
            socket: info.endpoint,
            generation: info.generation,
            client: Some(plugin.clone()),
            options: Some(options),
            stopped: None,
        };
        let mut replaced = None;
        self.shared.inventory.send_modify(|inventory| {
            replaced = inventory.connect(&info.name, endpoint);
        });
        if let Some(replaced) = replaced {
            replaced.stop.cancel();
        }
        info!(resource = %info.name, "device plugin registered");
        let stream = Stream {
            resource: info.name,
            generation: info.generation,
            plugin,
        };
        let queued = self.shared.streams.send(stream).await;
        queued.map_err(|_| "the kubelet is stopping".to_owned())
    }

    /// Follows one plugin until its stream ends, or another registration takes its place.
    async fn follow(self, mut stream: Stream) {
        let stop = stream.plugin.stop.clone();
        let ended = tokio::select! {
            () = stop.cancelled() => "replaced".to_owned(),
            ended = self.receive_lists(&mut stream) => ended,
        };
        let now = self.uptime();
        let was_current = self.shared.inventory.send_if_modified(|inventory| {
            inventory.disconnect(&stream.resource, stream.generation, now, &ended)
        });
        if was_current {
            warn!(resource = %stream.resource, reason = %ended, "device plugin is gone");
        }
    }

    async fn receive_lists(&self, stream: &mut Stream) -> String {
        let mut lists = match stream.plugin.list_and_watch().await {
            Ok(lists) => lists,
            Err(error) => return error,
        };
        loop {
            match lists.message().await {
                Ok(Some(list)) => {
                    self.shared.inventory.send_if_modified(|inventory| {
                        inventory.list(&stream.resource, stream.generation, list.devices)
                    });
                }
                Ok(None) => return "ListAndWatch ended: EOF".to_owned(),
                Err(status) => return texts::status(&status),
            }
        }
    }

    /// Drops resources whose plugin stays away.
    async fn expire(self, shutdown: CancellationToken) -> anyhow::Result<()> {
        let mut changes = self.shared.inventory.subscribe();
        let grace = self.shared.endpoint_grace;
        loop {
            let next = changes.borrow_and_update().next_expiry(grace);
            let at = next.map(|uptime| self.shared.started + uptime);
            tokio::select! {
                () = shutdown.cancelled() => return Ok(()),
                changed = changes.changed() => changed?,
                () = at_or_never(at) => {
                    let now = self.uptime();
                    self.shared.inventory.send_if_modified(|inventory| {
                        let expired = inventory.expire(now, grace);
                        info!(resources = ?expired, "plugins stayed away for the grace period: resources removed");
                        for resource in &expired {
                            self.shared.metrics.forget(resource);
                        }
                        !expired.is_empty()
                    });
                }
            }
        }
    }
}

async fn at_or_never(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

impl Tasks {
    pub(crate) fn spawn_into(self, supervisor: &mut Supervisor) {
        let Self {
            manager,
            streams,
            keeper,
        } = self;
        let expiring = manager.clone();
        supervisor.spawn("endpoint grace", |stop| expiring.expire(stop));
        supervisor.spawn("device plugin streams", |stop| {
            run_streams(manager, streams, stop)
        });
        supervisor.spawn("checkpoint", |stop| keeper.run(stop));
    }
}

async fn run_streams(
    manager: DeviceManager,
    mut requests: mpsc::Receiver<Stream>,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let mut streams = JoinSet::new();
    loop {
        tokio::select! {
            // Streams that are dropped mark nothing unhealthy: the checkpoint keeps what was.
            () = shutdown.cancelled() => return Ok(()),
            Some(stream) = requests.recv() => {
                streams.spawn(manager.clone().follow(stream));
            }
            Some(ended) = streams.join_next() => ended?,
        }
    }
}

impl PluginHandler for DeviceManager {
    /// The kubelet has texts of its own for each of the two ways to register.
    fn validate(&self, plugin: &PluginInfo) -> Result<(), String> {
        let PluginInfo { name, versions, .. } = plugin;
        if !versions.iter().any(|version| version == VERSION) {
            let requested = versions.join(" ");
            return Err(match plugin.source {
                Source::Service => format!(
                    "requested API version {requested:?} is not supported by kubelet. Supported version is [{VERSION:?}]"
                ),
                Source::Folder => format!(
                    "manager version, {VERSION}, is not among plugin supported versions [{requested}]"
                ),
            });
        }
        if resource_name::is_extended(name) {
            return Ok(());
        }
        let invalid = format!("the ResourceName {name:?} is invalid");
        Err(match plugin.source {
            Source::Service => invalid,
            Source::Folder => format!("invalid name of device plugin socket: {invalid}"),
        })
    }

    fn register(&self, plugin: PluginInfo) -> BoxFuture<'static, Result<(), String>> {
        let manager = self.clone();
        Box::pin(async move { manager.connect(plugin).await })
    }

    fn deregister(&self, plugin: &PluginInfo) {
        let now = self.uptime();
        self.shared.inventory.send_if_modified(|inventory| {
            let client = inventory.resource(&plugin.name);
            let endpoint = client.and_then(|resource| resource.endpoint());
            let current = endpoint.filter(|endpoint| endpoint.generation == plugin.generation);
            if let Some(client) = current.and_then(|endpoint| endpoint.client.as_ref()) {
                client.stop.cancel();
            }
            inventory.disconnect(&plugin.name, plugin.generation, now, "deregistered")
        });
    }

    fn is_registered(&self, plugin: &PluginInfo) -> bool {
        let inventory = self.inventory();
        let endpoint = inventory.resource(&plugin.name).and_then(|r| r.endpoint());
        endpoint.is_some_and(|e| e.generation == plugin.generation && e.stopped.is_none())
    }
}
