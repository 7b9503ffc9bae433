//! Simulates kube-scheduler: it puts Pods without a node on nodes, one Pod at a time, and tries again what it cannot.
//!
//! It follows the required node affinity and anti-affinity of a Pod, what the kubelets offer of its resources, whether nodes
//! are ready and not closed, and prefers nodes with few Pods of the same spread. It reads these from the object as the API
//! server has it. Priorities, preemption and the other resources are left out; `faults.rs` deletes Pods and closes nodes.
use super::{World, objects::Pod};
use crate::model::scheduling::has_affinity;
use serde_json::Value;
use std::{collections::BTreeMap, rc::Rc, sync::Arc, time::Duration};

const ANTI_AFFINITY: &str =
    "/spec/affinity/podAntiAffinity/requiredDuringSchedulingIgnoredDuringExecution";

pub(super) async fn schedule(world: Rc<World>) {
    let machine = &world.machine;
    let mut pods = world.server.borrow().pods.changed.subscribe();
    loop {
        let waiting: Vec<Arc<Pod>> = {
            let server = world.server.borrow();
            let pods = server.pods.objects.values();
            pods.filter(|pod| pod.node.is_empty() && !pod.is_deleting)
                .cloned()
                .collect()
        };
        let is_up = *world.is_up.borrow();
        for pod in waiting.iter().filter(|_| is_up) {
            machine.sleep(machine.between(1, 20)).await;
            answer(&world, pod);
        }
        pods.mark_unchanged();
        let wait = match waiting.is_empty() {
            true => 1 << 40,
            false => machine.between(300, 5_000),
        };
        let changed = Box::pin(pods.changed());
        machine.timeout(Duration::from_millis(wait), changed).await;
        machine.sleep(machine.between(1, 50)).await;
    }
}

/// Binds a Pod to a node, or says that there is none for it.
fn answer(world: &Rc<World>, pod: &Pod) {
    let node = node_for(world, pod);
    let now = world.machine.clock.now();
    let mut server = world.server.borrow_mut();
    let Some(mut there) = server.pod(&pod.name, pod.uid) else {
        return;
    };
    if there.is_deleting || node.is_none() && there.unscheduled.is_some() {
        return;
    }
    world.note(|| format!("scheduler: {} goes to {node:?}", pod.name));
    match node {
        Some(node) => {
            there.node = node;
            there.unscheduled = None;
        }
        None => there.unscheduled = Some(now),
    }
    server.put_pod(&pod.name, Some(there));
}

fn node_for(world: &World, pod: &Pod) -> Option<String> {
    let made = pod.broker.as_ref().unwrap_or(&Value::Null);
    let server = world.server.borrow();
    let on = |name: &str| -> Vec<&Arc<Pod>> {
        let pods = server.pods.objects.values();
        pods.filter(|pod| pod.node == name && !pod.has_ended())
            .collect()
    };
    let selected_by = |terms: Option<&Value>, others: &[&Arc<Pod>]| -> usize {
        let terms = terms.and_then(Value::as_array).into_iter().flatten();
        let count = |term: &Value| {
            let is = |other: &&&Arc<Pod>| is_selected(&term["labelSelector"], other);
            others.iter().filter(is).count()
        };
        terms.map(count).sum()
    };
    let nodes = world.nodes.iter().filter(|node| {
        let others = on(&node.name);
        let state = server
            .nodes
            .objects
            .get(&super::api_server::key(&node.name));
        state.is_some_and(|node| node.state.is_ready && !node.state.is_out_of_service)
            && !node.is_closed.get()
            && has_affinity(&made["spec"], &node.name, &BTreeMap::new())
            && selected_by(made.pointer(ANTI_AFFINITY), &others) == 0
            && has_room(pod, &node.allocatable(), &others)
    });
    let spread = made.pointer("/spec/topologySpreadConstraints");
    let node = nodes.min_by_key(|node| selected_by(spread, &on(&node.name)))?;
    Some(node.name.clone())
}

fn is_selected(selector: &Value, pod: &Pod) -> bool {
    let labels = pod.broker.as_ref().map(|made| &made["metadata"]["labels"]);
    let wanted = selector["matchLabels"].as_object().into_iter().flatten();
    let mut wanted = wanted.map(|(key, value)| labels.is_some_and(|all| all[key] == *value));
    wanted.all(|is_there| is_there)
}

/// Returns whether a node has enough of each resource for one more Pod.
fn has_room(pod: &Pod, allocatable: &BTreeMap<String, usize>, others: &[&Arc<Pod>]) -> bool {
    let asked = |pod: &Pod, resource: &str| -> usize {
        let asks = pod.containers.iter().flat_map(|container| &container.asks);
        asks.filter(|(of, _)| of == resource)
            .map(|(_, count)| count)
            .sum()
    };
    let mut asks = pod.containers.iter().flat_map(|container| &container.asks);
    asks.all(|(resource, _)| {
        let used: usize = others.iter().map(|other| asked(other, resource)).sum();
        let all = allocatable.get(resource).copied().unwrap_or_default();
        used + asked(pod, resource) <= all
    })
}
