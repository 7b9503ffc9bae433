//! Tests of which Pods there should be, and when one has a successor.
use super::*;

#[test]
fn each_node_that_sees_the_device_has_a_pod() {
    let mut cluster = Cluster::new(pod_spec(), &["a", "b"]);
    assert_eq!(cluster.step(), ["create cam-1-pod", "create cam-1-1-pod"]);
    assert_eq!(cluster.plan(), NONE);
}

#[test]
fn nothing_new_starts_where_the_device_or_the_node_is_not_well_and_what_runs_goes_on() {
    let mut cluster = Cluster::new(pod_spec(), &["a", "b", "c"]);
    cluster.health("a", "Unhealthy", "here");
    cluster.node("b", false);
    assert_eq!(cluster.step(), ["create cam-1-pod"]);
    cluster.health("c", "Unhealthy", "elsewhere");
    cluster.broker_spec(json!({"brokerPodSpec": {"containers": []}}));
    assert_eq!(cluster.plan(), NONE);
    // Of a node that an Instance names and says nothing of, all is well.
    cluster.instance(|instance| instance.status = None);
    assert_eq!(cluster.plan().len(), 2);
}

#[test]
fn there_are_at_most_as_many_pods_as_slots_those_that_run_first() {
    let mut cluster = Cluster::new(pod_spec(), &["a", "b", "c"]);
    cluster.capacity(2);
    assert_eq!(cluster.step(), ["create cam-1-pod", "create cam-1-1-pod"]);
    cluster.pod("cam-1-pod", |pod| pod.phase = "Pending".to_owned());
    cluster.capacity(1);
    let planned = cluster.step();
    let expected = ["delete cam-1-pod: the device has fewer slots, or fewer nodes see it"];
    assert_eq!(planned, expected);
    assert_eq!(cluster.plan(), NONE);
}

#[test]
fn a_pod_that_leaves_has_its_slot_until_it_is_gone_unless_its_node_is_lost() {
    let mut cluster = Cluster::new(pod_spec(), &["a", "b"]);
    cluster.capacity(1);
    cluster.settle();
    cluster.instance(|instance| instance.spec.nodes = vec!["b".into()]);
    cluster.pod("cam-1-pod", |pod| pod.meta.is_deleting = true);
    assert_eq!(cluster.plan(), NONE);
    cluster.node("a", false);
    assert_eq!(cluster.plan(), ["create cam-1-1-pod"]);
    // It is back, and its Pod still on the way out: the other has begun and stays.
    cluster.settle();
    cluster.node("a", true);
    assert_eq!(cluster.plan(), NONE);
}

#[test]
fn a_pod_that_is_evicted_has_no_successor_elsewhere_while_it_has_its_slot() {
    let mut cluster = Cluster::new(pod_spec(), &["a", "b", "c"]);
    cluster.capacity(2);
    cluster.settle();
    cluster.pod("cam-1-1-pod", |pod| pod.meta.is_deleting = true);
    assert_eq!(cluster.plan(), NONE);
    cluster.world.pods.remove(&key("cam-1-1-pod"));
    assert_eq!(cluster.plan().len(), 1);
}

#[test]
fn a_node_that_left_loses_its_pod() {
    let mut cluster = Cluster::new(pod_spec(), &["a", "b"]);
    cluster.settle();
    cluster.instance(|instance| instance.spec.nodes = vec!["b".into()]);
    let planned = cluster.step();
    assert_eq!(
        planned,
        ["delete cam-1-pod: its node sees the device no more"]
    );
    assert_eq!(cluster.plan(), NONE);
}

#[test]
fn a_pod_is_replaced_when_the_device_is_reached_differently_and_only_if_both_are_known() {
    let mut cluster = Cluster::new(pod_spec(), &["a", "b"]);
    cluster.settle();
    cluster.health("a", "Healthy", "elsewhere");
    assert_eq!(cluster.step(), ["replace cam-1-pod"]);
    assert_eq!(cluster.step(), ["create cam-1-pod"]);
    assert_eq!(cluster.step(), NONE);
    cluster.pod("cam-1-pod", |pod| pod.meta.annotations.clear());
    cluster.after(61).health("a", "Healthy", "moved again");
    assert_eq!(cluster.plan(), NONE);
}

