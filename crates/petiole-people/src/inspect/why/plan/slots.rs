//! Decides who has the slots of devices, for how long, and whether what they got is still there. Pure.
use super::{
    super::finding::{Cause, Finding, with},
    agents::agent_trouble,
    device::{gone, seen_by},
    evictions::remedy,
    nodes::Request,
    rollout::waits_for_itself,
};
use crate::inspect::{
    devices::device_name,
    nodes::{is_counted, is_lost, is_node_ready, lost, shut_down, since},
    slots::{Holders, UsedSlot, free},
    snapshot::Snapshot,
    words::{listed, plural},
};
use k8s_openapi::jiff::Timestamp;
use petiole_model::{
    api::{
        instance::Instance,
        names::{self, connection_annotation},
    },
    model::{instance_name::InstanceKey, slot::SlotId},
};
use std::collections::BTreeMap;

/// A slot that is in use, and its device.
pub(super) struct Taken<'a> {
    pub(super) key: &'a InstanceKey,
    pub(super) instance: &'a Instance,
    pub(super) slot: UsedSlot,
}

/// Returns the slots of these Instances that are in use.
pub(super) fn taken<'a>(
    snapshot: &Snapshot,
    instances: impl IntoIterator<Item = (&'a InstanceKey, &'a Instance)>,
) -> Vec<Taken<'a>> {
    let mut instances = instances.into_iter().peekable();
    if instances.peek().is_none() {
        return vec![];
    }
    let holders = Holders::new(snapshot);
    let slots = instances.flat_map(|(key, instance)| {
        let slots = holders.used(key, instance).into_iter();
        slots.map(move |slot| Taken {
            key,
            instance,
            slot,
        })
    });
    slots.collect()
}

/// Returns who has the slots of devices of which too few are free.
pub(super) fn too_few(
    snapshot: &Snapshot,
    request: Request<'_>,
    instances: &[(&InstanceKey, &Instance)],
    now: Timestamp,
) -> Finding {
    let holders = taken(snapshot, instances.iter().copied());
    if let Some(finding) = held_by_lost_nodes(snapshot, &holders, now)
        .into_iter()
        .next()
    {
        return finding;
    }
    let free = can_be_had(snapshot, request, instances);
    let lowered = lowered_capacity(instances, holders.len());
    let shortage = shortage(request, holders.len(), free, lowered);
    if let Some(taken) = holders.iter().find(|taken| taken.is_unused()) {
        let trouble = without_agent(snapshot, taken);
        return match trouble.or_else(|| agent_trouble(snapshot, &taken.slot.node)) {
            Some(finding) => Finding {
                text: format!("{shortage}. {}", finding.text),
                ..finding
            },
            None => being_released(&shortage, taken),
        };
    }
    let named: Vec<String> = holders.iter().map(|taken| taken.slot.holder()).collect();
    let by = if named.is_empty() {
        String::new()
    } else {
        format!(", by {}", listed(&named))
    };
    let used = format!("{shortage}{by}");
    let slots = holders.iter().map(|taken| &taken.slot);
    if let Some(finding) = waits_for_itself(snapshot, request.pod, slots, &used) {
        return finding;
    }
    let when = if snapshot.is_given_out(request.resource) {
        "as soon as a holder has ended"
    } else {
        "3 to 15 s after a holder has ended"
    };
    let starts = match lowered {
        Some(capacity) => format!(
            "when {} of them have ended",
            holders.len() - capacity + usize::try_from(request.amount).unwrap_or(capacity)
        ),
        None => format!("when one is free, {when}"),
    };
    let text = format!(
        "{used}. The Pod starts {starts}; or raise spec.capacity of the Configuration, if the device can serve more containers."
    );
    let finding = Finding::new(Cause::SlotsTaken, text);
    let first = instances.first().and_then(|(key, instance)| {
        let (configuration, _) = snapshot.configuration_of(key, instance)?;
        Some(configuration)
    });
    match first {
        Some(key) => finding.then(format!(
            "kubectl -n {} edit configuration {}",
            key.namespace, key.name
        )),
        None => finding,
    }
}

/// Returns the capacity of a single device that has more users than that, because it was lowered.
pub(super) fn lowered_capacity(
    instances: &[(&InstanceKey, &Instance)],
    users: usize,
) -> Option<usize> {
    let [(_, instance)] = instances else {
        return None;
    };
    let capacity = usize::try_from(instance.spec.capacity).unwrap_or_default();
    (users > capacity).then_some(capacity)
}

