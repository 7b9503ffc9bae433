//! Defines what is published, and what came of it. Pure.
use k8s_openapi::api::{core::v1::NodeSelector, resource::v1::Device};

/// The most devices of a slice. Kubernetes allows 128, but 64 once one of them has a taint, and a taint that has to split a slice would
/// make the whole pool wait for all its slices. Beyond it: the pool has another slice.
pub const DEVICES_OF_SLICE_MAX: usize = 64;

/// Devices that are published together. The scheduler uses a pool when it sees all its slices, so a change of one slice's devices
/// is one write, and a change of the number of slices is a write of each.
#[derive(Debug, Clone, PartialEq)]
pub struct Pool {
    /// The name: DNS subdomains separated by `/`, 253 characters at most. No other pool of any driver should have it; many drivers
    /// use the node's name.
    pub name: String,
    /// The nodes that reach the devices. [`Scope::Node`] does not use it.
    pub reach: Reach,
    /// The devices. The scheduler tries them in this order within a slice.
    pub devices: Vec<Device>,
}

/// The nodes that reach the devices of a pool.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum Reach {
    /// All nodes.
    #[default]
    AllNodes,
    /// The nodes that one term selects.
    Nodes(NodeSelector),
    /// Each device says it, by `node_name`, `node_selector` or `all_nodes`: from Kubernetes 1.36 on. When other nodes reach a device, it
    /// stays in its pool, and its claims stay valid.
    OfEachDevice,
    /// Nothing is known of the pool: its slices stay as they are, and `devices` is not used.
    AsTheyAre,
}

/// The slices that one publisher writes, and deletes if no pool has them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// The slices are those of the driver for the node with this name. The Node owns them.
    Node(String),
    /// The slices are those of the driver that are for no single node. One process of a cluster may write them at a time; nobody deletes them when
    /// the driver is gone.
    Shared,
}

/// What came of a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PoolState {
    /// The API server has it.
    Published,
    /// The API server has it without some fields of this device, and perhaps of others: its version or its feature gates lack them.
    Trimmed(String),
    /// The API server refused a slice with this message, or did not answer. It is tried again.
    Failed(String),
}
