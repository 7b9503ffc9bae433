//! Simulates the actions of users and failures: Pods and devices appear and disappear, devices move, links are cut,
//! processes and machines die.
//!
//! Each step is drawn at random, some time after the one before. Most faults are repaired after a while, and [`mend`]
//! repairs all of them.
use super::{
    World, control_plane,
    controller::Controller,
    devices::Thing,
    invariants,
    network::Weather,
    users::{create_pod, create_pod_on, delete_pod},
};
use crate::api::configuration::{Allocation, Configuration};
use std::{collections::BTreeSet, rc::Rc, sync::Arc};

type Step = fn(&Rc<World>);

/// The times in which a cluster at rest follows, in ms: its Instance goes some time after the end of the grace period and of what
/// has its slots, and the kubelet's records are read every few seconds.
const GOES: u64 = 4_000;
const COMES: u64 = 14_000;
const ENDS: u64 = 15_500;
/// The time that each refused write adds to them: a slot is released again after the next looks at the kubelet's records.
const AGAIN: u64 = 10_000;

/// The steps, each with its relative frequency.
const STEPS: &[(u64, Step)] = &[
    (30, create_pod),
    (8, delete_pod),
    (9, device_goes),
    (11, device_comes),
    (3, device_moves),
    (4, device_returns_late),
    (4, device_blinks),
    (6, cut_link),
    (3, cut_links),
    (7, restart_agent),
    (8, lose_agent_with_a_claim),
    (5, restart_kubelet),
    (4, replace_controller),
    (2, lose_power),
    (4, drain),
    (2, delete_node),
    (3, server_is_away),
    (3, compact),
    (4, change_weather),
    (3, lose_object),
    (2, mix_up_objects),
    (4, switch_allocation),
];

/// Takes `count` steps.
pub(super) async fn stir(world: Rc<World>, count: u64) {
    let machine = &world.machine;
    for _ in 0..count {
        let wait = match machine.between(0, 19) {
            0..8 => machine.between(0, 500),
            8..16 => machine.between(500, 10_000),
            16..19 => machine.between(10_000, 70_000),
            _ => machine.between(70_000, 400_000),
        };
        machine.sleep(wait).await;
        let all = STEPS.iter().map(|(weight, _)| weight).sum();
        let mut left = machine.between(1, all);
        for (weight, step) in STEPS {
            if left <= *weight {
                step(&world);
                break;
            }
            left -= weight;
        }
    }
}

/// Returns a duration, which is usually short.
fn outage(world: &World) -> u64 {
    let machine = &world.machine;
    match machine.between(0, 9) {
        0..5 => machine.between(100, 15_000),
        5..8 => machine.between(15_000, 90_000),
        _ => machine.between(90_000, 600_000),
    }
}

fn later(world: &Rc<World>, millis: u64, what: impl FnOnce(&Rc<World>) + 'static) {
    let then = world.clone();
    world.machine.after(millis, move || what(&then));
}

fn some_device(world: &World) -> usize {
    let last = u64::try_from(world.devices.all.borrow().len() - 1).unwrap();
    usize::try_from(world.machine.between(0, last)).unwrap()
}

fn device_goes(world: &Rc<World>) {
    let n = some_device(world);
    let everywhere = world.machine.chance(60);
    let at = world.some_node();
    world.change_device(n, |thing| {
        if everywhere {
            thing.seen_by.clear()
        } else {
            thing.seen_by.remove(&at);
        }
    });
    if world.machine.chance(60) {
        // The machine was switched off and on.
        later(world, world.machine.between(500, 150_000), move |world| {
            comes(world, n)
        });
    }
}

fn device_comes(world: &Rc<World>) {
    comes(world, some_device(world));
}

fn comes(world: &Rc<World>, n: usize) {
    let everywhere = world.machine.chance(70);
    let at = world.some_node();
    let all = 0..world.nodes.len();
    world.change_device(n, |thing| {
        if everywhere {
            thing.seen_by.extend(all)
        } else {
            thing.seen_by.insert(at);
        }
    });
}

/// A device with a bad contact: it goes and returns within milliseconds, and Pods that want it come meanwhile. It may be gone at the
/// end.
fn device_blinks(world: &Rc<World>) {
    let (n, machine) = (some_device(world), &world.machine);
    let mut at = machine.between(0, 300);
    for _ in 0..machine.between(1, 6) {
        later(world, at, move |world| {
            world.change_device(n, |thing| thing.seen_by.clear());
        });
        at += machine.between(0, 60);
        later(world, at, move |world| comes(world, n));
        at += machine.between(0, 60);
    }
    if machine.chance(50) {
        later(world, at, move |world| {
            world.change_device(n, |thing| thing.seen_by.clear());
        });
    }
    for _ in 0..4 {
        later(world, machine.between(0, 500), create_pod);
    }
}

