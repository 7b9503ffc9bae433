//! Decides which devices the scheduler is offered, and by which classes claims find them. Pure.
//!
//! | a device | is published |
//! |---|---|
//! | that some nodes see | for these nodes |
//! | that no node sees | with a taint that keeps new Pods away; none evicts, because `evictions` knows why it is seen no more |
//! | whose slots device plugins gave to containers | with the other slots; with none left, with a taint |
//!
//! An Instance stays as long as a container has a slot of it, so a device is published until then, too.
use crate::{
    api::{
        attributes::attributes,
        configuration::{Allocation, Configuration},
        instance::{Instance, is_seen},
    },
    controller::world::{NodeState, World},
    model::{
        dra,
        instance_name::{InstanceKey, InstanceName},
        resource_name::{ResourceName, ResourcePrefixes},
        slot::SlotOwner,
        typed_names::{ConfigurationKey, NodeName},
    },
};
use k8s_openapi::{
    api::{
        core::v1::{NodeSelector, NodeSelectorRequirement, NodeSelectorTerm},
        resource::v1::{
            CapacityRequestPolicy, Device, DeviceAttribute, DeviceCapacity, DeviceTaint,
        },
    },
    apimachinery::pkg::api::resource::Quantity,
};
use petiole_base::collect::CollectMap as _;
use petiole_dra::slices::{Pool, Reach};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// The most nodes to which a device is offered: a slice has 64 devices, and an object 1.5 MiB. Beyond it: those that come first by
/// name have it.
const NODES_MAX: usize = 200;
/// The label by which a device names its nodes.
const HOSTNAME: &str = "kubernetes.io/hostname";
/// The capacity of a device of which a claim takes one.
const SLOTS: &str = "slots";
/// The key of the taint of a device that no node sees.
const GONE: &str = "akri.sh/gone";
/// The key of the taint of a device whose slots device plugins gave to containers.
const IN_USE: &str = "akri.sh/held-by-device-plugin";

/// Everything that the scheduler is to be offered.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Offered {
    pub(crate) pools: Vec<Pool>,
    /// The classes by name.
    pub(crate) classes: BTreeMap<String, Class>,
    /// The names of those that stay as they are, if there are such: nothing is known of them.
    pub(crate) kept_classes: BTreeSet<String>,
    /// The resources and shared devices of these, as far as the API server says them.
    pub(crate) recalled: Recalled,
}

/// A DeviceClass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Class {
    pub(crate) of: ConfigurationKey,
    /// The resource by which Pods get a device without a claim of theirs.
    pub(crate) resource: Option<ResourceName>,
}

impl Class {
    /// Returns the class as those find it who ask for a device by its name alone.
    pub(crate) fn without_resource(&self) -> Self {
        Self {
            of: self.of.clone(),
            resource: None,
        }
    }

    /// Returns the content as the API server has it.
    pub(crate) fn spec(&self) -> Value {
        let ConfigurationKey { namespace, name } = &self.of;
        let driver = dra::DRIVER;
        let expression = format!(
            "device.driver == \"{driver}\" && device.attributes[\"{driver}\"].namespace == \"{namespace}\" && device.attributes[\"{driver}\"].configuration == \"{name}\""
        );
        let mut spec = json!({"selectors": [{"cel": {"expression": expression}}]});
        if let Some(resource) = &self.resource {
            spec["extendedResourceName"] = resource.to_string().into();
        }
        spec
    }
}

/// What replicas before this one have offered, as far as the API server says it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Recalled {
    /// The devices that several claims may have, by pool and name.
    pub(crate) shared: BTreeSet<(String, String)>,
    /// The resources of the classes, by the name of the class.
    pub(crate) resources: BTreeMap<String, ResourceName>,
}

impl Recalled {
    fn of(offered: &Offered) -> Self {
        let devices = offered.pools.iter();
        let devices =
            devices.flat_map(|pool| pool.devices.iter().map(|device| (&pool.name, device)));
        let classes = offered.classes.iter();
        Self {
            shared: devices
                .filter(|(_, device)| device.allow_multiple_allocations == Some(true))
                .map(|(pool, device)| (pool.clone(), device.name.clone()))
                .collect(),
            resources: classes
                .filter_map(|(name, class)| Some((name.clone(), class.resource.clone()?)))
                .collect_map(),
        }
        .with(&offered.recalled)
    }

    fn with(mut self, other: &Self) -> Self {
        self.shared.extend(other.shared.iter().cloned());
        (self.resources).extend(other.resources.clone());
        self
    }
}

type Offering<'a> = BTreeMap<&'a ConfigurationKey, &'a Arc<Configuration>>;

