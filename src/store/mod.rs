//! Reads Configurations, and reads and writes Instances.
//!
//! All stores implement one trait, so that the agent is the same with a cluster and without one. A store publishes
//! whole sets over a `watch`; when a write returns, the sets already include it.
#[cfg(test)]
mod fixtures;
#[cfg(feature = "standalone")]
pub mod folder;
pub mod kubernetes;
#[cfg(any(test, feature = "standalone"))]
pub mod manifest;
pub(crate) mod news;
pub mod plan;

pub use crate::cluster::{configuration_key, instance_key, key_of};

use crate::{
    api::{
        configuration::{Configuration, Problem},
        instance::Instance,
        node_devices::SeenDevice,
        reason::Reason,
    },
    model::{instance_name::InstanceKey, slot_table::SlotChange, typed_names::ConfigurationKey},
};
use futures::future::BoxFuture;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// The readable Configurations, and the state of the others.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Configurations {
    pub objects: BTreeMap<ConfigurationKey, Arc<Configuration>>,
    /// Configurations that exist, or may exist, and cannot be read now.
    pub hidden: BTreeSet<ConfigurationKey>,
    /// Configurations that are not read, because there are too many.
    pub left_out: BTreeSet<ConfigurationKey>,
    /// True if every manifest was read at least once. Until then an Instance without a Configuration is not an orphan:
    /// its Configuration may be in a file that could not be read yet.
    pub is_complete: bool,
}

impl Configurations {
    /// Returns whether a Configuration exists, or may exist.
    pub fn may_have(&self, key: &ConfigurationKey) -> bool {
        let also = [&self.hidden, &self.left_out];
        self.objects.contains_key(key) || also.iter().any(|keys| keys.contains(key))
    }
}

/// The Instances that concern this node.
pub type Instances = BTreeMap<InstanceKey, Arc<Instance>>;

pub trait Store: Send + Sync {
    fn configurations(&self) -> watch::Receiver<Arc<Configurations>>;

    fn instances(&self) -> watch::Receiver<Arc<Instances>>;

    /// Returns a channel that changes with the Instances, but not if the only change is which slots other nodes hold. In a
    /// large cluster nearly all changes are such.
    fn news(&self) -> watch::Receiver<()>;

    /// Returns the Instances that this node knew when its last agent ended. Some of them may be gone. This is for the time
    /// before [`Self::run`], after which the store may forget them.
    fn earlier(&self) -> Instances;

    /// Returns whether a controller writes the nodes' states in shared Instances, from the reports of all nodes.
    /// Otherwise the agent writes them.
    fn merges(&self) -> bool;

    /// Applies changes independently of each other. The answers are in the same order.
    fn apply(&self, changes: Vec<InstanceChange>) -> BoxFuture<'_, Vec<Result<(), StoreError>>>;

    /// Changes the owners of slots: all of an Instance's or none. The connection digest of a claim is stored with the
    /// slot.
    fn exchange(&self, changes: Vec<Exchange>) -> BoxFuture<'_, Result<(), StoreError>>;

    /// Publishes this node's report about each Configuration. A Configuration without a report is gone.
    fn report(
        &self,
        reports: BTreeMap<ConfigurationKey, Report>,
    ) -> BoxFuture<'_, Result<(), StoreError>>;

    /// Writes a warning Event on an object. The log has the same text.
    fn warn(&self, object: &About, reason: Reason, note: String);

    /// Keeps the sets up to date until `shutdown`.
    fn run(&self, shutdown: CancellationToken) -> BoxFuture<'_, anyhow::Result<()>>;
}

/// The object of an Event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum About {
    Instance(InstanceKey),
    Configuration(ConfigurationKey),
}

/// A change to an Instance that its agent has decided.
#[derive(Debug, Clone, PartialEq)]
pub enum InstanceChange {
    Create(Box<Instance>),
    /// Adds this node to `nodes`.
    Join(InstanceKey),
    /// Removes this node from `nodes`.
    Leave(InstanceKey),
    /// Replaces the values from the Configuration and the device: capacity, properties, the device's id.
    Describe {
        key: InstanceKey,
        capacity: i32,
        broker_properties: BTreeMap<String, String>,
        device_id: Option<String>,
        /// The device's identity, if it is to be recorded.
        pin: Option<String>,
        /// The digest of the device's connection, if it is recorded in the Instance.
        connection: Option<String>,
    },
    /// Replaces this node's state of the device.
    Health {
        key: InstanceKey,
        health: Health,
        now: String,
    },
    /// Deletes the Instance. Without `even_in_use` this requires that no container holds one of its slots.
    Delete {
        key: InstanceKey,
        reason: &'static str,
        even_in_use: bool,
    },
}

/// The health of a device on a node, to be written to its Instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Health {
    pub is_healthy: bool,
    /// The digest of the device's connection; for a device that is gone, that of the last connection.
    pub connection: Option<String>,
    /// The problem of the device.
    pub trouble: Option<Trouble>,
}

/// A problem of a device: one word, which is also the type of a condition of its Instance, and a sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    pub reason: Reason,
    pub message: String,
}

impl InstanceChange {
    pub fn key(&self) -> InstanceKey {
        match self {
            Self::Create(instance) => instance_key(&instance.metadata),
            Self::Join(key)
            | Self::Leave(key)
            | Self::Describe { key, .. }
            | Self::Health { key, .. }
            | Self::Delete { key, .. } => key.clone(),
        }
    }
}

/// A slot's new owner and, for a claim, the digest of the connection that its container gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exchange {
    pub change: SlotChange,
    pub connection_digest: Option<String>,
}

/// The report of a node about a Configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    pub instances: usize,
    pub problems: Vec<Problem>,
    /// The generation of the Configuration that the node has validated.
    pub generation: Option<i64>,
    /// True if the node has completed its first look.
    pub complete: bool,
    /// The shared devices, if a controller makes their Instances.
    pub devices: Vec<SeenDevice>,
    /// The ids of those devices that have no Instance yet, the newest last.
    pub announced: Vec<String>,
}

/// The reason that a write failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    #[error("slot {slot} of Instance {instance} was just taken by {owner}")]
    SlotTaken {
        instance: InstanceKey,
        slot: String,
        owner: String,
    },
    #[error("Instance {0} is gone")]
    Gone(InstanceKey),
    #[error("Instance {0} exists already")]
    Exists(InstanceKey),
    #[error("Instance {instance} is kept while containers on {holders} hold its slots")]
    InUse {
        instance: InstanceKey,
        holders: String,
    },
    /// The store rejects the write, and would reject it again.
    #[error("{0}")]
    Refused(String),
    /// A retry may succeed.
    #[error("{0}")]
    Unavailable(String),
}

/// Returns whether both sets have the same Instances. An Instance that was not written is the same object, so most need
/// no comparison.
pub(crate) fn is_same(before: &Instances, after: &Instances) -> bool {
    before.len() == after.len()
        && (before.iter().zip(after))
            .all(|(b, a)| b.0 == a.0 && (Arc::ptr_eq(b.1, a.1) || b.1 == a.1))
}