/// A device goes, and returns while the deletion of its Instance is on its way.
fn device_returns_late(world: &Rc<World>) {
    world.returns_late.set(true);
    world.change_device(some_device(world), |thing| thing.seen_by.clear());
}

/// The deletion of an Instance is late: its device returns, and Pods that want it come, before the server carries it out. Returns
/// how late it is.
pub(super) fn delay_deletion(world: &Rc<World>, instance: &str) -> u64 {
    let machine = &world.machine;
    world.note(|| format!("FAULT: the deletion of {instance} is late, and its device returns"));
    let nodes = 0..world.nodes.len();
    let is_its =
        |thing: &Thing| (nodes.clone()).any(|at| world.instance_name(thing, at) == instance);
    let n = world.devices.all.borrow().iter().position(is_its);
    if let Some(n) = n {
        later(world, machine.between(0, 500), move |world| {
            let all = 0..world.nodes.len();
            world.change_device(n, |thing| thing.seen_by.extend(all));
        });
    }
    for _ in 0..4 {
        later(world, machine.between(500, 5_000), create_pod);
    }
    machine.between(2_000, 8_000)
}

fn device_moves(world: &Rc<World>) {
    world.change_device(some_device(world), |thing| thing.address += 1);
}

fn cut_link(world: &Rc<World>) {
    let wait = outage(world);
    cut(world, world.some_node(), wait);
}

/// Cuts off all nodes but one, often for longer than slots are kept for one lost node.
fn cut_links(world: &Rc<World>) {
    let stays = world.some_node();
    let wait = if world.machine.chance(60) {
        world.machine.between(330_000, 700_000)
    } else {
        outage(world)
    };
    let others = (0..world.nodes.len()).filter(|at| *at != stays);
    others.for_each(|at| cut(world, at, wait));
}

fn cut(world: &Rc<World>, at: usize, wait: u64) {
    let node = &world.nodes[at];
    if node.is_linked() {
        world.note(|| format!("FAULT: {} is cut off", node.name));
        let before = invariants::offered(world, at);
        node.link(world, false);
        later(world, wait, move |world| {
            invariants::still_offered(world, at, &before);
            world.note(|| format!("FAULT: {} is joined", world.nodes[at].name));
            world.nodes[at].link(world, true);
        });
    }
}

/// Several Pods want devices of a node, whose agent ends between its answer and what it writes of that.
fn lose_agent_with_a_claim(world: &Rc<World>) {
    let at = world.some_node();
    world.nodes[at].is_doomed.set(true);
    for _ in 0..5 {
        let wait = world.machine.between(0, 3_000);
        later(world, wait, move |world| create_pod_on(world, at));
    }
}

/// Ends an agent in a moment, and starts another at once.
pub(super) fn lose_agent(world: &Rc<World>, at: usize) {
    let wait = world.machine.between(1, 240);
    later(world, wait, move |world| {
        world.note(|| format!("FAULT: the agent of {} is lost", world.nodes[at].name));
        world.nodes[at].stop_agent(world);
        let wait = world.machine.between(1, 400);
        later(world, wait, move |world| {
            if world.nodes[at].is_powered.get() {
                world.nodes[at].start_agent(world, at);
            }
        });
    });
}

fn restart_agent(world: &Rc<World>) {
    let at = world.some_node();
    world.note(|| format!("FAULT: the agent of {} ends", world.nodes[at].name));
    world.nodes[at].stop_agent(world);
    let wait = if world.machine.chance(85) {
        world.machine.between(50, 12_000)
    } else {
        outage(world)
    };
    later(world, wait, move |world| {
        if world.nodes[at].is_powered.get() {
            world.note(|| format!("{}: an agent starts", world.nodes[at].name));
            world.nodes[at].start_agent(world, at);
        }
    });
}

