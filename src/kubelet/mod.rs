//! The kubelet's device manager.
