//! The values that come into a slot table and out of it. Pure.
use crate::model::{
    instance_name::{InstanceKey, InstanceName},
    plugin_name::PluginName,
    resource_name::ResourceName,
    slot::{ListedId, SlotId, SlotOwner},
    typed_names::ConfigurationName,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// A resource of ours. It has one device plugin on each node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Resource {
    /// `akri.sh/<instance>`: the slots of one device.
    Instance(InstanceName),
    /// `akri.sh/<configuration>`: a slot of any device of the Configuration.
    Configuration(ConfigurationName),
}

impl Resource {
    /// Returns the name of its device plugin.
    pub fn plugin(&self) -> PluginName {
        match self {
            Self::Instance(name) => name.into(),
            Self::Configuration(name) => name.into(),
        }
    }

    /// Returns the name of its Instance or Configuration, for messages.
    pub fn name(&self) -> &str {
        match self {
            Self::Instance(name) => name,
            Self::Configuration(name) => name,
        }
    }
}

/// The slots of an Instance as they were last read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedSlots {
    pub key: InstanceKey,
    pub precedence: Precedence,
    pub configuration: ConfigurationName,
    /// The slots that this node may list: all, or fewer where the node has very many.
    pub capacity: u32,
    /// The most containers that may have the device at a time, on all nodes.
    pub users_max: u32,
    /// True if this node sees the device. Otherwise it offers no slots of it, though it may still hold one.
    pub is_offered: bool,
    /// True if the scheduler gives out its slots by ResourceClaims: its resources give none.
    pub is_by_claims: bool,
    /// True if no other node can get a slot of it and nobody is about to delete it, so that this node remembers who holds them.
    /// Otherwise the Instance says it.
    pub is_own: bool,
    /// The digests of the connections that containers were given, by the index of their slots.
    pub told: BTreeMap<u32, String>,
    /// The value of `spec.deviceUsage`.
    pub usage: BTreeMap<String, String>,
}

/// The order of Instances of one name: the smallest has the name's resource and slots, and of equal ones the first by
/// namespace.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Precedence {
    /// True if no Configuration that applies to this node has the Instance.
    pub is_stray: bool,
    /// The creation time of the Instance, in seconds since 1970.
    pub created: i64,
}

/// What may list other slots than before.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Touched {
    pub(super) instances: BTreeSet<InstanceName>,
    pub(super) configurations: BTreeSet<ConfigurationName>,
}

impl Touched {
    pub fn contains(&self, resource: &Resource) -> bool {
        match resource {
            Resource::Instance(name) => self.instances.contains(name),
            Resource::Configuration(name) => self.configurations.contains(name),
        }
    }
}

/// A change of a slot's owner. It is written only if `from` is still the owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlotChange {
    pub key: InstanceKey,
    pub slot: SlotId,
    pub from: Option<SlotOwner>,
    pub to: Option<SlotOwner>,
    /// The digest of the connection that the container with the slot gets, where it is known.
    pub connection_digest: Option<String>,
}

/// A slot this node holds, and the uptime at which the claim was answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    pub key: InstanceKey,
    pub slot: SlotId,
    pub owner: SlotOwner,
    pub answered: Duration,
}

impl Held {
    /// Returns the change that frees the slot.
    pub fn release(self) -> SlotChange {
        SlotChange {
            key: self.key,
            slot: self.slot,
            from: Some(self.owner),
            to: None,
            connection_digest: None,
        }
    }

    /// Returns the device id of the kubelet.
    pub fn id(&self) -> String {
        match &self.owner {
            SlotOwner::Node(_) | SlotOwner::Claim { .. } => self.slot.to_string(),
            SlotOwner::Configuration { slot, .. } if slot.contains('-') => slot.clone(),
            // Akri 0.12 left out the Configuration's name: it is the Instance's name without the digest.
            SlotOwner::Configuration { slot, .. } => {
                let configuration = self.slot.instance.configuration();
                format!("{}-{slot}", configuration.unwrap_or_default())
            }
        }
    }
}

/// The ids of one resource that one container holds, by the pod resources API and the checkpoint.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Use {
    /// The full name that the resource had when the container got it; `None` if a ResourceClaim gave it.
    pub resource: Option<ResourceName>,
    /// The device ids of the kubelet.
    pub ids: BTreeSet<ListedId>,
    /// The slots in the container's environment; empty if they are not known.
    pub env_slots: BTreeSet<SlotId>,
    /// The suffixes of variables that may be digests of the container's devices.
    pub digests: BTreeSet<String>,
    /// The UID of the ResourceClaim by which the container has the slots; `None` if a device plugin gave them.
    pub claim: Option<String>,
}

impl Use {
    /// Returns whether a container has the ids by another name of the resource than this.
    pub fn has_other_name(&self, name: &ResourceName) -> bool {
        self.resource.as_ref().is_some_and(|other| other != name)
    }

    /// Returns whether the use may be of a slot of this Instance.
    pub fn may_be_of(&self, instance: &InstanceName) -> bool {
        self.ids.iter().any(|id| id.plugin == *instance)
            || (self.env_slots.iter()).any(|slot| slot.instance == *instance)
            || (instance.digest()).is_some_and(|digest| self.digests.contains(digest))
    }
}
