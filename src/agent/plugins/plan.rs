//! Decides which device plugins run, what each of them lists, and the name of its socket. Pure.
use crate::{
    agent::{
        device_state::{DeviceState, device_state},
        node_only::plan::{self as node_only, NodeOnly},
        values::{Offered, Slot, ValidatedConfigurations},
    },
    api::instance::Instance,
    discovery::session::Discoveries,
    model::{
        instance_name::InstanceKey,
        instance_name::InstanceName,
        names::shortened,
        plugin_name::PluginName,
        resource_name::ResourceName,
        slot::SlotOwner,
        slot_table::{ListedSlot, Resource, SlotTable},
        start_stop::StartStop,
        typed_names::ConfigurationKey,
    },
    store::Instances,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
    sync::Arc,
};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Action {
    Stop(PluginName),
    Start(Offered),
}

/// An Instance, now and before.
pub(crate) struct Pair<'a> {
    pub(crate) key: &'a InstanceKey,
    pub(crate) before: Option<&'a Arc<Instance>>,
    pub(crate) now: &'a Arc<Instance>,
}

impl Pair<'_> {
    /// Returns whether it is another object than before.
    pub(crate) fn is_changed(&self) -> bool {
        self.before
            .is_none_or(|before| !Arc::ptr_eq(before, self.now))
    }
}

/// The present Instances, and the keys of those that are gone.
pub(crate) struct Compared<'a> {
    pub(crate) pairs: Vec<Pair<'a>>,
    pub(crate) gone: Vec<InstanceKey>,
}

/// Compares two sets in one pass, because this happens ten times a second while other nodes claim slots.
pub(crate) fn compare<'a>(before: &'a Instances, now: &'a Instances) -> Compared<'a> {
    let mut gone = vec![];
    let mut earlier = before.iter().peekable();
    let pair = |(key, now): (&'a InstanceKey, &'a Arc<Instance>)| {
        while let Some((missing, _)) = earlier.next_if(|(earlier, _)| *earlier < key) {
            gone.push(missing.clone());
        }
        let before = earlier.next_if(|(earlier, _)| *earlier == key);
        let before = before.map(|(_, before)| before);
        Pair { key, before, now }
    };
    let pairs = now.iter().map(pair).collect();
    gone.extend(earlier.map(|(key, _)| key.clone()));
    Compared { pairs, gone }
}

/// Returns the resources to offer on this node. If an Instance and a Configuration would have one full name, the Instance has it.
pub(crate) fn desired(
    instances: &Instances,
    offers: &NodeOnly,
    node: &str,
    validated: &ValidatedConfigurations,
) -> BTreeMap<PluginName, Offered> {
    let mut offered: BTreeMap<ResourceName, Offered> = BTreeMap::new();
    let mut all = node_only::resources(offers);
    all.extend(resources(instances, node, &validated.by_claims));
    let (of_configurations, of_instances): (Vec<_>, Vec<_>) = all
        .into_values()
        .partition(|resource| matches!(resource, Resource::Configuration(_)));
    for resource in of_instances.into_iter().chain(of_configurations) {
        if let Some(full_name) = validated.names.of(&resource) {
            offered.entry(full_name.clone()).or_insert(Offered {
                is_by_claims: validated.has_by_claims(&resource),
                resource,
                full_name,
            });
        }
    }
    let by_name = |offered: Offered| (offered.resource.plugin(), offered);
    offered.into_values().map(by_name).collect()
}

/// Returns the resources of this node: that of each Instance, and that of each Configuration with an Instance. If an
/// Instance and a Configuration have one name, the Instance has the resource.
pub(crate) fn resources(
    instances: &Instances,
    node: &str,
    by_claims: &BTreeSet<ConfigurationKey>,
) -> BTreeMap<PluginName, Resource> {
    let all = instances.iter().flat_map(|(key, instance)| {
        let configuration = instance.spec.configuration_key(&key.namespace);
        resources_of(instance, node, by_claims.contains(&configuration))
    });
    let (of_instances, of_configurations): (Vec<_>, Vec<_>) =
        all.partition(|resource| matches!(resource, Resource::Instance(_)));
    of_configurations
        .into_iter()
        .chain(of_instances)
        .map(|resource| (resource.plugin(), resource))
        .collect()
}

/// Returns the resources that this node has because of an Instance: those of its Configuration and of itself. A resource
/// whose slots a container here holds stays as long, even if this node does not see the device any more. Where ResourceClaims have
/// the devices, that of the Configuration stays, too: the kubelet remembers for minutes what its last plugin wanted.
pub(crate) fn resources_of(
    instance: &Instance,
    node: &str,
    is_by_claims: bool,
) -> impl Iterator<Item = Resource> + use<> {
    let is_named = instance.spec.names_node(node);
    let by_configuration = |owner: &SlotOwner| matches!(owner, SlotOwner::Configuration { .. });
    let by_instance = |owner: &SlotOwner| matches!(owner, SlotOwner::Node(_));
    let of_configuration = (is_named || is_held(instance, node, by_configuration))
        .then(|| Resource::Configuration(instance.spec.configuration_name.clone()));
    let own = (is_named && !is_by_claims || is_held(instance, node, by_instance))
        .then(|| Resource::Instance(instance.metadata.name.clone().unwrap_or_default().into()));
    of_configuration.into_iter().chain(own)
}