#[test]
fn a_pod_of_a_device_that_moves_again_and_again_is_replaced_once_a_minute_and_has_the_last_place() {
    let mut cluster = Cluster::new(pod_spec(), &["a"]);
    cluster.settle();
    let mut replaced = vec![];
    for seconds in 0..90 {
        if seconds % 4 == 0 {
            cluster.health("a", "Healthy", &format!("place {seconds}"));
        }
        if cluster.step() == ["replace cam-1-pod"] {
            replaced.push(seconds);
        }
        cluster.after(1);
    }
    assert_eq!(replaced, [0, 60]);
    // It comes to rest, with a change that was not followed, and nothing else happens in the world.
    assert_eq!(cluster.plan(), NONE);
    let due = cluster.now + SignedDuration::from_secs(30);
    assert_eq!(cluster.wake(), Some(due));
    assert_eq!(cluster.after(29).step(), NONE);
    assert_eq!(cluster.after(1).step(), ["replace cam-1-pod"]);
    cluster.settle();
    let pod = &cluster.world.pods[&key("cam-1-pod")];
    let reported = &pod.meta.annotations[crate::api::names::BROKER_CONNECTION];
    assert_eq!(reported, "place 88");
    assert_eq!(cluster.after(1_000).plan(), NONE);
    // After a rest the first move is followed at once.
    cluster.health("a", "Healthy", "another");
    assert_eq!(cluster.plan(), ["replace cam-1-pod"]);
}

#[test]
fn what_the_user_changes_is_not_paced_and_other_devices_moves_are_not_either() {
    let mut cluster = Cluster::new(pod_spec(), &["a", "b"]);
    cluster.settle();
    cluster.health("a", "Healthy", "elsewhere");
    cluster.settle();
    cluster.health("a", "Healthy", "moved again");
    cluster.health("b", "Healthy", "elsewhere");
    assert_eq!(cluster.step(), ["replace cam-1-1-pod"]);
    cluster.broker_spec(json!({"brokerPodSpec": {"containers": []}}));
    let expected = ["try cam-1-pod", "create cam-1-1-pod"];
    assert_eq!(cluster.step(), expected);
    let expected = ["delete cam-1-pod: its Configuration asks for another"];
    assert_eq!(cluster.plan(), expected);
}

#[test]
fn no_pod_is_made_for_a_slot_that_a_lost_node_still_holds() {
    let mut cluster = Cluster::new(pod_spec(), &["a", "b"]);
    cluster.capacity(1);
    cluster.settle();
    let used = |cluster: &mut Cluster, usage: Value| {
        cluster.instance(|instance| {
            instance.spec.device_usage = serde_json::from_value(usage).unwrap();
        });
    };
    used(&mut cluster, json!({"cam-1-0": "a"}));
    cluster.node("a", false);
    assert_eq!(cluster.plan(), NONE);
    // It left the Instance; its Pod is on the way out for ever.
    cluster.instance(|instance| instance.spec.nodes = vec!["b".into()]);
    let gone = ["delete cam-1-pod: its node sees the device no more"];
    assert_eq!(cluster.plan(), gone);
    cluster.pod("cam-1-pod", |pod| pod.meta.is_deleting = true);
    assert_eq!(cluster.plan(), NONE);
    Arc::make_mut(&mut cluster.world.nodes).remove("a");
    assert_eq!(cluster.plan(), NONE);
    used(&mut cluster, json!({"cam-1-0": "C:cam-0:a"}));
    assert_eq!(cluster.plan(), NONE);
    for free in [json!({}), json!({"cam-1-0": ""})] {
        used(&mut cluster, free);
        assert_eq!(cluster.plan(), ["create cam-1-1-pod"]);
    }
    // One more slot, and one more Pod.
    used(&mut cluster, json!({"cam-1-0": "a"}));
    cluster.capacity(2);
    assert_eq!(cluster.plan(), ["create cam-1-1-pod"]);
}

#[test]
fn a_broker_on_a_node_that_may_be_back_soon_and_its_slot_are_counted_once() {
    let mut cluster = Cluster::new(pod_spec(), &["a", "b"]);
    cluster.capacity(2);
    cluster.health("b", "Unhealthy", "here");
    cluster.settle();
    cluster.instance(|instance| {
        instance.spec.device_usage = [("cam-1-0".to_owned(), "a".to_owned())].into();
    });
    cluster.node("a", false);
    cluster.health("b", "Healthy", "here");
    assert_eq!(cluster.plan(), ["create cam-1-1-pod"]);
}

