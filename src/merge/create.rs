//! The Instances of devices that have none yet. Pure.
use super::{
    own_names::OwnNames,
    plan::{LeftOut, Merge},
    reports::{Identity, NodeReports, is_same_host, names_of, rank},
    room::kept_bytes,
};
use crate::{
    api::{
        configuration::{Configuration, Problem},
        instance::{Instance, InstanceSpec},
        names,
        node_devices::SeenDevice,
        reason::Reason,
    },
    model::{
        container_edits::stored_copy,
        division::share,
        instance_name::{InstanceKey, InstanceName},
        slot::{INDEX_LIMIT, SlotId, SlotOwner, holders},
        typed_names::{ConfigurationKey, NodeName},
    },
};
use kube::Resource as _;
use petiole_base::collect::CollectMap as _;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// The most slots beyond its capacity with which an Instance is created. The chart's policies let agents add as many. Beyond it: they
/// are taken for free until the agent of their node shows them again.
const BEYOND_CAPACITY_MAX: usize = 64;

impl Merge<'_> {
    /// Returns the Instances to be created now, at most `maxInstances` of a Configuration, and of devices that one node has on
    /// each node; and a problem of each Configuration with a device that gets none.
    pub(crate) fn new_instances(&self) -> (Vec<Instance>, LeftOut) {
        let mut names: BTreeSet<InstanceKey> = BTreeSet::new();
        let mut places = Places::new(self.instances);
        let own_names = OwnNames::new(self);
        let (mut made, mut left_out) = (vec![], LeftOut::new());
        for (device, reports) in self.reports.without_instance() {
            let of = &device.configuration;
            let Some(configuration) = self.surroundings.configuration(of) else {
                continue;
            };
            let mut seen: NodeReports<'_> = reports.clone();
            seen.retain(|node, report| {
                report.is_healthy()
                    && !self.is_gone(node)
                    && !self.surroundings.is_silent(node)
                    && self.surroundings.selects(of, node)
            });
            if seen.is_empty() || configuration.metadata.deletion_timestamp.is_some() {
                continue;
            }
            let witness = reports.keys().next().filter(|_| reports.len() == 1);
            let place = TakenPlaces::new(device, witness.copied());
            if let Some(problem) = self.no_place(&places, &place, configuration) {
                left_out.entry(of.clone()).or_insert(problem);
                continue;
            }
            let most = configuration.spec.most_nodes();
            let key = |name: &InstanceName| InstanceKey::new(&of.namespace, name);
            let properties = seen.values().find_map(|report| report.properties.as_ref());
            let own = match own_names.of_new(device, configuration, properties) {
                Ok(own) => own,
                Err(problem) => {
                    left_out.entry(of.clone()).or_insert(problem);
                    continue;
                }
            };
            let candidates = names_of(device);
            // Another Configuration may have an Instance of the name.
            let is_taken =
                |key: &InstanceKey| self.all_instances.contains_key(key) || names.contains(key);
            let mut all = own.iter().chain(&candidates);
            let free = all.find(|name| !is_taken(&key(name)));
            let Some(name) = free else {
                let problem = || name_taken(device, &candidates);
                left_out.entry(of.clone()).or_insert_with(problem);
                continue;
            };
            let seen = first_in_order(name.as_str(), seen, most.unwrap_or(usize::MAX));
            let usage = self.usage(&key(name), configuration.spec.capacity, &seen);
            let new = instance(device, configuration, name, &seen, usage);
            if let Some(instance) = new.filter(|new| self.takes(of, kept_bytes(new))) {
                places.take(place);
                names.insert(key(name));
                made.push(instance);
            }
        }
        own_names.report(&mut left_out);
        for (of, problem) in self.taken.short() {
            left_out.entry(of).or_insert(problem);
        }
        (made, left_out)
    }

    /// Returns the slots that containers have already: those that an Instance of this name showed when it was deleted, because a node
    /// that has one may report later than the others, and those that nodes report. If two have one slot, the first gets it. The
    /// capacity may have been larger when they got it.
    fn usage(
        &self,
        key: &InstanceKey,
        capacity: i32,
        seen: &NodeReports<'_>,
    ) -> BTreeMap<String, String> {
        let is_its = |slot: &String| {
            let slot = slot.parse::<SlotId>();
            slot.is_ok_and(|slot| slot.instance == key.name && slot.index < INDEX_LIMIT)
        };
        let owner = |usage: &String| SlotOwner::from_usage(usage).ok().flatten();
        let most = usize::try_from(capacity).unwrap_or_default() + BEYOND_CAPACITY_MAX;
        let mut known = BTreeMap::new();
        for (slot, usage) in self.surroundings.slots_before(key).into_iter().flatten() {
            let has_owner =
                owner(usage).is_some_and(|owner| self.surroundings.has_node(owner.node()));
            if is_its(slot) && has_owner {
                known.insert(slot.clone(), usage.clone());
            }
        }
        for (node, report) in seen {
            for (slot, usage) in &report.usage {
                let is_own = owner(usage).is_some_and(|owner| owner.node() == *node);
                if is_its(slot) && is_own {
                    known.entry(slot.clone()).or_insert_with(|| usage.clone());
                }
            }
        }
        known.into_iter().take(most).collect()
    }

    /// Returns a problem if a Configuration has no place for one more device. Of the places for devices that all nodes may see,
    /// a node that alone reports them has half of what the others leave: its token may be stolen, and its devices invented.
    fn no_place(
        &self,
        places: &Places<'_>,
        place: &TakenPlaces<'_>,
        configuration: &Configuration,
    ) -> Option<Problem> {
        let most = configuration.spec.max_instances;
        let taken = places.taken(place);
        let full = || {
            format!(
                "devices get no Instance: this Configuration has as many as maxInstances says, which is {most}; narrow what is found, or raise it"
            )
        };
        let message = match place.witness {
            _ if taken >= most => full(),
            Some(witness) if places.of_one(place) >= share(most - taken, places.of_one(place)) => {
                let nodes = self.labels.values();
                let mut selected = nodes.filter(|node| self.surroundings.selects(&place.of, node));
                // The only node sees all that there is.
                selected.nth(1)?;
                format!(
                    "devices that {witness} alone reports get no Instance: of the {most} of maxInstances one node has half of what is left by the others; narrow what is found, or raise it"
                )
            }
            _ => return None,
        };
        Some(Problem::new(Reason::TooManyDevices, message))
    }
}

