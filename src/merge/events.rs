//! The Events about the health of a device, by what its Instance says before and after. Pure.
use crate::{
    api::{
        instance::{HEALTHY, InstanceStatus, NodeHealth},
        reason::Reason,
    },
    model::{printable, typed_names::NodeName},
};

/// An Event on an Instance about the health of its device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct InstanceEvent {
    pub(crate) is_warning: bool,
    pub(crate) reason: Reason,
    pub(crate) note: String,
}

/// Returns the Events that follow when one status becomes another. A device that comes and goes, and a pinned one that
/// another host announces, has one Event, when that begins.
pub(crate) fn of_health(
    before: &InstanceStatus,
    after: &InstanceStatus,
    nodes: &[NodeName],
) -> Vec<InstanceEvent> {
    let entry = |status: &InstanceStatus, node: &NodeName| {
        let mut entries = status.nodes.iter();
        entries.find(|entry| entry.name == *node).cloned()
    };
    let (mut gone, mut back, mut troubled) = (vec![], vec![], vec![]);
    for node in nodes {
        let (was, is) = (entry(before, node), entry(after, node));
        let is_well =
            |entry: &Option<NodeHealth>| entry.as_ref().is_none_or(|e| e.health == HEALTHY);
        let reason = |entry: &Option<NodeHealth>| entry.as_ref().and_then(|e| e.reason.clone());
        let (reason_before, reason) = (reason(&was), reason(&is));
        match (is_well(&was), is_well(&is)) {
            _ if reason.is_some() && reason != reason_before => troubled.push((node, is)),
            _ if reason.is_some() => {}
            (true, false) => gone.push(node),
            (false, true) => back.push(node),
            (true, true) | (false, false) => {}
        }
    }
    let event = |reason, is_warning, nodes: &[&NodeName], says: [&str; 2]| {
        let (who, verb) = match nodes {
            [one] => (format!("node {one}"), says[0]),
            some => (format!("nodes {}", listed(some)), says[1]),
        };
        (!nodes.is_empty()).then(|| InstanceEvent {
            is_warning,
            reason,
            note: format!("{who} {verb}"),
        })
    };
    let first = troubled.first().map(|(node, entry)| {
        let message = entry.as_ref().and_then(|entry| entry.message.clone());
        let reason = entry.as_ref().and_then(|entry| entry.reason.as_deref());
        InstanceEvent {
            is_warning: true,
            reason: match reason {
                Some(reason) if reason == Reason::IdentityChanged.as_str() => {
                    Reason::IdentityChanged
                }
                _ => Reason::Flapping,
            },
            note: format!("node {node}: {}", message.unwrap_or_default()),
        }
    });
    let lost = [
        "does not see the device any more",
        "do not see the device any more",
    ];
    let found = ["sees the device again", "see the device again"];
    let all = [
        first,
        event(Reason::DeviceGone, true, &gone, lost),
        event(Reason::DeviceBack, false, &back, found),
    ];
    all.into_iter().flatten().collect()
}

/// The first of them: a note has 1 kB at most, and ends with what to do.
pub(crate) fn listed<T: AsRef<str>>(all: &[T]) -> String {
    const MOST: usize = 4;
    printable::listed(all, MOST)
}
