//! The Instances of all Configurations, with the bytes of their properties, and the part of each Configuration. Pure.
use super::{PlanOfOne, World};
use crate::{
    api::instance::Instance,
    model::{
        budget::{Turn, share, text_bytes},
        limits,
    },
};

/// The number of Instances and the bytes of their properties that are left; each is below zero if there are too many.
pub(super) struct InstanceBudget {
    count: i64,
    bytes: i64,
    /// The bytes of descriptions that this turn may report.
    pub(super) turn: Turn,
}

/// The most Instances of a Configuration, and the most bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Share {
    count: i64,
    bytes: i64,
}

impl Share {
    /// Returns whether one more belongs to it, beside `count`, which makes `bytes` of all.
    pub(super) fn has(self, count: usize, bytes: usize) -> bool {
        signed(count) < self.count && signed(bytes) <= self.bytes
    }
}

impl InstanceBudget {
    pub(super) fn new(world: &World<'_>) -> Self {
        let bytes: usize = world.instances.values().map(|i| bytes_of(i)).sum();
        Self {
            count: signed(world.max_instances) - signed(world.instances.len()),
            bytes: limits::INSTANCES_BYTES_MAX - signed(bytes),
            turn: Turn::new(limits::TURN_BYTES_MAX),
        }
    }

    /// Returns the part of a Configuration that has so much: half of what the others leave.
    pub(super) fn share(&self, count: usize, bytes: usize) -> Share {
        Share {
            count: share(self.count, signed(count)),
            bytes: share(self.bytes, signed(bytes)),
        }
    }

    pub(super) fn take(&mut self, bytes: usize) {
        self.count -= 1;
        self.bytes -= signed(bytes);
    }

    pub(super) fn free(&mut self, instance: &Instance) {
        self.count += 1;
        self.bytes += signed(bytes_of(instance));
    }
}

impl PlanOfOne<'_> {
    pub(super) fn free(&mut self, instance: &Instance, budget: &mut InstanceBudget) {
        self.bytes = self.bytes.saturating_sub(bytes_of(instance));
        budget.free(instance);
    }
}

/// Returns the bytes of the properties of an Instance.
pub(super) fn bytes_of(instance: &Instance) -> usize {
    text_bytes(&instance.spec.broker_properties)
}

fn signed(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