/// The message has nothing of the other Instances but their names: a change of their nodes does not touch this Configuration.
fn name_taken(device: &Identity, [short, long]: &[InstanceName; 2]) -> Problem {
    let Identity {
        configuration,
        device: id,
        ..
    } = device;
    let message = format!(
        "a device gets no Instance, because {short} and {long} are Instances of other devices; its id is {id:?}; rename this Configuration (kubectl -n {} get akrii {short} {long} shows the nodes of the others)",
        configuration.namespace,
    );
    Problem::new(Reason::InstanceNameTaken, message)
}

/// What an Instance takes of the places of its Configuration.
struct TakenPlaces<'a> {
    of: ConfigurationKey,
    /// The node of a device that it alone has: it has places of its own.
    node: Option<&'a NodeName>,
    /// The node that alone reports a device that all may see.
    witness: Option<&'a NodeName>,
}

impl<'a> TakenPlaces<'a> {
    fn new(device: &'a Identity, witness: Option<&'a NodeName>) -> Self {
        Self {
            of: device.configuration.clone(),
            node: device.node.as_ref(),
            witness: witness.filter(|_| device.node.is_none()),
        }
    }
}

/// The places of all Configurations that are taken.
#[derive(Default)]
struct Places<'a> {
    taken: BTreeMap<(ConfigurationKey, Option<&'a NodeName>), i64>,
    of_one: BTreeMap<(ConfigurationKey, &'a NodeName), i64>,
}

impl<'a> Places<'a> {
    fn new(instances: &'a BTreeMap<InstanceKey, Arc<Instance>>) -> Self {
        let mut places = Self::default();
        for (key, instance) in instances {
            let spec = &instance.spec;
            let first = spec.nodes.first();
            places.take(TakenPlaces {
                of: spec.configuration_key(&key.namespace),
                node: first.filter(|_| !spec.shared),
                witness: first.filter(|_| spec.shared && spec.nodes.len() == 1),
            });
        }
        places
    }

    fn taken(&self, place: &TakenPlaces<'a>) -> i64 {
        let key = (place.of.clone(), place.node);
        self.taken.get(&key).copied().unwrap_or(0)
    }

    fn of_one(&self, place: &TakenPlaces<'a>) -> i64 {
        let key = place.witness.map(|node| (place.of.clone(), node));
        let count = key.and_then(|key| self.of_one.get(&key));
        count.copied().unwrap_or(0)
    }

    fn take(&mut self, place: TakenPlaces<'a>) {
        if let Some(witness) = place.witness {
            *self.of_one.entry((place.of.clone(), witness)).or_default() += 1;
        }
        *self.taken.entry((place.of, place.node)).or_default() += 1;
    }
}

/// Returns the first `most` nodes in the order of the device.
fn first_in_order<'a>(name: &str, seen: NodeReports<'a>, most: usize) -> NodeReports<'a> {
    if seen.len() <= most {
        return seen;
    }
    let mut all: Vec<_> = seen.into_iter().collect();
    all.sort_by_cached_key(|(node, _)| rank(name, node));
    all.into_iter().take(most).collect_map()
}

