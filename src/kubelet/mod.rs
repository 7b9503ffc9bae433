//! The kubelet's device manager.
pub mod checkpoint;
