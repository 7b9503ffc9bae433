//! Plans what the node reports of its devices. Instances are made of it. Pure.

mod arrivals;
mod budget;
mod devices;
mod trouble;
mod waiting;
mod world;

use budget::InstanceBudget;
pub(crate) use waiting::Arrivals;
use world::PlanOfOne;
pub(crate) use world::{Absences, World};

use super::bounds;
use crate::{
    agent::{
        device_state::{device_id, is_own, other_identity},
        values::{AcceptedConfiguration, Selection},
    },
    api::{configuration::Problem, instance::Instance, reason::Reason},
    model::{
        budget::Turn,
        device::{Device, DeviceId},
        instance_name::InstanceKey,
        slot::holders,
        typed_names::ConfigurationKey,
    },
    store::{Report, Reports},
};
use std::{collections::BTreeMap, time::Duration};

#[derive(Debug, Default)]
pub(crate) struct Plan {
    pub(crate) absences: Absences,
    pub(crate) arrivals: Arrivals,
    /// The time until the next plan if nothing changes before.
    pub(crate) wake_in: Option<Duration>,
    pub(crate) reports: Reports,
}

pub(crate) fn plan(world: &World) -> Plan {
    let mut plan = Plan::default();
    let mut budget = InstanceBudget::new(world);
    let reports = &mut plan.reports.of;
    for (key, instance) in world.instances.iter() {
        let configuration = instance.spec.configuration_key(&key.namespace);
        let is_orphan = world.configurations.is_deleted(&configuration)
            && !world.validated.accepted.contains_key(&configuration);
        if is_orphan {
            budget.free(&configuration, instance); // it is about to be deleted
        }
    }
    for (key, accepted) in &world.validated.accepted {
        let mut part = PlanOfOne::new(world, key, accepted);
        if part.is_left_out() && part.unseen.is_empty() {
            continue; // the other nodes' Configurations are not reported
        }
        budget.turn.begin(key);
        let new = if accepted.has_instances() {
            part.follow_devices(&mut budget.turn)
        } else {
            vec![]
        };
        part.follow_absences(&mut budget);
        let arrivals = part.announce_missing(new, &mut budget);
        plan.absences.extend(part.absences);
        plan.arrivals.extend(key, arrivals);
        plan.wake_in = plan.wake_in.into_iter().chain(part.wake_in).min();
        reports.insert(key.clone(), part.report);
    }
    for (key, problem) in &world.validated.problems {
        let report = reports.entry(key.clone()).or_default();
        report.problems.insert(0, problem.clone());
    }
    devices::keep_the_rest(world, reports);
    for (key, report) in reports.iter_mut() {
        report.generation = world.validated.generations.get(key).copied();
    }
    let accepted = &world.validated.accepted;
    bounds::complete(&world.instances, &world.node_only, accepted, reports);
    plan.reports.is_whole = devices::is_whole(world);
    plan
}

impl<'a> PlanOfOne<'a> {
    fn new(
        world: &'a World,
        key: &'a ConfigurationKey,
        accepted: &'a AcceptedConfiguration,
    ) -> Self {
        let is_selected = accepted.selection == Selection::Selected;
        let discovery = world.discoveries.get(key).filter(|_| is_selected);
        let left_out = accepted.selection == Selection::LeftOut;
        let mut report = Report {
            configuration: Some(accepted.configuration.clone()),
            complete: left_out || discovery.is_some_and(|s| s.set.complete),
            ..Report::default()
        };
        if let Some(error) = discovery.and_then(|s| s.error.as_ref()) {
            report.problems.push(Problem::new(
                Reason::DiscoveryFailed,
                format!("discovery failed and is tried again: {error}"),
            ));
        }
        report.problems.extend(trouble::of_handlers(discovery));
        let unusable = discovery.and_then(|s| s.set.problems_in_short());
        (report.problems)
            .extend(unusable.map(|text| Problem::new(Reason::DiscoveryIncomplete, text)));
        let offer = world.node_only.get(&key.name);
        let left_out = offer.and_then(|offer| offer.problem(world.max_instances));
        report.problems.extend(left_out);
        (report.problems).extend(offer.and_then(|offer| offer.flapping(&world.discoveries)));
        (report.problems).extend(trouble::of_device_nodes(
            key,
            accepted,
            discovery,
            &world.node,
        ));
        let unseen: BTreeMap<_, _> = (world.instances.iter())
            .filter(|(k, i)| k.namespace == key.namespace && i.spec.configuration_name == key.name)
            .map(|(k, i)| (k, i.as_ref()))
            .collect();
        let own_named = unseen.iter().filter(|(key, instance)| {
            let is_here = instance.spec.shared || instance.is_of(&world.node);
            let is_its = instance.spec.scope() == accepted.scope && is_here;
            is_its && key.name.is_own(&instance.spec.configuration_name)
        });
        let own_named = own_named.filter_map(|(key, i)| Some((device_id(i)?, *key)));
        Self {
            own_named: own_named.collect(),
            world,
            key,
            accepted,
            discovery,
            unseen,
            absences: Absences::new(),
            wake_in: None,
            report,
            announced_by: BTreeMap::new(),
            hosts: BTreeMap::new(),
        }
    }