/// Returns how many slots are in use, without a period.
fn shortage(request: Request<'_>, used: usize, free: usize, lowered: Option<usize>) -> String {
    let Request {
        resource, amount, ..
    } = request;
    if let Some(capacity) = lowered {
        return format!(
            "{used} slots of {resource} are in use, more than spec.capacity {capacity}"
        );
    }
    match free {
        0 if used == 1 => format!("The only slot of {resource} is in use"),
        0 => format!("All {used} slots of {resource} are in use"),
        free => format!(
            "The Pod asks for {amount} of {resource}, {free} can be had, and {} in use",
            plural(used, "slot") + if used == 1 { " is" } else { " are" }
        ),
    }
}

/// Returns how many of a resource are free: slots of a device, or devices of a Configuration.
pub(super) fn can_be_had(
    snapshot: &Snapshot,
    request: Request<'_>,
    instances: &[(&InstanceKey, &Instance)],
) -> usize {
    match instances {
        [(key, instance)] if snapshot.instance_resource(key) == *request.resource => free(instance),
        devices => devices.iter().filter(|(_, its)| free(its) > 0).count(),
    }
}

/// Returns why slots stay in use longer than containers use them.
pub(super) fn staying(snapshot: &Snapshot, slots: &[Taken<'_>], now: Timestamp) -> Vec<Finding> {
    let mut findings = held_by_lost_nodes(snapshot, slots, now);
    let others = slots.iter();
    let others = others.filter(|taken| !is_lost(snapshot, &taken.slot.node));
    findings.extend(others.filter_map(|taken| without_agent(snapshot, taken)));
    findings
}

impl Taken<'_> {
    fn is_unused(&self) -> bool {
        self.slot.has_known_pods && self.slot.pods.is_empty()
    }

    /// Returns the words for the device.
    fn device(&self) -> String {
        format!(
            "device {} (Instance {})",
            device_name(self.instance),
            self.key
        )
    }
}

/// Returns the finding for a slot that no Pod uses any more and that stays in use, because its node has no agent.
fn without_agent(snapshot: &Snapshot, taken: &Taken<'_>) -> Option<Finding> {
    let UsedSlot { slot, node, .. } = &taken.slot;
    if !taken.is_unused() || snapshot.agent_on(node).is_some() {
        return None;
    }
    let instance = taken.key;
    let text = format!(
        "Node {node} holds slot {slot} of Instance {instance}, no Pod of the node asks for it any more, and no agent runs on the node that could release it. Let the agent run there again, or release the slot yourself."
    );
    let InstanceKey { namespace, name } = instance;
    let next = format!(
        "kubectl -n {namespace} patch instance {name} --type merge -p '{{\"spec\":{{\"deviceUsage\":{{\"{slot}\":\"\"}}}}}}'"
    );
    Some(Finding::new(Cause::AgentMissing, text).then(next))
}

/// Returns the finding for a slot whose container has ended. The agent looks at the kubelet's records before it releases it.
fn being_released(shortage: &str, taken: &Taken<'_>) -> Finding {
    let (instance, slot) = (taken.key, &taken.slot);
    let text = format!(
        "{shortage}, and node {} holds one of Instance {instance} that none of its Pods asks for any more: the agent releases it 3 to 15 s after its container has ended.",
        slot.node
    );
    let next = format!(
        "kubectl -n {} get instance {} -o jsonpath='{{.spec.deviceUsage}}' -w",
        instance.namespace, instance.name
    );
    Finding::new(Cause::SlotsBeingReleased, text).then(next)
}

