//! Publishes pools of devices as ResourceSlices, which the scheduler reads.
//!
//! [`Publisher`] compares the pools with the slices that the API server has, and writes the difference. It makes slices again that
//! somebody deleted: a kubelet deletes those of its node when it starts, and 30 s after the driver was last there.
mod plan;
mod pool;
mod publisher;
mod stored;

pub use pool::{DEVICES_OF_SLICE_MAX, Pool, PoolState, Reach, Scope};
pub use publisher::Publisher;
