//! Tests of brokers that wait for a node, and of their surplus.
use super::{scheduling::one_slot, *};

const SURPLUS: &str = "the device has fewer slots, or fewer nodes see it";

#[test]
fn two_brokers_on_one_node_leave_one_to_wait_for_the_other_node() {
    let mut cluster = Cluster::new(pod_spec(), &["a", "b"]);
    cluster.settle();
    let second = cluster.on("b").unwrap();
    // Somebody has put both on one node.
    cluster.pod(&second, |pod| pod.node = Some("a".into()));
    cluster.close("b");
    assert_eq!(cluster.step(), ["create cam-1-2-pod"]);
    assert_eq!(cluster.step(), NONE);
    cluster.seen_by(&["a"]);
    assert_eq!(cluster.step(), [format!("delete cam-1-2-pod: {SURPLUS}")]);
    assert_eq!(cluster.step(), NONE);
}

#[test]
fn a_surplus_broker_is_deleted_once_and_only_while_it_has_no_node() {
    let mut cluster = Cluster::new(pod_spec(), &["a", "b", "c"]);
    cluster.close("b");
    cluster.close("c");
    cluster.settle();
    cluster.node("d", true);
    cluster.seen_by(&["a", "d"]);
    let waiting: Vec<ObjectKey> = (cluster.world.pods.iter())
        .filter(|(_, pod)| pod.node.is_none())
        .map(|(key, _)| key.clone())
        .collect();
    for key in &waiting {
        cluster.pod(&key.name, |pod| pod.meta.version = 7);
    }
    let mut deleted = vec![];
    for action in &cluster.whole_plan().actions {
        let (Action::DeletePod { key, version, .. } | Action::ReplacePod { key, version, .. }) =
            action
        else {
            panic!("{action:?}");
        };
        assert_eq!(version.as_deref(), Some("7"));
        deleted.push(key.clone());
    }
    deleted.sort();
    assert_eq!(deleted, waiting);
    // One that runs is deleted whatever happens to it meanwhile.
    cluster.capacity(0);
    let actions = cluster.whole_plan().actions;
    let with_version = |action: &Action| {
        let Action::DeletePod { version, .. } = action else {
            panic!("{action:?}");
        };
        version.is_some()
    };
    let versions: Vec<bool> = actions.iter().map(with_version).collect();
    assert_eq!(versions, [false, true, true]);
}

#[test]
fn a_broker_that_ended_has_its_successor_once_it_is_gone_and_under_its_name() {
    let mut cluster = Cluster::new(pod_spec(), &["a", "b"]);
    cluster.settle();
    cluster.fails("cam-1-pod", "Error");
    cluster.plan();
    cluster.pod("cam-1-pod", |pod| pod.meta.is_deleting = true);
    assert_eq!(cluster.after(60).plan(), NONE);
    assert_eq!(cluster.report().1, "BrokerFailed");
    // On a lost node it may stay for ever.
    cluster.node("c", true);
    cluster.health("c", "Healthy", "here");
    cluster.seen_by(&["a", "b", "c"]);
    cluster.node("a", false);
    assert_eq!(cluster.plan(), ["create cam-1-2-pod"]);
    cluster.node("a", true);
    cluster.seen_by(&["a", "b"]);
    cluster.world.pods.remove(&key("cam-1-pod"));
    assert_eq!(cluster.plan(), ["create cam-1-pod"]);
}

#[test]
fn a_broker_that_waits_while_its_device_moves_is_replaced_then_and_not_when_it_has_started() {
    let mut cluster = one_slot(&["a", "b"]);
    cluster.close("a");
    cluster.close("b");
    cluster.settle();
    cluster.health("b", "Healthy", "elsewhere");
    assert_eq!(cluster.step(), ["replace cam-1-pod"]);
    cluster.settle();
    cluster.open("b");
    assert_eq!(cluster.step(), NONE);
    assert_eq!(cluster.on("b").as_deref(), Some("cam-1-pod"));
    assert_eq!(cluster.after(60).step(), NONE);
}

#[test]
fn a_device_that_moves_waits_for_no_turn_of_other_nodes() {
    let mut cluster = one_slot(&["a"]);
    cluster.close("a");
    cluster.settle();
    cluster.node("b", true);
    cluster.health("b", "Healthy", "here");
    cluster.seen_by(&["a", "b"]);
    assert_eq!(cluster.step(), ["replace cam-1-pod"]);
    cluster.settle();
    cluster.health("b", "Healthy", "elsewhere");
    assert_eq!(cluster.step(), ["replace cam-1-pod"]);
    cluster.settle();
    cluster.health("b", "Healthy", "moved again");
    assert_eq!(cluster.step(), NONE);
}

#[test]
fn a_pod_none_of_whose_containers_has_begun_is_deleted_at_once_unless_it_changes() {
    let mut cluster = Cluster::new(pod_spec(), &["a"]);
    cluster.settle();
    cluster.pod("cam-1-pod", |pod| {
        pod.waits_to_begin = true;
        pod.meta.version = 7;
    });
    cluster.broker_spec(json!({"brokerPodSpec": {"containers": []}}));
    assert_eq!(cluster.step(), ["try cam-1-pod"]);
    let forced = |cluster: &mut Cluster| match &*cluster.whole_plan().actions {
        [
            Action::DeletePod {
                version, is_forced, ..
            },
        ] => (version.clone(), *is_forced),
        others => panic!("{others:?}"),
    };
    assert_eq!(forced(&mut cluster), (Some("7".to_owned()), true));
    cluster.pod("cam-1-pod", |pod| pod.waits_to_begin = false);
    assert_eq!(forced(&mut cluster), (None, false));
}
