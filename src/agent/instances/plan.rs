//! Decides how to change the Instances to match the discovered devices. Pure.
mod arrivals;
mod budget;
mod departures;
mod new;
mod shared;
mod trouble;

pub(crate) use arrivals::Arrivals;
use budget::{InstanceBudget, bytes_of};
use shared::{is_merged, is_named, noted};

use super::bounds;
use crate::{
    agent::{
        device_state::{device_id, other_identity, pin},
        values::{AcceptedConfiguration, Now, Selection, ValidatedConfigurations},
    },
    api::{configuration::Problem, instance::Instance, reason::Reason},
    discovery::session::{Discoveries, DiscoveryState},
    model::{
        budget::Turn,
        device::{Device, DeviceId},
        instance_name::InstanceKey,
        slot_table::Use,
        typed_names::{ConfigurationKey, NodeName},
    },
    store::{
        Configurations, Health, InstanceChange, Instances, Report,
        plan::{says_exception, says_health},
    },
};
use std::{collections::BTreeMap, time::Duration};

/// The uptime since when the device of an Instance has been missing.
pub(crate) type Absences = BTreeMap<InstanceKey, Duration>;

/// The Instances that could not be created, and why where somebody says no.
pub(crate) type Failing = BTreeMap<InstanceKey, Option<String>>;

/// Everything the plan depends on.
pub(crate) struct World<'a> {
    pub(crate) node: &'a NodeName,
    /// True if a controller makes the Instances of shared devices: then they are reported, and not changed.
    pub(crate) merges: bool,
    /// The most Instances of all Configurations together.
    pub(crate) max_instances: usize,
    pub(crate) now: Now<'a>,
    pub(crate) configurations: &'a Configurations,
    pub(crate) validated: &'a ValidatedConfigurations,
    pub(crate) discoveries: &'a Discoveries,
    pub(crate) instances: &'a Instances,
    /// The devices that containers of this node use, if that is known.
    pub(crate) uses: Option<&'a [Use]>,
    pub(crate) absences: &'a Absences,
    pub(crate) arrivals: &'a Arrivals,
    pub(crate) failing: &'a Failing,
}

#[derive(Debug, Default)]
pub(crate) struct Plan {
    pub(crate) changes: Vec<InstanceChange>,
    pub(crate) absences: Absences,
    pub(crate) arrivals: Arrivals,
    /// The time until the next plan if nothing changes before.
    pub(crate) wake_in: Option<Duration>,
    pub(crate) reports: BTreeMap<ConfigurationKey, Report>,
    /// True if the reports have all Configurations: what they leave out is not there.
    pub(crate) is_whole: bool,
}

pub(crate) fn plan(world: &World<'_>) -> Plan {
    let mut plan = Plan::default();
    let mut budget = InstanceBudget::new(world);
    for (key, instance) in world.instances {
        let configuration = instance.spec.configuration_key(&key.namespace);
        let is_ours = is_empty_or_has(&instance.spec.nodes, world.node);
        let is_orphan = is_ours
            && world.configurations.is_complete
            && !world.validated.accepted.contains_key(&configuration)
            && !world.configurations.may_have(&configuration);
        if is_orphan && is_merged(world, instance) {
            budget.free(instance); // the controller deletes it
        } else if is_orphan {
            plan.changes.push(InstanceChange::Delete {
                key: key.clone(),
                reason: "its Configuration was deleted",
                even_in_use: true,
            });
            budget.free(instance);
        }
    }
    for (key, accepted) in &world.validated.accepted {
        let mut part = PlanOfOne::new(world, key, accepted);
        if part.is_left_out() && part.unseen.is_empty() {
            continue; // the other nodes' Configurations are not reported
        }
        budget.turn.next_share();
        let new = part.follow_devices(&mut budget.turn);
        part.follow_absences(&mut budget);
        let arrivals = part.create_missing(new, &mut budget);
        plan.changes.extend(part.changes);
        plan.absences.extend(part.absences);
        plan.arrivals.extend(key, arrivals);
        plan.wake_in = plan.wake_in.into_iter().chain(part.wake_in).min();
        plan.reports.insert(key.clone(), part.report);
    }
    for (key, problem) in &world.validated.problems {
        let report = plan.reports.entry(key.clone()).or_default();
        report.problems.insert(0, problem.clone());
    }
    shared::keep_the_rest(world, &mut plan.reports);
    for (key, report) in &mut plan.reports {
        report.generation = world.validated.generations.get(key).copied();
    }
    bounds::complete(
        world.instances,
        &world.validated.accepted,
        &mut plan.reports,
    );
    plan.is_whole = shared::is_whole(world);
    plan
}