#[test]
fn a_pod_is_replaced_when_its_spec_or_the_broker_properties_change_and_for_nothing_else() {
    let mut cluster = Cluster::new(pod_spec(), &["a"]);
    cluster.settle();
    cluster.configuration(|configuration| configuration.spec.capacity = 7);
    assert_eq!(cluster.plan(), NONE);
    cluster.configuration(|configuration| {
        (configuration.spec.broker_properties).insert("A".to_owned(), "1".to_owned());
    });
    let expected = ["delete cam-1-pod: its Configuration asks for another"];
    assert_eq!(cluster.step(), ["try cam-1-pod"]);
    assert_eq!(cluster.step(), expected);
    cluster.settle();
    cluster.broker_spec(json!({"brokerPodSpec": {"containers": []}}));
    assert_eq!(cluster.step(), ["try cam-1-pod"]);
    assert_eq!(cluster.plan(), expected);
}

#[test]
fn a_pod_that_ends_has_a_successor_after_a_wait_that_grows() {
    let mut cluster = Cluster::new(pod_spec(), &["a"]);
    cluster.settle();
    for wait in [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300] {
        cluster.fails("cam-1-pod", "UnexpectedAdmissionError");
        assert_eq!(cluster.step(), NONE);
        let due = cluster.now + SignedDuration::from_secs(wait);
        assert_eq!(cluster.wake(), Some(due));
        cluster.after(wait - 1);
        assert_eq!(cluster.step(), NONE, "{wait}");
        let expected = ["delete cam-1-pod: it ended, and another takes its place"];
        assert_eq!(cluster.after(1).step(), expected);
        assert_eq!(cluster.step(), ["create cam-1-pod"]);
    }
}

#[test]
fn a_pod_that_ran_well_or_was_asked_for_anew_starts_over_with_the_shortest_wait() {
    let mut cluster = Cluster::new(pod_spec(), &["a"]);
    cluster.settle();
    let fail = |cluster: &mut Cluster| {
        cluster.fails("cam-1-pod", "");
        let notices = cluster.memory.observe(&cluster.world, cluster.time());
        let [notice] = &notices[..] else {
            panic!("{notices:?}");
        };
        let (_, wait) = notice.text.split_once("Another follows in ").unwrap();
        let wait: SignedDuration = wait.parse().unwrap();
        assert_eq!(cluster.memory.observe(&cluster.world, cluster.time()), []);
        let wait = wait.as_secs();
        cluster.after(wait).settle();
        wait
    };
    assert_eq!(fail(&mut cluster), 1);
    assert_eq!(fail(&mut cluster), 2);
    cluster.after(601);
    let now = cluster.now;
    cluster.pod("cam-1-pod", |pod| pod.finished = Some(now));
    assert_eq!(fail(&mut cluster), 1);
    assert_eq!(fail(&mut cluster), 2);
    // Seen to run for long.
    cluster.after(601).settle();
    assert_eq!(fail(&mut cluster), 1);
    assert_eq!(fail(&mut cluster), 2);
    cluster.fails("cam-1-pod", "");
    assert_eq!(cluster.plan(), NONE);
    cluster.broker_spec(json!({"brokerPodSpec": {"containers": []}}));
    cluster.settle();
    assert_eq!(cluster.world.pods[&key("cam-1-pod")].phase, "Running");
    assert_eq!(fail(&mut cluster), 1);
}

#[test]
fn a_pod_that_failed_waits_for_its_turn_unless_others_have_its_slots() {
    let mut cluster = Cluster::new(pod_spec(), &["a", "b"]);
    cluster.capacity(1);
    cluster.settle();
    cluster.fails("cam-1-pod", "Evicted");
    cluster.health("a", "Unhealthy", "here");
    assert_eq!(cluster.step(), NONE);
    let expected = ["delete cam-1-pod: it ended, and another takes its place"];
    assert_eq!(cluster.after(1).step(), expected);
    assert_eq!(cluster.step(), ["create cam-1-pod"]);
    assert_eq!(cluster.on("b").as_deref(), Some("cam-1-pod"));
    cluster.health("a", "Healthy", "here");
    cluster.capacity(2);
    cluster.settle();
    cluster.fails("cam-1-pod", "Evicted");
    cluster.capacity(1);
    let expected = ["delete cam-1-pod: it ended, and others have its slots"];
    assert_eq!(cluster.step(), expected);
    assert_eq!(cluster.plan(), NONE);
}

#[test]
fn a_pod_that_is_being_deleted_has_no_successor_on_its_node() {
    let mut cluster = Cluster::new(pod_spec(), &["a"]);
    cluster.settle();
    cluster.pod("cam-1-pod", |pod| pod.meta.is_deleting = true);
    assert_eq!(cluster.plan(), NONE);
    cluster.world.pods.clear();
    assert_eq!(cluster.plan(), ["create cam-1-pod"]);
}

