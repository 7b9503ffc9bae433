//! Checks the promises that must hold at every step, and those that must hold at rest.
//!
//! At every step:
//! - No two containers run with one slot. The exception is documented: the slots of a node that did not report for
//!   longer than the release time were given away, while its containers ran on or waited to start.
//! - The controller frees a slot only of a node that is lost by the rules, and none by time while most nodes are lost.
//! - A controller does not write to one object again and again, writes nothing again that was answered, and nothing while it does
//!   not lead.
//! - The Instance of a device that a working node has seen for a while is not deleted, and none is while a container runs
//!   with one of its slots.
//! - An agent that starts while its node is cut off offers the devices that its predecessor offered before that.
//!
//! At rest, when everything works again and nothing happens:
//! - Every slot shows exactly the container that has it, and a slot that two have is reported by a node.
//! - Every device has one Instance, with the nodes, labels and status entries of those that see it. Other Instances
//!   exist only if their slots are held.
//! - A node offers an Instance to Pods unless the scheduler gives out its device.
//! - Every Instance has its brokers, see `brokers.rs`.
use super::{
    World, brokers,
    claims::{is_claimed, share_a_claim},
    control_plane,
    machine::Process,
};
use crate::{
    api::{
        condition::Condition,
        configuration::Allocation,
        instance::{Instance, is_seen},
        names,
    },
    model::slot::{SlotId, SlotOwner},
};
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    rc::Rc,
    sync::Arc,
};

/// The shortest time after which the slots of a lost node are given away.
const RELEASE_AFTER: u64 = 300_000;
/// The longest time between a look at the nodes and the write that follows from it.
const ON_ITS_WAY: u64 = 20_000;
/// The most writes of a controller to one object within a time.
const WRITES_AT_MOST: usize = 30;
const WRITES_WITHIN: u64 = 10_000;
/// The time after which an undisturbed node or device has settled.
const SETTLED: u64 = 90_000;
/// The time after which an agent has mirrored what it offers.
const MIRRORED_WITHIN: u64 = 10_000;
/// The time after which an agent that starts without the API server offers what it knows from the mirror.
const OFFERED_WITHIN: u64 = 30_000;

