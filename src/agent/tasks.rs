//! The channels between the tasks of an agent, and how its tasks are started.
//!
//! An agent that stands by has the tasks that look. One that holds its place has those that write too: see
//! [`super::place`].
#[cfg(feature = "people")]
use super::brokers;
use super::{
    capacity,
    cdi_files::{self, CdiFiles},
    claims, configurations, instances, known_devices, kubelet_folder,
    kubelet_records::{OfKubelet, RecordsReader},
    node_labels,
    node_only::{self, plan::NodeOnly},
    place::PlaceState,
    plugins::{self, Decisions},
    property_sources,
    readiness::{self, Readiness},
    settings::{Clock, Settings},
    slots::{self, SharedTable},
    startup,
    values::{KubeletFolder, KubeletSocket, ValidatedConfigurations},
};
use crate::{
    cluster::{self, node::OwnNode},
    discovery::session::{self, Discoveries, Handlers},
    model::slot_table::Use,
    own_thread::OwnThread,
    store::Store,
    supervisor::{Supervisor, endless},
    telemetry::http,
};
use std::{collections::BTreeMap, path::Path, sync::Arc};
use tokio::{
    runtime::Handle,
    sync::{mpsc, watch},
};

/// The channels between the tasks, and what all tasks share.
pub(super) struct Agent {
    pub(super) settings: Arc<Settings>,
    clock: Clock,
    store: Arc<dyn Store>,
    place: PlaceState,
    pub(super) decisions: Decisions,
    pub(super) table: SharedTable,
    pub(super) records: RecordsReader,
    /// Written by `configurations`.
    pub(super) validated: watch::Sender<Arc<ValidatedConfigurations>>,
    /// Written by the discovery sessions.
    pub(super) discoveries: watch::Sender<Arc<Discoveries>>,
    /// The devices that are offered without Instances. Written by `node_only`.
    node_only: watch::Sender<Arc<NodeOnly>>,
    /// The devices that containers use. Written by `reclaim`.
    pub(super) uses: watch::Sender<Option<Arc<[Use]>>>,
    /// Written by the kubelet folder's task, like `kubelet`.
    kubelet_folder: watch::Sender<KubeletFolder>,
    pub(super) kubelet: watch::Sender<Option<KubeletSocket>>,
    /// Written by `plugins`.
    pub(super) published: plugins::Published,
    /// The Node of this node. Written by its watch.
    own_node: watch::Sender<cluster::watch::Set<OwnNode>>,
}

