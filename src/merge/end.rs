//! Decides when an Instance is deleted. Pure.
//!
//! | the Instance | is deleted |
//! |---|---|
//! | whose Configuration was deleted | at once, also while containers have slots of it |
//! | of a device that one node alone can see | as soon as the node, which has waited for the grace period, reports without it |
//! | that no node is named in | after the grace period since the device was seen last |
//!
//! But for the first, none is deleted while a container has a slot of it, or may have one by the report of its node.
use super::plan::{End, Merge, is_held};
use crate::{
    api::{instance::Instance, names},
    model::{
        device::{DeviceId, Scope},
        instance_name::{InstanceKey, InstanceName},
        typed_names::NodeName,
    },
};
use std::time::Duration;

/// The grace period of an Instance whose Configuration cannot be read.
const DEFAULT_GRACE: Duration = Duration::from_secs(60);
/// The time for which the agent of an existing node may be without an API server before a device of its own counts as gone.
const LATE_REPORT: Duration = Duration::from_secs(600);

impl Merge<'_> {
    /// Returns the reason for which an Instance is deleted before anything else is looked at.
    pub(super) fn ends(&self, key: &InstanceKey, instance: &Instance) -> Option<End> {
        let of = instance.spec.configuration_key(&key.namespace);
        if !self.surroundings.may_have(&of) {
            return Some(End {
                orphan_of: Some(of),
                is_by_time: false,
                why: "its Configuration was deleted",
            });
        }
        let node = self.only_node(instance).filter(|_| !is_held(instance))?;
        if !instance.spec.shared && !instance.is_known_to(node) {
            return None; // its agent has not found the Instance
        }
        let is_left = self.reports.has_complete_report(instance, &of, node)
            && self.reports_of(key, instance).is_empty();
        is_left.then_some(End {
            orphan_of: None,
            is_by_time: false,
            why: "its node does not see its device",
        })
    }

    /// Returns the time until an Instance without nodes is deleted.
    pub(super) fn ends_in(&self, key: &InstanceKey, instance: &Instance) -> Option<Duration> {
        let reports = self.reports_of(key, instance);
        let mut heard = reports.keys().filter(|node| !self.is_gone(node));
        if !instance.spec.nodes.is_empty()
            || is_held(instance)
            || heard.any(|node| !self.surroundings.is_silent(node))
        {
            return None;
        }
        let of = instance.spec.configuration_key(&key.namespace);
        let only_node = self.only_node(instance);
        let may_see = |node: &NodeName| {
            self.reports.says_nothing_of_own(&of, node) && !self.surroundings.is_silent(node)
        };
        if only_node.is_some_and(may_see) {
            return None; // the next version of its agent tells
        }
        let since = instance.status.as_ref()?.unavailable_since()?;
        // The agent of a node that has no Node says again and again that it sees the device.
        let calm = (self.surroundings.unseen_for(instance)).unwrap_or(Duration::MAX);
        let configuration = self.surroundings.configuration(&of);
        let grace = configuration.map_or(DEFAULT_GRACE, |of| of.spec.grace());
        let is_late =
            only_node.is_some_and(|node| !self.reports.has_complete_report(instance, &of, node));
        let late = if is_late { LATE_REPORT } else { Duration::ZERO };
        // Clocks of two machines differ: what is yet to come is now.
        let gone = Duration::try_from(self.now.duration_since(since)).unwrap_or_default();
        Some((grace + late).saturating_sub(gone.min(calm)))
    }

    /// Returns the existing node that alone can see the device: of a device that one node has, the one that the Instance names, or
    /// else that its label or its name says.
    pub(super) fn only_node(&self, instance: &Instance) -> Option<&NodeName> {
        if let Some(node) = self.surroundings.only_node() {
            return Some(node);
        }
        if instance.spec.shared {
            return None;
        }
        if let Some(named) = instance.spec.nodes.first() {
            return self.labels.get(&names::node_label(named)).copied();
        }
        let labels = instance.metadata.labels.iter().flatten();
        let mut labelled = labels.filter_map(|(label, _)| self.labels.get(label));
        labelled.next().copied().or_else(|| {
            let id = DeviceId::new(instance.device_id()?);
            let of = &instance.spec.configuration_name;
            let name = instance.metadata.name.as_ref()?;
            let mut nodes = self.labels.values().copied();
            nodes.find(|node| {
                let candidates = InstanceName::candidates(of, &id, Scope::Node, node);
                candidates.iter().any(|candidate| candidate == name)
            })
        })
    }
}