    /// Returns whether `spec.nodeSelector` leaves this node out.
    fn is_left_out(&self) -> bool {
        self.accepted.selection == Selection::LeftOut
    }

    /// Devices that have an Instance keep it; the others are returned.
    fn follow_devices(&mut self, turn: &mut Turn) -> Vec<&'a Device> {
        let mut new = vec![];
        let Some(discovery) = self.discovery else {
            return new;
        };
        for device in discovery.set.devices.values() {
            match self.instance_of(device) {
                Some((key, instance)) => {
                    self.unseen.remove(key);
                    self.report.instances += 1;
                    self.count_host(&device.id, device.announcer);
                    match other_identity(instance, device) {
                        Some(pinned) => self.refuse(key, instance, device, &pinned),
                        None => self.see(instance, device, turn),
                    }
                }
                None => new.push(device),
            }
        }
        new
    }

    /// A missing device is reported as unhealthy until its grace period is over, but not before a first complete look. An Instance
    /// that this node does not offer any more frees its part of the budget.
    fn follow_absences(&mut self, budget: &mut InstanceBudget) {
        let is_complete = self.discovery.is_some_and(|s| s.set.complete);
        for (key, instance) in std::mem::take(&mut self.unseen) {
            let id = device_id(instance);
            let is_held_back = id.as_ref().is_some_and(|id| self.is_held_back(id));
            if !instance.is_of(&self.world.node) {
                let is_holder = holders(&instance.spec.device_usage).contains(&self.world.node);
                let left = (is_holder && !is_held_back)
                    .then(|| self.grace_left(key, id.as_ref()))
                    .flatten();
                self.watch_on(key, instance, is_complete && left == Some(Duration::ZERO));
                continue;
            }
            let is_elsewhere = (self.discovery.zip(id.as_ref()))
                .is_some_and(|(discovery, id)| discovery.set.devices.contains_key(id));
            if self.is_left_out() || !self.accepted.has_instances() || is_elsewhere {
                self.watch_on(key, instance, false);
                budget.free(self.key, instance);
                continue;
            }
            if let Some(id) = &id {
                self.count_host(id, self.last_host(id));
            }
            let flapping = id.as_ref().and_then(|id| self.flapping(id));
            if is_held_back {
                self.report.instances += 1;
                self.miss(key, instance, flapping);
                continue; // it is there
            }
            match self.grace_left(key, id.as_ref()) {
                Some(left) if is_complete && left.is_zero() && self.may_go(instance) => {
                    self.watch_on(key, instance, true);
                    budget.free(self.key, instance);
                    continue;
                }
                Some(_) => self.miss(key, instance, flapping),
                None => self.keep(key, instance),
            }
            self.report.instances += 1;
        }
    }

    /// Returns the rest of the grace period of an Instance whose device is missing; `None` if it may be there.
    fn grace_left(&mut self, key: &InstanceKey, id: Option<&DeviceId>) -> Option<Duration> {
        let discovery = self.discovery?;
        let is_missing = match id {
            Some(id) => discovery.is_missing(id),
            None => discovery.set.is_whole(),
        };
        if !is_missing {
            return None;
        }
        let grace = self.accepted.configuration.spec.grace();
        let uptime = self.world.uptime;
        let since = self.world.absences.get(key).copied().unwrap_or(uptime);
        // Until the Instance is gone: what is not carried out now is not given another grace period.
        self.absences.insert(key.clone(), since);
        let left = (since + grace).saturating_sub(uptime);
        // Before the first complete look there is nothing to wake for; its end is an event of its own.
        let end = (discovery.set.complete && !left.is_zero()).then_some(left);
        self.wake_in = self.wake_in.into_iter().chain(end).min();
        Some(left)
    }

    /// The Instance made for this device. One without the annotation is Akri's: the short name is its proof.
    fn instance_of(&self, device: &Device) -> Option<(&'a InstanceKey, &'a Instance)> {
        let own = self.own_named.get(&device.id);
        if let Some((key, instance)) = own.and_then(|key| self.unseen.get_key_value(*key)) {
            return Some((*key, *instance));
        }
        let candidates = self.digest_names(&device.id);
        candidates.iter().enumerate().find_map(|(n, name)| {
            let key = InstanceKey::new(&self.key.namespace, name.as_str());
            let (key, instance) = self.unseen.get_key_value(&key)?;
            let is_its = match device_id(instance) {
                Some(id) => id == device.id,
                None => n == 0,
            };
            is_its.then_some((*key, *instance))
        })
    }

    /// Returns whether an Instance may be deleted, its device being gone: not while slots of it are given out from memory.
    fn may_go(&self, instance: &Instance) -> bool {
        !instance.spec.names_node(&self.world.node) || !is_own(instance, &self.world.node)
    }

    fn is_held_back(&self, id: &DeviceId) -> bool {
        self.discovery.is_some_and(|s| s.is_held_back(id))
    }
}

#[cfg(test)]
mod tests;