fn restart_kubelet(world: &Rc<World>) {
    let at = world.some_node();
    world.note(|| format!("FAULT: the kubelet of {} ends", world.nodes[at].name));
    world.nodes[at].stop_kubelet(world);
    let wait = if world.machine.chance(85) {
        world.machine.between(300, 12_000)
    } else {
        outage(world)
    };
    later(world, wait, move |world| {
        if world.nodes[at].is_powered.get() {
            world.note(|| format!("{}: a kubelet starts", world.nodes[at].name));
            world.nodes[at].start_kubelet(world, at);
            // A kubelet registers at its start.
            if world.nodes[at].is_linked() {
                control_plane::register_node(world, &world.nodes[at].name);
            }
        }
    });
}

fn replace_controller(world: &Rc<World>) {
    let (dies, overlap) = (world.machine.chance(60), world.machine.between(0, 15_000));
    let old: Vec<Rc<Controller>> = world.controllers.borrow().clone();
    // Two that live have two names, as Pods have.
    let has_name = |n: &u64| old.iter().any(|one| one.name == format!("controller-{n}"));
    let first = world.machine.between(1, 99);
    let n = (first..).find(|n| !has_name(n)).unwrap_or(first);
    let new = Controller::start(world, &format!("controller-{n}"));
    world.controllers.borrow_mut().push(new.clone());
    world.note(|| {
        format!(
            "FAULT: {} replaces {}",
            new.name,
            if dies {
                "one that died"
            } else {
                "one that goes on for a while"
            }
        )
    });
    for controller in &old {
        if dies {
            world.machine.kill(controller.process);
        }
    }
    later(world, overlap, move |world| {
        for controller in &old {
            if world.machine.chance(50) {
                controller.stop.cancel();
            } else {
                world.machine.kill(controller.process);
            }
        }
        world
            .controllers
            .borrow_mut()
            .retain(|c| old.iter().all(|o| o.process != c.process));
    });
}

/// Cordons a node for some time, and evicts its Pods.
fn drain(world: &Rc<World>) {
    let at = world.some_node();
    let node = &world.nodes[at];
    if node.is_closed.replace(true) {
        return;
    }
    world.note(|| format!("USER: {} is drained", node.name));
    if world.machine.chance(70) {
        control_plane::delete_pods(world, |pod| pod.node == node.name);
    }
    later(world, outage(world), move |world| {
        world.nodes[at].is_closed.set(false);
    });
}

fn lose_power(world: &Rc<World>) {
    let at = world.some_node();
    let node = &world.nodes[at];
    if !node.is_powered.replace(false) {
        return;
    }
    world.note(|| format!("FAULT: {} loses power", node.name));
    node.lose_power(world);
    later(world, outage(world) + 5_000, move |world| {
        power_on(world, at)
    });
}

fn power_on(world: &Rc<World>, at: usize) {
    let node = &world.nodes[at];
    if node.is_powered.replace(true) {
        return;
    }
    world.note(|| format!("{} has power", node.name));
    control_plane::mark_out_of_service(world, &node.name, false);
    later(world, world.machine.between(500, 8_000), move |world| {
        let node = &world.nodes[at];
        if node.is_powered.get() {
            node.start_kubelet(world, at);
            if node.is_linked() {
                control_plane::register_node(world, &node.name);
            }
        }
    });
    later(world, world.machine.between(1_000, 20_000), move |world| {
        let node = &world.nodes[at];
        if node.is_powered.get() {
            node.start_agent(world, at);
        }
    });
}

fn delete_node(world: &Rc<World>) {
    let at = world.some_node();
    let name = world.nodes[at].name.clone();
    if world.node_state(&name).is_none() {
        return;
    }
    control_plane::delete_node(world, &name);
    let wait = if world.machine.chance(50) {
        world.machine.between(500, 35_000)
    } else {
        outage(world)
    };
    later(world, wait, move |world| {
        control_plane::register_node(world, &world.nodes[at].name)
    });
}

fn server_is_away(world: &Rc<World>) {
    world.note(|| "FAULT: the API server is away".to_owned());
    world.is_up.send_replace(false);
    later(world, outage(world) / 3, |world| {
        world.note(|| "the API server is back".to_owned());
        world.is_up.send_replace(true);
    });
}

fn compact(world: &Rc<World>) {
    world.note(|| "FAULT: what happened is compacted: watches that break begin anew".to_owned());
    let mut server = world.server.borrow_mut();
    server.instances.compacted = server.instances.log.len();
    server.nodes.compacted = server.nodes.log.len();
    server.node_devices.compacted = server.node_devices.log.len();
    server.pods.compacted = server.pods.log.len();
    server.configurations.compacted = server.configurations.log.len();
}

