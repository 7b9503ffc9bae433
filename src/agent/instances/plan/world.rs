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
use std::{collections::BTreeMap, net::IpAddr, time::Duration};

/// The uptime since when the device of an Instance has been missing.
pub(crate) type Absences = BTreeMap<InstanceKey, Duration>;

/// Everything the plan depends on.
pub(crate) struct World<'a> {
    pub(crate) node: &'a NodeName,
    /// The most Instances of all Configurations together.
    pub(crate) max_instances: usize,
    pub(crate) uptime: Duration,
    pub(crate) configurations: &'a Configurations,
    pub(crate) validated: &'a ValidatedConfigurations,
    pub(crate) discoveries: &'a Discoveries,
    pub(crate) instances: &'a Instances,
    /// The devices that are offered without Instances.
    pub(crate) node_only: &'a NodeOnly,
    /// The devices that containers of this node use, if that is known.
    pub(crate) uses: Option<&'a [Use]>,
    pub(crate) absences: &'a Absences,
    pub(crate) arrivals: &'a Arrivals,
}

/// The part of the plan that concerns one Configuration.
pub(super) struct PlanOfOne<'a> {
    pub(super) world: &'a World<'a>,
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
