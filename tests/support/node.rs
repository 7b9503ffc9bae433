//! A node: our agent and our kubelet on real sockets in a temporary folder, each to be stopped and killed by itself.
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
        handlers::{builtin, cdi::Cdi},
        session::Handlers,
    },
    files,
    kubelet::{
        self,
        client::{Client, PluginState},
    },
    model::{
        device::{DeviceId, Scope},
        instance_name::InstanceName,
    },
    proto::device_plugin::{
        AllocateRequest, ContainerAllocateRequest, ContainerAllocateResponse,
        device_plugin_client::DevicePluginClient,
    },
    store::folder::{self, FolderStore},
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
/// Long: it only ends a test that fails, and the machine may be busy with others.
pub const PATIENCE: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(10);

pub type Env = BTreeMap<String, String>;
pub type PluginClient = DevicePluginClient<Channel>;

pub struct TestNode {
    _dir: TempDir,
    root: PathBuf,
    pub agent_settings: agent::Settings,
    pub kubelet_settings: kubelet::Settings,
    pub devices: Devices,
    pub store: StoreWatch,
    agent: Option<Process>,
    kubelet: Option<Process>,
}

impl TestNode {
    /// A node on which nothing runs yet.
    pub fn new() -> Self {
        Self::in_folder("")
    }

    /// One whose kubelet has its root in this folder of the node's.
    pub fn in_folder(folder: &str) -> Self {
        // A socket's path has 107 bytes at most.
        let dir = tempfile::Builder::new()
            .prefix("pt")
            .tempdir_in("/tmp")
            .unwrap();
        let root = dir.path().to_owned();
        let kubelet_settings = kubelet::Settings {
            endpoint_grace: Duration::from_secs(1),
            restart_backoff: Duration::from_millis(50),
            ..kubelet::Settings::new(root.join("k").join(folder), root.join("manifests"), NODE)
        };
        for folder in ["configurations", "manifests", "k"] {
            fs::create_dir_all(root.join(folder)).unwrap();
        }
        Self {
            agent_settings: agent::Settings {
                node_name: NODE.to_owned(),
                resource_prefix: "akri.sh".to_owned(),
                resource_prefixes: vec!["akri.sh".to_owned()],
                nodes: None,
                plugin_folder: kubelet_settings.root_dir.join("device-plugins"),
                pod_resources_socket: kubelet_settings.root_dir.join("pod-resources/kubelet.sock"),
                own_pod: None,
                kubelet_settles: Duration::from_secs(2),
                between_looks: agent::BETWEEN_LOOKS,
                names_are_kept: Duration::from_secs(1),
                max_instances: 5000,
                render_brokers: None,
                http_address: None,
            },
            kubelet_settings,
            devices: Devices::default(),
            store: StoreWatch::default(),
            agent: None,
            kubelet: None,
            root,
            _dir: dir,
        }
    }

    /// A node with an agent and a kubelet.
    pub fn started() -> Self {
        let mut node = Self::new();
        node.start_kubelet();
        node.start_agent();
        node
    }

    /// One that offers the only device of the Configuration `cam`, with the name of its Instance.
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
        let store = WatchedStore {
            inner: FolderStore::open(folder::Settings {
                node_name: NODE.to_owned(),
                configurations: self.configurations(),
                state: self.state(),
            })
            .unwrap(),
            watch: self.store.clone(),
        };
        let test: Box<dyn DiscoveryHandler> = Box::new(TestHandler(self.devices.clone()));
        // Not those of the machine.
        let cdi: Box<dyn DiscoveryHandler> = Box::new(Cdi::new(self.cdi_folders()));
        let handlers = Handlers::new(builtin().into_iter().chain([test, cdi]).collect());
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
            kubelet::run(settings, shutdown)
        }));
    }

    /// As by SIGTERM.
    pub async fn stop_agent(&mut self) {
        let agent = self.agent.take().expect("an agent runs");
        agent.stop().await.expect("the agent ends without an error");
    }

    /// As by `kill -9`: its sockets stay behind.
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

    /// As by `kill -9`, and its containers with it.
    pub fn kill_kubelet(&mut self) {
        self.kubelet.take().expect("a kubelet runs").kill();
    }

    /// Panics unless both that were started still run.
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

    /// `/etc/cdi` and `/var/run/cdi` of this node.
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

    /// Waits until `look` finds something.
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