/// Deletes the object in which a node reports its devices.
fn lose_object(world: &Rc<World>) {
    let name = world.nodes[world.some_node()].name.clone();
    let mut server = world.server.borrow_mut();
    if server.delete_node_devices(&name, None).is_ok() {
        world.note(|| format!("FAULT: the NodeDevices of {name} is deleted"));
    }
}

/// Writes the report of another node, or an invented one, into a node's object. What the node alone sees is gone by it.
fn mix_up_objects(world: &Rc<World>) {
    let (of, by) = (world.some_node(), world.some_node());
    world.nodes[of].disturbed.set(world.machine.now());
    let (of, by) = (&world.nodes[of].name, &world.nodes[by].name);
    let mut server = world.server.borrow_mut();
    let there = server.node_devices.objects.get(&super::api_server::key(by));
    let spec = there.filter(|_| of != by).map(|object| object.spec.clone());
    if server
        .patch_node_devices(of, &spec.unwrap_or_default(), "somebody")
        .is_ok()
    {
        world.note(|| format!("FAULT: the NodeDevices of {of} says what {by} sees"));
    }
}

/// Lets the scheduler give out the devices of a Configuration, or the kubelets, whatever Pods have them.
pub(super) fn switch_allocation(world: &Rc<World>) {
    let mut server = world.server.borrow_mut();
    let all: Vec<Arc<Configuration>> = server.configurations.objects.values().cloned().collect();
    let Some(there) = world.machine.one_of(&all).filter(|_| world.has_claims) else {
        return;
    };
    let mut configuration = Configuration::clone(there);
    configuration.spec.allocation = match configuration.spec.allocation {
        Allocation::DevicePlugin => Allocation::Dra,
        Allocation::Dra => Allocation::DevicePlugin,
    };
    let generation = configuration.metadata.generation.get_or_insert(1);
    *generation += 1;
    let (name, now) = (&configuration.metadata.name, configuration.spec.allocation);
    world.note(|| format!("USER: {name:?} has allocation {now:?}"));
    server.put_configuration(configuration);
}

fn change_weather(world: &Rc<World>) {
    let machine = &world.machine;
    let weather = if machine.chance(40) {
        Weather::default()
    } else {
        Weather {
            slow: machine.between(0, 15),
            lost: machine.between(0, 8),
            refused: machine.between(0, 10),
        }
    };
    world.note(|| format!("FAULT: {weather:?}"));
    world.weather.set(weather);
    world.stormy.set(machine.now());
}

/// Repairs everything.
pub(super) fn mend(world: &Rc<World>) {
    world.note(|| "everything is mended".to_owned());
    world.weather.set(Weather::default());
    world.returns_late.set(false);
    world.is_up.send_replace(true);
    let last = world.controllers.borrow().len() - 1;
    for controller in world.controllers.borrow_mut().drain(..last) {
        world.machine.kill(controller.process);
    }
    for (at, node) in world.nodes.iter().enumerate() {
        node.link(world, true);
        node.is_powered.set(true);
        node.is_closed.set(false);
        node.is_doomed.set(false);
        control_plane::mark_out_of_service(world, &node.name, false);
        node.start_kubelet(world, at);
        node.start_agent(world, at);
        control_plane::register_node(world, &node.name);
    }
}

/// Changes one thing in a world at rest, and sometimes the first writes that follow are refused. Returns the time in which the
/// cluster follows.
pub(super) fn touch(world: &Rc<World>) -> u64 {
    let refusals = world.machine.between(0, 2);
    world.refusals.set(refusals);
    let within = match world.machine.between(0, 2) {
        0 => {
            world.change_device(some_device(world), |thing| thing.seen_by.clear());
            world.grace.max(ENDS) + GOES
        }
        1 => {
            device_comes(world);
            COMES
        }
        _ => {
            delete_pod(world);
            ENDS
        }
    };
    within + refusals * AGAIN
}

/// Adds the devices of the world: some that all nodes see, and some that are plugged in.
pub(super) fn furnish(world: &Rc<World>) {
    let machine = &world.machine;
    for n in 0..machine.between(1, 2) {
        let all: BTreeSet<usize> = (0..world.nodes.len()).collect();
        world.devices.add("cam", format!("camera-{n}"), all);
    }
    if machine.chance(60) {
        let at = world.some_node();
        world
            .devices
            .add("usb", "stick".to_owned(), BTreeSet::from([at]));
    }
}
