//! Defines the flags of `petiole agent`.
mod state_lock;

#[cfg(feature = "people")]
use crate::store::folder::{self, FolderStore};
use crate::{
    agent::{self, Place},
    cluster::{self, node::Nodes, property_sources::PropertySources},
    discovery::{
        external::{self, AllowedPath},
        handlers::{
            self, AllowList, Allowed,
            cdi::{AllowedKind, Kinds},
            probe::Networks,
            udev::{AllowedSubsystem, Subsystems},
        },
        session::Handlers,
    },
    model::{limits, names::ObjectKey, variables::Variables},
    store::{
        Store,
        kubernetes::{self, KubernetesStore},
    },
    telemetry,
};
use anyhow::Context as _;
use clap::Args;
use petiole_cli::{scope::ScopeFlags, signals::until_signal};
use std::{future, net::SocketAddr, path::PathBuf, sync::Arc};
use tokio_util::sync::CancellationToken;
use tracing::info;

/// The advice for a machine without an API server.
const WITHOUT_CLUSTER: &str = if cfg!(feature = "people") {
    "with --standalone no API server is needed"
} else {
    "this program runs in a Pod of a cluster; `petiole agent` of the release and of the Debian package has --standalone"
};

#[derive(Debug, Args)]
pub struct Flags {
    /// Run without a cluster: Configurations and Instances are manifests in folders
    #[cfg(feature = "people")]
    #[arg(
        long,
        env = "PETIOLE_STANDALONE",
        conflicts_with_all = ["watch_namespaces", "pod_name"]
    )]
    standalone: bool,
    /// Name of this node, as its kubelet has it
    #[arg(long, env = "PETIOLE_NODE_NAME")]
    node_name: String,
    /// Without a cluster: folder of Configuration manifests, which is read again at each change
    #[cfg(feature = "people")]
    #[arg(
        long,
        env = "PETIOLE_CONFIGURATIONS",
        value_name = "DIR",
        default_value = "/etc/petiole/configurations"
    )]
    configurations: PathBuf,
    /// Folder for the agent's state. In a cluster: what it knows at the start while the API server does not answer.
    /// Without one: Instances, the status of Configurations, and errors
    #[arg(
        long,
        env = "PETIOLE_STATE",
        value_name = "DIR",
        default_value = "/var/lib/akri"
    )]
    state: PathBuf,
    /// Stand by while another agent uses the folder of --state, and take over from it without a gap when it ends. Without this
    /// flag the folder must be free within 15 s
    #[arg(long, env = "PETIOLE_STAND_BY")]
    stand_by: bool,
    /// Ask the agent of --pod-name in this container whether it has started, and end
    #[arg(long, hide = true, requires = "pod_name")]
    startup_probe: bool,
    /// Root folder of the kubelet; the agent uses `device-plugins` and `pod-resources` in it
    #[arg(
        long,
        env = "PETIOLE_KUBELET_DIR",
        value_name = "DIR",
        default_value = "/var/lib/kubelet"
    )]
    kubelet_dir: PathBuf,
    /// Folder for device plugins of the kubelet, if it is not in the root folder
    #[arg(long, env = "PETIOLE_DEVICE_PLUGIN_DIR", value_name = "DIR")]
    device_plugin_dir: Option<PathBuf>,
    /// Folder with the socket of the kubelet's pod resources API, if it is not in the root folder
    #[arg(long, env = "PETIOLE_POD_RESOURCES_DIR", value_name = "DIR")]
    pod_resources_dir: Option<PathBuf>,
    /// The agent's own Pod, in a cluster. The agent trusts a list of containers from the kubelet only if it contains
    /// this Pod
    #[arg(long, env = "PETIOLE_POD_NAME", requires = "namespace")]
    pod_name: Option<String>,
    /// Namespace of --pod-name
    #[arg(long, env = "PETIOLE_NAMESPACE", hide_short_help = true)]
    namespace: Option<String>,
    /// Without a cluster: folder of static Pods that the kubelet reads. The agent writes a broker into it for each
    /// Instance; in a cluster the controller creates brokers
    #[cfg(feature = "people")]
    #[arg(
        long,
        env = "PETIOLE_RENDER_BROKERS",
        value_name = "DIR",
        requires = "standalone"
    )]
    render_brokers: Option<PathBuf>,
    #[cfg(feature = "people")]
    #[command(flatten)]
    once: super::once::OnceFlags,
    #[command(flatten)]
    scope: ScopeFlags,
    /// Highest number of Configurations. Of those beyond it the youngest ones of the namespace with the most are rejected, and
    /// their status says so
    #[arg(
        long,
        env = "PETIOLE_MAX_CONFIGURATIONS",
        value_name = "N",
        default_value_t = limits::AGENT_CONFIGURATIONS
    )]
    max_configurations: usize,
    /// Highest number of Instances of all Configurations together. Each namespace and each Configuration may have a part; further
    /// devices are ignored, and the status says so
    #[arg(
        long,
        env = "PETIOLE_MAX_INSTANCES",
        value_name = "N",
        default_value_t = limits::AGENT_INSTANCES
    )]
    max_instances: usize,
    /// In a cluster: label this Node `akri.sh/has-<configuration>: "true"` for each Configuration of which it has a device. Without
    /// this, such labels are removed
    #[arg(long, env = "PETIOLE_NODE_LABELS")]
    node_labels: bool,
    /// Kinds of CDI devices that Configurations may offer, such as `vendor.com/class`; `*` means all
    #[cfg_attr(feature = "people", doc = "[default: none; all with --standalone]")]
    #[cfg_attr(not(feature = "people"), doc = "[default: none]")]
    #[arg(
        long,
        env = "PETIOLE_CDI_KINDS",
        value_name = "KIND,...",
        value_delimiter = ','
    )]
    cdi_kinds: Option<Vec<AllowedKind>>,
    /// Subsystems of the kernel, such as `tty` or `video4linux`, whose devices Configurations of udev may offer; `*`
    /// means all
    #[cfg_attr(feature = "people", doc = "[default: none; all with --standalone]")]
    #[cfg_attr(not(feature = "people"), doc = "[default: none]")]
    #[arg(
        long,
        env = "PETIOLE_UDEV_SUBSYSTEMS",
        value_name = "SUBSYSTEM,...",
        value_delimiter = ','
    )]
    udev_subsystems: Option<Vec<AllowedSubsystem>>,
    #[command(flatten)]
    probe: super::probe::ProbeFlags,
    /// Folder in which discovery handlers of your own register, as with Akri: `agent-registration.sock` is created there
    /// [default: none; Akri's is /var/lib/akri]
    #[arg(long, env = "PETIOLE_HANDLERS_DIR", value_name = "DIR")]
    handlers_dir: Option<PathBuf>,
    /// Paths of this node, each with all that is below it, that such handlers may give to containers as mounts and
    /// device nodes
    #[arg(
        long,
        env = "PETIOLE_HANDLER_HOST_PATHS",
        value_name = "PATH,...",
        value_delimiter = ',',
        default_value = "/dev"
    )]
    handler_host_paths: Vec<AllowedPath>,
    #[command(flatten)]
    paths: super::device_paths::PathFlags,
    #[command(flatten)]
    containers: super::containers::ContainerFlags,
    /// Prepare ResourceClaims for devices whose Configurations have `allocation: DRA`, in a cluster. CDI files go into
    /// --cdi-folder
    #[arg(long, env = "PETIOLE_DRA", requires = "cdi_folder")]
    dra: bool,
    /// UID of --pod-name: with it the sockets for ResourceClaims differ from those of the agent before
    #[arg(long, env = "PETIOLE_POD_UID", hide_short_help = true)]
    pod_uid: Option<String>,
    #[command(flatten)]
    isolation: super::isolation::IsolationFlags,
    /// Variables that brokerProperties and devices may set although programs obey them in any container, such as
    /// `HTTPS_PROXY`
    #[arg(
        long,
        env = "PETIOLE_ALLOW_VARIABLES",
        value_name = "NAME,...",
        value_delimiter = ','
    )]
    allow_variables: Vec<String>,
    /// Address of /metrics, /healthz and /readyz; a loopback address is enough for probes [default: none]
    #[arg(long, env = "PETIOLE_HTTP_ADDRESS", value_name = "IP:PORT")]
    http_address: Option<SocketAddr>,
    /// Further address of /metrics alone, which Prometheus can reach [default: none]
    #[arg(long, env = "PETIOLE_METRICS_ADDRESS", value_name = "IP:PORT")]
    metrics_address: Option<SocketAddr>,
}