/// The part of the plan that concerns one Configuration.
struct PlanOfOne<'a> {
    world: &'a World<'a>,
    key: &'a ConfigurationKey,
    accepted: &'a AcceptedConfiguration,
    discovery: Option<&'a DiscoveryState>,
    /// The Instances of this Configuration, less those that a device was found for.
    unseen: BTreeMap<&'a InstanceKey, &'a Instance>,
    changes: Vec<InstanceChange>,
    absences: Absences,
    wake_in: Option<Duration>,
    report: Report,
    /// The bytes of the properties of its Instances.
    bytes: usize,
}

impl<'a> PlanOfOne<'a> {
    fn new(
        world: &'a World<'a>,
        key: &'a ConfigurationKey,
        accepted: &'a AcceptedConfiguration,
    ) -> Self {
        let is_selected = accepted.selection == Selection::Selected;
        let discovery = world.discoveries.get(key).filter(|_| is_selected);
        let left_out = accepted.selection == Selection::LeftOut;
        let mut report = Report {
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
        let unseen: BTreeMap<_, _> = (world.instances.iter())
            .filter(|(k, i)| k.namespace == key.namespace && i.spec.configuration_name == key.name)
            .map(|(k, i)| (k, i.as_ref()))
            .collect();
        let bytes = unseen.values().map(|instance| bytes_of(instance));
        Self {
            world,
            key,
            accepted,
            discovery,
            bytes: bytes.sum(),
            unseen,
            changes: vec![],
            absences: Absences::new(),
            wake_in: None,
            report,
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
                    match other_identity(instance, device) {
                        Some(pinned) => self.refuse(key, instance, device, &pinned),
                        None => self.describe(key, instance, device, turn),
                    }
                }
                None => new.push(device),
            }
        }
        new
    }

    /// Instances whose device is missing turn unhealthy, and go when their grace period is over, but not before a
    /// first complete look, and not while a container holds one of their slots. Those that are removed free their part of the budget.
    fn follow_absences(&mut self, budget: &mut InstanceBudget) {
        let is_complete = self.discovery.is_some_and(|s| s.set.complete);
        let seconds = self.accepted.configuration.spec.grace_period_seconds;
        let grace = Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
        for (key, instance) in std::mem::take(&mut self.unseen) {
            let is_ours = is_empty_or_has(&instance.spec.nodes, self.world.node);
            if is_merged(self.world, instance) && !is_named(instance, self.world.node) {
                self.watch_on(key, instance);
                continue;
            }
            if !is_ours {
                continue;
            }
            if self.is_left_out() {
                self.leave(key, instance, "spec.nodeSelector leaves this node out");
                self.free(instance, budget);
                continue;
            }
            let uptime = self.world.now.uptime;
            let since = self.world.absences.get(key).copied().unwrap_or(uptime);
            let left = (since + grace).saturating_sub(uptime);
            let id = device_id(instance);
            let is_elsewhere = (self.discovery.zip(id.as_ref()))
                .is_some_and(|(discovery, id)| discovery.set.devices.contains_key(id));
            if is_elsewhere {
                self.leave(key, instance, "its device has another Instance now");
                self.free(instance, budget);
                continue;
            }
            if id.as_ref().is_some_and(|id| self.is_held_back(id)) {
                self.report.instances += 1;
                self.health(key, instance, self.gone(id.as_ref()));
                continue; // it is there
            }
            let is_missing = match (self.discovery, &id) {
                (Some(discovery), Some(id)) => discovery.is_missing(id),
                (Some(discovery), None) => discovery.set.is_whole(),
                (None, _) => false,
            };
            if is_complete && is_missing && left.is_zero() {
                // Until it is gone: what cannot be written now is not given another grace period.
                self.absences.insert(key.clone(), since);
                self.leave(key, instance, "its device is gone");
                self.free(instance, budget);
                continue;
            }
            self.report.instances += 1;
            if is_missing {
                // One without nodes is kept for its slots alone.
                if !instance.spec.nodes.is_empty() {
                    self.health(key, instance, self.gone(id.as_ref()));
                }
                self.absences.insert(key.clone(), since);
                // Before the first complete look there is nothing to wake for; its end is an event of its own.
                let end = is_complete.then_some(left);
                self.wake_in = self.wake_in.into_iter().chain(end).min();
            } else if is_merged(self.world, instance) {
                self.keep(key, instance);
            }
        }
    }

    /// The Instance made for this device. One without the annotation is Akri's: the short name is its proof.
    fn instance_of(&self, device: &Device) -> Option<(&'a InstanceKey, &'a Instance)> {
        let candidates = self.candidates(&device.id);
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

    fn describe(
        &mut self,
        key: &InstanceKey,
        instance: &Instance,
        device: &Device,
        turn: &mut Turn,
    ) {
        if is_merged(self.world, instance) {
            self.see(instance, device, turn);
            return;
        }
        if !is_named(instance, self.world.node) {
            self.changes.push(InstanceChange::Join(key.clone()));
        }
        let capacity = self.accepted.configuration.spec.capacity;
        let device_id =
            (device_id(instance).as_ref() != Some(&device.id)).then(|| device.id.to_string());
        let first_pin = device.pin.as_ref().filter(|_| pin(instance).is_none());
        // Without a controller the connection of brokers is in the status.
        let connection = device.connection_digest();
        let connection =
            (self.world.merges && noted(instance) != Some(&connection)).then_some(connection);
        let is_same = instance.spec.capacity == capacity
            && self
                .stored_properties(device)
                .eq(&instance.spec.broker_properties)
            && device_id.is_none()
            && first_pin.is_none()
            && connection.is_none();
        if !is_same && self.has_turn(self.stored_bytes(device), turn) {
            self.changes.push(InstanceChange::Describe {
                key: key.clone(),
                capacity,
                broker_properties: self.stored_copy(device),
                device_id,
                pin: first_pin.map(ToString::to_string),
                connection,
            });
        }
        self.health(key, instance, self.seen(device));
    }

    fn is_held_back(&self, id: &DeviceId) -> bool {
        self.discovery.is_some_and(|s| s.is_held_back(id))
    }

    fn seen(&self, device: &Device) -> Health {
        Health {
            is_healthy: true,
            connection: Some(device.connection_digest()),
            trouble: self.flapping(&device.id),
        }
    }

    fn gone(&self, id: Option<&DeviceId>) -> Health {
        Health {
            is_healthy: false,
            connection: None,
            trouble: id.and_then(|id| self.flapping(id)),
        }
    }

    fn health(&mut self, key: &InstanceKey, instance: &Instance, health: Health) {
        if is_merged(self.world, instance) {
            self.miss(key, instance, &health);
            return;
        }
        let now = self.world.now.text;
        let before = instance.status.as_ref();
        let is_said = match self.world.merges {
            true => says_exception(
                &before.cloned().unwrap_or_default(),
                self.world.node,
                &health,
            ),
            false => before.is_some_and(|before| says_health(before, self.world.node, &health)),
        };
        if !is_said {
            self.changes.push(InstanceChange::Health {
                key: key.clone(),
                health,
                now: now.to_owned(),
            });
        }
    }
}

fn is_empty_or_has(nodes: &[NodeName], node: &str) -> bool {
    nodes.is_empty() || nodes.iter().any(|n| n == node)
}

#[cfg(test)]
mod tests;
