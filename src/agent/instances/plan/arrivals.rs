//! Decides which devices are reported, so that they get an Instance of their own now. Pure.
//!
//! All devices of a new Configuration, or of a network that comes up, get theirs at once. While names go on being new, as
//! in a flood, a few a second do, and those that were seen longest come first: each Instance costs the API server writes,
//! and leaves an entry in the node's capacity and in the kubelet's checkpoint for minutes.
use super::{InstanceBudget, PlanOfOne};
use crate::{
    api::{configuration::Problem, reason::Reason},
    model::{
        device::{Device, DeviceId},
        limits,
        token_bucket::TokenBucket,
        typed_names::ConfigurationKey,
    },
};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// The rate of new Instances that a Configuration gets on this node in the long run.
const NEW_A_SECOND: u32 = 2;

/// The number of new Instances that each Configuration may have.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Arrivals(BTreeMap<ConfigurationKey, Arrival>);

/// The part of one Configuration.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Arrival {
    /// The tokens for new Instances; it starts with `maxInstances`.
    bucket: TokenBucket,
    /// The uptime since when each device has waited for an Instance.
    waiting: BTreeMap<DeviceId, Duration>,
    /// Devices that were reported, and whose Instances are not made yet.
    reported: BTreeSet<DeviceId>,
}

impl Arrival {
    /// Notes that a device is reported; it counts as new where `new_at` is given.
    fn report(&mut self, device: &DeviceId, new_at: Option<Duration>) {
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

impl<'a> PlanOfOne<'a> {
    /// Reports the devices without an Instance, up to the limits: each gets one.
    pub(super) fn announce_missing(
        &mut self,
        mut new: Vec<&'a Device>,
        budget: &mut InstanceBudget,
    ) -> Arrival {
        let now = self.world.uptime;
        let limit = self.limit();
        let mut arrival = self.arrival(limit);
        let waited = std::mem::take(&mut arrival.waiting);
        let reported = std::mem::take(&mut arrival.reported);
        let since = |device: &Device| waited.get(&device.id).copied().unwrap_or(now);
        // Those that were reported may have their Instances by now. Stable: those that came together stay in their order.
        new.sort_by_cached_key(|device| (!reported.contains(&device.id), since(device)));
        let mut tokens = arrival.bucket.available(now);
        let mut left_out = 0;
        let share = budget.share(self.report.instances, self.bytes);
        for device in new {
            let bytes = self.stored_bytes(device);
            let count = self.report.instances;
            if count >= limit || !share.has(count, self.bytes + bytes) {
                left_out += 1;
                continue;
            }
            let is_new = !reported.contains(&device.id);
            if is_new && tokens == 0 {
                arrival.waiting.insert(device.id.clone(), since(device));
                continue;
            }
            tokens -= usize::from(is_new);
            self.report.instances += 1;
            self.bytes += bytes;
            budget.take(bytes);
            arrival.report(&device.id, is_new.then_some(now));
            self.announce(device, &self.candidates(&device.id), &mut budget.turn);
        }
        let problems = [
            (left_out > 0).then(|| self.too_many(left_out, limit)),
            self.wait_for(&arrival).then(|| too_fast(limit)),
        ];
        self.report.problems.extend(problems.into_iter().flatten());
        arrival
    }

    /// Plans again when the next device may have its Instance. Returns whether any waits.
    fn wait_for(&mut self, arrival: &Arrival) -> bool {
        let waits = !arrival.waiting.is_empty();
        let next = waits.then(|| arrival.bucket.next_in(self.world.uptime));
        self.wake_in = self.wake_in.into_iter().chain(next).min();
        waits
    }

    fn limit(&self) -> usize {
        let limit = self.accepted.configuration.spec.max_instances;
        usize::try_from(limit).unwrap_or(usize::MAX)
    }

    fn arrival(&self, limit: usize) -> Arrival {
        let now = self.world.uptime;
        let mut arrival = match self.world.arrivals.0.get(self.key) {
            Some(arrival) => arrival.clone(),
            None => Arrival {
                bucket: TokenBucket::new(limit, NEW_A_SECOND, now),
                waiting: BTreeMap::new(),
                reported: BTreeSet::new(),
            },
        };
        arrival.bucket.resize(limit);
        arrival
    }

    fn too_many(&self, left_out: usize, limit: usize) -> Problem {
        let message = format!(
            "{left_out} more devices were found and are left out: maxInstances is {limit}, and of the {} Instances of a node (--max-instances, agent.maxInstances of the chart) and the {} MiB of their properties a Configuration may have half of what the others leave",
            self.world.max_instances,
            limits::INSTANCES_BYTES_MAX >> 20
        );
        Problem::new(Reason::TooManyDevices, message)
    }
}

/// Returns the problem of devices that wait. It has no count, because the count would change every half second.
fn too_fast(limit: usize) -> Problem {
    let message = format!(
        "devices wait for their Instances: {limit} (maxInstances) were new in a short time, and now {NEW_A_SECOND} a second get one, those first that have been seen longest; if something on the network announces ever new names, stop it, or narrow discoveryDetails"
    );
    Problem::new(Reason::TooManyNewDevices, message)
}
