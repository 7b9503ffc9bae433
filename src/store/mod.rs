//! Reads Configurations, and reads and writes Instances.
//!
//! One trait, so that the agent is the same with a cluster and without one. A store publishes whole sets over a
//! `watch`; when a write returns, the sets already show it.
#[cfg(test)]
mod fixtures;
pub mod folder;
pub mod kubernetes;
pub mod manifest;
pub mod plan;

pub use crate::cluster::key_of;

use crate::{
    api::{
        configuration::{Configuration, Problem},
        instance::Instance,
        node_devices::SeenDevice,
        reason::Reason,
    },
    model::{names::ObjectKey, slot_table::SlotChange},
};
use futures::future::BoxFuture;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Every Configuration that can be read.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Configurations {
    pub objects: BTreeMap<ObjectKey, Arc<Configuration>>,
    /// Configurations that exist, or may exist, and cannot be read now.
    pub hidden: BTreeSet<ObjectKey>,
    /// Whether every manifest was read at least once. Until then an Instance without a Configuration is no orphan: its
    /// Configuration may be in a file that could not be read yet.
    pub is_complete: bool,
}

/// The Instances that concern this node.
pub type Instances = BTreeMap<ObjectKey, Arc<Instance>>;

pub trait Store: Send + Sync {
    fn configurations(&self) -> watch::Receiver<Arc<Configurations>>;

    fn instances(&self) -> watch::Receiver<Arc<Instances>>;

    /// The Instances this node knew when its last agent ended; some of them may be gone.
    fn earlier(&self) -> Instances;

    /// Whether a controller makes of all nodes' reports what shared Instances say of nodes. Otherwise the agent does.
    fn merges(&self) -> bool;

    /// Carries out changes, each for itself; the answers are in the same order.
    fn apply(&self, changes: Vec<InstanceChange>) -> BoxFuture<'_, Vec<Result<(), StoreError>>>;

    /// Exchanges owners of slots: all of an Instance's or none. `told` of a claim is remembered with the slot.
    fn exchange(&self, changes: Vec<Exchange>) -> BoxFuture<'_, Result<(), StoreError>>;

    /// Publishes what this node has to say of each Configuration. A Configuration without a report has gone.
    fn report(&self, reports: BTreeMap<ObjectKey, Report>)
    -> BoxFuture<'_, Result<(), StoreError>>;

    /// Writes a warning Event on an object. The log has the same text.
    fn warn(&self, object: &About, reason: Reason, note: String);

    /// Keeps the sets up to date until `shutdown`.
    fn run(&self, shutdown: CancellationToken) -> BoxFuture<'_, anyhow::Result<()>>;
}

/// The object of an Event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum About {
    Instance(ObjectKey),
    Configuration(ObjectKey),
}

/// A change to an Instance that its agent has decided on.
#[derive(Debug, Clone, PartialEq)]
pub enum InstanceChange {
    Create(Box<Instance>),
    /// Adds this node to `nodes`.
    Join(ObjectKey),
    /// Takes this node out of `nodes`.
    Leave(ObjectKey),
    /// Replaces what the Configuration and the device say: capacity, properties, the device's id.
    Describe {
        key: ObjectKey,
        capacity: i32,
        broker_properties: BTreeMap<String, String>,
        device_id: Option<String>,
        /// The device's identity, where it is to be remembered.
        pin: Option<String>,
        /// How the device is reached, as a digest, where that is noted beside the Instance.
        connection: Option<String>,
    },
    /// Replaces this node's view of the device.
    Health {
        key: ObjectKey,
        view: View,
        now: String,
    },
    /// Deletes it; unless `even_in_use`, only where no container holds one of its slots.
    Delete {
        key: ObjectKey,
        reason: &'static str,
        even_in_use: bool,
    },
}

/// How a node sees a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    pub is_healthy: bool,
    /// How the device is reached, as a digest; of a device that is gone, how it was reached last.
    pub connection: Option<String>,
    /// What is wrong with the device.
    pub trouble: Option<Trouble>,
}

/// A problem of a device: one word, which is also the type of a condition of its Instance, and a sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    pub reason: Reason,
    pub message: String,
}

impl InstanceChange {
    pub fn key(&self) -> ObjectKey {
        match self {
            Self::Create(instance) => key_of(&instance.metadata),
            Self::Join(key)
            | Self::Leave(key)
            | Self::Describe { key, .. }
            | Self::Health { key, .. }
            | Self::Delete { key, .. } => key.clone(),
        }
    }
}

/// A slot's new owner and, for a claim, the digest of what its container is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exchange {
    pub change: SlotChange,
    pub told: Option<String>,
}

/// The report of a node about a Configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    pub instances: usize,
    pub problems: Vec<Problem>,
    /// Whether the node has looked everywhere once.
    pub complete: bool,
    /// The shared devices, where a controller makes their Instances.
    pub devices: Vec<SeenDevice>,
}

/// Why a write was not carried out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    #[error("slot {slot} of Instance {instance} was just taken by {owner}")]
    SlotTaken {
        instance: ObjectKey,
        slot: String,
        owner: String,
    },
    #[error("Instance {0} is gone")]
    Gone(ObjectKey),
    #[error("Instance {0} exists already")]
    Exists(ObjectKey),
    #[error("Instance {instance} is kept while containers on {holders} hold its slots")]
    InUse {
        instance: ObjectKey,
        holders: String,
    },
    /// The store rejects the write, and would reject it again.
    #[error("{0}")]
    Refused(String),
    /// It may work a little later.
    #[error("{0}")]
    Unavailable(String),
}

/// An Instance that nobody wrote is the same object, and most are: they need not be compared.
pub(crate) fn is_same(before: &Instances, after: &Instances) -> bool {
    before.len() == after.len()
        && (before.iter().zip(after))
            .all(|(b, a)| b.0 == a.0 && (Arc::ptr_eq(b.1, a.1) || b.1 == a.1))
}
