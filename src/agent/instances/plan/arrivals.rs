//! Decides which devices get an Instance of their own now. Pure.
//!
//! All devices of a new Configuration, or of a network that comes up, get theirs at once. While names go on being new, as
//! in a flood, a few a second do, and those that were seen longest come first: each Instance costs the API server writes,
//! and leaves an entry in the node's capacity and in the kubelet's checkpoint for minutes.
use super::{InstanceBudget, PlanOfOne};
use crate::{
    api::{configuration::Problem, reason::Reason},
    model::{
        device::{Device, DeviceId, Scope},
        instance_name::InstanceKey,
        instance_name::InstanceName,
        limits,
        token_bucket::TokenBucket,
        typed_names::ConfigurationKey,
    },
    store::InstanceChange,
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
    /// Devices that were reported, and whose Instances the controller has not made yet.
    reported: BTreeSet<DeviceId>,
}

impl Arrival {
    /// Notes that a device is reported to the controller; it counts as new where `new_at` is given.
    fn report(&mut self, device: &DeviceId, new_at: Option<Duration>) {
        if let Some(now) = new_at {
            self.bucket.take(1, now);
        }
        self.reported.insert(device.clone());
    }
}

impl Arrivals {
    /// Notes that an Instance of `configuration` was created.
    pub(crate) fn created(&mut self, configuration: &ConfigurationKey, now: Duration) {
        if let Some(arrival) = self.0.get_mut(configuration) {
            arrival.bucket.take(1, now);
        }
    }

    pub(super) fn extend(&mut self, configuration: &ConfigurationKey, arrival: Arrival) {
        self.0.insert(configuration.clone(), arrival);
    }
}

impl<'a> PlanOfOne<'a> {
    /// Creates an Instance for each device without one, up to the limits.
    pub(super) fn create_missing(
        &mut self,
        mut new: Vec<&'a Device>,
        budget: &mut InstanceBudget,
    ) -> Arrival {
        let now = self.world.now.uptime;
        let limit = self.limit();
        let mut arrival = self.arrival(limit);
        let waited = std::mem::take(&mut arrival.waiting);
        let reported = std::mem::take(&mut arrival.reported);
        let is_merged = self.world.merges && self.accepted.scope == Scope::Shared;
        let since = |device: &Device| waited.get(&device.id).copied().unwrap_or(now);
        self.sort(&mut new, &waited);
        let mut tokens = arrival.bucket.available(now);
        let mut names: BTreeSet<InstanceName> = (self.world.instances.keys())
            .map(|key| key.name.clone())
            .collect();
        let (mut left_out, mut nameless, mut refused) = (0, vec![], vec![]);
        let share = budget.share(self.report.instances, self.bytes);
        for device in new {
            let candidates = self.candidates(&device.id);
            let is_free = |name: &&InstanceName| is_merged || !names.contains(*name);
            let Some(name) = candidates.iter().find(is_free) else {
                nameless.push(device.id.as_str());
                continue;
            };
            let bytes = self.stored_bytes(device);
            let count = self.report.instances;
            if count >= limit || !share.has(count, self.bytes + bytes) {
                left_out += 1;
                continue;
            }
            let key = InstanceKey::new(&self.key.namespace, name.as_str());
            // One that failed is created when its time comes, and takes nobody's turn until then.
            match self.world.failing.get(&key) {
                Some(why) => refused.extend(why.as_ref().map(|why| (key, why))),
                None if reported.contains(&device.id) => {}
                None if tokens == 0 => {
                    arrival.waiting.insert(device.id.clone(), since(device));
                    continue;
                }
                None => tokens -= 1,
            }
            names.insert(name.clone());
            self.report.instances += 1;
            self.bytes += bytes;
            budget.take(bytes);
            if is_merged {
                let is_new = !reported.contains(&device.id);
                arrival.report(&device.id, is_new.then_some(now));
                self.announce(device, &candidates, &mut budget.turn);
            } else if self.has_turn(bytes, &mut budget.turn) {
                let instance = self.new_instance(name, device);
                (self.changes).push(InstanceChange::Create(Box::new(instance)));
            }
        }
        let problems = [
            (left_out > 0).then(|| self.too_many(left_out, limit)),
            self.wait_for(&arrival).then(|| too_fast(limit)),
            refused.first().map(|(key, why)| not_created(key, why)),
            (nameless.first()).map(|first| name_taken(first, nameless.len())),
        ];
        self.report.problems.extend(problems.into_iter().flatten());
        arrival
    }

    /// Plans again when the next device may have its Instance. Returns whether any waits.
    fn wait_for(&mut self, arrival: &Arrival) -> bool {
        let waits = !arrival.waiting.is_empty();
        let next = waits.then(|| arrival.bucket.next_in(self.world.now.uptime));
        self.wake_in = self.wake_in.into_iter().chain(next).min();
        waits
    }

    /// Puts them into the order in which they get their Instances. Those that could not be created come last, so that they do
    /// not use up each turn.
    fn sort(&self, new: &mut [&Device], waited: &BTreeMap<DeviceId, Duration>) {
        let is_failing = |device: &Device| {
            let names = self.candidates(&device.id);
            let mut keys = names
                .iter()
                .map(|name| InstanceKey::new(&self.key.namespace, name.as_str()));
            keys.any(|key| self.world.failing.contains_key(&key))
        };
        // Stable: those that came together stay in their order.
        new.sort_by_cached_key(|device| {
            let fails = !self.world.failing.is_empty() && is_failing(device);
            let since = waited.get(&device.id).copied();
            (fails, since.unwrap_or(self.world.now.uptime))
        });
    }

    fn limit(&self) -> usize {
        let limit = self.accepted.configuration.spec.max_instances;
        usize::try_from(limit).unwrap_or(usize::MAX)
    }

    fn arrival(&self, limit: usize) -> Arrival {
        let now = self.world.now.uptime;
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

fn not_created(key: &InstanceKey, why: &str) -> Problem {
    let message = format!("Instance {} cannot be created: {why}", key.name);
    Problem::new(Reason::NotCreated, message)
}

fn name_taken(first: &str, count: usize) -> Problem {
    let message = format!(
        "{count} devices are left out, because other devices have the names they would get; the first is {first:?}"
    );
    Problem::new(Reason::InstanceNameTaken, message)
}
