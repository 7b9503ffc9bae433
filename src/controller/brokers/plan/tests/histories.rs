//! Whatever happens, in whatever order.
use super::*;

#[derive(Debug, Clone)]
enum Event {
    Nodes(Vec<usize>),
    Healthy(usize, bool),
    Moves(usize, u8),
    Ready(usize, bool),
    Cordoned(usize, bool),
    Stuck(usize),
    Capacity(i32),
    Fails(usize),
    Leaves(usize),
    Spec(u8),
    Passes(i64),
    Plans,
}

fn event() -> impl Strategy<Value = Event> {
    let node = || 0..3_usize;
    prop_oneof![
        Just(vec![0, 1, 2]).prop_shuffle().prop_flat_map(|nodes| {
            (0..=nodes.len()).prop_map(move |n| Event::Nodes(nodes[..n].to_vec()))
        }),
        (node(), any::<bool>()).prop_map(|(node, is)| Event::Healthy(node, is)),
        (node(), 0..3_u8).prop_map(|(node, to)| Event::Moves(node, to)),
        (node(), any::<bool>()).prop_map(|(node, is)| Event::Ready(node, is)),
        (node(), any::<bool>()).prop_map(|(node, is)| Event::Cordoned(node, is)),
        node().prop_map(Event::Stuck),
        (1..4).prop_map(Event::Capacity),
        node().prop_map(Event::Fails),
        node().prop_map(Event::Leaves),
        (0..5_u8).prop_map(Event::Spec),
        (0..400_i64).prop_map(Event::Passes),
        Just(Event::Plans),
    ]
}

const NODES: [&str; 3] = ["a", "b", "c"];

fn happen(cluster: &mut Cluster, event: Event) {
    let pod = |node: usize| format!("{}-cam-1-pod", NODES[node]);
    match event {
        Event::Nodes(nodes) => cluster.instance(|instance| {
            instance.spec.nodes = nodes.iter().map(|node| NODES[*node].into()).collect();
        }),
        Event::Healthy(node, is) => {
            let health = if is { "Healthy" } else { "Unhealthy" };
            cluster.health(NODES[node], health, "here");
        }
        Event::Moves(node, to) => cluster.health(NODES[node], "Healthy", &to.to_string()),
        Event::Ready(node, is) => cluster.node(NODES[node], is),
        Event::Cordoned(node, true) => cluster.cordon(NODES[node]),
        Event::Cordoned(node, false) => cluster.uncordon(NODES[node]),
        Event::Stuck(node) if is_live(cluster, &pod(node)) => {
            cluster.stuck(&pod(node), "no cpu");
        }
        Event::Capacity(capacity) => cluster.capacity(capacity),
        Event::Fails(node) if cluster.world.pods.contains_key(&key(&pod(node))) => {
            cluster.fails(&pod(node), "Error");
        }
        Event::Leaves(node) if cluster.world.pods.contains_key(&key(&pod(node))) => {
            cluster.pod(&pod(node), |pod| pod.meta.is_deleting = true);
        }
        Event::Fails(_) | Event::Leaves(_) | Event::Stuck(_) => {}
        Event::Spec(n) => cluster.broker_spec(match n {
            0 => Value::Null,
            1 | 2 => job_spec(),
            n => json!({"brokerPodSpec": {"containers": [], "hostNetwork": n == 3}}),
        }),
        Event::Passes(seconds) => drop(cluster.after(seconds)),
        Event::Plans => drop(cluster.step()),
    }
}

fn is_live(cluster: &Cluster, name: &str) -> bool {
    let pod = cluster.world.pods.get(&key(name));
    pod.is_some_and(|pod| !pod.has_ended() && !pod.meta.is_deleting)
}

fn live(cluster: &Cluster) -> usize {
    let is_live = |pod: &&Arc<BrokerPod>| !pod.has_ended() && !pod.meta.is_deleting;
    cluster.world.pods.values().filter(is_live).count()
}

/// Counts the Pods that have a slot: also those that are being deleted, except on lost nodes, where they may stay for ever.
fn with_slot(cluster: &Cluster) -> usize {
    let has_slot = |pod: &&Arc<BrokerPod>| {
        let node = pod
            .node
            .as_ref()
            .and_then(|node| cluster.world.nodes.get(node.as_str()));
        let is_lost = !node.is_some_and(|node| node.is_ready);
        let may_stay = pod.meta.is_deleting && is_lost;
        !pod.has_ended() && !may_stay
    };
    cluster.world.pods.values().filter(has_slot).count()
}

proptest! {
    #[test]
    fn a_plan_that_is_carried_out_leaves_nothing_to_do_and_never_more_pods_than_slots(
        events in prop::collection::vec(event(), 1..40)
    ) {
        let mut cluster = Cluster::new(pod_spec(), &NODES);
        for event in events {
            let (before, with_slot_before) = (live(&cluster), with_slot(&cluster));
            let is_plan = matches!(event, Event::Plans);
            happen(&mut cluster, event);
            let capacity = &cluster.world.instances[&key("cam-1")].spec.capacity;
            let capacity = usize::try_from(*capacity).unwrap();
            prop_assert!(live(&cluster) <= capacity.max(before));
            if is_plan {
                prop_assert!(with_slot(&cluster) <= capacity.max(with_slot_before));
            }
            prop_assert!(cluster.world.jobs.len() <= 2);
        }
        // What is on its way out is gone in the end.
        cluster.world.pods.retain(|_, pod| !pod.meta.is_deleting);
        cluster.settle();
        let capacity = cluster.world.instances[&key("cam-1")].spec.capacity;
        prop_assert!(live(&cluster) <= usize::try_from(capacity).unwrap());
        prop_assert_eq!(cluster.plan(), NONE);
        prop_assert!(cluster.world.jobs.len() <= 1);
        // And once all waits are over, every slot that can be taken is.
        cluster.after(301);
        cluster.settle();
        let pods = cluster.world.pods.values();
        let fit = |node: &&crate::model::typed_names::NodeName| {
            let instance = &cluster.world.instances[&key("cam-1")];
            let seen = instance.status.iter().flat_map(|status| &status.nodes);
            let mut seen = seen.filter(|seen| seen.name == **node);
            let state = &cluster.world.nodes[*node];
            state.is_ready && state.taints.is_empty() && seen.any(|seen| seen.health == crate::api::instance::HEALTHY)
        };
        let spec = &cluster.world.configurations[&key("cam")].spec.broker_spec;
        if matches!(broker::wanted(spec.as_ref()), Some(Wanted::Pod(_))) {
            let nodes = &cluster.world.instances[&key("cam-1")].spec.nodes;
            let possible = nodes.iter().filter(fit).count();
            prop_assert!(live(&cluster) >= possible.min(usize::try_from(capacity).unwrap()));
            // Each has the last way to its device.
            for node in nodes.iter().filter(fit) {
                let Some(pod) = cluster.world.pods.get(&key(&format!("{node}-cam-1-pod"))) else {
                    continue;
                };
                let status = cluster.world.instances[&key("cam-1")].status.as_ref().unwrap();
                let seen = status.nodes.iter().find(|seen| seen.name == *node).unwrap();
                let reported = pod.meta.annotations.get(crate::api::names::BROKER_CONNECTION);
                prop_assert_eq!(reported, seen.connection.as_ref());
            }
        } else {
            prop_assert_eq!(pods.len(), 0);
        }
    }
}
