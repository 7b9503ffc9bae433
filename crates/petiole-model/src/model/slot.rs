//! Defines slots: units of an Instance's capacity, and their owners. Pure.
use super::{instance_name::InstanceName, plugin_name::PluginName, typed_names::NodeName};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    str::FromStr,
};

/// The limit of slot indexes. No slot with this index or a higher one was ever offered, because capacities are
/// smaller. Beyond it: the slot is not offered.
pub const INDEX_LIMIT: u32 = 10_000;

/// The id of a slot: `<instance>-<index>`, a key of `spec.deviceUsage`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotId {
    pub instance: InstanceName,
    pub index: u32,
}

impl SlotId {
    pub fn new(instance: impl Into<InstanceName>, index: u32) -> Self {
        Self {
            instance: instance.into(),
            index,
        }
    }
}

impl fmt::Display for SlotId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.instance, self.index)
    }
}

/// The id by which a device plugin lists a slot: `<plugin>-<index>`. The kubelet calls it a device id. The plugin of an
/// Instance lists each slot by the slot's own id, and that of a Configuration has ids of its own.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ListedId {
    pub plugin: PluginName,
    pub index: u32,
}

impl ListedId {
    pub fn new(plugin: impl Into<PluginName>, index: u32) -> Self {
        Self {
            plugin: plugin.into(),
            index,
        }
    }

    /// Returns the slot that has this id, if the plugin is that of an Instance.
    pub fn slot(&self) -> SlotId {
        SlotId::new(self.plugin.as_instance(), self.index)
    }
}

impl From<&SlotId> for ListedId {
    fn from(slot: &SlotId) -> Self {
        Self::new(&slot.instance, slot.index)
    }
}

impl fmt::Display for ListedId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.plugin, self.index)
    }
}

/// The error for a text that is not the id of a slot.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a slot id, which is <name>-<index>")]
pub struct NotASlotId(String);

impl FromStr for ListedId {
    type Err = NotASlotId;

    fn from_str(id: &str) -> Result<Self, NotASlotId> {
        let not_an_id = || NotASlotId(id.to_owned());
        let (_, index) = id.rsplit_once('-').ok_or_else(not_an_id)?;
        let index = canonical_index(index).ok_or_else(not_an_id)?;
        let plugin = PluginName::of_id(id).filter(|plugin| !plugin.is_empty());
        Ok(Self::new(plugin.ok_or_else(not_an_id)?, index))
    }
}

impl FromStr for SlotId {
    type Err = NotASlotId;

    fn from_str(id: &str) -> Result<Self, NotASlotId> {
        id.parse().map(|id: ListedId| id.slot())
    }
}

/// Parses an index in the form that we write: digits only, without leading zeros. Otherwise two texts would name one
/// slot.
fn canonical_index(text: &str) -> Option<u32> {
    let index = text.parse::<u32>().ok()?;
    (index.to_string() == text).then_some(index)
}

/// The owner of a slot: a value of `spec.deviceUsage`. A free slot has no owner: its value is absent or empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SlotOwner {
    /// A container on this node, through the Instance's resource.
    Node(NodeName),
    /// A container on `node`, through the Configuration's resource.
    Configuration {
        /// The id of the slot in that resource, `<configuration>-<n>`. Akri 0.12 wrote `<n>` alone.
        slot: String,
        node: NodeName,
    },
    /// A container on `node`, through the ResourceClaim with this UID.
    Claim { uid: String, node: NodeName },
}

impl SlotOwner {
    pub fn of_claim(uid: &str, node: &NodeName) -> Self {
        Self::Claim {
            uid: uid.to_owned(),
            node: node.clone(),
        }
    }

    pub fn node(&self) -> &NodeName {
        match self {
            Self::Node(node) | Self::Configuration { node, .. } | Self::Claim { node, .. } => node,
        }
    }

    /// Parses a value of `deviceUsage`. The author of one that no agent writes holds the slot, and is not this node.
    pub fn from_any_usage(usage: &str) -> Option<Self> {
        Self::from_usage(usage).unwrap_or_else(|_| Some(Self::Node(usage.into())))
    }

    /// Parses a value of `deviceUsage`. Returns `None` if the slot is free.
    pub fn from_usage(usage: &str) -> Result<Option<Self>, NotAnOwner> {
        let parts: Vec<&str> = usage.split(':').collect();
        match parts.as_slice() {
            [""] => Ok(None),
            [node] => Ok(Some(Self::Node((*node).into()))),
            ["C", slot, node] if !slot.is_empty() && !node.is_empty() => {
                Ok(Some(Self::Configuration {
                    slot: (*slot).to_owned(),
                    node: (*node).into(),
                }))
            }
            ["claim", uid, node] if !uid.is_empty() && !node.is_empty() => {
                Ok(Some(Self::of_claim(uid, &(*node).into())))
            }
            _ => Err(NotAnOwner(usage.to_owned())),
        }
    }

    /// Returns whether the ResourceClaim of this UID has the slot.
    pub fn is_of_claim(&self, of: &str) -> bool {
        matches!(self, Self::Claim { uid, .. } if uid == of)
    }

    /// Returns whether a ResourceClaim has the slot.
    pub fn is_claim(&self) -> bool {
        matches!(self, Self::Claim { .. })
    }

