//! The settings of an agent, and its clock.
pub use super::claims_settings::Claims;
use crate::{
    cluster::{node::Nodes, property_sources::PropertySources},
    model::{
        container_devices::ContainerRules, names::ObjectKey, resource_name::ResourcePrefixes,
        typed_names::NodeName,
    },
};
use std::{net::SocketAddr, path::PathBuf, time::Duration};
use tokio::time::Instant;

/// The time that must lie between the two looks at the kubelet's records that miss a slot, before it is released. `slots::plan`
/// makes it shorter for slots that were claimed long ago, if the checkpoint is fresh.
pub const LOOK_INTERVAL: Duration = Duration::from_secs(10);
/// The time for which a kubelet that has restarted may list no containers, because it has not looked at all of them yet.
pub const KUBELET_STARTUP_GRACE: Duration = Duration::from_secs(60);
/// The time within which a device plugin that is replaced registers again.
pub const RESOURCE_NAME_HOLD: Duration = Duration::from_secs(30);

/// The settings of an agent. All tasks share them.
#[derive(Debug, Clone)]
pub struct Settings {
    pub node_name: NodeName,
    /// The prefixes of all resources on this node that are ours. Entries with other prefixes are never changed.
    pub resource_prefixes: ResourcePrefixes,
    /// Access to the Node of this node, whose capacity the agent publishes; `None` without a cluster.
    pub nodes: Option<Nodes>,
    /// True if labels of the Node say of which Configurations it has devices.
    pub node_labels: bool,
    /// Access to the Secrets and ConfigMaps to which Configurations refer; `None` without a cluster.
    pub property_sources: Option<PropertySources>,
    /// The kubelet's folder for device plugins, which contains `kubelet.sock`.
    pub plugin_folder: PathBuf,
    pub pod_resources_socket: PathBuf,
    /// The Pod of this agent. A list of the kubelet that contains this Pod is complete.
    pub own_pod: Option<ObjectKey>,
    /// The time for which a new kubelet without a checkpoint may list no containers although some run. An agent without an
    /// own Pod waits so long.
    pub kubelet_startup_grace: Duration,
    /// The time that must lie between the two looks at the kubelet's records that miss a slot: see [`LOOK_INTERVAL`].
    pub look_interval: Duration,
    /// The time for which a resource name belongs to another plugin after its devices were listed last.
    pub resource_name_hold: Duration,
    /// The largest number of Configurations that are used.
    pub max_configurations: usize,
    /// The largest number of Instances of all Configurations together.
    pub max_instances: usize,
    /// What Configurations may ask of containers beyond the device.
    pub containers: ContainerRules,
    /// The means to prepare ResourceClaims; `None` if this agent prepares none.
    pub claims: Option<Claims>,
    /// A folder for static Pods: one broker for each Instance.
    #[cfg(feature = "people")]
    pub render_brokers: Option<PathBuf>,
    /// The address that serves metrics, health and readiness.
    pub http_address: Option<SocketAddr>,
    /// The address that serves only metrics.
    pub metrics_address: Option<SocketAddr>,
}

impl Settings {
    /// Returns whether this agent writes static Pods of brokers.
    pub(super) fn has_static_pods(&self) -> bool {
        #[cfg(feature = "people")]
        let has_folder = self.render_brokers.is_some();
        #[cfg(not(feature = "people"))]
        let has_folder = false;
        has_folder
    }
}

#[cfg(test)]
impl Settings {
    /// Returns the settings of a node without a kubelet.
    pub(super) fn for_tests(prefixes: &str) -> Self {
        Self {
            node_name: "a".into(),
            resource_prefixes: prefixes.parse().unwrap(),
            nodes: None,
            node_labels: false,
            property_sources: None,
            plugin_folder: PathBuf::new(),
            pod_resources_socket: PathBuf::new(),
            own_pod: None,
            kubelet_startup_grace: Duration::ZERO,
            look_interval: Duration::ZERO,
            resource_name_hold: Duration::from_secs(30),
            max_configurations: 0,
            max_instances: 0,
            containers: crate::model::container_devices::ContainerRules::default(),
            claims: None,
            #[cfg(feature = "people")]
            render_brokers: None,
            http_address: None,
            metrics_address: None,
        }
    }
}

/// The clock of an agent: the time since it started, and the time of day.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clock {
    started: Instant,
}

impl Clock {
    pub(super) fn start() -> Self {
        Self {
            started: Instant::now(),
        }
    }

    pub(super) fn uptime(self) -> Duration {
        self.started.elapsed()
    }
}
