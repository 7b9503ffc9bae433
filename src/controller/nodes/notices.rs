//! Decides what is reported of slots that a lost node still holds: without the report nothing says why a Pod that asks
//! for the device waits. Pure.
use super::{
    absent_node::{AbsentNode, Pods, Wait, Why},
    lost::{Outage, Outlook},
};
use crate::{
    api::{instance::Instance, names::OUT_OF_SERVICE},
    merge::listed,
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

/// Returns whether every slot of an Instance has a holder, so that no further container can have the device.
pub(crate) fn is_used_up(instance: &Instance) -> bool {
    let used = used_slots(&instance.spec.device_usage);
    usize::try_from(instance.spec.capacity).is_ok_and(|capacity| used >= capacity)
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

/// The report on a Configuration with slots that would be released if there were no outage.
pub(crate) fn outage(outage: &Outage) -> String {
    format!(
        "{} of {} nodes are not ready, as in an outage of the control plane or of the network: no node is taken out of \
         Instances and no slot of theirs is given to others until at least half of the nodes are ready. A machine that is off \
         can be given the taint {OUT_OF_SERVICE}, or be deleted with its Pods",
        outage.absent, outage.of
    )
}
