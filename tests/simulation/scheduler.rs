//! Simulates kube-scheduler: it puts Pods without a node on nodes, one Pod at a time, and tries again what it cannot.
//!
//! It follows the required node affinity and anti-affinity of a Pod, what the kubelets offer of its resources, whether nodes
//! are ready and not closed, and prefers nodes with few Pods of the same spread. It reads these from the object as the API
//! server has it. Where a class has the resource, or a broker has a claim, it gives out a device of the slices. Priorities, preemption and the other resources are left out; `faults.rs` deletes Pods and closes nodes.
use super::{
    World,
    api_server::ApiServer,
    objects::{Claim, Pod},
    plain::Plain,
};
use crate::{
    api::names::{CONFIGURATION_LABEL, INSTANCE_LABEL},
    model::scheduling::has_affinity,
};
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
    sync::Arc,
    time::Duration,
};

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
        let wait = if waiting.is_empty() {
            1 << 40
        } else {
            machine.between(300, 5_000)
        };
        let changed = Box::pin(pods.changed());
        machine.timeout(Duration::from_millis(wait), changed).await;
        machine.sleep(machine.between(1, 50)).await;
    }
}

/// Binds a Pod to a node, or says that there is none for it.
fn answer(world: &Rc<World>, pod: &Pod) {
    let placed = place_for(world, pod);
    let now = world.machine.clock.now();
    let mut server = world.server.borrow_mut();
    let Some(mut there) = server.pod(&pod.name, pod.uid) else {
        return;
    };
    if there.is_deleting || placed.is_none() && there.unscheduled.is_some() {
        return;
    }
    world.note(|| format!("scheduler: {} goes to {placed:?}", pod.name));
    match placed {
        Some((node, claim)) => {
            there.node = node;
            there.claim = claim;
            there.unscheduled = None;
        }
        None => there.unscheduled = Some(now),
    }
    server.put_pod(&pod.name, Some(there));
}

/// Returns the node for a Pod, with what it is given there by a claim.
fn place_for(world: &World, pod: &Pod) -> Option<(String, Option<Claim>)> {
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
    let wish = Wish::of(&server, pod);
    let nodes = world.nodes.iter().filter(|node| {
        let others = on(&node.name);
        let state = server
            .nodes
            .objects
            .get(&super::api_server::key(&node.name));
        let is_by_claim = wish
            .as_ref()
            .map(|wish| wish.device_for(&server, &node.name).is_some());
        state.is_some_and(|node| node.state.is_ready && !node.state.is_out_of_service)
            && !node.is_closed.get()
            && has_affinity(&made["spec"], &node.name, &BTreeMap::new())
            && selected_by(made.pointer(ANTI_AFFINITY), &others) == 0
            && is_by_claim.unwrap_or_else(|| has_room(pod, &node.allocatable(), &others))
    });
    let spread = made.pointer("/spec/topologySpreadConstraints");
    let node = nodes.min_by_key(|node| selected_by(spread, &on(&node.name)))?;
    let claim = wish.and_then(|wish| {
        let device = wish.device_for(&server, &node.name)?;
        if wish.shared.is_some() {
            return wish.shared;
        }
        Some(Claim {
            uid: Claim::uid_of(pod.uid),
            pool: wish.pool,
            devices: vec![device],
            resource: wish.resource,
        })
    });
    Some((node.name.clone(), claim))
}

/// What a Pod wants by a claim.
struct Wish {
    /// The claim of another Pod.
    shared: Option<Claim>,
    pool: String,
    /// The only device that it wants.
    device: Option<String>,
    /// The resource that it asks for.
    resource: Option<String>,
}

impl Wish {
    /// A broker has the claim of a template. Others ask for the resource of a class.
    fn of(server: &ApiServer, pod: &Pod) -> Option<Self> {
        let pool = |configuration: &str| format!("default/{configuration}");
        if let Some(shared) = &pod.claim {
            return Some(Self {
                shared: Some(shared.clone()),
                pool: shared.pool.clone(),
                device: shared.devices.first().cloned(),
                resource: shared.resource.clone(),
            });
        }
        if let Some(made) = &pod.broker {
            let is_by_claim = made["spec"]["resourceClaims"].is_array();
            let label = |name: &str| made["metadata"]["labels"][name].as_str().map(str::to_owned);
            return is_by_claim.then(|| Self {
                shared: None,
                pool: pool(&label(CONFIGURATION_LABEL).unwrap()),
                device: label(INSTANCE_LABEL),
                resource: None,
            });
        }
        let (resource, _) = pod.containers.iter().find_map(|c| c.asks.first())?;
        let has_it = |class: &&Arc<Plain>| class.0["spec"]["extendedResourceName"] == **resource;
        let class = server.classes.objects.values().find(has_it)?;
        let name = class.0["metadata"]["name"].as_str()?.rsplit('.').next()?;
        Some(Self {
            shared: None,
            pool: pool(name),
            device: None,
            resource: Some(resource.clone()),
        })
    }

    /// Returns a device with room for the claim, which a node reaches.
    fn device_for(&self, server: &ApiServer, node: &str) -> Option<String> {
        let slices = server.slices.objects.values().map(|slice| &slice.0["spec"]);
        let slices: Vec<_> = slices
            .filter(|spec| spec["pool"]["name"] == *self.pool)
            .collect();
        let generation = |spec: &&Value| spec["pool"]["generation"].as_i64();
        let newest = slices.iter().map(generation).max()?;
        let slices = slices.into_iter().filter(|spec| generation(spec) == newest);
        let slices: Vec<_> = slices.collect();
        let count = slices[0]["pool"]["resourceSliceCount"].as_u64();
        if count != u64::try_from(slices.len()).ok() {
            return None;
        }
        let devices = slices
            .iter()
            .flat_map(|spec| spec["devices"].as_array())
            .flatten();
        let mut devices = devices.filter(|device| {
            let name = device["name"].as_str().unwrap();
            let is_its = |pod: &&Arc<Pod>| {
                let claim = pod.claim.as_ref();
                let has_it = |claim: &Claim| claim.pool == self.pool && claim.devices[0] == name;
                !pod.has_ended() && !pod.node.is_empty() && claim.is_some_and(has_it)
            };
            let its = server.pods.objects.values().filter(is_its);
            let claims = its.filter_map(|pod| pod.claim.as_ref());
            let taken: BTreeSet<&str> = claims.map(|claim| claim.uid.as_str()).collect();
            let all = device["capacity"]["slots"]["value"].as_str();
            let is_open = device["taints"].as_array().is_none_or(Vec::is_empty)
                && taken.len() < all.map_or(1, |all| all.parse().unwrap());
            let shared = self.shared.as_ref();
            let has_it = shared.is_some_and(|shared| taken.contains(shared.uid.as_str()));
            self.device.as_ref().is_none_or(|wanted| wanted == name)
                && reaches(device, node)
                && (has_it || is_open)
        });
        devices.next()?["name"].as_str().map(str::to_owned)
    }
}

fn reaches(device: &Value, node: &str) -> bool {
    let expression = "/nodeSelector/nodeSelectorTerms/0/matchExpressions/0/values";
    let named = device.pointer(expression).and_then(Value::as_array);
    device["allNodes"] == true
        || device["nodeName"] == node
        || named.is_some_and(|names| names.iter().any(|name| name == node))
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