impl Flags {
    fn settings(&self) -> agent::Settings {
        agent::Settings {
            node_name: self.node_name.as_str().into(),
            resource_prefixes: self.scope.resource_prefixes(),
            nodes: None,
            node_labels: self.node_labels,
            property_sources: None,
            plugin_folder: (self.device_plugin_dir.clone())
                .unwrap_or_else(|| self.kubelet_dir.join("device-plugins")),
            pod_resources_socket: (self.pod_resources_dir.clone())
                .unwrap_or_else(|| self.kubelet_dir.join("pod-resources"))
                .join("kubelet.sock"),
            own_pod: (self.namespace.clone().zip(self.pod_name.clone()))
                .map(|(namespace, name)| ObjectKey::new(namespace, name)),
            kubelet_startup_grace: agent::KUBELET_STARTUP_GRACE,
            look_interval: agent::LOOK_INTERVAL,
            resource_name_hold: agent::RESOURCE_NAME_HOLD,
            max_configurations: self.max_configurations,
            max_instances: self.max_instances,
            containers: self.containers.rules(),
            claims: None,
            #[cfg(feature = "people")]
            render_brokers: self.render_brokers.clone(),
            http_address: self.http_address,
            metrics_address: self.metrics_address,
        }
    }
}

impl Flags {
    #[cfg(feature = "people")]
    fn is_standalone(&self) -> bool {
        self.standalone
    }

    /// Returns whether the agent looks once and ends.
    #[cfg(feature = "people")]
    pub(super) fn is_once(&self) -> bool {
        self.once.once
    }

