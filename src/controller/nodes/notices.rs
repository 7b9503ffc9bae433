//! Decides what is reported of slots that a lost node still holds: without the report nothing says why a Pod that asks
//! for the device waits. Pure.
use super::{
    absent_node::{AbsentNode, Pods, Wait, Why},
    lost::{Outage, Outlook},
};
use crate::{
    api::{
        instance::{HEALTHY, Instance, InstanceStatus, NodeHealth},
        names::OUT_OF_SERVICE,
        reason::Reason,
    },
    model::{instance_name::InstanceKey, slot::used_slots, typed_names::NodeName},
};

/// A warning on an Instance, which is reported once.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Notice {
    pub(crate) instance: InstanceKey,
    pub(crate) node: NodeName,
    pub(crate) wait: Wait,
    pub(crate) note: String,
}

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

/// Returns whether every slot of an Instance has a holder, so that no further container can have the device.
pub(crate) fn is_used_up(instance: &Instance) -> bool {
    let capacity = instance.spec.capacity;
    let used = used_slots(&instance.spec.device_usage, capacity);
    usize::try_from(capacity).is_ok_and(|capacity| used >= capacity)
}

/// Returns what the slots of a lost node wait for. `None` where that is nothing, is not known yet, or is the end of an
/// outage.
pub(crate) fn wait(absent: &AbsentNode, outlook: Outlook) -> Option<Wait> {
    match (outlook, absent.why) {
        (Outlook::Free | Outlook::Outage, _) => None,
        (_, Why::Deleted) => (absent.pods() == Pods::Remain).then_some(Wait::Pods),
        (Outlook::FreeIn(_), Why::NotReady { .. }) => Some(Wait::Time),
        (Outlook::Never, Why::NotReady { .. }) => Some(Wait::Operator),
    }
}

/// The report of the slots `held` that `node` holds.
pub(crate) fn held(held: &[&str], node: &NodeName, why: Why, outlook: Outlook) -> String {
    let slots = listed(held);
    let by_time = match outlook {
        Outlook::FreeIn(left) => Some(format!(
            "in {} s (spec.slotReleaseSeconds of the Configuration)",
            left.as_secs_f64().ceil()
        )),
        Outlook::Free | Outlook::Outage | Outlook::Never => None,
    };
    match why {
        Why::Deleted => {
            let latest = by_time.map_or(String::new(), |time| format!(", at the latest {time}"));
            format!(
                "the deleted node {node} holds {slots}: Pods of it are left, and their containers may still run. Other \
                 nodes get its slots when its Pods are deleted{latest}"
            )
        }
        Why::NotReady { since, .. } => {
            let when = by_time.unwrap_or_else(|| {
                "never by time, because spec.slotReleaseSeconds of the Configuration is 0"
                    .to_owned()
            });
            format!(
                "node {node} holds {slots}: it is not ready since {since}, and its containers may still run. Other nodes get \
                 its slots {when}. If the machine is off, give its Node the taint {OUT_OF_SERVICE}, or delete the Node and \
                 its Pods: then they get them at once"
            )
        }
    }
}

/// The report of slots that were taken from lost nodes, each with its node.
pub(crate) fn released(freed: &[(String, NodeName)]) -> Option<String> {
    let freed: Vec<String> = (freed.iter())
        .map(|(slot, node)| format!("{slot} (held by {node})"))
        .collect();
    let slots = listed(&freed);
    (!freed.is_empty()).then(|| format!("taken from lost nodes, and free now: {slots}"))
}

/// The first of them: a note has 1 kB at most, and ends with what to do.
fn listed<T: AsRef<str>>(all: &[T]) -> String {
    const MOST: usize = 4;
    let first: Vec<&str> = all.iter().take(MOST).map(AsRef::as_ref).collect();
    let first = first.join(", ");
    match all.len().saturating_sub(MOST) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

/// The report on a Configuration with slots that would be released if there were no outage.
pub(crate) fn outage(outage: &Outage) -> String {
    format!(
        "{} of {} nodes are not ready, as in an outage of the control plane or of the network: no node is taken out of \
         Instances and no slot of theirs is given to others until at least half of the nodes are ready. A machine that is off \
         can be given the taint {OUT_OF_SERVICE}, or be deleted with its Pods",
        outage.absent, outage.of
    )
}