// What the test does to the node.
impl TestNode {
    /// Writes a Configuration of the test handler whose details are its name. `spec` are more fields, in braces' style.
    pub fn configure(&self, name: &str, spec: &str) {
        self.configure_with(name, name, spec);
    }

    pub fn configure_with(&self, name: &str, details: &str, spec: &str) {
        let text = format!(
            "apiVersion: akri.sh/v0\nkind: Configuration\nmetadata: {{name: {name}}}\n\
             spec: {{discoveryHandler: {{name: test, discoveryDetails: {details}}}, {spec}}}\n"
        );
        self.write_manifest(&format!("{name}.yaml"), &text);
    }

    pub fn write_manifest(&self, file: &str, text: &str) {
        files::write_atomically(&self.configurations().join(file), text.as_bytes(), 0o644).unwrap();
    }

    pub fn remove_manifest(&self, file: &str) {
        files::remove(&self.configurations().join(file)).unwrap();
    }

    /// A static Pod whose containers print their environment and wait; each asks for these resources.
    pub fn run_pod(&self, name: &str, limits: &[(&str, usize)]) {
        let limits: BTreeMap<_, _> = limits.iter().copied().collect();
        let pod = serde_json::json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name},
            "spec": {
                "terminationGracePeriodSeconds": 1,
                "containers": [{
                    "name": "main",
                    "image": "none",
                    "command": ["/bin/sh", "-c", "echo PID=$$$$; env; echo END; exec sleep 1000"],
                    "resources": {"limits": limits},
                }],
            },
        });
        let path = self.root.join("manifests").join(format!("{name}.yaml"));
        files::write_atomically(&path, pod.to_string().as_bytes(), 0o644).unwrap();
    }

    pub fn remove_pod(&self, name: &str) {
        files::remove(&self.root.join("manifests").join(format!("{name}.yaml"))).unwrap();
    }

    /// Ends a Pod's process, as a crash would.
    pub async fn crash(&self, pod: &str) {
        let pid = self.pid(pod).await;
        kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
    }

    /// A client of the plugin that serves this resource now.
    pub async fn plugin(&self, resource: &str) -> PluginClient {
        self.until(&format!("a plugin for {resource}"), async || {
            let socket = self.socket_of(resource)?;
            let path = self.agent_settings.plugin_folder.join(socket);
            uds::dial(&path).await.ok().map(DevicePluginClient::new)
        })
        .await
    }

    /// Allocate, as a kubelet calls it for one container.
    pub async fn allocate(
        &self,
        resource: &str,
        ids: &[&str],
    ) -> Result<ContainerAllocateResponse, Status> {
        let mut plugin = self.plugin(resource).await;
        let mut responses = timeout(PATIENCE, plugin.allocate(request(ids)))
            .await
            .expect("Allocate is answered")?
            .into_inner()
            .container_responses;
        assert_eq!(responses.len(), 1, "one response for each container");
        Ok(responses.remove(0))
    }
}

// What the test does within a claim.
impl TestNode {
    /// Allocates a slot, and hangs up when the claim is written and not answered: the store is held up from then on.
    pub async fn give_up_a_claim(&self, resource: &str, slot: &str) {
        let mut plugin = self.plugin(resource).await;
        self.store.is_held_up.send_replace(true);
        let usage = [(slot, NODE)];
        let claimed = self.until_usage(resource, &usage);
        tokio::select! {
            answer = plugin.allocate(request(&[slot])) => panic!("the write was held up: {answer:?}"),
            () = claimed => {}
        }
    }
}

