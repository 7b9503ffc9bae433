//! Finds the slots that containers of two nodes use: one was cut off, and went on with a slot that another got meanwhile. Pure.
use super::{
    nodes::is_lost,
    object::Kind,
    pods::{containers, given, is_finished, node_of},
    slots::{Holders, UsedSlot},
    snapshot::Snapshot,
};
use k8s_openapi::api::core::v1::{Event, Pod};
use petiole_model::{
    api::{instance::Instance, reason::Reason},
    model::{
        instance_name::InstanceKey,
        names::ObjectKey,
        plugin_name::PluginName,
        resource_name::ResourceName,
        slot::{SlotId, SlotOwner},
    },
};
use std::collections::{BTreeMap, BTreeSet};

/// A slot that containers of two nodes use.
#[derive(Debug)]
pub(crate) struct Twice<'a> {
    pub(crate) key: &'a InstanceKey,
    /// The user that the Instance shows.
    pub(crate) shown: UsedSlot,
    /// The user on another node, which has the slot still.
    pub(crate) other: UsedSlot,
}

/// A node that has a slot, and its Pods that have it or may have it.
type Users<'a> = BTreeMap<(&'a InstanceKey, String, &'a str), BTreeSet<&'a ObjectKey>>;

/// Returns the slots that are used twice: those of which the kubelets of two nodes say so, and those of which an agent said so, as
/// long as a Pod of its node may have them.
pub(crate) fn held_twice(snapshot: &Snapshot) -> Vec<Twice<'_>> {
    let mut users = told_by_kubelets(snapshot);
    // Each of many Pods is asked about, and there is rarely one.
    let mut events = snapshot.events.iter();
    if users.is_empty() && !events.any(|event| about(snapshot, event).is_some()) {
        return vec![];
    }
    let holders = Holders::new(snapshot);
    for (user, pods) in told_by_agents(&holders) {
        users.entry(user).or_insert(pods);
    }
    let twice = users.into_iter().filter_map(|((key, slot, node), pods)| {
        let used = holders.used(key, &snapshot.instances[key]);
        let shown = used.into_iter().find(|used| used.slot == slot)?;
        let other = UsedSlot {
            slot,
            node: node.into(),
            pods: pods.into_iter().map(ObjectKey::to_string).collect(),
            has_known_pods: true,
        };
        Some(Twice { key, shown, other })
    });
    twice.collect()
}

impl Twice<'_> {
    /// Returns whether this Pod is one of the two, or may be.
    pub(crate) fn is_of(&self, pod: &ObjectKey) -> bool {
        let pod = pod.to_string();
        [&self.shown, &self.other]
            .iter()
            .any(|user| user.pods.contains(&pod))
    }
}

/// Returns whether an Instance shows that a node has a slot, where that is another node than this one.
fn is_shown_elsewhere(instance: &Instance, slot: &str, node: &str) -> bool {
    let usage = instance.spec.device_usage.get(slot);
    let owner = usage.and_then(|usage| SlotOwner::from_usage(usage).ok().flatten());
    owner.is_some_and(|owner| owner.node().as_str() != node)
}

/// Returns the Pods whose kubelets name a slot that an Instance shows on another node. The ids of an Instance's own resource are those of
/// its slots. A container of a lost node may have ended.
fn told_by_kubelets(snapshot: &Snapshot) -> Users<'_> {
    let instances = snapshot.instances.iter();
    let by_name: BTreeMap<_, _> = instances.map(|its| (&its.0.name, its)).collect();
    let mut users = Users::new();
    for (pod, node, id) in
        running(snapshot).flat_map(|(key, pod, node)| ids(pod).map(move |id| (key, node, id)))
    {
        let slot = id.parse::<SlotId>().ok();
        let its = slot.and_then(|slot| by_name.get(&slot.instance).copied());
        if let Some((key, instance)) = its
            && is_shown_elsewhere(instance, id, node)
        {
            users
                .entry((key, id.to_owned(), node))
                .or_default()
                .insert(pod);
        }
    }
    users
}

/// Returns the Pods that may run now, each with its node.
fn running(snapshot: &Snapshot) -> impl Iterator<Item = (&ObjectKey, &Pod, &str)> {
    let pods = snapshot.pods.iter().filter(|(_, pod)| !is_finished(pod));
    let pods = pods.filter_map(|(key, pod)| Some((key, pod, node_of(pod)?)));
    pods.filter(|(_, _, node)| !is_lost(snapshot, node))
}

/// Returns all ids that the containers of a Pod were given.
fn ids(pod: &Pod) -> impl Iterator<Item = &str> {
    let all = containers(pod).flat_map(|its| its.allocated_resources_status.iter().flatten());
    let ids = all.flat_map(|status| status.resources.iter().flatten());
    ids.map(|id| id.resource_id.as_str())
}

