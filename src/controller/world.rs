//! Everything the controller knows of the cluster: seven watched sets, each object reduced to what a plan reads.
use super::{
    Settings,
    pod_state::{self, Trouble, Unscheduled},
};
use crate::{
    api::{configuration::Configuration, instance::Instance, names, node_devices::NodeDevices},
    cluster::{
        parts::{JobPart, NodePart, PodPart, TaintPart},
        watch::{self, Bounded, Objects, Read, Selection, Set, apis},
    },
    model::{
        budget::Room,
        instance_name::{InstanceKey, InstanceName},
        limits,
        names::ObjectKey,
        typed_names::{ConfigurationKey, ConfigurationName, NodeName},
    },
    supervisor::Supervisor,
};
use k8s_openapi::{
    api::core::v1::{Service, ServiceSpec},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
    jiff::Timestamp,
};
use kube::{Api, Client, Resource, runtime::watcher};
use serde::de::DeserializeOwned;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Debug,
    sync::Arc,
    time::Duration,
};
use tokio::{
    sync::watch as channel,
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

/// The first change is looked at at once; what comes within this time after it is looked at together.
const SETTLE: Duration = Duration::from_millis(20);

/// The room for Configurations. Their broker specs take up to sixteen times their bytes once they are parsed.
const ROOM: Room = Room {
    count: usize::MAX,
    bytes: limits::CONFIGURATIONS_BYTES_MAX,
};

/// The cluster as it was seen last. Deleted objects stay in it until they are gone.
#[derive(Debug, Clone, Default)]
pub(crate) struct World {
    pub(crate) configurations: BTreeMap<ConfigurationKey, Arc<Configuration>>,
    /// Configurations that are there and cannot be read, with what is wrong.
    pub(crate) unreadable: BTreeMap<ConfigurationKey, String>,
    pub(crate) instances: BTreeMap<InstanceKey, Arc<Instance>>,
    /// The nodes by name.
    pub(crate) nodes: BTreeMap<NodeName, Arc<NodeState>>,
    /// The NodeDevices, by the name of the node.
    pub(crate) node_devices: BTreeMap<NodeName, Arc<NodeDevices>>,
    /// Pods, Jobs and Services of ours.
    pub(crate) pods: BTreeMap<ObjectKey, Arc<BrokerPod>>,
    pub(crate) jobs: BTreeMap<ObjectKey, Arc<BrokerJob>>,
    pub(crate) services: BTreeMap<ObjectKey, Arc<OwnedService>>,
    /// The parts that these objects are limited to. Nodes and NodeDevices are never limited, and a part has no Services:
    /// they are found by name, in the whole world.
    pub(crate) scope: Option<Scope>,
}

/// The parts of the world that a world is limited to.
#[derive(Debug, Clone)]
pub(crate) struct Scope {
    pub(crate) names: BTreeSet<String>,
    pub(crate) whole: Arc<World>,
}

impl World {
    /// Returns whether `spec.nodeSelector` of a Configuration lets the devices of a node be offered. A Configuration that
    /// cannot be read, and a node without a Node, leave nothing out.
    pub(crate) fn selects(&self, of: &ConfigurationKey, node: &str) -> bool {
        let both = self.configurations.get(of).zip(self.nodes.get(node));
        both.is_none_or(|(configuration, node)| configuration.selects(&node.labels))
    }

    /// Returns whether the nodes have not reported anything between the two.
    pub(crate) fn has_reports_of(&self, other: &Self) -> bool {
        self.node_devices.len() == other.node_devices.len()
            && (self.node_devices.iter().zip(&other.node_devices))
                .all(|((a, now), (b, before))| a == b && Arc::ptr_eq(now, before))
    }
}

/// The parts of an object's metadata that plans read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Meta {
    pub(crate) uid: String,
    pub(crate) labels: BTreeMap<String, String>,
    /// Our annotations.
    pub(crate) annotations: BTreeMap<String, String>,
    /// The uid of the controlling owner.
    pub(crate) owner: Option<String>,
    pub(crate) created: Option<Timestamp>,
    pub(crate) is_deleting: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct NodeState {
    pub(crate) uid: String,
    pub(crate) is_ready: bool,
    /// The time since when it has been ready or not ready.
    pub(crate) since: Option<Timestamp>,
    /// True if it has the taint `node.kubernetes.io/out-of-service`.
    pub(crate) is_out_of_service: bool,
    /// The taints that keep Pods away; a cordoned Node has the one that Kubernetes gives it, too.
    pub(crate) taints: Vec<TaintPart>,
    pub(crate) labels: BTreeMap<String, String>,
}

/// A Pod with the label of a Configuration: a broker, or a Pod of a broker's Job.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct BrokerPod {
    pub(crate) meta: Meta,
    /// The node that it runs on, once that is decided.
    pub(crate) node: Option<String>,
    /// `Pending`, `Running`, `Succeeded`, `Failed` or `Unknown`.
    pub(crate) phase: String,
    /// The reason why the whole Pod failed, such as `UnexpectedAdmissionError`.
    pub(crate) reason: String,
    pub(crate) message: String,
    /// The time at which the kubelet accepted the Pod.
    pub(crate) started: Option<Timestamp>,
    /// The time at which the last container ended.
    pub(crate) finished: Option<Timestamp>,
    /// The `resourceVersion` of the Pod.
    pub(crate) version: String,
    /// True if all its containers run and are ready.
    pub(crate) is_available: bool,
    /// Set while the scheduler finds no node for it.
    pub(crate) unscheduled: Option<Unscheduled>,
    /// The first reason why a container does not run.
    pub(crate) trouble: Option<Trouble>,
    /// The time at which a container was restarted after a crash, and the crash.
    pub(crate) restarted: Option<(Timestamp, Trouble)>,
}

