//! Decides which labels of this Node say of which Configurations it has devices. Pure.
use crate::model::{
    limits::NODE_LABELS_MAX,
    node_labels::{LabelChanges, Labels, is_free, labelled},
    typed_names::ConfigurationName,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// The time for which a label stays after the last device. An Instance and its node are there for the grace period already; this is
/// for an agent that does not know its Instances yet, for a node that was not ready, and for a Configuration that is replaced.
pub(super) const STAYS: Duration = Duration::from_secs(30);

/// The known state of the node.
#[derive(Debug, Clone, Copy)]
pub(super) struct LabelFacts<'a> {
    pub(super) labels: &'a Labels,
    /// The Configurations with a device here; none if the Node is to have no labels.
    pub(super) present: &'a BTreeSet<ConfigurationName>,
    /// The agent's uptime.
    pub(super) now: Duration,
}

/// The uptime since when each label has had no device.
pub(super) type LabelMemory = BTreeMap<ConfigurationName, Duration>;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) changes: LabelChanges,
    /// The Configurations with devices that get no label, because there are too many.
    pub(super) left_out: usize,
    /// The time until the next plan if nothing changes before.
    pub(super) wake_in: Option<Duration>,
    pub(super) memory: LabelMemory,
}

/// Returns the changes of the Node's labels, for one patch.
pub(super) fn plan(known: LabelFacts<'_>, memory: &LabelMemory) -> Plan {
    let ours = labelled(known.labels);
    let mut plan = Plan::default();
    for name in ours.difference(known.present) {
        let since = memory.get(name).copied().unwrap_or(known.now);
        // Remembered until the label is gone: a removal that failed is due at once.
        plan.memory.insert(name.clone(), since);
        let left = (since + STAYS).saturating_sub(known.now);
        if left.is_zero() {
            plan.changes.removed.insert(name.clone());
        } else {
            plan.wake_in = plan.wake_in.into_iter().chain([left]).min()
        }
    }
    let kept = ours.len() - plan.changes.removed.len();
    let new = known.present.iter();
    let mut new = new.filter(|name| is_free(known.labels, name)).cloned();
    let room = NODE_LABELS_MAX.saturating_sub(kept);
    plan.changes.added = new.by_ref().take(room).collect();
    plan.left_out = new.count();
    plan
}

#[cfg(test)]
mod tests;
