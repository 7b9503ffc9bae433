//! Runs a node: our agent and our kubelet on real sockets in a temporary folder. Each can be stopped and killed
//! separately.
mod acts;
mod sees;

use super::{
    process::Process,
    test_handler::{Devices, TestHandler, device},
    watched_store::{StoreWatch, WatchedStore},
};
use k8s_openapi::api::core::v1::Pod;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use petiole::{
    agent,
    api::instance::Instance,
    discovery::{
        DiscoveryHandler,
        handlers::{
            builtin,
            cdi::{Cdi, Kinds},
        },
        session::Handlers,
    },
    model::{
        device::{DeviceId, Scope},
        instance_name::{InstanceKey, InstanceName},
        slot::SlotOwner,
        slot_table::SlotChange,
    },
    store::{
        Store as _,
        folder::{self, FolderStore},
    },
};
use petiole_base::files;
use petiole_kubelet::client::{Client, PluginState};
use petiole_kubelet_api::{
    device_plugin::{
        AllocateRequest, ContainerAllocateRequest, ContainerAllocateResponse,
        device_plugin_client::DevicePluginClient,
    },
    uds,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::{fs::FileTypeExt as _, net::UnixListener},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tempfile::TempDir;
use tokio::time::{Instant, sleep, timeout};
use tonic::{Status, transport::Channel};

pub const NODE: &str = "node-a";
/// A time limit that only ends a failing test. It is long, because the machine may be busy.
pub const PATIENCE: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(10);

pub type Env = BTreeMap<String, String>;
pub type PluginClient = DevicePluginClient<Channel>;

pub struct TestNode {
    _dir: TempDir,
    root: PathBuf,
    pub agent_settings: agent::Settings,
    pub kubelet_settings: petiole_kubelet::Settings,
    pub devices: Devices,
    pub store: StoreWatch,
    /// The settings for handlers in other processes.
    pub external: Option<petiole::discovery::external::Settings>,
    /// The store of the running agent.
    folder_store: Option<Arc<FolderStore>>,
    agent: Option<Process>,
    kubelet: Option<Process>,
}

impl TestNode {
    /// Creates a node on which nothing runs yet.
    pub fn new() -> Self {
        Self::in_folder("")
    }

    /// Creates a node whose kubelet has its root in this folder of the node.
    pub fn in_folder(folder: &str) -> Self {
        // The path of a socket has 107 bytes at most.
        let dir = tempfile::Builder::new()
            .prefix("pt")
            .tempdir_in("/tmp")
            .unwrap();
        let root = dir.path().to_owned();
        let kubelet_settings = petiole_kubelet::Settings {
            endpoint_grace: Duration::from_secs(1),
            restart_backoff: Duration::from_millis(50),
            ..petiole_kubelet::Settings::new(
                root.join("k").join(folder),
                root.join("manifests"),
                NODE,
            )
        };
        for folder in ["configurations", "manifests", "k"] {
            fs::create_dir_all(root.join(folder)).unwrap();
        }
        Self {
            agent_settings: agent::Settings {
                node_name: NODE.into(),
                resource_prefixes: "akri.sh".parse().unwrap(),
                nodes: None,
                node_labels: false,
                property_sources: None,
                plugin_folder: kubelet_settings.root_dir.join("device-plugins"),
                pod_resources_socket: kubelet_settings.root_dir.join("pod-resources/kubelet.sock"),
                own_pod: None,
                kubelet_startup_grace: Duration::from_secs(2),
                look_interval: agent::LOOK_INTERVAL,
                resource_name_hold: Duration::from_secs(1),
                max_configurations: 100,
                max_instances: 5000,
                containers: petiole::model::container_devices::ContainerRules::default(),
                claims: None,
                render_brokers: None,
                http_address: None,
                metrics_address: None,
            },
            kubelet_settings,
            devices: Devices::default(),
            store: StoreWatch::default(),
            external: None,
            folder_store: None,
            agent: None,
            kubelet: None,
            root,
            _dir: dir,
        }
    }

    /// Starts a node with an agent and a kubelet.
    pub fn started() -> Self {
        let mut node = Self::new();
        node.start_kubelet();
        node.start_agent();
        node
    }

    /// Starts a node that offers the only device of the Configuration `cam`. Returns the name of its Instance too.
    pub async fn with_a_camera(spec: &str, slots: u32) -> (Self, String) {
        let node = Self::started();
        node.configure("cam", spec);
        node.devices.see("cam", [device("door")]);
        let door = instance_name("cam", "door");
        node.until_counts(&door, slots, slots).await;
        (node, door)
    }

    pub fn start_agent(&mut self) {
        assert!(self.agent.is_none(), "one agent is enough");
        let inner = FolderStore::open(folder::Settings {
            node_name: NODE.into(),
            configurations: self.configurations(),
            state: self.state(),
        });
        let inner = Arc::new(inner.unwrap());
        self.folder_store = Some(inner.clone());
        let watch = self.store.clone();
        let store = WatchedStore { inner, watch };
        let test: Box<dyn DiscoveryHandler> = Box::new(TestHandler(self.devices.clone()));
        // These folders replace those of the machine.
        let cdi: Box<dyn DiscoveryHandler> = Box::new(Cdi::new(self.cdi_folders(), Kinds::All));
        let handlers = Handlers::new(builtin().into_iter().chain([test, cdi]).collect());
        let handlers = match self.external.clone() {
            Some(external) => handlers.with_external(external),
            None => handlers,
        };
        let settings = self.agent_settings.clone();
        let log = self.root.join("agent.log");
        self.agent = Some(Process::start(&log, |shutdown| {
            agent::run(settings, Arc::new(store), handlers, shutdown)
        }));
    }

    pub fn start_kubelet(&mut self) {
        assert!(self.kubelet.is_none(), "one kubelet is enough");
        let settings = self.kubelet_settings.clone();
        let log = self.root.join("kubelet.log");
        self.kubelet = Some(Process::start(&log, |shutdown| {
            petiole_kubelet::run(settings, shutdown)
        }));
    }

    /// Stops the agent as SIGTERM does.
    pub async fn stop_agent(&mut self) {
        let agent = self.agent.take().expect("an agent runs");
        agent.stop().await.expect("the agent ends without an error");
    }

    /// Kills the agent as `kill -9` does: its sockets stay.
    pub fn kill_agent(&mut self) {
        let sockets = self.sockets();
        self.agent.take().expect("an agent runs").kill();
        for socket in sockets {
            // A listener that is dropped leaves its file.
            let path = self.agent_settings.plugin_folder.join(socket);
            if !path.exists() {
                drop(UnixListener::bind(path).unwrap());
            }
        }
    }

    pub async fn stop_kubelet(&mut self) {
        let kubelet = self.kubelet.take().expect("a kubelet runs");
        kubelet
            .stop()
            .await
            .expect("the kubelet ends without an error");
    }

    /// Kills the kubelet as `kill -9` does, with its containers.
    pub fn kill_kubelet(&mut self) {
        self.kubelet.take().expect("a kubelet runs").kill();
    }

    /// Panics unless all processes that were started still run.
    pub fn assert_all_run(&self) {
        for process in [&self.agent, &self.kubelet].into_iter().flatten() {
            assert!(!process.has_ended(), "it ended: {}", self.logs());
        }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn configurations(&self) -> PathBuf {
        self.root.join("configurations")
    }

    /// Returns the node's folders for `/etc/cdi` and `/var/run/cdi`.
    pub fn cdi_folders(&self) -> [PathBuf; 2] {
        ["etc-cdi", "run-cdi"].map(|folder| self.root.join(folder))
    }

    pub fn state(&self) -> PathBuf {
        self.root.join("state")
    }

    pub fn agent_log(&self) -> String {
        fs::read_to_string(self.root.join("agent.log")).unwrap_or_default()
    }

    fn shown(&self) -> String {
        let instances = self.instances().into_iter().take(5);
        let lines = instances.map(|(name, instance)| format!("{name}: {:?}\n", instance.spec));
        let errors = fs::read_dir(self.state()).into_iter().flatten();
        let errors = errors.filter_map(|entry| {
            let path = entry.ok()?.path();
            let text = fs::read_to_string(&path).ok()?;
            Some(format!("{}: {text}", path.display()))
        });
        format!(
            "Instances:\n{}Errors:\n{}",
            lines.collect::<String>(),
            errors.collect::<String>()
        )
    }

    fn logs(&self) -> String {
        let tail = |name: &str| {
            let text = fs::read_to_string(self.root.join(name)).unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            lines[lines.len().saturating_sub(40)..].join("\n")
        };
        format!(
            "\n-- agent\n{}\n-- kubelet\n{}\n",
            tail("agent.log"),
            tail("kubelet.log")
        )
    }

    /// Waits until `look` returns a value.
    pub async fn until<T>(&self, what: &str, look: impl AsyncFnMut() -> Option<T>) -> T {
        self.within(PATIENCE, what, look).await
    }

    pub async fn within<T>(
        &self,
        patience: Duration,
        what: &str,
        mut look: impl AsyncFnMut() -> Option<T>,
    ) -> T {
        let end = Instant::now() + patience;
        loop {
            if let Some(found) = look().await {
                return found;
            }
            if Instant::now() > end {
                panic!("never: {what}; {}{}", self.shown(), self.logs());
            }
            sleep(POLL).await;
        }
    }
}

pub fn request(ids: &[&str]) -> AllocateRequest {
    let devices_ids = ids.iter().map(|id| (*id).to_owned()).collect();
    AllocateRequest {
        container_requests: vec![ContainerAllocateRequest { devices_ids }],
    }
}

/// Returns the name of the Instance of a device.
pub fn instance_name(configuration: &str, device: &str) -> String {
    let id = DeviceId::new(device);
    InstanceName::candidates(&configuration.into(), &id, Scope::Shared, &NODE.into())[0].to_string()
}
