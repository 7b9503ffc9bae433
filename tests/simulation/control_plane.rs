//! Simulates Kubernetes' own controllers: a node that does not report becomes NotReady, its Pods are evicted, Pods of a
//! deleted Node are collected, and brokers are deleted with their Instance.
use super::{World, invariants, objects::Pod};
use crate::controller::world::NodeState;
use std::rc::Rc;

/// The `node-monitor-grace-period`.
const NOT_READY_AFTER: u64 = 40_000;
/// The default toleration of Pods.
const EVICTED_AFTER: u64 = 300_000;
/// The quarantine of the Pod garbage collector.
const COLLECTED_AFTER: u64 = 40_000;

/// Handles a kubelet that has begun or stopped to report. The Node shows it after a while, if it is still true then.
pub(super) fn node_changed(world: &Rc<World>, name: &str) {
    let node = world.node(name);
    let reports = node.reports();
    if node.reporting.get().0 == reports {
        return;
    }
    let since = (reports, world.machine.now());
    node.reporting.set(since);
    let wait = if reports {
        world.machine.between(100, 3_000)
    } else {
        NOT_READY_AFTER
    };
    let (later, name) = (world.clone(), name.to_owned());
    world.machine.after(wait, move || {
        if later.node(&name).reporting.get() == since {
            set_ready(&later, &name, reports);
        }
    });
}

fn set_ready(world: &Rc<World>, name: &str, is_ready: bool) {
    let there = world.node_state(name);
    // A deleted Node is created again when its kubelet registers, see `faults.rs`.
    let Some(there) = there.filter(|there| there.is_ready != is_ready) else {
        return;
    };
    let now = NodeState {
        is_ready,
        since: Some(world.machine.clock.now()),
        ..there
    };
    world.note(|| {
        format!(
            "Node {name} is {}",
            if is_ready { "Ready" } else { "NotReady" }
        )
    });
    world.server.borrow_mut().put_node(name, Some(now.clone()));
    if !is_ready {
        world.node(name).not_ready_since.set(world.machine.now());
        let (later, name) = (world.clone(), name.to_owned());
        world.machine.after(EVICTED_AFTER, move || {
            if later
                .node_state(&name)
                .is_some_and(|node| node.since == now.since)
            {
                delete_pods(&later, |pod| pod.node == name && !pod.tolerates);
            }
        });
    }
}

/// Marks Pods as deleted. Their kubelet ends them.
pub(super) fn delete_pods(world: &Rc<World>, which: impl Fn(&Pod) -> bool) {
    let mut server = world.server.borrow_mut();
    let pods: Vec<Pod> = (server.pods.objects.values())
        .filter(|pod| which(pod) && !pod.is_deleting)
        .map(|pod| Pod::clone(pod))
        .collect();
    for mut pod in pods {
        world.note(|| format!("Pod {} is deleted", pod.name));
        pod.is_deleting = true;
        let is_over = pod.is_idle();
        let name = pod.name.clone();
        server.put_pod(&name, Some(pod).filter(|_| !is_over));
    }
}

pub(super) fn delete_node(world: &Rc<World>, name: &str) {
    world.note(|| format!("Node {name} is deleted"));
    world.server.borrow_mut().put_node(name, None);
    let now = world.machine.now();
    world
        .ledger
        .borrow_mut()
        .node_deleted
        .insert(name.to_owned(), now);
    let (later, name) = (world.clone(), name.to_owned());
    world.machine.after(COLLECTED_AFTER, move || {
        if later.node_state(&name).is_none() {
            let mut server = later.server.borrow_mut();
            let pods = server.pods.objects.values().filter(|pod| pod.node == name);
            let pods: Vec<String> = pods.map(|pod| pod.name.clone()).collect();
            for pod in pods {
                later.note(|| format!("Pod {pod} of the deleted Node is collected"));
                server.put_pod(&pod, None);
            }
        }
    });
}

/// Sets or removes the taint by which an operator says that the machine is off.
pub(super) fn mark_out_of_service(world: &Rc<World>, name: &str, is_out_of_service: bool) {
    let there = world.node_state(name);
    if let Some(there) = there.filter(|there| there.is_out_of_service != is_out_of_service) {
        invariants::returns(world, name);
        world.note(|| format!("Node {name} is out of service: {is_out_of_service}"));
        let now = NodeState {
            is_out_of_service,
            ..there
        };
        world.server.borrow_mut().put_node(name, Some(now));
    }
}

/// Registers the Node of a kubelet.
pub(super) fn register_node(world: &Rc<World>, name: &str) {
    if world.node_state(name).is_none() {
        invariants::returns(world, name);
        world.note(|| format!("Node {name} is registered"));
        let node = world.node(name);
        node.not_ready_since.set(world.machine.now());
        node.disturbed.set(world.machine.now());
        let uid = format!("node-{}", world.server.borrow_mut().next_uid());
        let state = NodeState {
            uid,
            is_ready: world.node(name).reports(),
            since: Some(world.machine.clock.now()),
            ..NodeState::default()
        };
        world.server.borrow_mut().put_node(name, Some(state));
        node_changed(world, name);
    }
}

/// Deletes the brokers of Instances that are gone.
pub(super) fn collect(world: &Rc<World>) {
    let uids: Vec<String> = {
        let server = world.server.borrow();
        let instances = server.instances.objects.values();
        instances.filter_map(|i| i.metadata.uid.clone()).collect()
    };
    delete_pods(world, |pod| {
        let owner = pod.broker.as_ref();
        owner.is_some_and(|pod| {
            let uid = &pod["metadata"]["ownerReferences"][0]["uid"];
            !uids.iter().any(|there| uid == there)
        })
    });
}

/// Returns whether more than half of the nodes have not been ready for at least so long. Those that an operator has marked do
/// not count.
pub(super) fn is_outage(world: &World, for_millis: u64) -> bool {
    let now = world.machine.now();
    let counted = world.nodes.iter().filter_map(|node| {
        let state = world.node_state(&node.name)?;
        let is_absent = !state.is_ready && now - node.not_ready_since.get() >= for_millis;
        (state.is_ready || !state.is_out_of_service).then_some(is_absent)
    });
    let counted: Vec<bool> = counted.collect();
    counted.iter().filter(|is_absent| **is_absent).count() * 2 > counted.len()
}
