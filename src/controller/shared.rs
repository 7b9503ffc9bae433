//! The values that all of the controller's tasks use.
use super::{
    clock::WallClock,
    offered::{Offered, Recalled},
    outcome::Problems,
};
use crate::{
    api::names,
    cluster::events::Events,
    model::{
        networks::DeviceNetworks,
        resource_name::{ResourcePrefix, ResourcePrefixes},
        variables::Variables,
    },
};
use kube::Client;
use std::{net::SocketAddr, sync::Arc};
use tokio::sync::watch;

/// The name of the Lease and of the reporter of Events.
pub(super) const NAME: &str = names::CONTROLLER_MANAGER;

/// The settings of a controller.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The name of this replica's Pod, which no other replica has.
    pub identity: String,
    /// The namespace of the Lease.
    pub namespace: String,
    /// The namespaces that are watched; all of them if it is empty.
    pub watch_namespaces: Vec<String>,
    /// The prefix of the resources that agents register, such as `akri.sh`.
    pub resource_prefix: ResourcePrefix,
    /// Set if Pods that a kubelet refused for a resource with one of these prefixes are deleted.
    pub refused_pods: Option<ResourcePrefixes>,
    /// The variables that containers may get.
    pub variables: Variables,
    /// The address that serves metrics, health and readiness.
    pub http_address: Option<SocketAddr>,
    /// True if it also serves the lists of devices.
    pub device_lists: bool,
    /// The networks whose devices may have names in the cluster.
    pub device_networks: DeviceNetworks,
    /// The most bytes that all Instances may have in memory.
    pub instances_bytes: usize,
    /// Set if devices are offered to the scheduler, where Configurations say so: the prefixes that their resources may have.
    pub claims: Option<ResourcePrefixes>,
}

/// The values that the controller's tasks share.
pub(super) struct Shared {
    /// The client of the replica that acts.
    pub(super) client: Client,
    pub(super) clock: WallClock,
    pub(super) events: Events,
    pub(super) settings: Settings,
    /// True if this replica holds the Lease.
    pub(super) is_leader: watch::Receiver<bool>,
    /// What the scheduler is offered; `None` while this replica does not act. Written by the loop.
    pub(super) offered: watch::Sender<Option<Arc<Offered>>>,
    /// What the replicas before this one have offered, until the first plan takes it. Written by the task that publishes.
    pub(super) recalled: watch::Sender<Option<Arc<Recalled>>>,
    /// The problems with what is offered. Written by the task that publishes it.
    pub(super) not_offered: watch::Sender<Problems>,
}
