//! Runs the agents in this process. Each is a complete agent with its own client, without a kubelet.
use petiole::{
    agent,
    cluster::{self, node::Nodes},
    discovery::{
        DetailsError, Discovery, DiscoveryError, DiscoveryHandler, Properties, Task,
        session::Handlers,
    },
    model::{
        device::{Device, DeviceSet, Scope},
        resource_name::ResourcePrefixes,
    },
    store::{
        Store,
        kubernetes::{KubernetesStore, Settings as StoreSettings},
    },
};
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tokio::{sync::watch, task::JoinSet};
use tokio_util::sync::CancellationToken;

/// The handler whose devices this bench adds to the LAN and removes.
pub(super) const HANDLER: &str = "simulated";
/// Details with this prefix and a number make that many devices on each node, which no other node sees.
pub(super) const OWN: &str = "own:";

/// The present devices, by the details of the Configuration that finds them.
pub(super) type Lan = watch::Sender<BTreeMap<String, usize>>;

pub(super) struct Agent {
    pub(super) name: String,
    pub(super) store: Arc<KubernetesStore>,
    stop: CancellationToken,
    task: JoinSet<anyhow::Result<()>>,
}

/// The parameters of every agent of the fleet.
pub(super) struct Fleet {
    pub(super) config: kube::Config,
    pub(super) account: String,
    pub(super) lan: Arc<Lan>,
    pub(super) folder: PathBuf,
}

impl Fleet {
    /// Starts the agent of a node. It acts for the account with the node in its token, so that the policies apply.
    pub(super) fn start(&self, name: &str) -> Agent {
        let mut config = self.config.clone();
        let header = |name: &str| hyper::http::HeaderName::try_from(name).unwrap();
        let value = |value: &str| hyper::http::HeaderValue::try_from(value).unwrap();
        config.headers = vec![
            (header("impersonate-user"), value(&self.account)),
            (header("impersonate-group"), value("system:serviceaccounts")),
            (header("impersonate-group"), value("system:authenticated")),
            (
                header("impersonate-extra-authentication.kubernetes.io%2fnode-name"),
                value(name),
            ),
        ];
        let client = cluster::client_of(config).unwrap();
        let folder = self.folder.join(name);
        fs::create_dir_all(folder.join("plugins")).unwrap();
        let prefixes: ResourcePrefixes = "akri.sh".parse().unwrap();
        let settings = settings(
            name,
            &folder,
            Nodes::new(client.clone(), &prefixes),
            prefixes,
        );
        let of_store = StoreSettings {
            node_name: name.into(),
            namespaces: vec![],
            state: folder.join("state"),
            max_configurations: 100,
        };
        let store = Arc::new(KubernetesStore::new(client, of_store).unwrap());
        let handler = Simulated {
            node: name.to_owned(),
            lan: self.lan.clone(),
        };
        let stop = CancellationToken::new();
        let run = agent::run(
            settings,
            store.clone() as Arc<dyn Store>,
            Handlers::new(vec![Box::new(handler)]),
            stop.clone(),
        );
        let mut task = JoinSet::new();
        task.spawn(run);
        Agent {
            name: name.to_owned(),
            store,
            stop,
            task,
        }
    }
}

impl Agent {
    pub(super) async fn end(self) {
        self.stop.cancel();
        for ended in self.task.join_all().await {
            ended.unwrap();
        }
    }
}

fn settings(
    name: &str,
    folder: &Path,
    nodes: Nodes,
    prefixes: ResourcePrefixes,
) -> agent::Settings {
    agent::Settings {
        node_name: name.into(),
        resource_prefixes: prefixes,
        nodes: Some(nodes),
        node_labels: false,
        property_sources: None,
        plugin_folder: folder.join("plugins"),
        pod_resources_socket: folder.join("pod-resources.sock"),
        own_pod: None,
        kubelet_startup_grace: Duration::ZERO,
        look_interval: agent::LOOK_INTERVAL,
        resource_name_hold: agent::RESOURCE_NAME_HOLD,
        max_configurations: 1000,
        max_instances: 1000,
        containers: petiole::model::container_devices::ContainerRules::default(),
        claims: None,
        render_brokers: None,
        http_address: None,
        metrics_address: None,
    }
}

struct Simulated {
    node: String,
    lan: Arc<Lan>,
}

struct Looking {
    details: String,
    node: String,
    lan: watch::Receiver<BTreeMap<String, usize>>,
}

impl DiscoveryHandler for Simulated {
    fn name(&self) -> &'static str {
        HANDLER
    }

    fn prepare(&self, details: &str, _: &Properties) -> Result<Discovery, DetailsError> {
        let mut looking = Looking {
            details: details.to_owned(),
            node: self.node.clone(),
            lan: self.lan.subscribe(),
        };
        Ok(Discovery::new(Scope::Shared, async move |task: Task| {
            loop {
                task.found.send_replace(DeviceSet::complete(looking.seen()));
                let changed = looking.lan.changed().await;
                changed.map_err(|e| DiscoveryError(e.to_string()))?;
            }
        }))
    }
}

impl Looking {
    fn seen(&mut self) -> Vec<Device> {
        let own = self.details.strip_prefix(OWN);
        let count = match own {
            Some(count) => count.parse().unwrap(),
            None => (self.lan.borrow_and_update().get(&self.details)).map_or(0, |count| *count),
        };
        let device = |number| {
            let id = match own {
                Some(_) => format!("{} {number}", self.node),
                None => format!("{} {number}", self.details),
            };
            let mut device = Device::new(id);
            // A service on the LAN has about as many properties.
            for key in ["ADDR", "PORT", "HOST", "NAME", "KIND"] {
                let key = format!("AKRI_SIMULATED_DEVICE_{key}");
                (device.properties).insert(key, format!("value-of-{number}"));
            }
            device
        };
        (0..count).map(device).collect()
    }
}