/// Returns a finding for each lost node that holds slots.
fn held_by_lost_nodes(snapshot: &Snapshot, slots: &[Taken<'_>], now: Timestamp) -> Vec<Finding> {
    let mut lost: BTreeMap<&str, Vec<&Taken<'_>>> = BTreeMap::new();
    for taken in slots {
        if is_lost(snapshot, &taken.slot.node) {
            lost.entry(&taken.slot.node).or_default().push(taken);
        }
    }
    let lost = lost.into_iter();
    lost.map(|(node, slots)| held_by_lost_node(snapshot, node, &slots, now))
        .collect()
}

fn held_by_lost_node(
    snapshot: &Snapshot,
    node: &str,
    slots: &[&Taken<'_>],
    now: Timestamp,
) -> Finding {
    let (what, it) = match slots {
        [taken] => (format!("a slot of Instance {}", taken.key), "it"),
        several => (plural(several.len(), "slot"), "them"),
    };
    let when = slots
        .first()
        .map(|taken| released(snapshot, node, taken, now));
    let (remedy, next) = match shut_down(snapshot, node) {
        Some(next) => ("If the machine is off, say so: then at once.", next),
        None => (
            "Delete the Pods that are left of it: then at once.",
            format!("kubectl get pods -A --field-selector spec.nodeName={node}"),
        ),
    };
    let text = format!(
        "Node {node} {} and holds {what}: its containers may still use the device. Others get {it} {}. {remedy}",
        lost(snapshot, node),
        when.unwrap_or_default(),
    );
    Finding::new(Cause::SlotHeldByLostNode, text).then(next)
}

/// Returns when the controller releases the slots of a lost node, as it computes that.
fn released(snapshot: &Snapshot, node: &str, taken: &Taken<'_>, now: Timestamp) -> String {
    let configuration = snapshot.configuration_of(taken.key, taken.instance);
    let after = configuration.map(|(_, its)| its.spec.slot_release_seconds);
    let counted = snapshot.nodes.values().filter(|its| is_counted(its));
    let absent = counted.clone().filter(|its| !is_node_ready(its)).count();
    let is_outage = absent * 2 > counted.count();
    let since = since(snapshot, node);
    match (after, since) {
        (Some(..=0), _) => {
            "never by time, because spec.slotReleaseSeconds of the Configuration is 0".to_owned()
        }
        _ if is_outage => "when at least half of the nodes are ready again".to_owned(),
        (Some(after), Some(since)) => {
            let absent_for = now.duration_since(since).as_secs();
            // A minute to be lost, and one to join again.
            match after.max(120) - absent_for {
                left @ 1.. => format!("in {left} s (spec.slotReleaseSeconds)"),
                _ => "within seconds".to_owned(),
            }
        }
        _ => "when its Pods are deleted, or spec.slotReleaseSeconds are over".to_owned(),
    }
}

/// Returns what is amiss with a device for the container that has this slot of it.
pub(super) fn amiss(snapshot: &Snapshot, taken: &Taken<'_>, now: Timestamp) -> Option<Finding> {
    let Taken {
        key,
        instance,
        slot,
    } = taken;
    let seen = seen_by(instance);
    if seen.is_empty() {
        let mut finding = gone(snapshot, key, instance, now)?;
        let or = "Or delete the Pod, so that the next one gets another device.";
        finding.text = with(finding.text, Some(remedy(snapshot, key, instance, or)));
        return Some(finding);
    }
    if !seen.iter().any(|node| *slot.node == **node) && !is_lost(snapshot, &slot.node) {
        let text = format!(
            "Node {} does not see {} any more, and {} does. {}",
            slot.node,
            taken.device(),
            listed(&seen),
            remedy(
                snapshot,
                key,
                instance,
                "Delete the Pod, so that the next one gets a device that is there."
            )
        );
        return Some(Finding::new(Cause::DeviceGone, text).then(taken.slot.deletion()));
    }
    moved(snapshot, taken)
}

/// Returns the finding for a device that is reached differently than when a container got it.
pub(super) fn moved(snapshot: &Snapshot, taken: &Taken<'_>) -> Option<Finding> {
    let index = taken.slot.slot.parse::<SlotId>().ok()?.index;
    let annotations = taken.instance.metadata.annotations.as_ref()?;
    let told = annotations.get(&connection_annotation(index))?;
    let now = connection(snapshot, taken)?;
    if told == now {
        return None;
    }
    let text = format!(
        "The {} is reached differently now than when {} got it, and its container still has the former address. {}",
        taken.device(),
        match taken.slot.pods.as_slice() {
            [pod] => format!("Pod {pod}"),
            _ => format!("a Pod of node {}", taken.slot.node),
        },
        remedy(
            snapshot,
            taken.key,
            taken.instance,
            "Delete that Pod, so that the next one gets the present one."
        )
    );
    Some(Finding::new(Cause::DeviceMoved, text).then(taken.slot.deletion()))
}

/// Returns the digest of how the node of a slot reaches the device now: by what the node reports, or else by the Instance.
fn connection<'a>(snapshot: &'a Snapshot, taken: &Taken<'a>) -> Option<&'a String> {
    let annotations = taken.instance.metadata.annotations.as_ref()?;
    let id = taken.instance.device_id();
    let of = taken.instance.spec.configuration_key(&taken.key.namespace);
    let views = snapshot.node_devices.get(&*taken.slot.node);
    let view = views.and_then(|views| views.view_of(&of));
    let mut devices = view.into_iter().flat_map(|view| view.all());
    let its = devices.find(|device| {
        device.instance.as_deref() == Some(taken.key.name.as_str())
            || id.is_some() && device.id.as_ref() == id
    });
    let reported = its.and_then(|device| device.connection.as_ref());
    reported.or_else(|| annotations.get(names::CONNECTION))
}
