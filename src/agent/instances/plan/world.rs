//! Everything that the plan of Instances depends on, and the part of the plan for one Configuration. Pure.
use super::waiting::Arrivals;
use crate::{
    agent::{
        node_only::plan::NodeOnly,
        values::{AcceptedConfiguration, ValidatedConfigurations},
    },
    api::instance::Instance,
    discovery::session::{Discoveries, DiscoveryState},
    model::{
        device::DeviceId,
        instance_name::InstanceKey,
        slot_table::Use,
        typed_names::{ConfigurationKey, NodeName},
    },
    store::{Configurations, Instances, Report},
};
use std::{collections::BTreeMap, net::IpAddr, sync::Arc, time::Duration};

/// The uptime since when the device of an Instance has been missing.
pub(crate) type Absences = BTreeMap<InstanceKey, Duration>;

/// Everything the plan depends on, as it is at one time.
pub(crate) struct World {
    pub(crate) node: NodeName,
    /// The most Instances of all Configurations together.
    pub(crate) max_instances: usize,
    pub(crate) uptime: Duration,
    pub(crate) configurations: Arc<Configurations>,
    pub(crate) validated: Arc<ValidatedConfigurations>,
    pub(crate) discoveries: Arc<Discoveries>,
    pub(crate) instances: Arc<Instances>,
    /// The devices that are offered without Instances.
    pub(crate) node_only: Arc<NodeOnly>,
    /// The devices that containers of this node use, if that is known.
    pub(crate) uses: Option<Arc<[Use]>>,
    /// What the last plan left for this one.
    pub(crate) absences: Absences,
    pub(crate) arrivals: Arrivals,
}

/// The part of the plan that concerns one Configuration.
pub(super) struct PlanOfOne<'a> {
    pub(super) world: &'a World,
    pub(super) key: &'a ConfigurationKey,
    pub(super) accepted: &'a AcceptedConfiguration,
    pub(super) discovery: Option<&'a DiscoveryState>,
    /// The Instances of this Configuration, less those that a device was found for.
    pub(super) unseen: BTreeMap<&'a InstanceKey, &'a Instance>,
    /// The Instances that have names of their own, by their devices.
    pub(super) own_named: BTreeMap<DeviceId, &'a InstanceKey>,
    pub(super) absences: Absences,
    pub(super) wake_in: Option<Duration>,
    pub(super) report: Report,
    /// The number of Instances whose devices each host of the LAN announces or has announced last, and the hosts of the devices.
    pub(super) announced_by: BTreeMap<IpAddr, usize>,
    pub(super) hosts: BTreeMap<DeviceId, IpAddr>,
}