/// Returns the same by the Events of agents: the id that a Pod has by the resource of a Configuration does not name the slot.
fn told_by_agents<'a>(holders: &Holders<'a>) -> Users<'a> {
    let snapshot = holders.snapshot;
    let mut users = Users::new();
    for event in &snapshot.events {
        let Some((key, instance)) = about(snapshot, event) else {
            continue;
        };
        let Some(told) = event.message.as_deref().and_then(Told::parse) else {
            continue;
        };
        if is_lost(snapshot, told.node) || !is_shown_elsewhere(instance, told.slot, told.node) {
            continue;
        }
        let pods = having(holders, key, instance, &told);
        if !pods.is_empty() {
            users.insert((key, told.slot.to_owned(), told.node), pods);
        }
    }
    users
}

/// Returns the Instance that an Event of an agent is about.
fn about<'a>(snapshot: &'a Snapshot, event: &Event) -> Option<(&'a InstanceKey, &'a Instance)> {
    let about = &event.involved_object;
    let is_it = event.reason.as_deref() == Some(Reason::SlotHeldTwice.as_str())
        && about.kind.as_deref() == Some(Kind::Instance.as_str());
    let key = ObjectKey::new(about.namespace.as_deref()?, about.name.as_deref()?);
    let its = snapshot.instances.get_key_value(&key.typed());
    its.filter(|_| is_it)
}

/// What an agent said of a slot that a container of its node uses, and another node, too.
struct Told<'a> {
    slot: &'a str,
    node: &'a str,
    /// The id by which the container of that node has the slot.
    id: &'a str,
}

impl<'a> Told<'a> {
    /// Reads the agent's words: `slot … is held by …, and a container on node … uses it too, as …: …`.
    fn parse(message: &'a str) -> Option<Self> {
        let (slot, rest) = message.strip_prefix("slot ")?.split_once(" is held by ")?;
        let (_, rest) = rest.split_once(", and a container on node ")?;
        let (node, rest) = rest.split_once(" uses it too, as ")?;
        let (id, _) = rest.split_once(':')?;
        Some(Self { slot, node, id })
    }
}

/// Returns the Pod of a node that has the slot, where its kubelet says the ids, or else those that may have it: they ask for more of the
/// resource than Instances show for the node.
fn having<'a>(
    holders: &Holders<'a>,
    key: &InstanceKey,
    instance: &Instance,
    told: &Told<'_>,
) -> BTreeSet<&'a ObjectKey> {
    let snapshot = holders.snapshot;
    let is_of_instance = PluginName::of_id(told.id).is_some_and(|plugin| plugin == key.name);
    let configuration = snapshot.configuration_of(key, instance);
    let Some(resource) = (match (is_of_instance, configuration) {
        (true, _) => Some(snapshot.instance_resource(key)),
        (false, its) => its.map(|(key, of)| snapshot.configuration_resource(&key, of)),
    }) else {
        return BTreeSet::new();
    };
    let (mut silent, mut unnamed, mut named) = (BTreeSet::new(), 0, BTreeSet::new());
    for asking in holders.asking(told.node, &resource) {
        let ids: Vec<&str> = given(asking.pod, &resource).map(|(id, _)| id).collect();
        if ids.contains(&told.id) {
            return [asking.key].into();
        }
        let rest = asking.amount.saturating_sub(ids.len() as u64);
        if rest > 0 {
            silent.insert(asking.key);
            unnamed += rest;
        }
        named.extend(ids.into_iter().map(str::to_owned));
    }
    let shown = shown_by(snapshot, told.node, &resource);
    if unnamed > shown.difference(&named).count() as u64 {
        silent
    } else {
        BTreeSet::new()
    }
}

/// Returns the ids of a resource by which Instances show that a node has slots.
fn shown_by(snapshot: &Snapshot, node: &str, resource: &ResourceName) -> BTreeSet<String> {
    let mut ids = BTreeSet::new();
    for (key, instance) in &snapshot.instances {
        for (slot, usage) in &instance.spec.device_usage {
            let (its, id) = match SlotOwner::from_usage(usage) {
                Ok(Some(owner)) if owner.node().as_str() != node => continue,
                Ok(Some(SlotOwner::Node(_))) => {
                    (Some(snapshot.instance_resource(key)), slot.clone())
                }
                Ok(Some(SlotOwner::Configuration { slot, .. })) => {
                    let of = snapshot.configuration_of(key, instance);
                    (
                        of.map(|(key, of)| snapshot.configuration_resource(&key, of)),
                        slot,
                    )
                }
                Ok(Some(SlotOwner::Claim { .. }) | None) | Err(_) => continue,
            };
            if its.as_ref() == Some(resource) {
                ids.insert(id);
            }
        }
    }
    ids
}
