//! The cluster, or a part of it, as plans read it: each object is reduced to what they need.
use super::{
    held_before::HeldBefore,
    pod_state::{self, Unscheduled},
};
use crate::{
    api::{
        broker,
        configuration::{Configuration, Problem},
        instance::Instance,
        names,
        node_devices::NodeDevices,
        same_name::first_of_each_name,
    },
    cluster::{
        changes::version_of,
        parts::{JobPart, NodePart, PodPart},
    },
    model::{
        instance_name::InstanceKey,
        names::ObjectKey,
        networks::Range,
        typed_names::{ConfigurationKey, NodeName},
        variables::Variables,
    },
};
use k8s_openapi::{
    api::{
        core::v1::{Service, ServiceSpec},
        discovery::v1::EndpointSlice,
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
    jiff::Timestamp,
};
use petiole_base::collect::CollectMap as _;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// The cluster as it was seen last. Deleted objects stay in it until they are gone.
#[derive(Debug, Clone, Default)]
pub(crate) struct World {
    pub(crate) configurations: BTreeMap<ConfigurationKey, Arc<Configuration>>,
    /// Configurations that are there and cannot be read, with what is wrong.
    pub(crate) unreadable: BTreeMap<ConfigurationKey, String>,
    pub(crate) instances: BTreeMap<InstanceKey, Arc<Instance>>,
    /// The bytes that the Instances of each Configuration may have in memory beside those that they have, if that is bounded.
    pub(crate) room: BTreeMap<ConfigurationKey, usize>,
    /// The nodes by name. All parts share them.
    pub(crate) nodes: Arc<BTreeMap<NodeName, Arc<NodeState>>>,
    /// The NodeDevices, by the name of the node. All parts share them.
    pub(crate) node_devices: Arc<BTreeMap<NodeName, Arc<NodeDevices>>>,
    /// Pods, Jobs and Services of ours.
    pub(crate) pods: BTreeMap<ObjectKey, Arc<BrokerPod>>,
    pub(crate) jobs: BTreeMap<ObjectKey, Arc<BrokerJob>>,
    pub(crate) services: BTreeMap<ObjectKey, Arc<OwnedService>>,
    /// The EndpointSlices of the Services of devices.
    pub(crate) slices: BTreeMap<ObjectKey, Arc<OwnedSlice>>,
    /// The slots of Instances that were deleted a short time ago. All parts share them.
    pub(crate) held_before: Arc<HeldBefore>,
    /// The part that these objects are limited to. Nodes and NodeDevices are never limited, and a part has no Services:
    /// they are found by name, in the whole world.
    pub(crate) scope: Option<Scope>,
}

/// The part of the world that a world is limited to.
#[derive(Debug, Clone)]
pub(crate) struct Scope {
    pub(crate) name: String,
    /// The reports about the part: each is a node and the place in the `configurations` of its NodeDevices.
    pub(crate) views: Vec<(NodeName, usize)>,
    pub(crate) whole: Arc<World>,
}

impl World {
    /// Returns whether `spec.nodeSelector` of a Configuration lets the devices of a node be offered. A Configuration that
    /// cannot be read, and a node without a Node, leave nothing out.
    pub(crate) fn selects(&self, of: &ConfigurationKey, node: &str) -> bool {
        let both = self.configurations.get(of).zip(self.nodes.get(node));
        both.is_none_or(|(configuration, node)| configuration.selects(&node.labels))
    }

    /// Returns the Configuration of each name that nodes use: the oldest one, by the same rule as in agents.
    pub(crate) fn oldest_of_each_name(&self) -> BTreeMap<&str, &ConfigurationKey> {
        let all = &self.configurations;
        let age = |key: &ConfigurationKey| all[key].metadata.creation_timestamp.clone();
        first_of_each_name(all.keys(), age)
    }
}

/// The parts of an object's metadata that plans read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Meta {
    pub(crate) uid: String,
    /// The `resourceVersion`.
    pub(crate) version: u64,
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
    pub(crate) labels: BTreeMap<String, String>,
    /// Its addresses, and the networks of its Pods.
    pub(crate) networks: Vec<Range>,
}

/// A Pod with the label of a Configuration: a broker, or a Pod of a broker's Job.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct BrokerPod {
    pub(crate) meta: Meta,
    /// The node that it runs on, once the scheduler has decided that.
    pub(crate) node: Option<NodeName>,
    /// The nodes that its affinity names, until it has a node.
    pub(crate) may_run_on: BTreeSet<NodeName>,
    /// True if its affinity does not name the node that it has: the scheduler did not put it there.
    pub(crate) is_astray: bool,
    /// `Pending`, `Running`, `Succeeded`, `Failed` or `Unknown`.
    pub(crate) phase: String,
    /// The reason why the whole Pod failed, such as `UnexpectedAdmissionError`.
    pub(crate) reason: String,
    pub(crate) message: String,
    /// The time at which the kubelet accepted the Pod.
    pub(crate) started: Option<Timestamp>,
    /// The time at which the last container ended.
    pub(crate) finished: Option<Timestamp>,
    /// True if all its containers run and are ready.
    pub(crate) is_available: bool,
    /// True if a kubelet has refused it, and started none of its containers.
    pub(crate) is_refused: bool,
    /// True if its kubelet has accepted it and begun none of its containers.
    pub(crate) waits_to_begin: bool,
    /// Set while the scheduler finds no node for it.
    pub(crate) unscheduled: Option<Unscheduled>,
    /// The first reason why a container does not run.
    pub(crate) trouble: Option<Problem>,
    /// The time at which a container was restarted after a crash, and the crash.
    pub(crate) restarted: Option<(Timestamp, Problem)>,
}

