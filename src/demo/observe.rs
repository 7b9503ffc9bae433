//! Takes snapshots. The node, its Pods and their logs come from the kubelet's status socket, Instances from the state
//! folder, and sockets from the plugin folder.
use super::snapshot::{Broker, Instance, Resource, Snapshot};
use crate::{
    api::{instance, names},
    model::printable::printable,
    yaml,
};
use k8s_openapi::{
    api::core::v1::{Node, Pod},
    apimachinery::pkg::api::resource::Quantity,
    jiff::Timestamp,
};
use petiole_kubelet::client::Client;
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

pub(super) struct Observer {
    kubelet: Client,
    plugin_folder: PathBuf,
    instances: PathBuf,
}

impl Observer {
    pub(super) fn new(root_dir: &Path, state: &Path) -> Self {
        Self {
            kubelet: Client::new(root_dir),
            plugin_folder: root_dir.join("device-plugins"),
            instances: state.join("instances"),
        }
    }

    /// Returns the present state. A kubelet that does not answer counts as down.
    pub(super) async fn snapshot(&self) -> Snapshot {
        let mut snapshot = Snapshot {
            instances: self.instances(),
            sockets: self.sockets(),
            kubelet_since: modified(&self.plugin_folder.join("kubelet.sock")),
            ..Snapshot::default()
        };
        if let (Ok(node), Ok(pods)) = tokio::join!(self.kubelet.node(), self.kubelet.pods()) {
            snapshot.is_kubelet_up = true;
            snapshot.resources = resources(node);
            for pod in pods.items {
                if let Some((name, broker)) = self.broker(pod).await {
                    snapshot.brokers.insert(name, broker);
                }
            }
        }
        snapshot
    }

    fn instances(&self) -> BTreeMap<String, Instance> {
        let now = Timestamp::now();
        let files = file_names(&self.instances)
            .into_iter()
            .filter(|name| !name.starts_with('.'));
        // A file that is being replaced is read the next time.
        let read = |name: String| {
            let path = self.instances.join(name);
            let written = modified(&path)?;
            let text = fs::read_to_string(path).ok()?;
            let instance = yaml::from_str(&text).ok()?;
            let instance: instance::Instance = serde_json::from_value(instance).ok()?;
            let metadata = instance.metadata;
            let created = metadata.creation_timestamp.map_or(now, |time| time.0);
            let shown = Instance {
                configuration: instance.spec.configuration_name.into(),
                device: printable(metadata.annotations?.get(names::DEVICE_ID)?),
                is_shared: instance.spec.shared,
                nodes: instance.spec.nodes,
                age: Duration::try_from(now.duration_since(created)).unwrap_or_default(),
                written,
            };
            Some((metadata.name?, shown))
        };
        files.filter_map(read).collect()
    }

    fn sockets(&self) -> BTreeMap<String, SystemTime> {
        let names = file_names(&self.plugin_folder).into_iter();
        let sockets = names.filter(|name| name.ends_with(".sock"));
        let timed = |name: String| Some((name.clone(), modified(&self.plugin_folder.join(name))?));
        sockets.filter_map(timed).collect()
    }

    async fn broker(&self, pod: Pod) -> Option<(String, Broker)> {
        let (name, namespace) = (pod.metadata.name?, pod.metadata.namespace?);
        let status = pod.status?;
        let containers = status.container_statuses.unwrap_or_default();
        let waiting = containers
            .iter()
            .find_map(|c| c.state.as_ref()?.waiting.clone());
        let mut printed = BTreeMap::new();
        for container in &containers {
            // A container that has not started has no log.
            let log = self
                .kubelet
                .logs(&namespace, &name, &container.name)
                .await
                .unwrap_or_default();
            let lines = log.lines().filter_map(|line| line.split_once('='));
            printed.extend(
                lines
                    .filter(|(key, _)| key.starts_with("AKRI_ZEROCONF"))
                    .map(|(key, value)| (printable(key), printable(value))),
            );
        }
        let broker = Broker {
            instance: pod.metadata.labels?.remove(names::INSTANCE_LABEL)?,
            phase: status.phase.unwrap_or_default(),
            restarts: containers.iter().map(|c| c.restart_count).sum(),
            reason: waiting
                .and_then(|w| w.message.or(w.reason))
                .or(status.message)
                .map(|reason| printable(&reason))
                .unwrap_or_default(),
            printed,
        };
        Some((name, broker))
    }
}

fn resources(node: Node) -> BTreeMap<String, Resource> {
    let status = node.status.unwrap_or_default();
    let allocatable = status.allocatable.unwrap_or_default();
    let count = |quantity: Option<&Quantity>| quantity.and_then(|q| q.0.parse().ok()).unwrap_or(0);
    let capacity = status.capacity.unwrap_or_default();
    let resource = |name: &String, capacity: &Quantity| Resource {
        capacity: count(Some(capacity)),
        allocatable: count(allocatable.get(name)),
    };
    capacity
        .iter()
        .map(|(name, quantity)| (name.clone(), resource(name, quantity)))
        .collect()
}

fn modified(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).ok()?.modified().ok()
}

fn file_names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .filter_map(Result::ok);
    let mut names: Vec<_> = entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}
