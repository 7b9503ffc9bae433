//! What the scheduler is offered of the devices: the pools of its ResourceSlices, and its DeviceClasses.
pub(super) mod plan;

pub(crate) use plan::{Class, Offered, Recalled};
