//! Decides which devices are reported, so that they get an Instance of their own now. Pure.
//!
//! All devices of a new Configuration, or of a network that comes up, get theirs at once. While names go on being new, as
//! in a flood, a few a second do, and those that were seen longest come first: each Instance costs the API server writes,
//! and leaves an entry in the node's capacity and in the kubelet's checkpoint for minutes. The hosts that announce devices
//! take turns, and each has a part of the Instances of the Configuration.
use super::{budget::InstanceBudget, waiting::Arrival, world::PlanOfOne};
use crate::{
    api::{configuration::Problem, reason::Reason},
    model::{
        device::{Device, DeviceId},
        division::share,
        limits,
    },
    token_bucket::TokenBucket,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

/// The rate of new Instances that a Configuration gets on this node in the long run.
const NEW_A_SECOND: u32 = 2;
/// The most Instances of a Configuration for devices that one host of the LAN announces, if they are more than half of what
/// the other hosts leave of `maxInstances`. Beyond it: the newest devices of this host are left out (`TooManyDevices`).
const HOST_INSTANCES_MAX: usize = 32;

impl<'a> PlanOfOne<'a> {
    /// Reports the devices without an Instance, up to the limits: each gets one.
    pub(super) fn announce_missing(
        &mut self,
        mut new: Vec<&'a Device>,
        budget: &mut InstanceBudget,
    ) -> Arrival {
        let now = self.world.uptime;
        let limit = self.accepted.configuration.spec.most_instances();
        let mut arrival = self.arrival(limit);
        let waited = std::mem::take(&mut arrival.waiting);
        let reported = std::mem::take(&mut arrival.reported);
        let since = |device: &Device| waited.get(&device.id).copied().unwrap_or(now);
        // Those that were reported may have their Instances by now. Stable: those that came together stay in their order.
        new.sort_by_cached_key(|device| (!reported.contains(&device.id), since(device)));
        let mut tokens = arrival.bucket.available(now);
        let mut left_out = LeftOut::default();
        let mut share = budget.share(self.key);
        for device in in_turns(new, &reported) {
            let bytes = self.stored_bytes(device);
            if self.report.instances >= limit || !share.has(bytes) {
                left_out.count += 1;
                continue;
            }
            if let Some(host) = device.announcer.filter(|host| !self.has_part(*host, limit)) {
                *left_out.by_host.entry(host).or_default() += 1;
                continue;
            }
            let is_new = !reported.contains(&device.id);
            if is_new && tokens == 0 {
                arrival.waiting.insert(device.id.clone(), since(device));
                continue;
            }
            tokens -= usize::from(is_new);
            self.report.instances += 1;
            self.count_host(&device.id, device.announcer);
            share.take(bytes);
            budget.take(self.key, bytes);
            arrival.report(&device.id, is_new.then_some(now));
            self.announce(device, &mut budget.turn);
        }
        let problems = [
            (left_out.count > 0).then(|| self.too_many(left_out.count, limit)),
            left_out.problem_of_hosts(limit),
            self.wait_for(&arrival).then(|| too_fast(limit)),
        ];
        self.report.problems.extend(problems.into_iter().flatten());
        arrival.hosts = std::mem::take(&mut self.hosts);
        arrival
    }

    /// Plans again when the next device may have its Instance. Returns whether any waits.
    fn wait_for(&mut self, arrival: &Arrival) -> bool {
        let waits = !arrival.waiting.is_empty();
        let next = waits.then(|| arrival.bucket.next_in(self.world.uptime));
        self.wake_in = self.wake_in.into_iter().chain(next).min();
        waits
    }

    /// Returns whether one more device of a host belongs to the part of this host.
    fn has_part(&self, host: IpAddr, limit: usize) -> bool {
        let own = self.announced_by.get(&host).copied().unwrap_or_default();
        let signed = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        let most = share(signed(limit) - signed(self.report.instances), signed(own));
        own < HOST_INSTANCES_MAX || signed(own) < most
    }

    /// Counts the Instance of a device for the host that announces it.
    pub(super) fn count_host(&mut self, id: &DeviceId, host: Option<IpAddr>) {
        if let Some(host) = host {
            *self.announced_by.entry(host).or_default() += 1;
            self.hosts.insert(id.clone(), host);
        }
    }

    /// Returns the host that announced a device last. What it announces no more counts for it until the Instance is gone: it
    /// could take all Instances with ever new names otherwise.
    pub(super) fn last_host(&self, id: &DeviceId) -> Option<IpAddr> {
        let arrival = self.world.arrivals.0.get(self.key)?;
        arrival.hosts.get(id).copied()
    }

    fn arrival(&self, limit: usize) -> Arrival {
        let now = self.world.uptime;
        let mut arrival = match self.world.arrivals.0.get(self.key) {
            Some(arrival) => arrival.clone(),
            None => Arrival {
                bucket: TokenBucket::new(limit, NEW_A_SECOND, now),
                waiting: BTreeMap::new(),
                reported: BTreeSet::new(),
                hosts: BTreeMap::new(),
            },
        };
        arrival.bucket.resize(limit);
        arrival
    }

    fn too_many(&self, left_out: usize, limit: usize) -> Problem {
        let message = format!(
            "{left_out} more devices were found and are left out: maxInstances is {limit}, and of the {} Instances of a node (--max-instances, agent.maxInstances of the chart) and the {} MiB of their properties the namespace {:?} may have half of what the others leave, and each of its Configurations half of what the others of them leave",
            self.world.max_instances,
            limits::INSTANCES_BYTES_MAX >> 20,
            self.key.namespace
        );
        Problem::new(Reason::TooManyDevices, message)
    }
}

/// The devices that get no Instance.
#[derive(Default)]
struct LeftOut {
    /// Those beyond the part of the Configuration.
    count: usize,
    /// Those beyond the part of the host that announces them.
    by_host: BTreeMap<IpAddr, usize>,
}

impl LeftOut {
    fn problem_of_hosts(&self, limit: usize) -> Option<Problem> {
        let (host, _) = self.by_host.iter().max_by_key(|(_, count)| **count)?;
        let count: usize = self.by_host.values().sum();
        let message = format!(
            "{count} devices are left out, most of them announced by {host}: of the {limit} Instances of maxInstances the devices of one host may have half of what the other hosts leave, or {HOST_INSTANCES_MAX}; check what it announces, narrow discoveryDetails, or raise maxInstances"
        );
        Some(Problem::new(Reason::TooManyDevices, message))
    }
}

/// Lets the hosts of the LAN take turns: the first new device of each comes before the second one of any. Devices that are
/// found in another way stay in their order.
fn in_turns<'a>(new: Vec<&'a Device>, reported: &BTreeSet<DeviceId>) -> Vec<&'a Device> {
    let mut counts: BTreeMap<IpAddr, usize> = BTreeMap::new();
    let mut places = Vec::with_capacity(new.len());
    for device in new {
        let mut turn = 0;
        if let Some(host) = device.announcer {
            let count = counts.entry(host).or_default();
            (turn, *count) = (*count, *count + 1);
        }
        places.push((!reported.contains(&device.id), turn, device));
    }
    places.sort_by_key(|(is_new, turn, _)| (*is_new, *turn));
    places.into_iter().map(|(.., device)| device).collect()
}

/// Returns the problem of devices that wait. It has no count, because the count would change every half second.
fn too_fast(limit: usize) -> Problem {
    let message = format!(
        "devices wait for their Instances: {limit} (maxInstances) were new in a short time, and now {NEW_A_SECOND} a second get one, those first that have been seen longest; if something on the network announces ever new names, stop it, or narrow discoveryDetails"
    );
    Problem::new(Reason::TooManyNewDevices, message)
}