impl BrokerPod {
    /// Returns whether the scheduler has found no node for the Pod yet.
    pub(crate) fn waits_for_node(&self) -> bool {
        self.node.is_none() && self.unscheduled.is_some()
    }

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
    pub(crate) is_complete: bool,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct OwnedService {
    pub(crate) meta: Meta,
    pub(crate) spec: ServiceSpec,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct OwnedSlice {
    pub(crate) meta: Meta,
    pub(crate) content: SliceContent,
}

/// What an EndpointSlice says of its devices.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SliceContent {
    /// Whether each address is ready.
    pub(crate) endpoints: BTreeMap<String, bool>,
    pub(crate) ports: Vec<i32>,
}

fn meta(metadata: ObjectMeta) -> Meta {
    let version = version_of(&metadata);
    let annotations = metadata.annotations.unwrap_or_default();
    let owners = metadata.owner_references.unwrap_or_default();
    Meta {
        version,
        uid: metadata.uid.unwrap_or_default(),
        labels: metadata.labels.unwrap_or_default(),
        annotations: (annotations.into_iter())
            .filter(|(key, _)| key.contains(names::GROUP))
            .collect_map(),
        owner: (owners.into_iter())
            .find(|owner| owner.controller == Some(true))
            .map(|owner| owner.uid),
        created: metadata.creation_timestamp.map(|time| time.0),
        is_deleting: metadata.deletion_timestamp.is_some(),
    }
}

/// Drops the properties that no container gets, so that no Instance shows them.
pub(super) fn configuration(mut object: Configuration, variables: &Variables) -> Configuration {
    let properties = &mut object.spec.broker_properties;
    properties.retain(|name, _| !variables.refuses(name));
    object
}

pub(super) fn broker_job(job: JobPart) -> BrokerJob {
    BrokerJob {
        meta: meta(job.metadata),
        failure: pod_state::failure(&job.status),
        is_complete: pod_state::is_complete(&job.status),
    }
}

pub(super) fn owned_service(service: Service) -> OwnedService {
    OwnedService {
        meta: meta(service.metadata),
        spec: service.spec.unwrap_or_default(),
    }
}

pub(super) fn owned_slice(slice: EndpointSlice) -> OwnedSlice {
    let endpoints = slice.endpoints.into_iter().flat_map(|endpoint| {
        let is_ready = endpoint.conditions.unwrap_or_default().ready != Some(false);
        endpoint.addresses.into_iter().map(move |a| (a, is_ready))
    });
    let ports = slice.ports.into_iter().flatten();
    OwnedSlice {
        meta: meta(slice.metadata),
        content: SliceContent {
            endpoints: endpoints.collect_map(),
            ports: ports.filter_map(|port| port.port).collect(),
        },
    }
}

pub(super) fn node_state(node: NodePart) -> NodeState {
    let ready = node.ready().cloned();
    let is_out_of_service = node.has_taint(names::OUT_OF_SERVICE);
    let addresses = node.status.addresses.into_iter().map(|part| part.address);
    // A host name is no network.
    let networks = addresses.chain(node.spec.pod_networks);
    let networks = networks.filter_map(|text| text.parse().ok()).collect();
    NodeState {
        networks,
        is_out_of_service,
        uid: node.metadata.uid.unwrap_or_default(),
        labels: node.metadata.labels.unwrap_or_default(),
        is_ready: ready.as_ref().is_some_and(|ready| ready.status == "True"),
        since: ready
            .and_then(|ready| ready.last_transition_time)
            .map(|time| time.0),
    }
}

pub(super) fn broker_pod(pod: PodPart) -> BrokerPod {
    let status = pod.status;
    let is_available = pod_state::is_true(&status.conditions, "Ready");
    let unscheduled = pod_state::unscheduled(&status.conditions);
    let trouble = pod_state::trouble(&status);
    let restarted = pod_state::restarted(&status);
    let is_refused = pod_state::is_refused(&status);
    let waits_to_begin = pod_state::waits_to_begin(&status);
    let node = pod.spec.node_name.map(NodeName::from);
    let named = broker::named_nodes(&pod.spec.affinity);
    let states = status.container_statuses.into_iter();
    let ends = states.filter_map(|container| container.state?.terminated?.finished_at);
    BrokerPod {
        meta: meta(pod.metadata),
        is_astray: node.as_ref().is_some_and(|node| !named.contains(node)),
        may_run_on: match node {
            None => named,
            Some(_) => BTreeSet::new(),
        },
        node,
        phase: status.phase,
        reason: status.reason,
        message: status.message,
        started: status.start_time.map(|time| time.0),
        finished: ends.map(|time| time.0).max(),
        is_available,
        is_refused,
        waits_to_begin,
        unscheduled,
        trouble,
        restarted,
    }
}
