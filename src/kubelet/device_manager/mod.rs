//! The device manager: which plugins are connected, what they offer, and which container has what.
//!
//! The inventory in `plan.rs` is the only state, and every decision is a method of it. Here are its effects: calls to
//! plugins (`endpoint.rs`) and the checkpoint.
mod allocation;
mod endpoint;
mod plan;

pub(super) use allocation::Request;
pub(super) use plan::{Count, Held, Holder, is_extended_resource_name};

use super::{
    checkpoint::{Checkpoint, Entry},
    plugin_manager::{PluginHandler, PluginInfo},
};
use crate::proto::device_plugin::{ContainerAllocateResponse, VERSION};
use anyhow::Context as _;
use endpoint::{Endpoint, Registered};
use futures::future::BoxFuture;
use plan::Inventory;
use prost::Message as _;
use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::{
    sync::{Semaphore, mpsc, watch},
    task::JoinSet,
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

/// What registrations that are under way at once share.
const STREAMS_WAITING: usize = 1024;
/// Changes within this time make one checkpoint.
const CHECKPOINT_SETTLE: Duration = Duration::from_millis(100);
/// No NUMA node.
const NO_NUMA: i64 = -1;

pub(super) struct DeviceManager {
    settings: Settings,
    started: Instant,
    inventory: watch::Sender<Inventory>,
    /// The connected plugin of each resource. Never locked over an await.
    endpoints: Mutex<BTreeMap<String, Endpoint>>,
    registrations: AtomicU64,
    streams: mpsc::Sender<Registered>,
    /// Pods are admitted one after another, as the kubelet does.
    admission: Semaphore,
}

#[derive(Debug, Clone)]
pub(super) struct Settings {
    /// Where plugins' sockets are.
    pub(super) folder: PathBuf,
    /// How long the resources of a plugin that is gone stay in capacity.
    pub(super) grace: Duration,
}

impl DeviceManager {
    /// A manager with what the checkpoint holds, and the work that [`Self::run`] does for it.
    pub(super) fn new(settings: Settings) -> (Arc<Self>, mpsc::Receiver<Registered>) {
        let (streams, registered) = mpsc::channel(STREAMS_WAITING);
        let mut inventory = Inventory::default();
        let path = settings.folder.join(CHECKPOINT);
        match Checkpoint::load(&path) {
            Ok(Some(checkpoint)) => restore(&mut inventory, &checkpoint),
            Ok(None) => {}
            // As the kubelet does: containers get their devices anew.
            Err(e) => warn!("continuing without the checkpoint: {e}"),
        }
        let manager = Self {
            settings,
            started: Instant::now(),
            inventory: watch::Sender::new(inventory),
            endpoints: Mutex::default(),
            registrations: AtomicU64::new(0),
            streams,
            admission: Semaphore::new(1),
        };
        (Arc::new(manager), registered)
    }

    /// Follows the plugins' lists, drops resources whose grace is over, writes the checkpoint.
    pub(super) async fn run(
        self: Arc<Self>,
        mut registered: mpsc::Receiver<Registered>,
        shutdown: CancellationToken,
    ) -> anyhow::Result<()> {
        let mut lists = JoinSet::new();
        let mut inventory = self.inventory.subscribe();
        let mut write_at: Option<Instant> = None;
        loop {
            let expiry = self
                .inventory
                .borrow()
                .next_expiry(self.settings.grace)
                .map(|at| self.started + at);
            tokio::select! {
                () = shutdown.cancelled() => break,
                Some(registered) = registered.recv() => {
                    lists.spawn(endpoint::follow(self.clone(), registered));
                }
                Some(ended) = lists.join_next() => ended.context("following a plugin's list")?,
                changed = inventory.changed() => {
                    changed?;
                    write_at = write_at.or(Some(Instant::now() + CHECKPOINT_SETTLE));
                }
                () = at(write_at) => {
                    write_at = None;
                    self.write_checkpoint();
                }
                () = at(expiry) => {
                    self.inventory.send_modify(|inventory| inventory.expire(self.uptime(), self.settings.grace));
                }
            }
        }
        // Streams end with the process; what they were counted as healthy stays so for the next kubelet.
        lists.shutdown().await;
        self.write_checkpoint();
        Ok(())
    }

    pub(super) fn counts(&self) -> BTreeMap<String, Count> {
        self.inventory.borrow().counts()
    }

    pub(super) fn healthy(&self) -> BTreeMap<String, Vec<String>> {
        self.inventory.borrow().healthy()
    }

    /// What a container holds: by resource, the ids and the health of each.
    pub(super) fn devices_of(
        &self,
        holder: &Holder,
    ) -> BTreeMap<String, Vec<(String, &'static str)>> {
        let inventory = self.inventory.borrow();
        let devices = inventory.held_of(holder).iter().map(|(resource, held)| {
            let ids = held
                .ids
                .iter()
                .map(|id| (id.clone(), inventory.health(resource, id)));
            (resource.clone(), ids.collect())
        });
        devices.collect()
    }

    /// The socket of each connected plugin.
    pub(super) fn sockets(&self) -> BTreeMap<String, PathBuf> {
        let endpoints = self.endpoints();
        endpoints
            .iter()
            .map(|(resource, endpoint)| (resource.clone(), endpoint.socket.clone()))
            .collect()
    }

    /// Frees the devices of all Pods but these.
    pub(super) fn retain_pods(&self, active: &BTreeSet<String>) {
        self.inventory.send_if_modified(|inventory| {
            let before = inventory.clone();
            inventory.retain_pods(|uid| active.contains(uid));
            *inventory != before
        });
    }

    fn uptime(&self) -> Duration {
        self.started.elapsed()
    }

    fn endpoints(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Endpoint>> {
        self.endpoints
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes what containers hold before any of them starts, and at leisure what is registered.
    fn write_checkpoint(&self) {
        let checkpoint = snapshot(&self.inventory.borrow());
        if let Err(e) = checkpoint.store(&self.settings.folder.join(CHECKPOINT)) {
            warn!("the checkpoint cannot be written, it is tried again with the next change: {e}");
        }
    }

    /// Dials a plugin and asks for its options; only then is it the plugin of its resource.
    async fn connect(&self, plugin: &PluginInfo) -> Result<(), String> {
        let registration = self.registrations.fetch_add(1, Ordering::Relaxed);
        let (endpoint, options) = Endpoint::connect(registration, &plugin.endpoint).await?;
        let stop = endpoint.stop.clone();
        let registered = Registered {
            resource: plugin.name.clone(),
            registration,
            client: endpoint.client.clone(),
            stop,
        };
        self.inventory
            .send_modify(|inventory| inventory.connected(&plugin.name, registration, options));
        // The plugin it replaces is let go first: two streams for one resource would overwrite each other. The real
        // kubelet keeps both, and when the old one ends it disconnects the new one.
        if let Some(replaced) = self.endpoints().insert(plugin.name.clone(), endpoint) {
            replaced.stop.cancel();
        }
        info!(resource = %plugin.name, socket = %plugin.endpoint.display(), "device plugin connected");
        self.streams
            .send(registered)
            .await
            .map_err(|_| "the kubelet is stopping".to_owned())
    }

    fn disconnect(&self, resource: &str, registration: u64) {
        let now = self.uptime();
        self.inventory
            .send_modify(|inventory| inventory.disconnected(resource, registration, now));
        let mut endpoints = self.endpoints();
        if endpoints
            .get(resource)
            .is_some_and(|endpoint| endpoint.registration == registration)
        {
            endpoints.remove(resource);
            info!(%resource, "device plugin disconnected");
        }
    }
}

/// The file in the plugin folder, as the kubelet calls it.
const CHECKPOINT: &str = "kubelet_internal_checkpoint";

impl PluginHandler for DeviceManager {
    fn validate(&self, plugin: &PluginInfo) -> Result<(), String> {
        if !plugin.versions.iter().any(|version| version == VERSION) {
            return Err(format!(
                "requested API version {:?} is not supported by kubelet. Supported version is [\"{VERSION}\"]",
                plugin.versions.join(",")
            ));
        }
        if !is_extended_resource_name(&plugin.name) {
            return Err(format!("the ResourceName {:?} is invalid", plugin.name));
        }
        Ok(())
    }

    fn register<'a>(&'a self, plugin: &'a PluginInfo) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(self.connect(plugin))
    }

    fn deregister(&self, name: &str) {
        let registration = self
            .endpoints()
            .get(name)
            .map(|endpoint| endpoint.registration);
        if let Some(registration) = registration {
            self.disconnect(name, registration);
        }
    }
}

fn restore(inventory: &mut Inventory, checkpoint: &Checkpoint) {
    for resource in checkpoint.registered.keys() {
        inventory.restored(resource, Duration::ZERO);
    }
    for entry in &checkpoint.entries {
        let Ok(response) = ContainerAllocateResponse::decode(entry.alloc_resp.as_slice()) else {
            warn!(
                pod = entry.pod_uid,
                "an answer in the checkpoint cannot be read: its container asks anew"
            );
            continue;
        };
        let holder = Holder {
            pod_uid: entry.pod_uid.clone(),
            container: entry.container.clone(),
        };
        let ids = entry.device_ids.values().flatten().cloned().collect();
        inventory.restore_held(holder, entry.resource.clone(), Held { ids, response });
    }
}

fn snapshot(inventory: &Inventory) -> Checkpoint {
    let entries = inventory.holders().flat_map(|(holder, resources)| {
        resources.iter().map(|(resource, held)| Entry {
            pod_uid: holder.pod_uid.clone(),
            container: holder.container.clone(),
            resource: resource.clone(),
            device_ids: BTreeMap::from([(NO_NUMA, held.ids.iter().cloned().collect())]),
            alloc_resp: held.response.encode_to_vec(),
        })
    });
    Checkpoint {
        entries: entries.collect(),
        registered: inventory.healthy(),
    }
}

async fn at(instant: Option<Instant>) {
    match instant {
        Some(instant) => sleep_until(instant).await,
        None => std::future::pending().await,
    }
}