/// Returns the Instance of a device. `None` if no node reports the properties of the device.
fn instance(
    device: &Identity,
    configuration: &Configuration,
    name: &InstanceName,
    seen: &NodeReports<'_>,
    usage: BTreeMap<String, String>,
) -> Option<Instance> {
    let (first, properties) =
        (seen.iter()).find_map(|(node, report)| Some((*node, report.properties.as_ref()?)))?;
    // A node that sees another host of a pinned device's name does not offer it.
    let pin = seen.get(first).and_then(|report| report.pin.as_ref());
    let is_same = |report: &SeenDevice| is_same_host(report, pin);
    let others = (seen.iter())
        .filter(|(node, report)| **node != first && is_same(report))
        .map(|(node, _)| node);
    let nodes: Vec<NodeName> = [&first]
        .into_iter()
        .chain(others)
        .map(|n| (*n).to_owned())
        .collect();
    let digest = name.digest_in(&device.configuration.name);
    let spec = InstanceSpec {
        configuration_name: device.configuration.name.clone(),
        cdi_name: format!("{}/{}={digest}", names::GROUP, device.configuration.name),
        capacity: configuration.spec.capacity,
        broker_properties: stored_copy(properties, &configuration.spec.broker_properties),
        shared: device.node.is_none(),
        device_usage: usage,
        nodes,
    };
    // With the label a node that has a slot sees it.
    let labelled = spec
        .nodes
        .iter()
        .cloned()
        .chain(holders(&spec.device_usage));
    let labels = labelled.map(|node| (names::node_label(&node), String::new()));
    let labels = labels.collect_map();
    let mut instance = Instance::new(name, spec);
    instance.metadata.namespace = Some(device.configuration.namespace.clone());
    let owner = configuration.controller_owner_ref(&());
    instance.metadata.owner_references = owner.map(|owner| vec![owner]);
    instance.metadata.labels = Some(labels);
    let mut annotations = BTreeMap::from([(names::DEVICE_ID.to_owned(), device.device.clone())]);
    annotations.extend(pin.map(|pin| (names::PIN.to_owned(), pin.clone())));
    // How others reach a shared device, each of them reports.
    let connection = seen
        .get(first)
        .and_then(|report| report.connection.as_ref());
    let connection = connection.filter(|_| device.node.is_some());
    annotations.extend(connection.map(|it| (names::CONNECTION.to_owned(), it.clone())));
    instance.metadata.annotations = Some(annotations);
    Some(instance)
}
