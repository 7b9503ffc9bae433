//! The process on each node: discovers devices, reports them, serves device plugins, and claims and releases slots.
//!
//! ```text
//! configurations ─ validated ─┬─> discovery sessions ─ discoveries ─┐
//!                             └─> instances <─────────────────────┤   reports to the store
//! store's Instances ─> plugins (one task a resource) <────────────┘   <─> kubelet
//!                      Allocate ─> slots (claims and releases) <─ reclaim <─ kubelet_records: pod resources, checkpoint
//! plugins' lists ──> capacity <─ own Node, pod resources   writes the Node's status
//! ```
//! Every arrow is a `watch` of whole values, except the requests to `slots`. The `run` of each task takes the receivers that
//! it reads as its `Inputs`, and the senders that it owns. This file only creates the channels and starts the tasks.
//! `configurations` and the discovery sessions run on a thread of their own, all others on the thread that answers the kubelet.
#[cfg(feature = "people")]
mod brokers;
mod capacity;
mod cdi_files;
mod configurations;
pub(crate) mod connections;
pub(crate) mod device_state;
pub(crate) mod instances;
mod known_devices;
mod kubelet_folder;
pub(crate) mod kubelet_records;
pub(crate) mod node_only;
pub(crate) mod plugins;
pub(crate) mod pod_resources;
mod property_sources;
mod readiness;
mod settings;
#[cfg(test)]
pub(crate) mod simulated;
pub(crate) mod slots;
mod tally;
pub(crate) mod values;

#[cfg(feature = "fuzzing")]
pub use kubelet_records::fuzzing;
pub use settings::{KUBELET_STARTUP_GRACE, LOOK_INTERVAL, RESOURCE_NAME_HOLD, Settings};

use crate::{
    cluster::{
        self,
        node::{Nodes, OwnNode},
    },
    discovery::session::{self, Discoveries, Handlers},
    model::slot_table::Use,
    own_thread::OwnThread,
    store::Store,
    supervisor::Supervisor,
    telemetry::http,
};
use anyhow::Context as _;
use cdi_files::CdiFiles;
use kubelet_records::{OfKubelet, RecordsReader};
use node_only::plan::NodeOnly;
use settings::Clock;
use slots::SharedTable;
use std::{collections::BTreeMap, path::Path, sync::Arc, time::Duration};
use tokio::{
    runtime::Handle,
    sync::{mpsc, watch},
};
use tokio_util::sync::CancellationToken;
use values::{KubeletFolder, KubeletSocket, ValidatedConfigurations};

/// The time that tasks have to end after a signal.
const GRACE: Duration = Duration::from_secs(5);

/// Runs an agent until `shutdown`, or until one of its tasks fails. Instances stay.
pub async fn run(
    settings: Settings,
    store: Arc<dyn Store>,
    handlers: Handlers,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    plugins::remove_left_over_sockets(&settings, &*store);
    let thread = discovery_thread()?;
    let mut tasks = Supervisor::new(shutdown);
    let agent = Agent::new(settings, store);
    agent.spawn_discovery(&mut tasks, thread.runtime(), handlers);
    agent.spawn_plugins(&mut tasks);
    agent.spawn_optional(&mut tasks, &thread);
    drop(agent);
    tasks.run(GRACE).await
}

/// Discovers and writes Instances until `answered` or `shutdown`. It needs no kubelet, and offers nothing.
#[cfg(feature = "people")]
pub async fn look(
    settings: Settings,
    store: Arc<dyn Store>,
    handlers: Handlers,
    answered: impl Future<Output = ()>,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let thread = discovery_thread()?;
    let mut tasks = Supervisor::new(shutdown.clone());
    let agent = Agent::new(settings, store);
    agent.spawn_discovery(&mut tasks, thread.runtime(), handlers);
    let looked = async {
        shutdown.run_until_cancelled(answered).await;
        shutdown.cancel();
    };
    let (ended, ()) = tokio::join!(tasks.run(GRACE), looked);
    // Its channels are open until the tasks have ended.
    drop(agent);
    ended
}

/// Starts the thread of the tasks whose work the LAN and the authors of Configurations cause. No client of the API server
/// may be used there: its connections belong to the runtime on which they were opened.
fn discovery_thread() -> anyhow::Result<OwnThread> {
    OwnThread::start("discovery").context("the thread of the discoveries cannot be started")
}

/// The channels between the tasks, and what all tasks share.
struct Agent {
    settings: Arc<Settings>,
    clock: Clock,
    store: Arc<dyn Store>,
    table: SharedTable,
    records: RecordsReader,
    /// Written by `configurations`.
    validated: watch::Sender<Arc<ValidatedConfigurations>>,
    /// Written by the discovery sessions.
    discoveries: watch::Sender<Arc<Discoveries>>,
    /// The devices that are offered without Instances. Written by `node_only`.
    node_only: watch::Sender<Arc<NodeOnly>>,
    /// The devices that containers use. Written by `reclaim`.
    uses: watch::Sender<Option<Arc<[Use]>>>,
    /// Written by the kubelet folder's task, like `kubelet`.
    kubelet_folder: watch::Sender<KubeletFolder>,
    kubelet: watch::Sender<Option<KubeletSocket>>,
    /// Written by `plugins`.
    published: plugins::Published,
    /// The Node of this node. Written by its watch.
    own_node: watch::Sender<cluster::watch::Set<OwnNode>>,
}