    #[cfg(not(feature = "people"))]
    #[expect(clippy::unused_self, reason = "the other one reads a flag")]
    fn is_once(&self) -> bool {
        false
    }

    /// Every agent of a program without the feature belongs to a cluster.
    #[cfg(not(feature = "people"))]
    #[expect(clippy::unused_self, reason = "the other one reads a flag")]
    fn is_standalone(&self) -> bool {
        false
    }

    /// Returns the kinds of CDI devices. Only root of this machine can write manifests into a folder; in a cluster
    /// other users can create Configurations.
    fn cdi_kinds(&self) -> Kinds {
        AllowList::of_flag(self.cdi_kinds.as_deref(), self.is_standalone())
    }

    /// Returns the subsystems whose devices may be offered, by the same rule.
    fn udev_subsystems(&self) -> Subsystems {
        AllowList::of_flag(self.udev_subsystems.as_deref(), self.is_standalone())
    }

    /// Returns the networks whose hosts may be asked, by the same rule.
    fn probe_networks(&self) -> Networks {
        let all = self.is_standalone().then_some(Networks::ALL);
        let usual = all.unwrap_or_else(|| Networks::from_iter([]));
        self.probe.networks(usual)
    }

    fn handlers(&self) -> Handlers {
        let variables = Variables::allowing(self.allow_variables.clone());
        let allowed = Allowed {
            kinds: self.cdi_kinds(),
            subsystems: self.udev_subsystems(),
            paths: self.paths.allowed(self.is_standalone()),
            dev: self.paths.dev.dir.clone(),
            networks: self.probe_networks(),
        };
        let handlers = Handlers::new(handlers::builtin_with(allowed)).with_variables(variables);
        // A look takes no handlers from the agent that runs.
        if !self.is_once() && (self.handlers_dir.is_some() || self.isolation.is_wanted()) {
            return handlers.with_external(external::Settings {
                folder: self.handlers_dir.clone(),
                file: self.state.join("handlers.json"),
                host_paths: self.handler_host_paths.iter().cloned().collect(),
                isolated: self.isolation.isolated(&self.state),
            });
        }
        handlers
    }
}

pub(super) async fn run(flags: Flags) -> anyhow::Result<()> {
    let settings = flags.settings();
    if let Some(pod) = settings.own_pod.as_ref().filter(|_| flags.startup_probe) {
        return agent::ask_startup(pod);
    }
    let handlers = flags.handlers();
    #[cfg(feature = "people")]
    if flags.is_once() {
        let look = super::once::run(&flags.once, &flags.configurations, settings, handlers);
        return Box::pin(look).await;
    }
    let (_lock, place) = if flags.stand_by {
        (None, Place::of(flags.state.clone()))
    } else {
        let lock = state_lock::taken(&flags.state).await.context("--state")?;
        (lock, Place::alone())
    };
    telemetry::metrics().begin_agent(handlers.names().iter().map(String::as_str));
    info!(
        node = %settings.node_name,
        standalone = flags.is_standalone(),
        plugins = %settings.plugin_folder.display(),
        "agent starting"
    );
    until_signal(|shutdown| run_in(place, flags, settings, handlers, shutdown)).await
}

/// Runs the agent in its place.
async fn run_in(
    mut place: Place,
    flags: Flags,
    mut settings: agent::Settings,
    handlers: Handlers,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    if flags.is_standalone() {
        // Its store is files, which another agent may still write.
        let taken = place.take(future::pending());
        if shutdown.run_until_cancelled(taken).await.is_none() {
            return Ok(());
        }
    }
    let store = store(flags, &mut settings, place.held()).await?;
    agent::run_in(place, settings, store, handlers, shutdown).await
}

/// Returns the folders of a standalone agent, or else the API server. Its Nodes, Secrets and ConfigMaps are added to the
/// settings.
async fn store(
    flags: Flags,
    settings: &mut agent::Settings,
    held: CancellationToken,
) -> anyhow::Result<Arc<dyn Store>> {
    #[cfg(feature = "people")]
    if flags.standalone {
        return Ok(Arc::new(FolderStore::open(folder::Settings {
            node_name: settings.node_name.clone(),
            configurations: flags.configurations,
            state: flags.state,
        })?));
    }
    let client = cluster::client().await.context(WITHOUT_CLUSTER)?;
    settings.nodes = Some(Nodes::new(client.clone(), &settings.resource_prefixes));
    settings.property_sources = Some(PropertySources::new(client.clone()));
    if let Some(folder) = (settings.containers.cdi_folder.clone()).filter(|_| flags.dra) {
        let (root, pod_uid) = (flags.kubelet_dir, flags.pod_uid);
        let claims = agent::Claims::open(client.clone(), root, pod_uid, folder);
        settings.claims = Some(claims.context("--dra")?);
    }
    let settings = kubernetes::Settings {
        node_name: settings.node_name.clone(),
        namespaces: flags.scope.namespaces(),
        state: flags.state,
        max_configurations: settings.max_configurations,
    };
    let store = KubernetesStore::new(client, settings)?;
    Ok(Arc::new(store.standing_by(held)))
}

#[cfg(test)]
mod tests;
