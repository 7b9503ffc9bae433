//! Plans what becomes of each Instance, by the reports of all nodes. The part of an Instance about a node that has not reported
//! stays as it is. Pure.
use super::{
    events::InstanceEvent,
    reports::{DeviceReports, NodeReports},
    room::Taken,
};
use crate::{
    api::{
        configuration::{Configuration, Problem},
        instance::{Instance, InstanceStatus},
    },
    model::{
        instance_name::InstanceKey,
        slot::SlotOwner,
        typed_names::{ConfigurationKey, NodeName},
    },
};
use json_patch::PatchOperation;
use k8s_openapi::jiff::Timestamp;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

/// The surroundings are what is known of Configurations and nodes beside the reports.
pub(crate) trait Surroundings {
    /// Returns a Configuration that can be read.
    fn configuration(&self, of: &ConfigurationKey) -> Option<&Configuration>;

    /// Returns all Configurations that exist, whichever are looked at; of one that cannot be read the key.
    fn all_configurations<'s>(
        &'s self,
    ) -> Box<dyn Iterator<Item = (&'s ConfigurationKey, Option<&'s Configuration>)> + 's>;

    /// Returns whether a Configuration exists, or may exist.
    fn may_have(&self, of: &ConfigurationKey) -> bool;

    /// Returns whether a node exists.
    fn has_node(&self, node: &NodeName) -> bool;

    /// Returns the only node that there is; `None` in a cluster.
    fn only_node(&self) -> Option<&NodeName>;

    /// Returns whether `spec.nodeSelector` of a Configuration lets the devices of a node be offered.
    fn selects(&self, of: &ConfigurationKey, node: &NodeName) -> bool;

    /// Returns whether a node that exists is lost, and its report is older than that: it leaves its Instances.
    fn is_silent(&self, node: &NodeName) -> bool;

    /// Returns whether the slots of a node in this Instance are given to others, because it is lost.
    fn is_released(&self, node: &NodeName, key: &InstanceKey, instance: &Instance) -> bool;

    /// Returns the slots of an Instance of this name that was deleted a short time ago: containers may still have them.
    fn slots_before(&self, key: &InstanceKey) -> Option<&BTreeMap<String, String>>;

    /// Returns the bytes that the Instances of a Configuration may have in memory beside those that they have.
    fn room(&self, of: &ConfigurationKey) -> usize;

    /// Returns how long no node has seen the device of an Instance; `None` if that was not watched.
    fn unseen_for(&self, instance: &Instance) -> Option<Duration>;
}

/// Everything that the changes depend on.
pub(crate) struct Merge<'a> {
    pub(crate) surroundings: &'a dyn Surroundings,
    /// The Instances that are looked at.
    pub(crate) instances: &'a BTreeMap<InstanceKey, Arc<Instance>>,
    /// All Instances: a new one has none of their names.
    pub(crate) all_instances: &'a BTreeMap<InstanceKey, Arc<Instance>>,
    pub(crate) reports: &'a DeviceReports<'a>,
    /// The nodes that exist, by their labels.
    pub(crate) labels: BTreeMap<String, &'a NodeName>,
    pub(crate) now: Timestamp,
    /// The bytes that this plan gives to Instances.
    pub(crate) taken: Taken,
}

/// The problem of each Configuration with a device that gets no Instance, because its names or all places are taken, or with an
/// Instance that has another name than it says.
pub(crate) type LeftOut = BTreeMap<ConfigurationKey, Problem>;

/// What becomes of an Instance.
#[derive(Debug)]
pub(crate) enum Fate {
    Stays,
    Changes(Change),
    Ends(End),
    /// It ends after this time, if no node sees the device before.
    EndsIn(Duration),
}

/// The deletion of an Instance.
#[derive(Debug, PartialEq)]
pub(crate) struct End {
    /// The Configuration that must be gone.
    pub(crate) orphan_of: Option<ConfigurationKey>,
    /// True if no node is left that could have said so itself: during an outage, it does not hold.
    pub(crate) is_by_time: bool,
    pub(crate) why: &'static str,
}

/// The changes of one Instance.
#[derive(Debug, Default)]
pub(crate) struct Change {
    /// The operations on all but the status.
    pub(crate) operations: Vec<PatchOperation>,
    pub(crate) status: Option<InstanceStatus>,
    /// The nodes that are taken out though they are there.
    pub(crate) absent: Vec<NodeName>,
    /// The nodes that are taken for deleted.
    pub(crate) gone: BTreeSet<NodeName>,
    /// The slots that are taken from nodes, each with its node.
    pub(crate) freed: Vec<(String, NodeName)>,
    /// The Events about the health of the device.
    pub(crate) events: Vec<InstanceEvent>,
}

impl Merge<'_> {
    pub(crate) fn fate(&self, key: &InstanceKey, instance: &Instance) -> Fate {
        let is_deleting = instance.metadata.deletion_timestamp.is_some();
        if let Some(end) = self.ends(key, instance).filter(|_| !is_deleting) {
            return Fate::Ends(end);
        }
        let change = self.change(key, instance);
        if !change.operations.is_empty() || change.status.is_some() {
            return Fate::Changes(change);
        }
        match self.ends_in(key, instance).filter(|_| !is_deleting) {
            None => Fate::Stays,
            Some(left) if left.is_zero() => Fate::Ends(End {
                orphan_of: None,
                is_by_time: true,
                why: "no node sees its device",
            }),
            Some(left) => Fate::EndsIn(left),
        }
    }

    /// Takes room for an Instance of a Configuration, if there is any.
    pub(super) fn takes(&self, of: &ConfigurationKey, bytes: usize) -> bool {
        self.taken.take(self.surroundings.room(of), of, bytes)
    }

    pub(super) fn is_gone(&self, node: &NodeName) -> bool {
        !self.surroundings.has_node(node)
    }

    /// Returns what the nodes say of the device of an Instance.
    pub(super) fn reports_of(&self, key: &InstanceKey, instance: &Instance) -> NodeReports<'_> {
        self.reports.of(key, instance)
    }
}

/// The slots in use, each with the node that holds it. A value that nobody of ours writes is left to who wrote it.
pub(crate) fn held_slots(instance: &Instance) -> impl Iterator<Item = (&str, NodeName)> {
    let usage = instance.spec.device_usage.iter();
    usage.filter_map(|(slot, usage)| {
        let owner = SlotOwner::from_usage(usage).ok().flatten()?;
        Some((slot.as_str(), owner.node().clone()))
    })
}

/// Returns whether a container holds a slot.
pub(crate) fn is_held(instance: &Instance) -> bool {
    held_slots(instance).next().is_some()
}
