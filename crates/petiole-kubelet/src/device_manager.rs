//! Knows the device plugins, the devices that they list, and the containers that hold them.
//!
//! ```text
//! plugin_manager ─ register ─▶ endpoint ─ ListAndWatch ─▶ inventory ─▶ node status, pod resources, Pods' statuses
//! pods ─ allocate ─▶ plan ─▶ inventory ─▶ endpoint (Allocate) ─▶ inventory ─▶ checkpoint ─▶ edits
//! ```
//! The inventory is in one `watch` channel, and every change is one call of one of its pure functions.
//!
//! It differs from the Go kubelet on purpose in these points:
//! - A registration that fails does not affect an older one.
//! - When one of several plugins goes, the newest of the others answers, not any of them.
//! - Calls to plugins have time limits.
//! - Of devices that serve equally well, the first by id is chosen, not a random one.
//! - Containers in the checkpoint wait for their plugin after a restart.
//! - A resource whose grace period is over is removed from the node instead of staying as "0".
mod allocation;
pub(crate) mod checkpoint;
mod checkpoint_file;
pub(crate) mod edits;
mod endpoint;
pub(crate) mod inventory;
pub(crate) mod manager;
pub(crate) mod plan;
#[cfg(test)]
mod tests;

pub(crate) use allocation::StartError;