#[test]
fn a_name_that_a_pod_of_somebody_else_has_is_left_out() {
    let mut cluster = Cluster::new(pod_spec(), &["a"]);
    cluster.settle();
    cluster.pod("cam-1-pod", |pod| {
        pod.meta.owner = Some("before".to_owned());
        pod.node = None;
    });
    assert_eq!(cluster.step(), ["create cam-1-1-pod"]);
    assert_eq!(cluster.plan(), NONE);
    // One that no watch shows, because it has none of our labels.
    let mut cluster = Cluster::new(pod_spec(), &["a"]);
    let action = cluster.whole_plan().actions.remove(0);
    (cluster.memory).settle(&action, &Outcome::Taken, cluster.time().instant);
    assert_eq!(cluster.plan(), ["create cam-1-1-pod"]);
    assert_eq!(cluster.after(600).plan(), ["create cam-1-pod"]);
}

#[test]
fn names_that_others_have_are_left_out_up_to_a_bound() {
    let mut cluster = Cluster::new(pod_spec(), &["a"]);
    cluster.capacity(1);
    for n in 0..18 {
        let actions = cluster.whole_plan().actions;
        let [Action::CreatePod { broker, .. }] = &actions[..] else {
            panic!("{n}: {actions:?}");
        };
        assert_eq!(broker.key.name.contains(&format!("-{n}-pod")), n > 0);
        (cluster.memory).settle(&actions[0], &Outcome::Taken, cluster.time().instant);
    }
    assert_eq!(cluster.plan(), NONE);
    assert_eq!(cluster.report().1, "BrokerRefused");
}

#[test]
fn another_namespace_has_brokers_of_the_same_names() {
    let mut cluster = Cluster::new(pod_spec(), &["a"]);
    let mut configuration = Configuration::clone(&cluster.world.configurations[&key("cam")]);
    configuration.metadata.uid = Some("other configuration".to_owned());
    let mut instance = Instance::clone(&cluster.world.instances[&key("cam-1")]);
    instance.metadata.uid = Some("other instance".to_owned());
    for owner in instance.metadata.owner_references.iter_mut().flatten() {
        owner.uid = "other configuration".to_owned();
    }
    (cluster.world.configurations).insert(Key::new("elsewhere", "cam"), Arc::new(configuration));
    (cluster.world.instances).insert(Key::new("elsewhere", "cam-1"), Arc::new(instance));
    assert_eq!(cluster.step(), ["create cam-1-pod", "create cam-1-pod"]);
    assert_eq!(cluster.plan(), NONE);
    cluster
        .world
        .pods
        .remove(&ObjectKey::new("elsewhere", "cam-1-pod"));
    assert_eq!(cluster.plan(), ["create cam-1-pod"]);
}

#[test]
fn a_controller_that_starts_or_that_another_was_faster_than_makes_no_second_broker() {
    let mut cluster = Cluster::new(pod_spec(), &["a", "b"]);
    let actions = cluster.whole_plan().actions;
    cluster.settle();
    cluster.memory = BrokerMemory::default();
    assert_eq!(cluster.plan(), NONE);
    for action in &actions {
        (cluster.memory).settle(action, &Outcome::Conflict, cluster.time().instant);
    }
    assert_eq!(cluster.after(60).plan(), NONE);
    assert_eq!(cluster.world.pods.len(), 2);
}

#[test]
fn a_pod_of_another_namespace_that_names_the_instance_as_its_owner_is_left_alone() {
    let mut cluster = Cluster::new(pod_spec(), &["a"]);
    cluster.settle();
    let own = cluster.world.pods.values().next().unwrap().clone();
    let foreign = ObjectKey::new("elsewhere", "a-pod");
    cluster.world.pods.insert(foreign, own);
    assert_eq!(cluster.plan(), NONE);
    cluster.configuration(|c| c.spec.broker_spec = None);
    assert_eq!(
        cluster.plan(),
        ["delete cam-1-pod: its Configuration asks for no Pod"]
    );
}

#[test]
fn what_is_on_its_way_out_is_left_to_garbage_collection() {
    type Change = fn(&mut Cluster);
    let changes: [Change; 4] = [
        |cluster| cluster.world.configurations.clear(),
        |cluster| cluster.configuration(|c| c.metadata.uid = Some("another".to_owned())),
        |cluster| cluster.configuration(|c| c.metadata.deletion_timestamp = Some(time())),
        |cluster| cluster.instance(|i| i.metadata.deletion_timestamp = Some(time())),
    ];
    for change in changes {
        let mut cluster = Cluster::new(pod_spec(), &["a"]);
        change(&mut cluster);
        assert_eq!(cluster.step(), NONE);
    }
}
