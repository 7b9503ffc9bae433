//! Whatever happens, in whatever order.
use super::*;

#[derive(Debug, Clone)]
enum Event {
    Nodes(Vec<usize>),
    Healthy(usize, bool),
    Moves(usize, u8),
    Ready(usize, bool),
    Closed(usize, bool),
    Capacity(i32),
    Fails(usize, bool),
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
        (node(), any::<bool>()).prop_map(|(node, is)| Event::Closed(node, is)),
        (1..4).prop_map(Event::Capacity),
        (node(), any::<bool>()).prop_map(|(node, is)| Event::Fails(node, is)),
        node().prop_map(Event::Leaves),
        (0..5_u8).prop_map(Event::Spec),
        (0..400_i64).prop_map(Event::Passes),
        Just(Event::Plans),
    ]
}

const NODES: [&str; 3] = ["a", "b", "c"];

fn happen(cluster: &mut Cluster, event: Event) {
    let pod = |node: usize| cluster.on(NODES[node]);
    let pod = if let Event::Fails(node, _) | Event::Leaves(node) = event {
        pod(node)
    } else {
        None
    };
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
        Event::Closed(node, true) => drop(cluster.closed.insert(NODES[node].into())),
        Event::Closed(node, false) => drop(cluster.closed.remove(NODES[node])),
        Event::Capacity(capacity) => cluster.capacity(capacity),
        Event::Fails(_, is_refused) => {
            if let Some(name) = pod {
                cluster.fails(&name, "Error");
                cluster.pod(&name, |pod| pod.is_refused = is_refused);
            }
        }
        Event::Leaves(_) => {
            if let Some(name) = pod {
                cluster.pod(&name, |pod| pod.meta.is_deleting = true);
            }
        }
        Event::Spec(n) => cluster.broker_spec(match n {
            0 => Value::Null,
            1 | 2 => job_spec(),
            n => json!({"brokerPodSpec": {"containers": [], "hostNetwork": n == 3}}),
        }),
        Event::Passes(seconds) => drop(cluster.after(seconds)),
        Event::Plans => drop(cluster.step()),
    }
}

fn live(cluster: &Cluster) -> usize {
    let is_live = |pod: &&Arc<BrokerPod>| !pod.has_ended() && !pod.meta.is_deleting;
    cluster.world.pods.values().filter(is_live).count()
}

/// Counts the Pods that have a slot: also those that are being deleted, except on lost nodes, where they may stay for ever.
fn with_slot(cluster: &Cluster) -> usize {
    let has_slot = |pod: &&Arc<BrokerPod>| {
        let node = pod.node.as_ref().map(|node| cluster.world.nodes.get(node));
        let is_lost = node.is_some_and(|node| !node.is_some_and(|node| node.is_ready));
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
            for node in NODES {
                let on = |pod: &&Arc<BrokerPod>| !pod.has_ended() && pod.node.as_deref() == Some(node);
                prop_assert!(cluster.world.pods.values().filter(on).count() <= 1);
            }
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
        cluster.closed.clear();
        for _ in 0..4 {
            cluster.after(301);
            cluster.settle();
        }
        let pods = cluster.world.pods.values();
        let fit = |node: &&crate::model::typed_names::NodeName| {
            let instance = &cluster.world.instances[&key("cam-1")];
            let seen = instance.status.iter().flat_map(|status| &status.nodes);
            let mut seen = seen.filter(|seen| seen.name == **node);
            let state = &cluster.world.nodes[*node];
            state.is_ready && seen.any(|seen| seen.health == crate::api::instance::HEALTHY)
        };
        let spec = &cluster.world.configurations[&key("cam")].spec.broker_spec;
        if matches!(broker::wanted(spec.as_ref()), Some(Wanted::Pod(_))) {
            let nodes = &cluster.world.instances[&key("cam-1")].spec.nodes;
            let possible = nodes.iter().filter(fit).count();
            prop_assert!(live(&cluster) >= possible.min(usize::try_from(capacity).unwrap()));
            // Each has the last way to its device.
            for node in nodes.iter().filter(fit) {
                let Some(name) = cluster.on(node) else {
                    continue;
                };
                let pod = &cluster.world.pods[&key(&name)];
                let status = cluster.world.instances[&key("cam-1")].status.as_ref().unwrap();
                let seen = status.nodes.iter().find(|seen| seen.name == *node).unwrap();
                let noted = &pod.meta.annotations[crate::api::names::BROKER_CONNECTION];
                prop_assert_eq!(super::super::pods::noted_on(noted, node), seen.connection.as_deref());
            }
        } else {
            prop_assert_eq!(pods.len(), 0);
        }
    }
}