impl BrokerPod {
    /// Returns whether the Pod has ended for good.
    pub(crate) fn has_ended(&self) -> bool {
        ["Succeeded", "Failed", "Unknown"].contains(&self.phase.as_str())
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct BrokerJob {
    pub(crate) meta: Meta,
    /// The reason of the failure, if it failed.
    pub(crate) failure: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct OwnedService {
    pub(crate) meta: Meta,
    pub(crate) spec: ServiceSpec,
}

/// Starts a task for each set and one that joins them; `world` is `None` until all are complete.
pub(crate) fn spawn(
    tasks: &mut Supervisor,
    client: &Client,
    settings: &Settings,
    world: channel::Sender<Option<Arc<World>>>,
) {
    let ours = || watcher::Config::default().labels(names::CONFIGURATION_LABEL);
    let services = format!("{}={}", names::CONTROLLER_LABEL, names::GROUP);
    let services = watcher::Config::default().labels(&services);
    let all = watcher::Config::default;
    let nodes = vec![Api::all(client.clone())];
    let node_devices = vec![Api::all(client.clone())];
    let mut start = Start { tasks };
    let namespaces = &*settings.watch_namespaces;
    let variables = settings.variables.clone();
    // No Instance shows what no container gets.
    let configuration = move |Bounded { mut object, bytes }: Bounded<Configuration, false>| {
        let properties = &mut object.spec.broker_properties;
        properties.retain(|name, _| !variables.refuses(name));
        (object, bytes)
    };
    let parts = Parts {
        configurations: start.part(
            apis(client, namespaces),
            Selection::new("configurations", all()).within(ROOM),
            configuration,
        ),
        instances: start.part(
            apis(client, namespaces),
            Selection::new("instances", all()),
            |instance: Instance| (without_fields(instance), 0),
        ),
        nodes: start.part(nodes, Selection::new("nodes", all()), |node| {
            (node_state(node), 0)
        }),
        node_devices: start.part(
            node_devices,
            Selection::new("nodedevices", all()),
            |object: NodeDevices| (without_fields(object), 0),
        ),
        pods: start.part(
            apis(client, namespaces),
            Selection::new("pods", ours()),
            |pod| (broker_pod(pod), 0),
        ),
        jobs: start.part(
            apis(client, namespaces),
            Selection::new("jobs", ours()),
            |job| (broker_job(job), 0),
        ),
        services: start.part(
            apis(client, namespaces),
            Selection::new("services", services),
            |service| (owned_service(service), 0),
        ),
    };
    tasks.spawn("world", |stop| join(parts, world, stop));
}

struct Start<'a> {
    tasks: &'a mut Supervisor,
}

impl Start<'_> {
    fn part<K, T, Name>(
        &mut self,
        apis: Vec<Api<Read<K>>>,
        selection: Selection,
        reduce: impl Fn(K) -> (T, usize) + Send + Sync + 'static,
    ) -> channel::Receiver<Set<T, Name>>
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
        T: Send + Sync + 'static,
        Name: From<String> + Clone + Ord + Send + Sync + 'static,
    {
        let set = channel::Sender::new(None);
        let receiver = set.subscribe();
        (self.tasks).spawn(selection.what, |stop| {
            watch::run_within(apis, selection, reduce, set, stop)
        });
        receiver
    }
}

struct Parts {
    configurations: channel::Receiver<Set<Configuration, ConfigurationName>>,
    instances: channel::Receiver<Set<Instance, InstanceName>>,
    nodes: channel::Receiver<Set<NodeState>>,
    node_devices: channel::Receiver<Set<NodeDevices>>,
    pods: channel::Receiver<Set<BrokerPod>>,
    jobs: channel::Receiver<Set<BrokerJob>>,
    services: channel::Receiver<Set<OwnedService>>,
}

async fn join(
    mut parts: Parts,
    world: channel::Sender<Option<Arc<World>>>,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let mut looked = Instant::now();
    loop {
        if let Some(now) = parts.now() {
            world.send_replace(Some(Arc::new(now)));
            looked = Instant::now();
        }
        tokio::select! {
            () = shutdown.cancelled() => return Ok(()),
            changed = parts.configurations.changed() => changed?,
            changed = parts.instances.changed() => changed?,
            changed = parts.nodes.changed() => changed?,
            changed = parts.node_devices.changed() => changed?,
            changed = parts.pods.changed() => changed?,
            changed = parts.jobs.changed() => changed?,
            changed = parts.services.changed() => changed?,
        }
        let settled = sleep_until(looked + SETTLE);
        shutdown.run_until_cancelled(settled).await;
    }
}

impl Parts {
    fn now(&mut self) -> Option<World> {
        let configurations = self.configurations.borrow_and_update().clone();
        let instances = self.instances.borrow_and_update().clone();
        let nodes = self.nodes.borrow_and_update().clone();
        let node_devices = self.node_devices.borrow_and_update().clone();
        let pods = self.pods.borrow_and_update().clone();
        let jobs = self.jobs.borrow_and_update().clone();
        let services = self.services.borrow_and_update().clone();
        let configurations = configurations?;
        Some(World {
            unreadable: unreadable(&configurations),
            configurations: configurations.objects.clone(),
            instances: instances?.objects.clone(),
            nodes: (nodes?.objects.iter())
                .map(|(key, node)| (key.name.as_str().into(), node.clone()))
                .collect(),
            node_devices: (node_devices?.objects.iter())
                .map(|(key, object)| (key.name.as_str().into(), object.clone()))
                .collect(),
            pods: pods?.objects.clone(),
            jobs: jobs?.objects.clone(),
            services: services?.objects.clone(),
            scope: None,
        })
    }
}

/// Returns the Configurations that are there and not known, with the reasons.
fn unreadable(
    configurations: &Objects<Configuration, ConfigurationName>,
) -> BTreeMap<ConfigurationKey, String> {
    let left_out = configurations.left_out.iter().map(|key| {
        let why = "all Configurations together are too large for the controller, and those of this namespace are the largest part; delete some";
        (key.clone(), why.to_owned())
    });
    let unreadable = configurations.unreadable.clone().into_iter();
    unreadable.chain(left_out).collect()
}

/// Returns the object without the managed fields of server-side apply, which are larger than the rest.
fn without_fields<K: Resource>(mut object: K) -> K {
    object.meta_mut().managed_fields = None;
    object
}

fn meta(metadata: ObjectMeta) -> Meta {
    let annotations = metadata.annotations.unwrap_or_default();
    let owners = metadata.owner_references.unwrap_or_default();
    Meta {
        uid: metadata.uid.unwrap_or_default(),
        labels: metadata.labels.unwrap_or_default(),
        annotations: (annotations.into_iter())
            .filter(|(key, _)| key.contains(names::GROUP))
            .collect(),
        owner: (owners.into_iter())
            .find(|owner| owner.controller == Some(true))
            .map(|owner| owner.uid),
        created: metadata.creation_timestamp.map(|time| time.0),
        is_deleting: metadata.deletion_timestamp.is_some(),
    }
}

fn broker_job(job: JobPart) -> BrokerJob {
    BrokerJob {
        meta: meta(job.metadata),
        failure: pod_state::failure(&job.status),
    }
}

fn owned_service(service: Service) -> OwnedService {
    OwnedService {
        meta: meta(service.metadata),
        spec: service.spec.unwrap_or_default(),
    }
}

fn node_state(node: NodePart) -> NodeState {
    let ready = node.ready().cloned();
    NodeState {
        taints: pod_state::taints(&node.spec),
        is_out_of_service: node.has_taint(names::OUT_OF_SERVICE),
        uid: node.metadata.uid.unwrap_or_default(),
        labels: node.metadata.labels.unwrap_or_default(),
        is_ready: ready.as_ref().is_some_and(|ready| ready.status == "True"),
        since: ready
            .and_then(|ready| ready.last_transition_time)
            .map(|time| time.0),
    }
}

fn broker_pod(pod: PodPart) -> BrokerPod {
    let status = pod.status;
    let is_available = pod_state::is_true(&status.conditions, "Ready");
    let unscheduled = pod_state::unscheduled(&status.conditions);
    let trouble = pod_state::trouble(&status);
    let restarted = pod_state::restarted(&status);
    let version = pod.metadata.resource_version.clone().unwrap_or_default();
    let states = status.container_statuses.into_iter();
    let ends = states.filter_map(|container| container.state?.terminated?.finished_at);
    BrokerPod {
        meta: meta(pod.metadata),
        node: pod.spec.node_name,
        phase: status.phase,
        reason: status.reason,
        message: status.message,
        started: status.start_time.map(|time| time.0),
        finished: ends.map(|time| time.0).max(),
        version,
        is_available,
        unscheduled,
        trouble,
        restarted,
    }
}