    /// Returns the index of the slot in the Configuration's resource.
    pub fn configuration_index(&self) -> Option<u32> {
        match self {
            Self::Node(_) | Self::Claim { .. } => None,
            Self::Configuration { slot, .. } => {
                canonical_index(slot.rsplit_once('-').map_or(slot.as_str(), |(_, n)| n))
            }
        }
    }
}

impl fmt::Display for SlotOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(node) => f.write_str(node),
            Self::Configuration { slot, node } => write!(f, "C:{slot}:{node}"),
            Self::Claim { uid, node } => write!(f, "claim:{uid}:{node}"),
        }
    }
}

/// Returns how many slots of an Instance are in use. A value that no agent writes counts, because no agent gives such a
/// slot to a container. So do slots of an earlier, larger capacity: their containers use the device.
pub fn used_slots(usage: &BTreeMap<String, String>) -> usize {
    let is_slot = |id: &str| id.parse::<SlotId>().is_ok();
    let used = usage
        .iter()
        .filter(|(id, value)| is_slot(id) && !value.is_empty());
    used.count()
}

/// Returns the owners of an Instance's slots, by its `deviceUsage`.
pub fn owners(
    instance: &InstanceName,
    usage: &BTreeMap<String, String>,
) -> impl Iterator<Item = (u32, SlotOwner)> {
    usage.iter().filter_map(|(id, usage)| {
        let slot: SlotId = id.parse().ok()?;
        let owner = SlotOwner::from_any_usage(usage)?;
        (slot.instance == *instance).then_some((slot.index, owner))
    })
}

/// Returns the nodes whose containers hold slots, by `deviceUsage`. A value that no agent writes is ignored.
pub fn holders(usage: &BTreeMap<String, String>) -> BTreeSet<NodeName> {
    let owners = usage.values().map(|usage| SlotOwner::from_usage(usage));
    let owners = owners.filter_map(|owner| owner.ok().flatten());
    owners.map(|owner| owner.node().clone()).collect()
}

/// A value of `deviceUsage` that no agent writes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a slot owner, which is <node> or C:<configuration>-<n>:<node>")]
pub struct NotAnOwner(String);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn owners_are_read_as_akri_writes_them() {
        let by_configuration = |slot: &str| {
            Some(SlotOwner::Configuration {
                slot: slot.to_owned(),
                node: "node-a".into(),
            })
        };
        for (usage, owner) in [
            ("", None),
            ("node-a", Some(SlotOwner::Node("node-a".into()))),
            ("C:cam-3:node-a", by_configuration("cam-3")),
            ("C:3:node-a", by_configuration("3")),
        ] {
            assert_eq!(SlotOwner::from_usage(usage), Ok(owner), "{usage:?}");
        }
        for usage in ["C:3", "X:3:node", "C::node", "C:3:", "a:b:c:d"] {
            assert!(SlotOwner::from_usage(usage).is_err(), "{usage:?}");
        }
        assert_eq!(
            by_configuration("cam-3").unwrap().configuration_index(),
            Some(3)
        );
        assert_eq!(
            by_configuration("3").unwrap().configuration_index(),
            Some(3)
        );
    }

    #[test]
    fn the_holders_of_an_instance_are_the_nodes_in_its_usage() {
        let usage = [
            ("0", "b"),
            ("1", "C:cam-0:a"),
            ("2", ""),
            ("3", "x:y"),
            ("4", "b"),
        ];
        let usage = usage.map(|(n, owner)| (format!("cam-1-{n}"), owner.to_owned()));
        assert_eq!(
            holders(&usage.into()),
            ["a", "b"].map(NodeName::from).into()
        );
    }

    #[test]
    fn a_slot_is_in_use_if_it_has_any_value() {
        let usage = [
            ("cam-1-0", "b"),
            ("cam-1-1", "C:cam-0:a"),
            ("cam-1-2", ""),
            ("cam-1-3", "x:y"),
            ("cam-1-4", "b"),
            ("4", "b"),
        ];
        let usage = usage.map(|(id, owner)| (id.to_owned(), owner.to_owned()));
        assert_eq!(used_slots(&usage.into()), 4);
    }

    #[test]
    fn an_index_has_one_spelling() {
        assert_eq!("cam-1".parse(), Ok(SlotId::new("cam", 1)));
        for id in ["cam-01", "cam-+1", "cam-", "-1", "cam", "cam-4294967296"] {
            assert!(id.parse::<SlotId>().is_err(), "{id}");
        }
    }

    proptest! {
        #[test]
        fn ids_and_owners_round_trip(name in "[a-z][a-z0-9-]{0,20}", index: u32, node in "[a-z0-9.-]{1,20}") {
            let id = SlotId::new(name, index);
            prop_assert_eq!(id.to_string().parse::<SlotId>(), Ok(id.clone()));
            for owner in [
                SlotOwner::Node(node.clone().into()),
                SlotOwner::Configuration { slot: id.to_string(), node: node.clone().into() },
                SlotOwner::Claim { uid: id.to_string(), node: node.into() },
            ] {
                prop_assert_eq!(SlotOwner::from_usage(&owner.to_string()), Ok(Some(owner)));
            }
        }
    }
}
