//! Connects the device manager to its plugins: registrations, ListAndWatch streams, and the end of grace periods.
use super::{
    checkpoint_file::{self, CheckpointWriter, SaveRequest},
    endpoint::Plugin,
    inventory::{Endpoint, Holder, Inventory},
};
use crate::{
    go_errors,
    metrics::Metrics,
    plugin_manager::{
        plan::Source,
        plugin::{PluginHandler, PluginInfo},
    },
    resource_name,
    settings::{CallLimits, Settings},
};
use futures::future::BoxFuture;
use petiole_base::supervisor::Supervisor;
use petiole_base::waits::sleep_until_or_never;
use petiole_kubelet_api::device_plugin::VERSION;
use std::{collections::BTreeSet, path::Path, sync::Arc, time::Duration};
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
    time::Instant,
};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

/// The number of registrations that can wait for their stream to open.
const STREAM_QUEUE: usize = 64;
const SAVE_QUEUE: usize = 64;

/// A handle of the device manager. All clones share one inventory.
#[derive(Clone)]
pub(crate) struct DeviceManager {
    pub(super) shared: Arc<Shared>,
}

pub(super) struct Shared {
    pub(super) inventory: watch::Sender<Inventory<Plugin>>,
    started: Instant,
    endpoint_grace: Duration,
    call_limits: CallLimits,
    pub(super) metrics: Metrics,
    /// The containers that had their devices when the kubelet started.
    pub(super) restored: BTreeSet<Holder>,
    streams: mpsc::Sender<Stream>,
    pub(super) saves: mpsc::Sender<SaveRequest>,
}

struct Stream {
    resource: String,
    generation: u64,
    plugin: Plugin,
}

/// The tasks that [`DeviceManager::start`] returns, to be run.
pub(crate) struct Tasks {
    manager: DeviceManager,
    streams: mpsc::Receiver<Stream>,
    checkpoint: CheckpointWriter,
}

impl DeviceManager {
    /// Restores the checkpoint in `folder`. Returns the device manager and its tasks.
    pub(crate) fn start(folder: &Path, settings: &Settings, metrics: Metrics) -> (Self, Tasks) {
        let inventory = checkpoint_file::read(folder);
        let resources = inventory.resources().values();
        let holders = resources.flat_map(|resource| resource.holders().keys().cloned());
        let restored = holders.collect();
        let (streams, streams_rx) = mpsc::channel(STREAM_QUEUE);
        let (saves, requests) = mpsc::channel(SAVE_QUEUE);
        let (inventory, inventory_rx) = watch::channel(inventory);
        let shared = Shared {
            inventory,
            started: Instant::now(),
            endpoint_grace: settings.endpoint_grace,
            call_limits: settings.call_limits,
            metrics,
            restored,
            streams,
            saves,
        };
        let manager = Self {
            shared: Arc::new(shared),
        };
        let tasks = Tasks {
            manager: manager.clone(),
            streams: streams_rx,
            checkpoint: CheckpointWriter::new(folder, inventory_rx, requests),
        };
        (manager, tasks)
    }

    pub(crate) fn inventory(&self) -> watch::Ref<'_, Inventory<Plugin>> {
        self.shared.inventory.borrow()
    }

    /// Frees the devices of Pods that are not active.
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
        let mut connected = Ok(());
        self.shared.inventory.send_if_modified(|inventory| {
            connected = inventory.connect(&info.name, endpoint);
            connected.is_ok()
        });
        connected.map_err(|e| e.to_string())?;
        info!(resource = %info.name, "device plugin registered");
        let stream = Stream {
            resource: info.name,
            generation: info.generation,
            plugin,
        };
        let queued = self.shared.streams.send(stream).await;
        queued.map_err(|_| "the kubelet is stopping".to_owned())
    }

    /// Follows one plugin until its stream ends or it is deregistered.
    async fn follow(self, mut stream: Stream) {
        let stop = stream.plugin.stop.clone();
        let ended = tokio::select! {
            () = stop.cancelled() => return,
            ended = self.receive_lists(&mut stream) => ended,
        };
        let now = self.uptime();
        let was_connected = self.shared.inventory.send_if_modified(|inventory| {
            inventory.disconnect(&stream.resource, stream.generation, now, &ended)
        });
        if was_connected {
            warn!(resource = %stream.resource, reason = %ended, "device plugin disconnected");
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
                Err(status) => return go_errors::status(&status),
            }
        }
    }

    /// Drops resources whose plugin has been disconnected for the grace period. It reads the inventory and its own
    /// timer.
    async fn expire(self, shutdown: CancellationToken) -> anyhow::Result<()> {
        let mut changes = self.shared.inventory.subscribe();
        let grace = self.shared.endpoint_grace;
        loop {
            let next = changes.borrow_and_update().next_expiry(grace);
            let at = next.map(|uptime| self.shared.started + uptime);
            tokio::select! {
                () = shutdown.cancelled() => return Ok(()),
                changed = changes.changed() => changed?,
                () = sleep_until_or_never(at) => {
                    let now = self.uptime();
                    self.shared.inventory.send_if_modified(|inventory| {
                        let expired = inventory.expire(now, grace);
                        info!(resources = ?expired, "resources removed: their plugins were disconnected for the whole grace period");
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

impl Tasks {
    /// Spawns the tasks. `endpoint grace` and `device plugin streams` change the inventory; `checkpoint` reads it.
    pub(crate) fn spawn_into(self, supervisor: &mut Supervisor) {
        let Self {
            manager,
            streams,
            checkpoint,
        } = self;
        let expiring = manager.clone();
        supervisor.spawn("endpoint grace", |stop| expiring.expire(stop));
        supervisor.spawn("device plugin streams", |stop| {
            run_streams(manager, streams, stop)
        });
        supervisor.spawn("checkpoint", |stop| checkpoint.run(stop));
    }
}

/// Follows the stream of each registration that it receives from `requests`. All streams change the inventory.
async fn run_streams(
    manager: DeviceManager,
    mut requests: mpsc::Receiver<Stream>,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let mut streams = JoinSet::new();
    loop {
        tokio::select! {
            // Streams that end here mark no device unhealthy: the checkpoint keeps the last state.
            () = shutdown.cancelled() => return Ok(()),
            Some(stream) = requests.recv() => {
                streams.spawn(manager.clone().follow(stream));
            }
            Some(ended) = streams.join_next() => ended?,
        }
    }
}

impl PluginHandler for DeviceManager {
    /// Checks the version and the resource name. The Go kubelet has different error texts for the two ways to register.
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
            let resource = inventory.resource(&plugin.name);
            let endpoint = resource.and_then(|resource| resource.connected(plugin.generation));
            if let Some(client) = endpoint.and_then(|endpoint| endpoint.client.as_ref()) {
                client.stop.cancel();
            }
            inventory.disconnect(&plugin.name, plugin.generation, now, "deregistered")
        });
    }

    fn is_registered(&self, plugin: &PluginInfo) -> bool {
        let inventory = self.inventory();
        let resource = inventory.resource(&plugin.name);
        resource.is_some_and(|resource| resource.connected(plugin.generation).is_some())
    }
}