impl Agent {
    fn new(settings: Settings, store: Arc<dyn Store>) -> Self {
        let (settings, clock) = (Arc::new(settings), Clock::start());
        let kubelet_folder: watch::Sender<KubeletFolder> = watch::Sender::default();
        let published = plugins::Published::default();
        let validated = ValidatedConfigurations::before_the_first(&settings.resource_prefixes);
        Self {
            table: SharedTable::new(&settings.node_name),
            records: RecordsReader {
                source: Arc::new(OfKubelet(settings.clone())),
                settings: settings.clone(),
                clock,
                kubelet_folder: kubelet_folder.subscribe(),
                registered: published.registered.subscribe(),
                resend: watch::Sender::default(),
            },
            validated: watch::Sender::new(Arc::new(validated)),
            discoveries: watch::Sender::default(),
            node_only: watch::Sender::default(),
            uses: watch::Sender::default(),
            kubelet_folder,
            kubelet: watch::Sender::default(),
            published,
            own_node: watch::Sender::default(),
            settings,
            clock,
            store,
        }
    }

    /// Starts the tasks from Configurations to Instances. Those that work for the LAN and for authors of Configurations run
    /// on `thread`.
    fn spawn_discovery(&self, tasks: &mut Supervisor, thread: &Handle, handlers: Handlers) {
        let handlers = Arc::new(handlers);
        let sessions = watch::Sender::new(BTreeMap::new());
        let desired = sessions.subscribe();
        let store = self.store.clone();
        tasks.spawn("store", |stop| async move { store.run(stop).await });
        let own_node = (self.settings.nodes.is_some()).then(|| self.own_node.subscribe());
        let properties = self.spawn_property_sources(tasks);
        let inputs = configurations::Inputs {
            settings: self.settings.clone(),
            clock: self.clock,
            handlers: handlers.clone(),
            configurations: self.store.configurations(),
            own_node,
            properties,
            kubelet: self.kubelet.subscribe(),
            kubelet_folder: self.kubelet_folder.subscribe(),
            registered: self.published.registered.subscribe(),
        };
        let validated = self.validated.clone();
        tasks.spawn_on(thread, "configurations", |stop| {
            configurations::run(inputs, validated, sessions, stop)
        });
        let (store, preferring) = (self.store.clone(), handlers.clone());
        tasks.spawn_on(thread, "known devices", |stop| {
            known_devices::run(store, preferring, stop)
        });
        let registering = handlers.clone();
        tasks.spawn_on(thread, "handlers", |stop| async move {
            registering.serve(stop).await
        });
        let discoveries = self.discoveries.clone();
        tasks.spawn_on(thread, "discovery", |stop| {
            session::run(handlers, desired, discoveries, stop)
        });
        let inputs = node_only::Inputs {
            settings: self.settings.clone(),
            clock: self.clock,
            validated: self.validated.subscribe(),
            discoveries: self.discoveries.subscribe(),
        };
        let offers = self.node_only.clone();
        tasks.spawn_on(thread, "node only", |stop| {
            node_only::run(inputs, offers, stop)
        });
        let inputs = self.instances();
        tasks.spawn("instances", |stop| instances::run(inputs, stop));
    }

    fn instances(&self) -> instances::Inputs {
        instances::Inputs {
            settings: self.settings.clone(),
            clock: self.clock,
            store: self.store.clone(),
            validated: self.validated.subscribe(),
            discoveries: self.discoveries.subscribe(),
            node_only: self.node_only.subscribe(),
            uses: self.uses.subscribe(),
        }
    }

    /// Starts the task that watches the Secrets and ConfigMaps to which Configurations refer.
    fn spawn_property_sources(&self, tasks: &mut Supervisor) -> Option<configurations::Properties> {
        let sources = self.settings.property_sources.clone()?;
        let (wanted, contents) = (watch::Sender::default(), watch::Sender::default());
        let properties = configurations::Properties {
            wanted: wanted.clone(),
            contents: contents.subscribe(),
        };
        let wanted = wanted.subscribe();
        tasks.spawn("property sources", |stop| {
            property_sources::run(sources, wanted, contents, stop)
        });
        Some(properties)
    }

    /// Starts the tasks that talk to the kubelet, and the task of the slots.
    fn spawn_plugins(&self, tasks: &mut Supervisor) {
        let folder: Arc<Path> = self.settings.plugin_folder.as_path().into();
        let (changes, kubelet) = (self.kubelet_folder.clone(), self.kubelet.clone());
        tasks.spawn("kubelet folder", |stop| {
            kubelet_folder::run(folder, changes, kubelet, stop)
        });
        let (requests, requested) = mpsc::channel(64);
        let slots = self.slots();
        tasks.spawn("slots", |stop| slots::run(slots, requested, stop));
        if self.store.is_remote() {
            let (store, table) = (self.store.clone(), self.table.clone());
            let node = self.settings.node_name.clone();
            let served = requests.clone();
            tasks.spawn("usage", |stop| {
                slots::usage::run(store, table, node, served, stop)
            });
        }
        let inputs = self.reclaim();
        let (releases, uses) = (requests.clone(), self.uses.clone());
        tasks.spawn("reclaim", |stop| {
            slots::reclaim::run(inputs, releases, uses, stop)
        });
        let inputs = self.plugins(self.spawn_cdi_files(tasks));
        let published = self.published.clone();
        tasks.spawn("plugins", |stop| {
            plugins::run(inputs, requests, published, stop)
        });
    }