/// A container: the node, the uid of its Pod, its name.
pub(super) type Place = (String, u64, &'static str);

#[derive(Default)]
pub(super) struct Ledger {
    /// The number of entries in the log of the Instances that were read.
    read: usize,
    /// Slots that were given away while containers had them, and these containers.
    given_away: BTreeSet<(SlotId, Place)>,
    /// The deleted nodes, each with the time of the deletion.
    pub(super) node_deleted: BTreeMap<String, u64>,
    /// The last time at which slots of a node that has returned might be given away.
    lost_until: BTreeMap<String, u64>,
    /// The times of the latest writes of each controller to each object.
    asked: BTreeMap<(String, String), VecDeque<u64>>,
    /// The version of each object as a controller has last seen it in an answer.
    answered: BTreeMap<(String, String), String>,
}

/// Checks that a controller does not write to one object again and again, that one at most leads, and that others write only to
/// take the Lease.
pub(super) fn asked(world: &Rc<World>, who: &str, what: String) {
    let now = world.machine.now();
    let controllers = world.controllers.borrow();
    let leaders: Vec<&str> = (controllers.iter())
        .filter(|controller| controller.leads())
        .map(|controller| controller.name.as_str())
        .collect();
    if leaders.len() > 1 {
        world.broke(format!("{leaders:?} lead at once"));
    }
    let is_controller = controllers.iter().any(|controller| controller.name == who);
    if is_controller && !leaders.contains(&who) && !what.contains(" leases ") {
        world.broke(format!("{who} sends {what}, and does not lead"));
    }
    drop(controllers);
    let mut ledger = world.ledger.borrow_mut();
    let asked = ledger.asked.entry((who.to_owned(), what.clone()));
    let times = asked.or_default();
    times.push_back(now);
    if times.len() > WRITES_AT_MOST {
        let first = times.pop_front().unwrap_or_default();
        if now - first < WRITES_WITHIN {
            world.broke(format!(
                "{who} sends {what} {} times within {} ms",
                times.len() + 1,
                now - first
            ));
        }
    }
}

/// Checks that a controller knows what was answered: it does not write what the object, in a version of its own, already has.
pub(super) fn answered(world: &Rc<World>, who: &str, what: String, version: &str) {
    let controllers = world.controllers.borrow();
    if controllers.iter().any(|controller| controller.name == who) {
        let mut ledger = world.ledger.borrow_mut();
        let key = (who.to_owned(), what.clone());
        if ledger.answered.insert(key, version.to_owned()).as_deref() == Some(version) {
            world.broke(format!("{who} sends {what} again, which was answered"));
        }
    }
}

/// Checks the slots of a container that has started.
pub(super) fn started(world: &Rc<World>, at: usize, (uid, container): (u64, &'static str)) {
    let place: Place = (world.nodes[at].name.clone(), uid, container);
    for slot in world.nodes[at].slots_given(uid, container) {
        let others = users(world, |other| *other == slot);
        for (_, other) in others.iter().filter(|(_, other)| *other != place) {
            let may_both = is_given_away(world, &slot, &place)
                || is_given_away(world, &slot, other)
                || share_a_claim(world, &place, other);
            if !may_both {
                world.broke(format!(
                    "slot {slot} is held twice: by {place:?} and by {other:?}"
                ));
            }
        }
    }
}

/// Returns the containers that run with slots that `is_wanted` selects.
fn users(world: &World, is_wanted: impl Fn(&SlotId) -> bool) -> Vec<(SlotId, Place)> {
    let mut users = vec![];
    for node in &world.nodes {
        for ((uid, container), run) in node.runtime.borrow().iter() {
            let slots = run
                .slots
                .iter()
                .filter(|slot| run.is_running && is_wanted(slot));
            users.extend(slots.map(|slot| (slot.clone(), (node.name.clone(), *uid, *container))));
        }
    }
    users
}

fn is_given_away(world: &World, slot: &SlotId, place: &Place) -> bool {
    let key = (slot.clone(), place.clone());
    world.ledger.borrow().given_away.contains(&key)
}

/// Checks the changes since the last call.
pub(super) fn follow(world: &Rc<World>) {
    let mut is_deleted = false;
    loop {
        let entry = {
            let server = world.server.borrow();
            let mut ledger = world.ledger.borrow_mut();
            let Some(entry) = server.instances.log.get(ledger.read) else {
                break;
            };
            ledger.read += 1;
            (entry.before.clone(), entry.after.clone(), entry.by.clone())
        };
        let (Some(before), after, by) = entry else {
            continue;
        };
        match after {
            Some(after) => freed(world, (&before, &after), &by),
            None => {
                deleted(world, &before);
                is_deleted = true;
            }
        }
    }
    if is_deleted {
        let later = world.clone();
        let machine = &world.machine;
        machine.after(machine.between(50, 2_000), move || {
            control_plane::collect(&later)
        });
    }
}

fn owner(instance: &Instance, slot: &str) -> Option<SlotOwner> {
    let usage = instance.spec.device_usage.get(slot)?;
    SlotOwner::from_usage(usage).ok().flatten()
}

/// Checks the slots of a node that the controller released.
fn freed(world: &Rc<World>, (before, after): (&Instance, &Instance), by: &str) {
    for id in before.spec.device_usage.keys() {
        let Some(held) = owner(before, id) else {
            continue;
        };
        if owner(after, id).is_some() || by != names::CONTROLLER_MANAGER {
            continue;
        }
        let name = held.node();
        if !is_lost(world, name) {
            world.broke(format!(
                "the controller freed {id} of {name}, which is not lost"
            ));
        }
        let slot: SlotId = id.parse().unwrap();
        let running = users(world, |other| *other == slot).into_iter();
        let running = running.map(|(_, place)| place);
        // A container that has not started keeps what it was given while its node is cut off.
        let given = world.node(name).places_given(&slot);
        let given_away = running.filter(|place| place.0 == *name).chain(given);
        let given_away = given_away.map(|place| (slot.clone(), place));
        world.ledger.borrow_mut().given_away.extend(given_away);
    }
}

/// Records that a node is about to return.
pub(super) fn returns(world: &World, name: &str) {
    if is_lost(world, name) {
        let now = world.machine.now();
        world
            .ledger
            .borrow_mut()
            .lost_until
            .insert(name.to_owned(), now);
    }
}

/// Returns whether the slots of a node may be given away now, or might have been when a request that is written now
/// began.
fn is_lost(world: &World, name: &str) -> bool {
    let now = world.machine.now();
    let lost_until = world.ledger.borrow().lost_until.get(name).copied();
    if lost_until.is_some_and(|until| now - until < ON_ITS_WAY) {
        return true;
    }
    let is_over = |since: u64| now.saturating_sub(since) >= RELEASE_AFTER;
    match world.node_state(name) {
        None => {
            let (server, ledger) = (world.server.borrow(), world.ledger.borrow());
            let mut pods = server.pods.objects.values();
            pods.all(|pod| pod.node != name || pod.has_ended())
                || ledger.node_deleted.get(name).copied().is_some_and(is_over)
        }
        Some(state) => {
            let since = world.node(name).not_ready_since.get();
            let by_time = is_over(since) && !control_plane::is_outage(world, ON_ITS_WAY);
            !state.is_ready && (state.is_out_of_service || by_time)
        }
    }
}

fn deleted(world: &Rc<World>, instance: &Instance) {
    let name = instance.metadata.name.clone().unwrap_or_default();
    for (slot, place) in users(world, |slot| slot.instance == name) {
        if !is_given_away(world, &slot, &place) {
            world.broke(format!(
                "{name} is deleted while {slot} is used by {place:?}"
            ));
        }
    }
    for thing in world.devices.all.borrow().iter() {
        let is_its = |at: &usize| world.instance_name(thing, *at) == name;
        for at in thing.seen_by.iter().filter(|at| is_its(at)) {
            let node = &world.nodes[*at];
            let now = world.machine.now();
            let is_quiet = |since: u64| now.saturating_sub(since) > SETTLED;
            if node.is_linked()
                && world.node_state(&node.name).is_some()
                && node.agent.borrow().is_some()
                && is_quiet(node.disturbed.get())
                && is_quiet(thing.changed)
                && is_quiet(world.stormy.get())
            {
                let node = &node.name;
                world.broke(format!("{name} is deleted, and {node} sees its device"));
            }
        }
    }
}

/// What a node offers when it is cut off, and the agent that offers it.
pub(super) struct Offered {
    at: u64,
    agent: Option<Process>,
    /// The resources of Instances by the index of their devices.
    resources: BTreeMap<usize, String>,
}

/// Returns what a node offers that nothing has disturbed for a while.
pub(super) fn offered(world: &World, at: usize) -> Offered {
    let (node, now) = (&world.nodes[at], world.machine.now());
    let is_quiet = |since: u64| now.saturating_sub(since) > MIRRORED_WITHIN;
    let all = world.devices.all.borrow();
    let things = all.iter().enumerate().filter(|(_, thing)| {
        thing.seen_by.contains(&at) && is_quiet(thing.changed) && is_quiet(node.disturbed.get())
    });
    let resources = things.map(|(n, thing)| {
        let resource = format!("akri.sh/{}", world.instance_name(thing, at));
        (n, resource)
    });
    Offered {
        at: now,
        agent: node.agent.borrow().as_ref().map(|agent| agent.process),
        resources: resources
            .filter(|(_, resource)| node.has_plugin(resource))
            .collect(),
    }
}

/// Checks what another agent offers that has started since and does not reach the API server: the mirror has it.
pub(super) fn still_offered(world: &Rc<World>, at: usize, before: &Offered) {
    let (node, now) = (&world.nodes[at], world.machine.now());
    let agent = node.agent.borrow().as_ref().map(|agent| agent.process);
    let is_settled = now.saturating_sub(node.disturbed.get()) > OFFERED_WITHIN;
    let has_both = agent.is_some() && node.kubelet.borrow().is_some();
    if !has_both || agent == before.agent || !is_settled {
        return;
    }
    let all = world.devices.all.borrow();
    let is_same = |n: &usize| all[*n].changed < before.at;
    let resources = before.resources.iter().filter(|(n, _)| is_same(n));
    for (_, resource) in resources.filter(|(_, resource)| !node.has_plugin(resource)) {
        world.broke(format!(
            "{} was cut off with {resource}, and another agent there does not offer it",
            node.name
        ));
    }
}

/// Returns the broken promises when nothing more will happen.
pub(super) fn at_rest(world: &Rc<World>) -> Vec<String> {
    let instances: Vec<Arc<Instance>> =
        (world.server.borrow().instances.objects.values().cloned()).collect();
    let mut faults = vec![];
    let (has_run, may_show) = holders(world);
    let usage = instances
        .iter()
        .flat_map(|instance| &instance.spec.device_usage);
    let usage: BTreeMap<&String, &String> = usage.filter(|(_, usage)| !usage.is_empty()).collect();
    for (slot, owners) in &has_run {
        let shown = usage.get(&slot.to_string()).copied();
        let mut agents = world
            .nodes
            .iter()
            .filter_map(|node| node.agent.borrow().clone());
        let is_reported = agents.any(|agent| agent.inner.held_twice().contains(slot));
        // A device that no node sees has no Instance once its slots were given away. `things` requires the Instances of
        // the others.
        let is_its = |i: &Arc<Instance>| i.metadata.name.as_deref() == Some(&slot.instance);
        let has_instance = instances.iter().any(is_its);
        let holders: BTreeSet<_> = owners.iter().map(|owner| holder(owner)).collect();
        if !has_instance && holders.len() == 1 {
            continue;
        }
        if holders.len() > 1 && !is_reported {
            faults.push(format!("at rest {slot} has {owners:?}, and nobody says so"));
        } else if holders.len() == 1 && !shown.is_some_and(|shown| owners.contains(shown)) {
            faults.push(format!(
                "at rest {slot} shows {shown:?}, and {owners:?} has it"
            ));
        }
    }
    for (slot, usage) in usage {
        if !may_show.contains(&(slot.clone(), usage.clone())) && !is_claimed(world, usage) {
            faults.push(format!(
                "at rest {slot} shows {usage}, and no container has it"
            ));
        }
    }
    things(world, &instances, &may_show, &mut faults);
    offers(world, &instances, &mut faults);
    brokers::at_rest(world, &instances, &mut faults);
    faults
}

/// Returns who holds a slot that this owner has: nodes may share a claim.
fn holder(owner: &str) -> String {
    match SlotOwner::from_usage(owner) {
        Ok(Some(SlotOwner::Claim { uid, .. })) => uid,
        _ => owner.to_owned(),
    }
}

/// Slots, each with one who has it.
type Owners = BTreeSet<(String, String)>;
type Holders = (BTreeMap<SlotId, Vec<String>>, Owners);

/// Returns the owners of the slots that containers run with, and all owners that may be shown: an init container that
/// ended may keep its slot until its Pod ends.
fn holders(world: &World) -> Holders {
    let (mut running, mut all) = (BTreeMap::<_, Vec<_>>::new(), BTreeSet::new());
    for node in &world.nodes {
        let kubelet = node.kubelet.borrow();
        let Some(kubelet) = kubelet.as_ref() else {
            continue;
        };
        for (known, slot) in node.disk.lock().unwrap().claimed() {
            let owner = format!("claim:{}:{}", known.claim.uid, node.name);
            all.insert((slot.to_string(), owner.clone()));
            if known.pods.iter().any(|uid| node.is_running(*uid)) {
                running.entry(slot).or_default().push(owner);
            }
        }
        for ((uid, container, resource), given) in &kubelet.given {
            if !kubelet.pods.get(uid).is_some_and(|known| known.is_active) {
                continue;
            }
            for (id, slot) in given {
                let owner = if super::kubelet::is_of_configuration(resource) {
                    format!("C:{id}:{}", node.name)
                } else {
                    node.name.clone()
                };
                all.insert((slot.to_string(), owner.clone()));
                if node.runs(*uid, container) {
                    running.entry(slot.clone()).or_default().push(owner);
                }
            }
        }
    }
    (running, all)
}

fn things(world: &World, instances: &[Arc<Instance>], may_show: &Owners, faults: &mut Vec<String>) {
    let mut expected = BTreeMap::<String, BTreeSet<String>>::new();
    for thing in world.devices.all.borrow().iter() {
        for at in &thing.seen_by {
            let nodes = expected.entry(world.instance_name(thing, *at)).or_default();
            nodes.insert(world.nodes[*at].name.clone());
        }
    }
    let names: BTreeSet<String> = instances
        .iter()
        .filter_map(|i| i.metadata.name.clone())
        .collect();
    for missing in expected.keys().filter(|name| !names.contains(*name)) {
        faults.push(format!(
            "at rest {missing} is missing, and its device is there"
        ));
    }
    for instance in instances {
        let name = instance.metadata.name.clone().unwrap_or_default();
        let seen_by = expected.get(&name).cloned().unwrap_or_default();
        let shown = instance.spec.device_usage.iter();
        // Of the nodes that share a claim the Instance shows one.
        let its = may_show
            .iter()
            .filter(|(slot, _)| slot.rsplit_once('-').is_some_and(|(of, _)| of == name));
        let holders: BTreeSet<String> = shown
            .chain(its.map(|(slot, owner)| (slot, owner)))
            .filter_map(|(_, owner)| SlotOwner::from_usage(owner).ok()?)
            .map(|owner| owner.node().to_string())
            .collect();
        if seen_by.is_empty() && holders.is_empty() {
            faults.push(format!(
                "at rest {name} is there, without a device and without a holder"
            ));
            continue;
        }
        faults.extend(fault_of(instance, (&seen_by, &holders)));
    }
}

/// Checks that each node has a plugin of the Instances that it sees, and none where `allocation` is `DRA` and it holds no slot by one.
fn offers(world: &World, instances: &[Arc<Instance>], faults: &mut Vec<String>) {
    let server = world.server.borrow();
    for (instance, node) in instances
        .iter()
        .flat_map(|instance| world.nodes.iter().map(move |node| (instance, node)))
    {
        let of = instance.spec.configuration_key("default").untyped();
        let configuration = server.configurations.objects.get(&of);
        let is_by_claims = configuration.is_some_and(|its| its.spec.allocation == Allocation::Dra);
        let is_named = instance.spec.names_node(&node.name);
        let mut slots = instance.spec.device_usage.keys();
        let is_held = slots.any(|slot| {
            let owner = owner(instance, slot);
            matches!(owner, Some(SlotOwner::Node(holder)) if *holder == *node.name)
        });
        let name = instance.metadata.name.as_deref().unwrap_or_default();
        let is_offered = node.has_plugin(&format!("akri.sh/{name}"));
        if is_offered != (is_named && !is_by_claims || is_held) {
            faults.push(format!(
                "at rest {name} has a plugin on {}: {is_offered}, is seen there: {is_named}, held: {is_held}, by claims: {is_by_claims}",
                node.name
            ));
        }
    }
}

fn fault_of(
    instance: &Instance,
    (seen_by, holders): (&BTreeSet<String>, &BTreeSet<String>),
) -> Option<String> {
    let name = instance.metadata.name.clone().unwrap_or_default();
    let nodes: BTreeSet<String> = instance.spec.nodes.iter().map(String::from).collect();
    let labels = instance.metadata.labels.iter().flatten();
    let labels: BTreeSet<String> = labels
        .filter_map(|(label, _)| label.strip_prefix(names::NODE_LABEL_PREFIX))
        .map(str::to_owned)
        .collect();
    let status = instance.status.clone().unwrap_or_default();
    let healthy = nodes.iter().filter(|node| is_seen(&status, node));
    let healthy: BTreeSet<String> = healthy.cloned().collect();
    let entries: BTreeSet<String> = status.nodes.iter().map(|e| e.name.to_string()).collect();
    // Devices that have always been healthy have no conditions.
    let mut conditions = status.conditions.iter();
    let available = conditions.find(|c| c.type_ == "Available");
    let is_available = available.map_or(!healthy.is_empty(), Condition::is_true);
    let labelled: BTreeSet<String> = seen_by.union(holders).cloned().collect();
    let what = if seen_by.is_empty() {
        // The Instance waits for its last holder.
        let is_right = !is_available && healthy.is_empty() && labels.is_superset(holders);
        (!is_right).then_some("is not shown as it is, without a device and held")
    } else if nodes != *seen_by {
        Some("has other nodes than those that see its device")
    } else if labels != labelled {
        Some("has labels of other nodes than those that see or hold it")
    } else if healthy != *seen_by || !entries.is_empty() {
        Some("has views of nodes that see its device, or of others")
    } else {
        (!is_available).then_some("is not Available")
    };
    what.map(|what| {
        format!(
            "at rest {name} {what}: seen by {seen_by:?}, held by {holders:?}, nodes {nodes:?}, views {entries:?}, healthy {healthy:?}, labels {labels:?}"
        )
    })
}