impl Agent {
    pub(super) fn new(settings: Settings, store: Arc<dyn Store>, place: PlaceState) -> Self {
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
            decisions: Decisions::default(),
            place,
            settings,
            clock,
            store,
        }
    }

    /// Begins the time of this agent: what one before it gave out and did not write is not known yet.
    pub(super) fn begin(&mut self) {
        self.clock = Clock::start();
        self.records.clock = self.clock;
    }

    /// Starts the tasks that look: at Configurations, at Instances, at the kubelet's folder and for devices. They write nothing.
    /// The tasks that work for the LAN and for authors of Configurations run on `thread`.
    pub(super) fn spawn_looking(
        &self,
        tasks: &mut Supervisor,
        thread: &Handle,
        handlers: &Arc<Handlers>,
    ) {
        let sessions = watch::Sender::new(BTreeMap::new());
        let desired = sessions.subscribe();
        let store = self.store.clone();
        tasks.spawn("store", |stop| async move { store.run(stop).await });
        if let Some(nodes) = self.settings.nodes.clone() {
            let (name, own_node) = (self.settings.node_name.clone(), self.own_node.clone());
            tasks.spawn("own node", |stop| async move {
                nodes.watch(name, own_node, stop).await
            });
        }
        let properties = self.spawn_property_sources(tasks);
        let inputs = self.configurations(handlers.clone(), properties);
        let validated = self.validated.clone();
        let validation = configurations::run(inputs, validated, sessions);
        tasks.spawn_on(thread, "configurations", endless(validation));
        let (store, preferring) = (self.store.clone(), handlers.clone());
        let telling = known_devices::run(store, preferring);
        tasks.spawn_on(thread, "known devices", endless(telling));
        let (handlers, discoveries) = (handlers.clone(), self.discoveries.clone());
        tasks.spawn_on(thread, "discovery", |stop| {
            session::run(handlers, desired, discoveries, stop)
        });
        let inputs = node_only::Inputs {
            settings: self.settings.clone(),
            clock: self.clock,
            validated: self.validated.subscribe(),
            discoveries: self.discoveries.subscribe(),
            uses: self.uses.subscribe(),
        };
        let offers = self.node_only.clone();
        tasks.spawn_on(thread, "node only", endless(node_only::run(inputs, offers)));
    }

    /// Starts the tasks that tell others what was found: the report to the store, and the socket at which handlers register.
    pub(super) fn spawn_telling(
        &self,
        tasks: &mut Supervisor,
        thread: &Handle,
        handlers: Arc<Handlers>,
    ) {
        tasks.spawn_on(thread, "handlers", |stop| async move {
            handlers.serve(stop).await
        });
        let inputs = self.instances();
        tasks.spawn("instances", |stop| instances::run(inputs, stop));
    }

    pub(super) fn instances(&self) -> instances::Inputs {
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

    pub(super) fn configurations(
        &self,
        handlers: Arc<Handlers>,
        properties: Option<configurations::Properties>,
    ) -> configurations::Inputs {
        configurations::Inputs {
            settings: self.settings.clone(),
            clock: self.clock,
            handlers,
            configurations: self.store.configurations(),
            instances: self.store.instances(),
            own_node: self.own_node(),
            properties,
            kubelet: self.kubelet.subscribe(),
            kubelet_folder: self.kubelet_folder.subscribe(),
            registered: self.published.registered.subscribe(),
        }
    }

    pub(super) fn spawn_kubelet_folder(&self, tasks: &mut Supervisor) {
        let folder: Arc<Path> = self.settings.plugin_folder.as_path().into();
        let (changes, kubelet) = (self.kubelet_folder.clone(), self.kubelet.clone());
        let watching = kubelet_folder::run(folder, changes, kubelet);
        tasks.spawn("kubelet folder", endless(watching));
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
        let watching = property_sources::run(sources, wanted, contents);
        tasks.spawn("property sources", endless(watching));
        Some(properties)
    }

    /// Starts the tasks of the slots in `tasks`, and in `plugins` the plugins that ask them.
    pub(super) fn spawn_plugins(&self, tasks: &mut Supervisor, plugins: &mut Supervisor) {
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
        let looks = slots::reclaim::run(inputs, releases, uses);
        tasks.spawn("reclaim", endless(looks));
        let inputs = self.plugins(self.spawn_cdi_files(tasks));
        if let Some(claims) = self.settings.claims.clone() {
            let (inputs, requests) = (inputs.clone(), requests.clone());
            tasks.spawn("claims", |stop| claims::run(claims, inputs, requests, stop));
        }
        let published = self.published.clone();
        plugins.spawn("plugins", |stop| {
            plugins::run(inputs, requests, published, stop)
        });
    }

    pub(super) fn slots(&self) -> slots::Slots {
        slots::Slots {
            store: self.store.clone(),
            clock: self.clock,
            table: self.table.clone(),
        }
    }

    pub(super) fn reclaim(&self) -> slots::reclaim::Inputs {
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

    pub(super) fn plugins(&self, cdi_files: CdiFiles) -> plugins::Inputs {
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
            decisions: self.decisions.clone(),
            listed: self.published.listed.subscribe(),
            own_node: self.own_node(),
        }
    }

    /// The Node of this node, if there is a cluster.
    fn own_node(&self) -> Option<watch::Receiver<cluster::watch::Set<OwnNode>>> {
        let watched = self.settings.nodes.as_ref();
        watched.map(|_| self.own_node.subscribe())
    }

    /// Starts the task that keeps CDI files.
    fn spawn_cdi_files(&self, tasks: &mut Supervisor) -> CdiFiles {
        let cdi_files = CdiFiles::new(self.settings.containers.cdi_folder.clone());
        if self.settings.containers.cdi_folder.is_some() {
            let inputs = cdi_files::Inputs {
                clock: self.clock,
                claims: self.settings.claims.clone(),
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

    /// Returns what says whether this agent is ready.
    pub(super) fn readiness(&self, thread: &OwnThread) -> Readiness {
        Readiness::new(readiness::Inputs {
            settings: self.settings.clone(),
            clock: self.clock,
            place: self.place.clone(),
            configurations: self.store.configurations(),
            instances: self.store.instances(),
            validated: self.validated.subscribe(),
            discoveries: self.discoveries.subscribe(),
            node_only: self.node_only.subscribe(),
            kubelet: self.kubelet.subscribe(),
            registered: self.published.registered.subscribe(),
            discovery: thread.pulse(),
        })
    }

    /// Starts the servers that probes and Prometheus ask.
    pub(super) fn spawn_probed(&self, tasks: &mut Supervisor, readiness: &Readiness) {
        if let Some(pod) = self.settings.own_pod.clone() {
            let readiness = readiness.clone();
            tasks.spawn("startup", endless(startup::serve(pod, readiness)));
        }
        if let Some(address) = self.settings.http_address {
            let health = readiness.health();
            tasks.spawn("http", |stop| {
                http::serve(address, http::routes(health), stop)
            });
        }
        if let Some(address) = self.settings.metrics_address {
            tasks.spawn("metrics", |stop| http::serve_metrics(address, stop));
        }
    }

    /// Starts the task that writes static Pods. It reads and parses all of them at each change, so it runs on `thread`.
    #[cfg(feature = "people")]
    pub(super) fn spawn_brokers(&self, tasks: &mut Supervisor, thread: &Handle) {
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
            tasks.spawn_on(thread, "brokers", endless(brokers::run(inputs, folder)));
        }
    }

    /// Starts the tasks that write the Node of this node.
    pub(super) fn spawn_own_node(&self, tasks: &mut Supervisor) {
        let Some(nodes) = &self.settings.nodes else {
            return;
        };
        let inputs = capacity::Inputs {
            settings: self.settings.clone(),
            clock: self.clock,
            listed: self.published.listed.subscribe(),
            registered: self.published.registered.subscribe(),
            kubelet: self.kubelet.subscribe(),
            kubelet_folder: self.kubelet_folder.subscribe(),
        };
        let (writing, seen) = (nodes.clone(), self.own_node.subscribe());
        let publishing = capacity::run(inputs, writing, seen);
        tasks.spawn("node capacity", endless(publishing));
        let inputs = node_labels::Inputs {
            settings: self.settings.clone(),
            clock: self.clock,
            store: self.store.clone(),
            node_only: self.node_only.subscribe(),
            own: self.own_node.subscribe(),
        };
        let nodes = nodes.clone();
        tasks.spawn("node labels", endless(node_labels::run(inputs, nodes)));
    }
}
