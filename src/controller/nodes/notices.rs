//! What is reported of slots that a lost node still holds: otherwise nothing says why a Pod that asks for the device
//! waits. Pure.
use super::lost::{Away, Outage, Outlook, Pods, Wait, Why};
use crate::{
    api::instance::Instance,
    cluster::parts::OUT_OF_SERVICE,
    model::{
        names::ObjectKey,
        slot::{SlotId, SlotOwner},
    },
};

/// A warning Event, once for each trouble.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Notice {
    /// All slots of an Instance are in use, some of them by a lost node.
    Held {
        instance: ObjectKey,
        node: String,
        wait: Wait,
        note: String,
    },
    /// Nothing is taken for lost, because that would be most of the cluster.
    Outage {
        configuration: ObjectKey,
        note: String,
    },
}

impl Notice {
    /// The reason of the Event.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::Held { .. } => "SlotsHeldByLostNode",
            Self::Outage { .. } => "MostNodesNotReady",
        }
    }

    pub(crate) fn note(&self) -> &str {
        match self {
            Self::Held { note, .. } | Self::Outage { note, .. } => note,
        }
    }
}

/// Whether every slot of an Instance has a holder, so that no further container can have the device.
pub(crate) fn is_used_up(instance: &Instance) -> bool {
    let is_slot = |id: &str| {
        let index = id.parse::<SlotId>().ok().map(|slot| slot.index);
        index.is_some_and(|index| i64::from(index) < i64::from(instance.spec.capacity))
    };
    let is_used = |usage: &str| !matches!(SlotOwner::from_usage(usage), Ok(None));
    let usage = instance.spec.device_usage.iter();
    let used = usage.filter(|(id, usage)| is_slot(id) && is_used(usage));
    usize::try_from(instance.spec.capacity).is_ok_and(|capacity| used.count() >= capacity)
}

/// The report on an Instance whose slots `held` are held by `node`. `None` where there is nothing to wait for, or the
/// reason is another.
pub(crate) fn held(
    key: &ObjectKey,
    held: &[&str],
    (node, away): (&str, &Away),
    outlook: Outlook,
) -> Option<Notice> {
    let slots = held.join(", ");
    let by_time = match outlook {
        Outlook::Free | Outlook::Outage => return None,
        Outlook::FreeIn(left) => Some(format!(
            "in {} s (spec.slotReleaseSeconds of the Configuration)",
            left.as_secs_f64().ceil()
        )),
        Outlook::Never => None,
    };
    let (wait, note) = match away.why {
        Why::Deleted if away.pods() == Pods::Unknown => return None,
        Why::Deleted => {
            let latest = by_time.map_or(String::new(), |time| format!(", at the latest {time}"));
            let note = format!(
                "{slots}: still held by the deleted node {node}, because Pods of it are there and may run. They are free \
                 for other nodes when its Pods are deleted{latest}"
            );
            (Wait::Pods, note)
        }
        Why::NotReady { since, .. } => {
            let wait = by_time.as_ref().map_or(Wait::Operator, |_| Wait::Time);
            let when = by_time.map_or_else(
                || "never by time, as spec.slotReleaseSeconds of the Configuration is 0".to_owned(),
                |time| format!("free for other nodes {time}"),
            );
            let note = format!(
                "{slots}: still held by {node}, which is not ready since {since} and may run its containers. {when}; at \
                 once when its containers have ended for sure: if the machine is off, give the Node the taint \
                 {OUT_OF_SERVICE}, or delete the Node and its Pods"
            );
            (wait, note)
        }
    };
    Some(Notice::Held {
        instance: key.clone(),
        node: node.to_owned(),
        wait,
        note,
    })
}

/// The report of slots that were taken from lost nodes, each with its node.
pub(crate) fn released(freed: &[(String, String)]) -> Option<String> {
    let freed: Vec<String> = (freed.iter())
        .map(|(slot, node)| format!("{slot} (held by {node})"))
        .collect();
    let slots = freed.join(", ");
    (!freed.is_empty()).then(|| format!("released from lost nodes: {slots}"))
}

/// The report on a Configuration with slots that would be released if there were no outage.
pub(crate) fn outage(configuration: &ObjectKey, outage: &Outage) -> Notice {
    Notice::Outage {
        configuration: configuration.clone(),
        note: format!(
            "{} of {} nodes are not ready, as in an outage of the control plane or of the network: no node is taken out of \
             Instances and no slot of theirs is given to others until at least half of the nodes are ready. A machine that \
             is off can be given the taint {OUT_OF_SERVICE}, or be deleted with its Pods",
            outage.away, outage.of
        ),
    }
}
