//! Looks at the demo as any other program could. The objects are read as `petiole top --standalone` reads them; what brokers print
//! comes from the kubelet's status socket, and the plugins' sockets from its folder.
use super::home::Home;
use crate::{
    api::{instance::Instance, names},
    model::{names::ObjectKey, printable::printable},
};
use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::api::resource::Quantity};
use petiole_base::quantity;
use petiole_kubelet::client::Client;
use petiole_people::inspect::{pods, snapshot::Snapshot};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    time::SystemTime,
};

/// What one look saw.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) objects: Snapshot,
    /// The time at which the kubelet created its registration socket. It differs for each kubelet.
    pub(super) kubelet_since: Option<SystemTime>,
    /// The file names in the kubelet's folder of plugins.
    pub(super) sockets: BTreeSet<String>,
    /// The `AKRI_ZEROCONF_*` variables that the broker with each name printed.
    pub(super) printed: BTreeMap<String, BTreeMap<String, String>>,
}

/// A resource of the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Resource {
    pub(super) capacity: u64,
    pub(super) allocatable: u64,
}

impl Seen {
    /// Looks at the demo. A kubelet that does not answer counts as down.
    pub(super) async fn look(home: &Home) -> anyhow::Result<Self> {
        let objects = home.source().look().await?;
        let kubelet = Client::new(home.root());
        let mut printed: BTreeMap<String, BTreeMap<_, _>> = BTreeMap::new();
        for (ObjectKey { namespace, name }, pod) in &objects.pods {
            for container in pod.spec.iter().flat_map(|spec| &spec.containers) {
                let log = kubelet.logs(namespace, name, &container.name).await;
                // A container that has not started has no log.
                let variables = variables(&log.unwrap_or_default());
                printed.entry(name.clone()).or_default().extend(variables);
            }
        }
        let files = fs::read_dir(home.plugins()).into_iter().flatten().flatten();
        let sockets = files.map(|file| file.file_name().to_string_lossy().into_owned());
        Ok(Self {
            objects,
            kubelet_since: fs::metadata(home.plugins().join("kubelet.sock"))
                .and_then(|file| file.modified())
                .ok(),
            sockets: sockets.collect(),
            printed,
        })
    }

    pub(super) fn is_kubelet_up(&self) -> bool {
        !self.objects.nodes.is_empty() && !self.objects.hidden.pods
    }

    /// Returns the node's resources by name.
    pub(super) fn resources(&self) -> BTreeMap<&str, Resource> {
        let nodes = self.objects.nodes.values();
        let status = nodes.filter_map(|node| node.status.as_ref());
        let listed = status.flat_map(|status| {
            let allocatable = status.allocatable.as_ref();
            let capacities = status.capacity.iter().flatten();
            capacities.map(move |(name, capacity)| {
                let resource = Resource {
                    capacity: count(Some(capacity)),
                    allocatable: count(allocatable.and_then(|all| all.get(name))),
                };
                (name.as_str(), resource)
            })
        });
        listed.collect()
    }

    /// Returns the resource of an Instance.
    pub(super) fn resource_of(&self, instance: &str) -> Option<Resource> {
        let name = format!("{}/{instance}", names::GROUP);
        self.resources().get(name.as_str()).copied()
    }

    /// Returns the name of the Instance of a device.
    pub(super) fn instance_of(&self, device: &str) -> Option<&str> {
        let mut instances = self.objects.instances.iter();
        let is_it = |instance: &Instance| instance.device_id().is_some_and(|id| id == device);
        let (key, _) = instances.find(|(_, instance)| is_it(instance))?;
        Some(&key.name)
    }

    /// Returns the brokers by the name of their Pod.
    pub(super) fn brokers(&self) -> impl Iterator<Item = (&str, &Pod)> {
        let pods = self.objects.pods.iter();
        pods.map(|(key, pod)| (key.name.as_str(), pod))
    }

    /// Returns the broker of an Instance.
    pub(super) fn broker_of(&self, instance: &str) -> Option<(&str, &Pod)> {
        let its = |pod| pods::label(pod, names::INSTANCE_LABEL).is_some_and(|its| its == instance);
        self.brokers().find(|(_, pod)| its(pod))
    }

    /// Returns the number of variables that a broker printed.
    pub(super) fn printed_by(&self, pod: &str) -> usize {
        self.printed.get(pod).map_or(0, BTreeMap::len)
    }

    /// Returns whether a Configuration's resource has nothing left to offer because each of its devices has a broker.
    pub(super) fn is_held_by_brokers(&self, name: &str, resource: Resource) -> bool {
        let instances = self.objects.instances.iter();
        let mut its = instances
            .filter(|(_, instance)| unprefixed(name) == Some(&instance.spec.configuration_name));
        let has_devices = its.clone().next().is_some();
        let is_held = resource.allocatable == 0 && has_devices;
        is_held && its.all(|(key, _)| self.broker_of(&key.name).is_some())
    }

    /// Returns the socket on which the kubelet calls the plugin of a resource. `resource` is the name without the prefix.
    pub(super) fn socket_of(&self, resource: &str) -> Option<&str> {
        let is_its = |socket: &&String| {
            let rest = socket
                .strip_suffix(".sock")
                .and_then(|rest| rest.strip_prefix(resource));
            let started = rest.and_then(|rest| rest.strip_prefix('-'));
            started.is_some_and(|started| started.bytes().all(|b| b.is_ascii_digit()))
        };
        self.sockets.iter().find(is_its).map(String::as_str)
    }
}

/// Returns the name of one of our resources without the prefix.
pub(super) fn unprefixed(resource: &str) -> Option<&str> {
    resource.strip_prefix(names::GROUP)?.strip_prefix('/')
}

/// Returns how a broker is, and why it does not run.
pub(super) fn status_of(pod: &Pod) -> String {
    let waiting = pods::containers(pod).find_map(|c| c.state.as_ref()?.waiting.as_ref());
    let waiting = waiting.and_then(|waiting| waiting.message.as_ref().or(waiting.reason.as_ref()));
    let message = || pod.status.as_ref()?.message.as_ref();
    match waiting.or_else(message) {
        Some(why) => format!("{}: {}", pods::phase(pod), printable(why)),
        None => pods::phase(pod).to_owned(),
    }
}

fn variables(log: &str) -> BTreeMap<String, String> {
    let lines = log.lines().filter_map(|line| line.split_once('='));
    let devices = lines.filter(|(name, _)| name.starts_with("AKRI_ZEROCONF"));
    devices
        .map(|(name, value)| (printable(name), printable(value)))
        .collect()
}

fn count(quantity: Option<&Quantity>) -> u64 {
    quantity
        .and_then(|quantity| quantity::count(&quantity.0))
        .unwrap_or(0)
}