/// Returns what is offered of the devices of a cluster. Resources may have the `prefixes`. What was offered before stays of
/// Configurations that cannot be read just now; a replica that has just begun to act has what it has `recalled` instead.
pub(crate) fn plan(
    world: &World,
    prefixes: &ResourcePrefixes,
    before: Option<&Offered>,
    recalled: &Recalled,
) -> Offered {
    let earlier = before.map(Recalled::of);
    let earlier = earlier.as_ref().unwrap_or(recalled);
    let is_offered = |of: &Configuration| {
        of.spec.allocation == Allocation::Dra && of.metadata.deletion_timestamp.is_none()
    };
    let offering = world.configurations.iter();
    let offering: Offering<'_> = offering.filter(|(_, of)| is_offered(of)).collect_map();
    // Every object is visited for them.
    let mut offered = if offering.is_empty() {
        Offered::default()
    } else {
        Offered {
            pools: pools(world, &offering, earlier),
            classes: classes(world, &offering, prefixes, earlier),
            ..Offered::default()
        }
    };
    for key in world
        .unreadable
        .keys()
        .filter(|key| !offering.contains_key(key))
    {
        let (pool, class) = (dra::pool_name(key), dra::class_name(key));
        let known = before.and_then(|before| before.pools.iter().find(|known| known.name == pool));
        // Another replica, or this one before it was started again, may have offered it.
        if known.is_none_or(|known| known.reach == Reach::AsTheyAre) {
            let shared = earlier.shared.iter().filter(|(of, _)| *of == pool);
            offered.recalled.shared.extend(shared.cloned());
        }
        offered.pools.push(known.cloned().unwrap_or_else(|| Pool {
            name: pool,
            reach: Reach::AsTheyAre,
            devices: vec![],
        }));
        if let Some(known) = before.and_then(|before| before.classes.get(&class)) {
            offered.classes.insert(class, known.clone());
            continue;
        }
        let resource = earlier.resources.get(&class).cloned();
        let resource = resource.map(|resource| (class.clone(), resource));
        offered.recalled.resources.extend(resource);
        offered.kept_classes.insert(class);
    }
    offered
}

fn pools(world: &World, offering: &Offering<'_>, earlier: &Recalled) -> Vec<Pool> {
    let mut devices: BTreeMap<ConfigurationKey, Vec<Device>> = BTreeMap::new();
    for (key, instance) in &world.instances {
        let of = instance.spec.configuration_key(&key.namespace);
        if let Some(configuration) = offering.get(&of) {
            // The scheduler counts a device without capacity as free while a claim has a share of it, which it got when the device had
            // more slots, and which is seen in use a moment later. So what was shared stays so.
            let name = || (dra::pool_name(&of), dra::device_name(&key.name));
            let is_shared = instance.spec.capacity > 1
                || has_shares(instance)
                || earlier.shared.contains(&name());
            let device = device(key, instance, configuration, is_shared, &world.nodes);
            devices.entry(of).or_default().push(device);
        }
    }
    let pools = offering.keys().map(|of| Pool {
        name: dra::pool_name(of),
        reach: Reach::OfEachDevice,
        devices: devices.remove(*of).unwrap_or_default(),
    });
    pools.collect()
}

fn classes(
    world: &World,
    offering: &Offering<'_>,
    prefixes: &ResourcePrefixes,
    earlier: &Recalled,
) -> BTreeMap<String, Class> {
    let had = |of: &ConfigurationKey| earlier.resources.get(&dra::class_name(of)).cloned();
    let owners = owners(world, prefixes, had);
    let owned = owners.iter();
    let owned: BTreeMap<_, &ResourceName> =
        owned.map(|(resource, of)| (*of, resource)).collect_map();
    let class = |of: &&ConfigurationKey| {
        // One that is refused another resource goes on with the one that it had, as agents do.
        let earlier = || had(of).filter(|resource| !owners.contains_key(resource));
        let its = owned.get(*of).copied().cloned();
        let class = Class {
            of: (*of).clone(),
            resource: its.or_else(earlier),
        };
        (dra::class_name(of), class)
    };
    offering.keys().map(class).collect_map()
}

