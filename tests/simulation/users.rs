//! Simulates the Pods that users make and delete.
use super::{
    World,
    api_server::key,
    control_plane,
    objects::{Claim, Pod},
    pods::{Container, Kind},
};
use std::rc::Rc;

pub(super) fn create_pod(world: &Rc<World>) {
    create_pod_on(world, world.some_node());
}

pub(super) fn create_pod_on(world: &Rc<World>, at: usize) {
    let machine = &world.machine;
    if world.node_state(&world.nodes[at].name).is_none() {
        return;
    }
    let mut offers = world.nodes[at].offers();
    let by_claims: Vec<String> = classes(world);
    offers.extend(by_claims.clone());
    let Some(resource) = machine.one_of(&offers).cloned() else {
        return;
    };
    let is_by_claim = by_claims.contains(&resource);
    let n = world.server.borrow_mut().next_uid();
    let runs = match machine.between(0, 2) {
        0 => machine.between(500, 8_000),
        1 => machine.between(8_000, 120_000),
        _ => machine.between(120_000, 20_000_000),
    };
    let container = |name, kind, has_device: bool, runs| Container {
        name,
        kind,
        asks: if has_device {
            vec![(resource.clone(), 1)]
        } else {
            vec![]
        },
        runs,
    };
    let containers = match machine.between(0, 5) {
        _ if is_by_claim => vec![container("app", Kind::App, true, runs)],
        0 => vec![
            container("init", Kind::Init, true, machine.between(1_000, 90_000)),
            container("app", Kind::App, false, runs),
        ],
        1 => vec![
            container("init", Kind::Init, true, machine.between(1_000, 60_000)),
            container("app", Kind::App, true, runs),
        ],
        2 => vec![
            container("side", Kind::Sidecar, true, 20_000_000),
            container("app", Kind::App, false, runs),
        ],
        _ => vec![container("app", Kind::App, true, runs)],
    };
    let restarts = machine.chance(40);
    let mut name = format!("pod-{n}");
    let of_broker = resource
        .rsplit('/')
        .next()
        .map(|name| format!("{name}-pod"));
    let is_free = |name: &String| !world.server.borrow().pods.objects.contains_key(&key(name));
    if let Some(taken) = of_broker.filter(|name| machine.chance(5) && is_free(name)) {
        // Somebody else's Pod may have any name.
        name = taken;
    }
    let pod = Pod {
        name,
        uid: n,
        version: 0,
        // The scheduler gives it a device first.
        node: if is_by_claim {
            String::new()
        } else {
            world.nodes[at].name.clone()
        },
        unscheduled: None,
        claim: (is_by_claim && machine.chance(30))
            .then(|| some_claim(world, &resource))
            .flatten(),
        restarts,
        tolerates: machine.chance(30),
        is_deleting: false,
        phase: "Pending",
        broker: None,
        started: None,
        containers,
    };
    world.note(|| {
        let kinds: Vec<_> = pod
            .containers
            .iter()
            .map(|c| (c.name, c.asks.len(), c.runs))
            .collect();
        format!(
            "USER: Pod {} for {} asks for {resource}: {kinds:?}",
            pod.name, pod.node
        )
    });
    world
        .server
        .borrow_mut()
        .put_pod(&pod.name.clone(), Some(pod));
}

/// Returns a claim of another Pod, for a Pod that shares it.
fn some_claim(world: &World, resource: &str) -> Option<Claim> {
    let server = world.server.borrow();
    let claims = server.pods.objects.values().filter(|pod| !pod.has_ended());
    let claims = claims.filter_map(|pod| pod.claim.clone());
    let mut claims: Vec<Claim> = claims.collect();
    claims.retain(|claim| claim.resource.as_deref() == Some(resource));
    world.machine.one_of(&claims).cloned()
}

/// Returns the resources that Pods get by claims.
fn classes(world: &World) -> Vec<String> {
    let server = world.server.borrow();
    let classes = server.classes.objects.values();
    let named = classes.filter_map(|class| class.0["spec"]["extendedResourceName"].as_str());
    named.map(str::to_owned).collect()
}

pub(super) fn delete_pod(world: &Rc<World>) {
    let pods: Vec<u64> = {
        let server = world.server.borrow();
        server.pods.objects.values().map(|pod| pod.uid).collect()
    };
    if let Some(uid) = world.machine.one_of(&pods) {
        control_plane::delete_pods(world, |pod| pod.uid == *uid);
    }
}