    fn slots(&self) -> slots::Slots {
        slots::Slots {
            store: self.store.clone(),
            clock: self.clock,
            table: self.table.clone(),
        }
    }

    fn reclaim(&self) -> slots::reclaim::Inputs {
        slots::reclaim::Inputs {
            settings: self.settings.clone(),
            clock: self.clock,
            records: self.records.clone(),
            table: self.table.clone(),
            validated: self.validated.subscribe(),
            kubelet: self.kubelet.subscribe(),
            store: self.store.clone(),
        }
    }

    fn plugins(&self, cdi_files: CdiFiles) -> plugins::Inputs {
        plugins::Inputs {
            settings: self.settings.clone(),
            clock: self.clock,
            store: self.store.clone(),
            table: self.table.clone(),
            records: self.records.clone(),
            validated: self.validated.subscribe(),
            discoveries: self.discoveries.subscribe(),
            node_only: self.node_only.subscribe(),
            kubelet: self.kubelet.subscribe(),
            kubelet_folder: self.kubelet_folder.subscribe(),
            resend: self.records.resend.subscribe(),
            cdi_files,
        }
    }

    /// Starts the task that keeps CDI files.
    fn spawn_cdi_files(&self, tasks: &mut Supervisor) -> CdiFiles {
        let cdi_files = CdiFiles::new(self.settings.containers.cdi_folder.clone());
        if self.settings.containers.cdi_folder.is_some() {
            let inputs = cdi_files::Inputs {
                clock: self.clock,
                store: self.store.clone(),
                table: self.table.clone(),
                validated: self.validated.subscribe(),
                discoveries: self.discoveries.subscribe(),
                uses: self.uses.subscribe(),
            };
            let kept = cdi_files.clone();
            tasks.spawn("CDI files", |stop| cdi_files::run(kept, inputs, stop));
        }
        cdi_files
    }

    /// Starts the tasks that only some settings need.
    fn spawn_optional(&self, tasks: &mut Supervisor, thread: &OwnThread) {
        if let Some(address) = self.settings.http_address {
            let health = readiness::health(readiness::Inputs {
                settings: self.settings.clone(),
                configurations: self.store.configurations(),
                instances: self.store.instances(),
                validated: self.validated.subscribe(),
                node_only: self.node_only.subscribe(),
                kubelet: self.kubelet.subscribe(),
                registered: self.published.registered.subscribe(),
                discovery: thread.pulse(),
            });
            tasks.spawn("http", |stop| {
                http::serve(address, http::routes(health), stop)
            });
        }
        if let Some(address) = self.settings.metrics_address {
            tasks.spawn("metrics", |stop| http::serve_metrics(address, stop));
        }
        if let Some(nodes) = &self.settings.nodes {
            self.spawn_capacity(tasks, nodes);
        }
        #[cfg(feature = "people")]
        self.spawn_brokers(tasks, thread.runtime());
    }

    /// Starts the task that writes static Pods. It reads and parses all of them at each change, so it runs on `thread`.
    #[cfg(feature = "people")]
    fn spawn_brokers(&self, tasks: &mut Supervisor, thread: &Handle) {
        if let Some(folder) = self.settings.render_brokers.clone() {
            let inputs = brokers::Inputs {
                settings: self.settings.clone(),
                clock: self.clock,
                records: self.records.clone(),
                validated: self.validated.subscribe(),
                discoveries: self.discoveries.subscribe(),
                instances: self.store.instances(),
                registered: self.published.registered.subscribe(),
                kubelet_folder: self.kubelet_folder.subscribe(),
            };
            tasks.spawn_on(thread, "brokers", |stop| brokers::run(inputs, folder, stop));
        }
    }

    /// Starts the tasks that read and write the Node of this node.
    fn spawn_capacity(&self, tasks: &mut Supervisor, nodes: &Nodes) {
        let (watched, name) = (nodes.clone(), self.settings.node_name.clone());
        let (own_node, seen) = (self.own_node.clone(), self.own_node.subscribe());
        tasks.spawn("own node", |stop| watched.watch(name, own_node, stop));
        let inputs = capacity::Inputs {
            settings: self.settings.clone(),
            clock: self.clock,
            listed: self.published.listed.subscribe(),
            registered: self.published.registered.subscribe(),
            kubelet: self.kubelet.subscribe(),
            kubelet_folder: self.kubelet_folder.subscribe(),
        };
        let nodes = nodes.clone();
        tasks.spawn("node capacity", |stop| {
            capacity::run(inputs, nodes, seen, stop)
        });
    }
}
