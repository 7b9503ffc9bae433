//! Bounds the bytes of all Instances, which a controller keeps in memory: devices and new properties have room, or wait. Pure.
use crate::{
    api::{configuration::Problem, instance::Instance, reason::Reason},
    model::{budget, typed_names::ConfigurationKey},
};
use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
};

/// The bytes of an Instance beside its properties and annotations.
const INSTANCE_BYTES: usize = 1024;
/// A plan gives a Configuration one of so many parts of its room, because as many parts of the cluster may be planned before one of
/// them is written.
const PLANS_AT_ONCE: usize = 64;
/// The bytes that a plan gives in any case, if there is room.
const AT_LEAST: usize = 1 << 20;

/// The bytes that one plan gives to the Instances of each Configuration.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    bytes: RefCell<BTreeMap<ConfigurationKey, usize>>,
    /// The Configurations without room.
    short: RefCell<BTreeSet<ConfigurationKey>>,
}

/// Returns the bytes that an Instance takes in memory.
pub(crate) fn kept_bytes(instance: &Instance) -> usize {
    let (metadata, spec) = (&instance.metadata, &instance.spec);
    let noted = metadata.annotations.iter().chain(&metadata.labels);
    let texts = noted.chain([&spec.broker_properties, &spec.device_usage]);
    INSTANCE_BYTES + texts.map(budget::kept_bytes).sum::<usize>()
}

impl Taken {
    /// Takes bytes of the room of a Configuration. Returns whether its Instances have them now: what does not fit into this plan fits
    /// into a later one, and it is noted if there is no room.
    pub(super) fn take(&self, room: usize, of: &ConfigurationKey, bytes: usize) -> bool {
        let mut all = self.bytes.borrow_mut();
        let before = all.get(of).copied().unwrap_or(0);
        let after = before.saturating_add(bytes);
        if bytes > 0 && after > room {
            self.short.borrow_mut().insert(of.clone());
            return false;
        }
        let is_of_this_plan = before == 0 || after <= AT_LEAST.max(room / PLANS_AT_ONCE);
        if is_of_this_plan {
            all.insert(of.clone(), after);
        }
        is_of_this_plan
    }

    /// Returns the Configurations without room, each with its problem.
    pub(super) fn short(&self) -> impl Iterator<Item = (ConfigurationKey, Problem)> {
        let message = "devices get no Instance, or their Instances no new properties: the Instances of this Configuration have all that it may have of the controller's memory; narrow what is found, shorten brokerProperties, or raise the controller's memory limit";
        let problem = Problem::new(Reason::TooManyDevices, message);
        let short = self.short.borrow().clone();
        short.into_iter().map(move |of| (of, problem.clone()))
    }
}
