//! Decides the entries of our resources in the status of this Node, and when stale entries are removed. Pure.
use crate::{
    agent::values::{IdsByResource, Slot},
    model::{
        node_resources::{EntryChange, NodeResources, Part},
        resource_name::ResourceName,
    },
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

/// The time after which an entry that is still there is stale. For 5 min after a plugin has stopped, and for 5 min
/// after its own start, the kubelet puts back an entry that was removed; then it writes its own 0 at its next sync.
/// Syncs are 10 s apart, and one more may be on its way.
pub(super) const UNTIL_STALE: Duration = Duration::from_secs(330);
/// A stream's end reaches the kubelet within milliseconds. Devices that it still has after this time are another
/// plugin's.
const STREAM_ENDS: Duration = Duration::from_secs(10);

/// The list of one of our plugins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Offer {
    pub(super) slots: Arc<[Slot]>,
    /// True if the kubelet listens to it.
    pub(super) is_registered: bool,
}

/// The known state of the node.
#[derive(Debug, Clone, Copy)]
pub(super) struct CapacityFacts<'a> {
    /// The lists of all plugins that run or start.
    pub(super) offers: &'a BTreeMap<ResourceName, Offer>,
    pub(super) node: &'a NodeResources,
    /// The healthy ids that the kubelet has; `None` while it has not been asked.
    pub(super) kubelet: Option<&'a IdsByResource>,
    /// The time since the kubelet appeared; `None` where there is none.
    pub(super) kubelet_age: Option<Duration>,
    /// The agent's uptime.
    pub(super) now: Duration,
}

/// The state that one plan leaves for the next.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct CapacityMemory {
    /// The resources that had a plugin.
    offered: BTreeSet<ResourceName>,
    /// The resources whose plugin has stopped, and when. Their allocatable is set to 0 once.
    stopped: BTreeMap<ResourceName, Duration>,
    /// The uptime since when an entry has had no plugin.
    unbacked: BTreeMap<ResourceName, Duration>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) changes: Vec<EntryChange>,
    /// Something waits for the kubelet to say so too: it is to be asked, or asked again.
    pub(super) asks_kubelet: bool,
    /// The time until the next plan if nothing changes before.
    pub(super) wake_in: Option<Duration>,
    pub(super) memory: CapacityMemory,
}

/// Returns the changes. They contain only entries that the kubelet was asked about.
pub(super) fn plan(known: CapacityFacts<'_>, memory: &CapacityMemory) -> Plan {
    let mut plan = Plan {
        changes: vec![],
        asks_kubelet: false,
        wake_in: None,
        memory: CapacityMemory {
            offered: known.offers.keys().cloned().collect(),
            ..CapacityMemory::default()
        },
    };
    publish(known, &mut plan);
    withdraw(known, memory, &mut plan);
    tidy(known, memory, &mut plan);
    plan
}

/// Publishes the lists of plugins as soon as the kubelet has them. A number that sinks waits for no kubelet: until the scheduler knows, it
/// sends Pods that are refused.
fn publish(known: CapacityFacts<'_>, plan: &mut Plan) {
    let registered = known.offers.iter().filter(|(_, offer)| offer.is_registered);
    for (resource, offer) in registered {
        let healthy = || offer.slots.iter().filter(|slot| slot.is_healthy);
        let counts = [
            (Part::Capacity, offer.slots.len()),
            (Part::Allocatable, healthy().count()),
        ];
        let changes: Vec<_> = counts
            .into_iter()
            .filter_map(|(part, n)| known.node.change(part, resource, n as u64))
            .collect();
        if changes.is_empty() {
            continue;
        }
        let is_known = known.kubelet.is_some_and(|ids| {
            let ids = ids.get(resource);
            ids.map_or(0, BTreeSet::len) == healthy().count()
                && healthy().all(|slot| ids.is_some_and(|ids| ids.contains(&slot.id)))
        });
        let (sinks, others): (Vec<_>, Vec<_>) = changes.into_iter().partition(EntryChange::sinks);
        plan.changes.extend(sinks);
        if is_known {
            plan.changes.extend(others)
        } else {
            plan.asks_kubelet |= !others.is_empty()
        }
    }
}

/// Nothing is allocatable of a resource whose plugin has stopped. Only once for each stop: what the kubelet does not
/// know, it would set again for ever.
fn withdraw(known: CapacityFacts<'_>, memory: &CapacityMemory, plan: &mut Plan) {
    let ended = (memory.offered.iter()).map(|resource| (resource, known.now));
    let stopped = (memory.stopped.iter()).map(|(resource, since)| (resource, *since));
    for (resource, since) in ended.chain(stopped) {
        if known.offers.contains_key(resource)
            || !known.node.allocatable.contains_key(resource)
            || known.now.saturating_sub(since) > STREAM_ENDS
        {
            continue;
        }
        let Some(change) = known.node.change(Part::Allocatable, resource, 0) else {
            continue;
        };
        plan.memory.stopped.insert(resource.clone(), since);
        match known.kubelet {
            Some(ids) if !ids.contains_key(resource) => plan.changes.push(change),
            Some(_) | None => plan.asks_kubelet = true,
        }
    }
}

/// Entries that no plugin backs go once the kubelet does not put them back.
fn tidy(known: CapacityFacts<'_>, memory: &CapacityMemory, plan: &mut Plan) {
    let unbacked = (known.node.names()).filter(|resource| !known.offers.contains_key(*resource));
    for resource in unbacked {
        let mut since = memory.unbacked.get(resource).copied().unwrap_or(known.now);
        let age = known.now.saturating_sub(since);
        if known
            .kubelet_age
            .is_some_and(|kubelet| age.min(kubelet) >= UNTIL_STALE)
        {
            match known.kubelet {
                _ if has_only_unhealthy(known.node, resource) => since = known.now,
                None => plan.asks_kubelet = true,
                Some(ids) if !ids.contains_key(resource) => {
                    plan.changes.retain(|change| &change.resource != resource);
                    plan.changes.extend(known.node.removal(resource));
                }
                // Somebody else's plugin: it is looked at again when it may have stopped.
                Some(_) => since = known.now,
            }
        }
        plan.memory.unbacked.insert(resource.clone(), since);
        let left = |kubelet: Duration| {
            UNTIL_STALE.saturating_sub(known.now.saturating_sub(since).min(kubelet))
        };
        let due_in = known.kubelet_age.map(left).filter(|left| !left.is_zero());
        plan.wake_in = plan.wake_in.into_iter().chain(due_in).min();
    }
}

/// Returns whether the entry is of a plugin that lists devices of which none is healthy. The kubelet names only healthy ones;
/// of a plugin that has ended, or that it does not know, it has written another entry by the time that one is stale.
fn has_only_unhealthy(node: &NodeResources, resource: &ResourceName) -> bool {
    let is_zero = |part| node.change(part, resource, 0).is_none();
    is_zero(Part::Allocatable) && !is_zero(Part::Capacity) && node.capacity.contains_key(resource)
}

#[cfg(test)]
mod tests;
