//! The process on each node: watches Configurations, discovers, keeps Instances, serves device plugins, releases slots.
//!
//! ```text
//! configurations ─ judged ─┬─> discovery sessions ─ discoveries ─┐
//!                          └─> instances <────────────────────────┤   writes the store
//! store's Instances ─> plugins (one task a resource) <────────────┘   <─> kubelet
//!                      Allocate ─> slots (the only writer of claims) <─ reclaim <─ books: pod resources, checkpoint
//! plugins' lists ──> capacity <─ own Node, pod resources   writes the Node's status
//! ```
//! Every arrow is a `watch` of whole values, but for requests to `slots`. This file only wires.
pub(crate) mod books;
mod brokers;
mod capacity;
pub(crate) mod configurations;
pub(crate) mod instances;
mod known_devices;
mod kubelet_folder;
pub(crate) mod plan_inputs;
pub(crate) mod plugins;
pub(crate) mod pod_resources;
mod readiness;
pub(crate) mod slots;
mod tally;

#[cfg(feature = "fuzzing")]
pub use books::fuzzing;

use crate::{
    api::condition,
    cluster::node::Nodes,
    discovery::session::{self, Discoveries, Handlers},
    model::{
        names::ObjectKey,
        slot_table::{SlotTable, Use},
    },
    store::Store,
    supervisor::Supervisor,
    telemetry::{http, metrics},
};
use configurations::Judged;
use k8s_openapi::jiff::Timestamp;
use kubelet_folder::{KubeletFolder, KubeletSocket};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tokio::{
    sync::{mpsc, watch},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

/// How long tasks may take to end after a signal.
const GRACE: Duration = Duration::from_secs(5);
/// A Pod that is being admitted while the kubelet is looked at shows in the next look.
pub const BETWEEN_LOOKS: Duration = Duration::from_secs(10);
/// A kubelet that restarts lists no containers until it has looked at all of them.
pub const KUBELET_SETTLES: Duration = Duration::from_secs(60);
/// A device plugin that is replaced registers again by then.
pub const NAMES_ARE_KEPT: Duration = Duration::from_secs(30);

/// What an agent is told by its flags.
#[derive(Debug, Clone)]
pub struct Settings {
    pub node_name: String,
    /// The prefix of every resource this agent registers, such as `akri.sh`.
    pub resource_prefix: String,
    /// The prefixes of all that is ours on this node, the one above among them: entries of others are left alone.
    pub resource_prefixes: Vec<String>,
    /// Access to the Node of this node, whose capacity is kept true; `None` without a cluster.
    pub nodes: Option<Nodes>,
    /// The kubelet's folder for device plugins; `kubelet.sock` is in it.
    pub plugin_folder: PathBuf,
    pub pod_resources_socket: PathBuf,
    /// The Pod this agent is: a list of the kubelet's that has it is whole.
    pub own_pod: Option<ObjectKey>,
    /// Without an own Pod: how long a new kubelet that keeps no checkpoint may list no containers though they run.
    pub kubelet_settles: Duration,
    /// Between the two looks at the kubelet's books that must both miss a slot before it is released.
    pub between_looks: Duration,
    /// How long a resource name counts as another plugin's after its devices were listed last.
    pub names_are_kept: Duration,
    /// The most Configurations that are worked with.
    pub max_configurations: usize,
    /// The most Instances of all Configurations together.
    pub max_instances: usize,
    /// A folder for static Pods: one broker for each Instance.
    pub render_brokers: Option<PathBuf>,
    /// Where metrics, health and readiness are served.
    pub http_address: Option<SocketAddr>,
    /// Where metrics alone are served.
    pub metrics_address: Option<SocketAddr>,
}

/// What the tasks of an agent share.
struct Node {
    name: String,
    resource_prefix: String,
    resource_prefixes: Vec<String>,
    plugin_folder: PathBuf,
    pod_resources_socket: PathBuf,
    own_pod: Option<ObjectKey>,
    kubelet_settles: Duration,
    between_looks: Duration,
    names_are_kept: Duration,
    max_configurations: usize,
    max_instances: usize,
    started: Instant,
    store: Arc<dyn Store>,
    judged: watch::Sender<Arc<Judged>>,
    discoveries: watch::Sender<Arc<Discoveries>>,
    slots: watch::Sender<SlotTable>,
    /// What containers used at the last look at the kubelet's books; `None` where that could not be trusted.
    uses: watch::Sender<Option<Arc<[Use]>>>,
    /// The resource, by its whole name, whose plugin sends its list to the kubelet once more.
    resent: watch::Sender<String>,
    kubelet_folder: watch::Sender<KubeletFolder>,
    /// The kubelet of that folder: every plugin waits for the next one, and the folder changes with every socket.
    kubelet: watch::Sender<Option<KubeletSocket>>,
    /// What each plugin lists, by its resource's whole name: those that run, and those that start.
    listed: watch::Sender<BTreeMap<String, Arc<[plugins::Slot]>>>,
    /// The resources whose slots the kubelet is listening to, by their whole names.
    registered: watch::Sender<BTreeSet<String>>,
}

impl Node {
    fn new(settings: &Settings, store: Arc<dyn Store>) -> Self {
        Self {
            name: settings.node_name.clone(),
            resource_prefix: settings.resource_prefix.clone(),
            resource_prefixes: settings.resource_prefixes.clone(),
            plugin_folder: settings.plugin_folder.clone(),
            pod_resources_socket: settings.pod_resources_socket.clone(),
            own_pod: settings.own_pod.clone(),
            kubelet_settles: settings.kubelet_settles,
            between_looks: settings.between_looks,
            names_are_kept: settings.names_are_kept,
            max_configurations: settings.max_configurations,
            max_instances: settings.max_instances,
            started: Instant::now(),
            judged: watch::Sender::default(),
            discoveries: watch::Sender::default(),
            slots: watch::Sender::new(SlotTable::new(&settings.node_name)),
            uses: watch::Sender::default(),
            resent: watch::Sender::default(),
            kubelet_folder: watch::Sender::default(),
            kubelet: watch::Sender::default(),
            listed: watch::Sender::default(),
            registered: watch::Sender::default(),
            store,
        }
    }

    fn uptime(&self) -> Duration {
        self.started.elapsed()
    }

    /// Notes whether the kubelet is listening to the slots of a resource.
    fn set_registered(&self, resource: &str, is_registered: bool) {
        self.registered
            .send_if_modified(|registered| match is_registered {
                true => registered.insert(resource.to_owned()),
                false => registered.remove(resource),
            });
        metrics().set_plugins_registered(self.registered.borrow().len());
    }

    /// Notes what containers use. Whoever waits for a change is woken by one only: looks are taken every few seconds.
    fn set_uses(&self, now: Option<Arc<[Use]>>) {
        self.uses.send_if_modified(|uses| {
            let is_new = *uses != now;
            *uses = now;
            is_new
        });
    }

    /// RFC 3339, to the second as Kubernetes writes it.
    fn clock(&self) -> String {
        condition::time(Timestamp::now())
    }
}

/// Runs an agent until `shutdown`, or until one of its tasks fails. Instances stay.
pub async fn run(
    settings: Settings,
    store: Arc<dyn Store>,
    handlers: Handlers,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let node = Arc::new(Node::new(&settings, store.clone()));
    plugins::remove_left_over_sockets(&node);
    let handlers = Arc::new(handlers);
    let (requests, requested) = mpsc::channel(64);
    let sessions = watch::Sender::new(BTreeMap::new());
    let mut tasks = Supervisor::new(shutdown);

    let folder: Arc<Path> = node.plugin_folder.as_path().into();
    let (folder_changes, kubelet) = (node.kubelet_folder.clone(), node.kubelet.clone());
    tasks.spawn("kubelet folder", |stop| {
        kubelet_folder::run(folder, folder_changes, kubelet, stop)
    });
    tasks.spawn("store", |stop| async move { store.run(stop).await });
    let (judging, desired) = (handlers.clone(), sessions.subscribe());
    let own = watch::Sender::new(None);
    let labels = settings.nodes.as_ref().map(|_| own.subscribe());
    tasks.spawn("configurations", |stop| {
        configurations::run(node.clone(), judging, sessions, labels, stop)
    });
    let (known, preferring) = (node.store.instances(), handlers.clone());
    tasks.spawn("known devices", |stop| {
        known_devices::run(known, preferring, stop)
    });
    let seen = node.discoveries.clone();
    tasks.spawn("discovery", |stop| {
        session::run(handlers, desired, seen, stop)
    });
    tasks.spawn("instances", |stop| instances::run(node.clone(), stop));
    tasks.spawn("slots", |stop| slots::run(node.clone(), requested, stop));
    tasks.spawn("reclaim", |stop| {
        slots::reclaim::run(node.clone(), requests.clone(), stop)
    });
    tasks.spawn("plugins", |stop| plugins::run(node.clone(), requests, stop));
    if let Some(address) = settings.http_address {
        let health = readiness::health(node.clone());
        tasks.spawn("http", |stop| http::serve(address, health, stop));
    }
    if let Some(address) = settings.metrics_address {
        tasks.spawn("metrics", |stop| http::serve_metrics(address, stop));
    }
    if let Some(nodes) = settings.nodes {
        let (watched, seen) = (nodes.clone(), own.subscribe());
        let name = settings.node_name;
        tasks.spawn("own node", |stop| watched.watch(name, own, stop));
        tasks.spawn("node capacity", |stop| {
            capacity::run(node.clone(), nodes, seen, stop)
        });
    }
    if let Some(folder) = settings.render_brokers {
        tasks.spawn("brokers", |stop| brokers::run(node.clone(), folder, stop));
    }
    tasks.run(GRACE).await
}