/// Returns whether the node holds a slot of an Instance by the resource that `is_by` accepts.
fn is_held(instance: &Instance, node: &str, is_by: fn(&SlotOwner) -> bool) -> bool {
    let owners = instance.spec.device_usage.values();
    let mut owners = owners.filter_map(|usage| SlotOwner::from_usage(usage).ok().flatten());
    owners.any(|owner| owner.node() == node && is_by(&owner))
}

/// Returns the plugins to stop and to start. Stops come first, so that a resource never has two plugins.
pub(crate) fn plan(
    desired: &BTreeMap<PluginName, Offered>,
    running: &BTreeMap<PluginName, Offered>,
) -> Vec<Action> {
    let StartStop { stop, start } = StartStop::new(desired, running);
    let stops = stop.into_iter().map(|name| Action::Stop(name.clone()));
    let starts = start.into_iter();
    let starts = starts.map(|(_, offered)| Action::Start(offered.clone()));
    stops.chain(starts).collect()
}

/// The Instances whose device is known to be gone, of those that have their name's slots.
pub(crate) fn gone(
    instances: &Instances,
    discoveries: &Discoveries,
    has_slots: impl Fn(&InstanceKey) -> bool,
) -> BTreeSet<InstanceName> {
    let is_gone = |key: &InstanceKey| {
        device_state(&instances[key], discoveries) == DeviceState::Gone && has_slots(key)
    };
    instances
        .keys()
        .filter(|key| is_gone(key))
        .map(|key| key.name.clone())
        .collect()
}

/// Returns what a resource's plugin lists. The slots of a device that is gone stay, unhealthy: the kubelet takes a slot
/// that is missing from the list for a healthy one. So are ids that containers have by a former name of the resource.
pub(crate) fn listed(
    resource: &Resource,
    full_name: &ResourceName,
    slots: &SlotTable,
    gone: &BTreeSet<InstanceName>,
) -> Vec<Slot> {
    let former = slots.held_by_former_name(resource, full_name);
    let list = match resource {
        Resource::Instance(name) => slots.instance_list(name),
        Resource::Configuration(name) => slots.configuration_list(name),
    };
    let slot = |slot: ListedSlot| Slot {
        is_healthy: slot.is_usable && !gone.contains(&slot.instance) && !former.contains(&slot.id),
        id: slot.id.to_string(),
    };
    list.into_iter().map(slot).collect()
}

/// The most bytes of a socket's file name: what `sun_path` (107) leaves after `/var/lib/kubelet/device-plugins/`.
const SOCKET_NAME_LIMIT: usize = 75;
/// The most bytes of a socket's path.
const SOCKET_PATH_LIMIT: usize = 107;
/// `-<10 digits>.sock`
const SOCKET_NAME_END: usize = 16;

/// Returns the start of the names of a plugin's sockets, in a folder whose path has `folder` bytes.
pub(crate) fn socket_stem(plugin: &PluginName, folder: usize) -> Option<String> {
    let limit = SOCKET_PATH_LIMIT
        .checked_sub(folder + 1)?
        .min(SOCKET_NAME_LIMIT);
    let stem = limit
        .checked_sub(SOCKET_NAME_END)
        .filter(|stem| *stem >= 16)?;
    Some(shortened(plugin, stem))
}

/// `<resource>-<unix seconds>.sock`, with ten digits also where a machine begins in 1970: the first from `now` on that is not there yet, and its seconds.
pub(crate) fn socket_name(stem: &str, now: u64, is_taken: impl Fn(&str) -> bool) -> (String, u64) {
    (now..)
        .map(|seconds| (format!("{stem}-{seconds:010}.sock"), seconds))
        .find(|(name, _)| !is_taken(name))
        .expect("a folder does not hold 2^64 sockets")
}

/// The sockets that an agent made for the resource with this stem.
pub(crate) fn sockets_of<'a>(
    stem: &'a str,
    sockets: &'a BTreeSet<String>,
) -> impl Iterator<Item = &'a String> {
    let from = sockets.range::<str, _>((Bound::Included(stem), Bound::Unbounded));
    from.take_while(move |name| name.starts_with(stem))
        .filter(move |name| is_socket_of(stem, name))
}

fn is_socket_of(stem: &str, name: &str) -> bool {
    (name.strip_prefix(stem))
        .and_then(|rest| rest.strip_prefix('-')?.strip_suffix(".sock"))
        .is_some_and(|seconds| seconds.len() == 10 && seconds.bytes().all(|b| b.is_ascii_digit()))
}

#[cfg(test)]
mod tests;
