//! The devices that wait for Instances, from one plan to the next. Pure.
use crate::{
    model::{device::DeviceId, typed_names::ConfigurationKey},
    token_bucket::TokenBucket,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    time::Duration,
};

/// The number of new Instances that each Configuration may have.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Arrivals(pub(super) BTreeMap<ConfigurationKey, Arrival>);

/// The part of one Configuration.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Arrival {
    /// The tokens for new Instances; it starts with `maxInstances`.
    pub(super) bucket: TokenBucket,
    /// The uptime since when each device has waited for an Instance.
    pub(super) waiting: BTreeMap<DeviceId, Duration>,
    /// Devices that were reported, and whose Instances are not made yet.
    pub(super) reported: BTreeSet<DeviceId>,
    /// The host that announced each device of an Instance last.
    pub(super) hosts: BTreeMap<DeviceId, IpAddr>,
}

impl Arrival {
    /// Notes that a device is reported; it counts as new where `new_at` is given.
    pub(super) fn report(&mut self, device: &DeviceId, new_at: Option<Duration>) {
        if let Some(now) = new_at {
            self.bucket.take(1, now);
        }
        self.reported.insert(device.clone());
    }
}

impl Arrivals {
    pub(super) fn extend(&mut self, configuration: &ConfigurationKey, arrival: Arrival) {
        self.0.insert(configuration.clone(), arrival);
    }
}
