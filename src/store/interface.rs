//! The interface of stores: the trait that each of them implements, and what is read from it and written to it. It knows no store.
pub(crate) use crate::cluster::{changes::version_of, without_fields};
pub use crate::cluster::{configuration_key, instance_key};

use crate::{
    api::{
        configuration::{Configuration, Problem},
        instance::Instance,
        node_devices::{ConfigurationView, SeenDevice},
        reason::Reason,
    },
    model::{
        device::Scope, instance_name::InstanceKey, slot_table::SlotChange,
        typed_names::ConfigurationKey,
    },
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
    /// True if every manifest was read at least once. Until then an Instance without a Configuration is no orphan, unless that is
    /// `deleted`: its Configuration may be in a file that could not be read yet.
    pub is_complete: bool,
    /// Configurations whose manifests were read, and are gone, though others were never read.
    pub deleted: BTreeSet<ConfigurationKey>,
}

impl Configurations {
    /// Returns whether they have been read. A manifest that nobody can read leaves the set incomplete for good.
    pub(crate) fn are_read(&self) -> bool {
        self.is_complete || !self.objects.is_empty() || !self.hidden.is_empty()
    }

    /// Returns whether a Configuration was deleted, as far as anybody can say.
    pub fn is_deleted(&self, key: &ConfigurationKey) -> bool {
        !self.may_have(key) && (self.is_complete || self.deleted.contains(key))
    }

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

    /// Returns whether writes may take long or fail, so that the slots of devices that this node alone has are given out from
    /// its memory, and written after that.
    fn is_remote(&self) -> bool;

    /// Changes the owners of slots: all of an Instance's or none. The connection digest of a claim is stored with the
    /// slot.
    fn exchange(&self, changes: Vec<SlotChange>) -> BoxFuture<'_, Result<(), StoreError>>;

    /// Publishes this node's report about each Configuration: of them Instances are made. A Configuration without a report is
    /// gone, if the reports are whole.
    fn report(&self, reports: Reports) -> BoxFuture<'_, Result<(), StoreError>>;

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

/// The reports of a node about all Configurations.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Reports {
    pub of: BTreeMap<ConfigurationKey, Report>,
    /// False while Configurations may be missing.
    pub is_whole: bool,
}

/// The report of a node about a Configuration.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Report {
    /// The Configuration as the node works with it, which may be another one than is written; `None` if it is refused.
    pub configuration: Option<Arc<Configuration>>,
    pub instances: usize,
    pub problems: Vec<Problem>,
    /// The generation of the Configuration that the node has validated.
    pub generation: Option<i64>,
    /// True if the node has completed its first look.
    pub complete: bool,
    /// The devices that other nodes may see too.
    pub devices: Vec<SeenDevice>,
    /// The devices that the node alone has.
    pub own: Vec<SeenDevice>,
    /// The ids of those devices that have no Instance yet, the newest last.
    pub announced: Vec<String>,
}

impl Report {
    /// Returns the list of devices with this scope.
    pub(crate) fn list(&mut self, scope: Scope) -> &mut Vec<SeenDevice> {
        match scope {
            Scope::Shared => &mut self.devices,
            Scope::Node => &mut self.own,
        }
    }

    /// Returns what others read of it.
    pub(crate) fn view(&self, of: &ConfigurationKey) -> ConfigurationView {
        ConfigurationView {
            namespace: of.namespace.clone(),
            name: of.name.to_string(),
            generation: self.generation,
            complete: self.complete,
            problems: self.problems.clone(),
            devices: self.devices.clone(),
            own: Some(self.own.clone()),
        }
    }
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