pub fn request(ids: &[&str]) -> AllocateRequest {
    let devices_ids = ids.iter().map(|id| (*id).to_owned()).collect();
    AllocateRequest {
        container_requests: vec![ContainerAllocateRequest { devices_ids }],
    }
}

// What the test sees of the node.
impl TestNode {
    pub fn kubelet(&self) -> Client {
        Client::new(&self.kubelet_settings.root_dir)
    }

    /// Node capacity and allocatable of a whole name, or of `akri.sh/<name>`; `None` where there is no such entry.
    pub async fn counts(&self, name: &str) -> Option<(u32, u32)> {
        let status = self.kubelet().node().await.ok()?.status?;
        let resource = match name.contains('/') {
            true => name.to_owned(),
            false => format!("akri.sh/{name}"),
        };
        let count = |quantities: Option<BTreeMap<String, _>>| {
            let quantity: k8s_openapi::apimachinery::pkg::api::resource::Quantity =
                quantities?.remove(&resource)?;
            quantity.0.parse().ok()
        };
        Some((count(status.capacity)?, count(status.allocatable)?))
    }

    pub async fn until_counts(&self, name: &str, capacity: u32, allocatable: u32) {
        let mut last = None;
        let wanted = Some((capacity, allocatable));
        let seen = timeout(PATIENCE, async {
            while last != wanted {
                sleep(POLL).await;
                last = self.counts(name).await;
            }
        });
        if seen.await.is_err() {
            panic!(
                "{name} never had {wanted:?}, but {last:?}: {}{}",
                self.shown(),
                self.logs()
            );
        }
    }

    /// How many resources have a plugin and something to offer.
    pub async fn connected(&self) -> Option<usize> {
        let plugins = self.kubelet().plugins().await.ok()?;
        let is_offered = |plugin: &&kubelet::client::PluginView| {
            plugin.state == PluginState::Connected && plugin.healthy > 0
        };
        Some(plugins.iter().filter(is_offered).count())
    }

    pub async fn until_connected(&self, count: usize) {
        self.within(
            2 * PATIENCE,
            &format!("{count} resources are connected"),
            async || (self.connected().await? == count).then_some(()),
        )
        .await;
    }

