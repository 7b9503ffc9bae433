//! The Instances of all Configurations, with the bytes of their properties, and the part of each Configuration. Pure.
use super::world::World;
use crate::{
    agent::values::Selection,
    api::instance::Instance,
    model::{
        budget::{Turn, text_bytes},
        division::Division,
        limits,
        typed_names::ConfigurationKey,
    },
};

/// Who has how many Instances, with how many bytes of properties.
pub(super) struct InstanceBudget {
    count: Division,
    bytes: Division,
    /// The bytes of descriptions that this turn may report.
    pub(super) turn: Turn,
}

/// The Instances of a Configuration with their bytes, and the most that it may have.
#[derive(Debug)]
pub(super) struct Share {
    /// What it has, and the most.
    count: [usize; 2],
    bytes: [usize; 2],
}

impl Share {
    pub(super) fn take(&mut self, bytes: usize) {
        self.count[0] += 1;
        self.bytes[0] += bytes;
    }

    /// Returns whether there is room for one more Instance.
    pub(super) fn has(&self, bytes: usize) -> bool {
        self.count[0] < self.count[1] && self.bytes[0] + bytes <= self.bytes[1]
    }
}

impl InstanceBudget {
    pub(super) fn new(world: &World) -> Self {
        let accepted = world.validated.accepted.iter();
        let here = accepted.filter(|(_, accepted)| accepted.selection != Selection::LeftOut);
        let here = here.map(|(key, _)| key);
        let mut budget = Self {
            count: Division::new(world.max_instances),
            bytes: Division::new(limits::INSTANCES_BYTES_MAX),
            turn: Turn::new(limits::TURN_BYTES_MAX, here.clone()),
        };
        for key in here {
            budget.count.join(key);
            budget.bytes.join(key);
        }
        for (key, instance) in world.instances.iter() {
            let of = instance.spec.configuration_key(&key.namespace);
            budget.take(&of, bytes_of(instance));
        }
        budget
    }

    /// Returns the part of a Configuration.
    pub(super) fn share(&self, key: &ConfigurationKey) -> Share {
        Share {
            count: [self.count.own(key), self.count.most(key)],
            bytes: [self.bytes.own(key), self.bytes.most(key)],
        }
    }

    pub(super) fn take(&mut self, key: &ConfigurationKey, bytes: usize) {
        self.count.take(key, 1);
        self.bytes.take(key, bytes);
    }

    pub(super) fn free(&mut self, key: &ConfigurationKey, instance: &Instance) {
        self.count.give_back(key, 1);
        self.bytes.give_back(key, bytes_of(instance));
    }
}

/// Returns the bytes of the properties of an Instance.
fn bytes_of(instance: &Instance) -> usize {
    text_bytes(&instance.spec.broker_properties)
}