/// Returns the Configuration that has each resource, whether plugins or the scheduler give it out: the one whose class had it, or else
/// the oldest. The scheduler would take the newest class of a resource, and none once that is gone (kube-scheduler
/// `extendedresourcecache`).
fn owners<'a>(
    world: &'a World,
    prefixes: &ResourcePrefixes,
    had: impl Fn(&ConfigurationKey) -> Option<ResourceName>,
) -> BTreeMap<ResourceName, &'a ConfigurationKey> {
    let first = world.oldest_of_each_name();
    let mut owners: BTreeMap<ResourceName, &ConfigurationKey> = world
        .unreadable
        .keys()
        .filter_map(|of| Some((had(of)?, of)))
        .collect_map();
    let of_instance = |resource: &ResourceName| {
        let instance = InstanceName::from(resource.last_segment());
        let mut all = first.values();
        *prefixes.first() == *resource.prefix() && all.any(|of| !instance.is_own(&of.name))
    };
    let wanting = first.values().copied().filter_map(|of| {
        let configuration = &world.configurations[of];
        let resource = match configuration.spec.resource() {
            // Another prefix is somebody else's, and an Instance's resource is that of its device.
            Some(own) => prefixes.own_name(&own).filter(|own| !of_instance(own)),
            None => Some(prefixes.first().resource(&of.name)),
        }?;
        let created = configuration.metadata.creation_timestamp.as_ref();
        Some((had(of).as_ref() != Some(&resource), created, of, resource))
    });
    let mut wanting: Vec<_> = wanting.collect();
    wanting.sort_unstable();
    for (_, _, of, resource) in wanting {
        owners.entry(resource).or_insert(of);
    }
    owners
}

fn device(
    key: &InstanceKey,
    instance: &Instance,
    configuration: &Configuration,
    is_shared: bool,
    nodes: &BTreeMap<NodeName, Arc<NodeState>>,
) -> Device {
    let status = instance.status.as_ref();
    let mut seen_by = instance.spec.nodes.clone();
    seen_by.retain(|node| status.is_none_or(|status| is_seen(status, node)));
    let mut taints = vec![];
    if seen_by.is_empty() {
        taints.push(taint(GONE));
    }
    let all = i64::from(instance.spec.capacity);
    let free = all - usages(instance, |is_claim| !is_claim);
    if free < 1 {
        taints.push(taint(IN_USE));
    }
    let one = || Quantity("1".to_owned());
    let slots = DeviceCapacity {
        value: Quantity(free.max(1).to_string()),
        request_policy: Some(CapacityRequestPolicy {
            default: Some(one()),
            valid_values: Some(vec![one()]),
            valid_range: None,
        }),
    };
    let (node_name, node_selector) = match seen_by.as_slice() {
        [one] => (Some(one.to_string()), None),
        several => (None, Some(selector(several, nodes))),
    };
    let attribute = |text| DeviceAttribute {
        string: Some(text),
        ..DeviceAttribute::default()
    };
    let attributes = attributes(key, instance, configuration).into_iter();
    let attributes = attributes.map(|(name, text)| (name, attribute(text)));
    Device {
        name: dra::device_name(&key.name),
        attributes: Some(attributes.collect_map()),
        capacity: is_shared.then(|| [(SLOTS.to_owned(), slots)].into()),
        taints: (!taints.is_empty()).then_some(taints),
        node_name,
        node_selector,
        allow_multiple_allocations: is_shared.then_some(true),
        ..Device::default()
    }
}

/// Returns whether claims have shares of a device.
fn has_shares(instance: &Instance) -> bool {
    usages(instance, |is_claim| is_claim) > 1
}

/// Returns the number of slots that claims have, or device plugins gave to containers.
fn usages(instance: &Instance, counts: impl Fn(bool) -> bool) -> i64 {
    let owners = instance.spec.device_usage.values();
    // A value that nobody can read is somebody's.
    let owners = owners.filter_map(|usage| SlotOwner::from_usage(usage).transpose());
    let count = owners.filter(|owner| counts(owner.as_ref().is_ok_and(SlotOwner::is_claim)));
    i64::try_from(count.count()).unwrap_or(i64::MAX)
}

fn taint(key: &str) -> DeviceTaint {
    DeviceTaint {
        key: key.to_owned(),
        effect: "NoSchedule".to_owned(),
        ..DeviceTaint::default()
    }
}

/// Returns a selector of these nodes; of no node, if there are none.
fn selector(of: &[NodeName], nodes: &BTreeMap<NodeName, Arc<NodeState>>) -> NodeSelector {
    let hostname = |name: &NodeName| {
        let labels = nodes.get(name).map(|node| &node.labels);
        let hostname = labels.and_then(|labels| labels.get(HOSTNAME));
        hostname.cloned().unwrap_or_else(|| name.to_string())
    };
    let of: BTreeSet<&NodeName> = of.iter().collect();
    let values: Vec<String> = of.into_iter().take(NODES_MAX).map(hostname).collect();
    let operator = if values.is_empty() {
        "DoesNotExist"
    } else {
        "In"
    };
    let requirement = NodeSelectorRequirement {
        key: HOSTNAME.to_owned(),
        operator: operator.to_owned(),
        values: (!values.is_empty()).then_some(values),
    };
    NodeSelector {
        node_selector_terms: vec![NodeSelectorTerm {
            match_expressions: Some(vec![requirement]),
            match_fields: None,
        }],
    }
}

#[cfg(test)]
mod tests;