    /// The sockets in the plugin folder, less the kubelet's.
    pub fn sockets(&self) -> BTreeSet<String> {
        let Ok(entries) = fs::read_dir(&self.agent_settings.plugin_folder) else {
            return BTreeSet::new();
        };
        entries
            .filter_map(Result::ok)
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_socket()))
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .filter(|name| name != "kubelet.sock")
            .collect()
    }

    /// `<resource>-<seconds>.sock`.
    pub fn socket_of(&self, resource: &str) -> Option<String> {
        let is_its = |socket: &String| {
            let seconds = (socket.strip_prefix(resource))
                .and_then(|rest| rest.strip_prefix('-')?.strip_suffix(".sock"));
            seconds.is_some_and(|s| s.len() == 10 && s.bytes().all(|b| b.is_ascii_digit()))
        };
        self.sockets().into_iter().find(is_its)
    }

    /// The Instances as their files say. Each file is whole whenever it is read.
    pub fn instances(&self) -> BTreeMap<String, Instance> {
        let Ok(entries) = fs::read_dir(self.state().join("instances")) else {
            return BTreeMap::new();
        };
        let paths = entries.filter_map(Result::ok).map(|entry| entry.path());
        let is_instance = |path: &PathBuf| {
            !path
                .file_name()
                .unwrap()
                .as_encoded_bytes()
                .starts_with(b".")
        };
        paths
            .filter(is_instance)
            .filter_map(|path| {
                // It may go between the listing and the reading.
                let text = fs::read_to_string(&path).ok()?;
                let instance: Instance = serde_saphyr::from_str(&text)
                    .unwrap_or_else(|e| panic!("{} is half a file: {e}\n{text}", path.display()));
                Some((instance.metadata.name.clone().unwrap(), instance))
            })
            .collect()
    }

    pub async fn instance(&self, name: &str) -> Instance {
        let what = format!("Instance {name}");
        self.until(&what, async || self.instances().remove(name))
            .await
    }

    pub async fn until_no_instance(&self, name: &str) {
        let what = format!("Instance {name} is gone");
        self.until(&what, async || {
            (!self.instances().contains_key(name)).then_some(())
        })
        .await;
    }

    /// The owners of an Instance's slots, less those that are free.
    pub fn usage(&self, name: &str) -> Env {
        let usage = self
            .instances()
            .remove(name)
            .map(|i| i.spec.device_usage)
            .unwrap_or_default();
        usage
            .into_iter()
            .filter(|(_, owner)| !owner.is_empty())
            .collect()
    }

    pub async fn until_usage(&self, name: &str, usage: &[(&str, &str)]) {
        let wanted: Env = usage
            .iter()
            .map(|(slot, owner)| ((*slot).to_owned(), (*owner).to_owned()))
            .collect();
        let what = format!("usage of {name} is {wanted:?}");
        self.until(&what, async || (self.usage(name) == wanted).then_some(()))
            .await;
    }

    /// What is said of a manifest that is not used as it stands.
    pub fn error_of(&self, manifest: &str) -> Option<String> {
        fs::read_to_string(self.state().join(format!("{manifest}.error"))).ok()
    }

    pub async fn until_error(&self, manifest: &str, part: &str) -> String {
        let what = format!("{manifest}.error says {part:?}");
        self.until(&what, async || {
            self.error_of(manifest).filter(|text| text.contains(part))
        })
        .await
    }

    pub async fn pod(&self, name: &str) -> Option<Pod> {
        let pods = self.kubelet().pods().await.ok()?.items;
        pods.into_iter()
            .find(|pod| pod.metadata.name.as_deref() == Some(&*format!("{name}-{NODE}")))
    }

    /// The process of a Pod's container, once there is one.
    pub async fn pid(&self, name: &str) -> i32 {
        self.env(name).await["PID"].parse().unwrap()
    }

    /// Restarts of a Pod's container so far, if it runs.
    pub async fn restarts(&self, name: &str) -> Option<i32> {
        let container = self.pod(name).await?.status?.container_statuses?.remove(0);
        container.state?.running.map(|_| container.restart_count)
    }

    /// Why a Pod's container waits to start.
    pub async fn until_waiting(&self, name: &str, part: &str) {
        self.until(&format!("Pod {name} waits: {part}"), async || {
            let status = self.pod(name).await?.status?;
            let state = status.container_statuses?.remove(0).state?;
            state.waiting?.message.filter(|m| m.contains(part))
        })
        .await;
    }

    /// Why a Pod was not admitted.
    pub async fn until_refused(&self, name: &str, part: &str) {
        self.until(&format!("Pod {name} is refused: {part}"), async || {
            let status = self.pod(name).await?.status?;
            status.message.filter(|m| m.contains(part))
        })
        .await;
    }

    /// What the last process of a Pod has in its environment.
    pub async fn env(&self, pod: &str) -> Env {
        let full_name = format!("{pod}-{NODE}");
        self.until(&format!("Pod {pod} has printed"), async || {
            self.restarts(pod).await?;
            let log = self
                .kubelet()
                .logs("default", &full_name, "main")
                .await
                .ok()?;
            let printed = log.strip_suffix("END\n")?;
            let last = printed.rsplit("END\n").next()?;
            let pairs = last.lines().filter_map(|line| line.split_once('='));
            Some(
                pairs
                    .map(|(key, value)| (key.to_owned(), value.to_owned()))
                    .collect(),
            )
        })
        .await
    }
}

/// The Instance that a device of a Configuration has.
pub fn instance_name(configuration: &str, device: &str) -> String {
    let id = DeviceId::new(device);
    InstanceName::candidates(configuration, &id, Scope::Shared, NODE)[0].to_string()
}
