//! Tests of which nodes a broker may run on, and of a broker that its nodes do not take.
use super::*;
use crate::api::{configuration::Problem, names, node_devices::NodeDevices, reason::Reason};

impl Cluster {
    pub(super) fn close(&mut self, node: &str) {
        self.closed.insert(node.into());
    }

    pub(super) fn open(&mut self, node: &str) {
        self.closed.remove(node);
    }

    /// Adds Instances that are seen by the same nodes as `cam-1`.
    fn more(&mut self, count: usize) {
        for n in 2..=count {
            let mut instance = Instance::clone(&self.world.instances[&key("cam-1")]);
            instance.metadata.name = Some(format!("cam-{n}"));
            instance.metadata.uid = Some(format!("instance-{n}"));
            let name = key(&format!("cam-{n}"));
            self.world.instances.insert(name, Arc::new(instance));
        }
    }

    pub(super) fn report(&self) -> (String, String, String) {
        let reports = self.whole_plan().reports;
        let report = &reports[&key("cam")];
        let problem = report.problem();
        (report.ratio(), problem.reason, problem.message)
    }

    /// Returns the nodes of the Pods that are created now.
    pub(super) fn created_for(&mut self) -> Vec<Vec<String>> {
        self.memory.observe(&self.world, self.time());
        let mut nodes = vec![];
        for action in self.whole_plan().actions {
            if let Action::CreatePod { pod, .. } = action {
                nodes.push(broker::named_nodes(&pod["spec"]["affinity"]));
            }
        }
        let nodes = nodes.into_iter();
        nodes
            .map(|nodes| nodes.iter().map(NodeName::to_string).collect())
            .collect()
    }

    pub(super) fn seen_by(&mut self, nodes: &[&str]) {
        self.instance(|instance| {
            instance.spec.nodes = nodes.iter().map(|node| (*node).into()).collect();
        });
    }
}

pub(super) fn one_slot(nodes: &[&str]) -> Cluster {
    let mut cluster = Cluster::new(pod_spec(), nodes);
    cluster.capacity(1);
    cluster
}

#[test]
fn a_broker_may_run_on_each_node_that_sees_the_device_and_is_well() {
    let mut cluster = one_slot(&["a", "b", "c", "d"]);
    cluster.health("b", "Unhealthy", "here");
    cluster.node("c", false);
    assert_eq!(cluster.created_for(), [["a", "d"]]);
    cluster.more(2);
    assert_eq!(cluster.created_for(), [["a", "d"], ["a", "d"]]);
}

#[test]
fn of_more_nodes_than_a_pod_can_name_each_names_others_and_all_together_all() {
    let names: Vec<String> = (0..150).map(|n| format!("node-{n:03}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut cluster = Cluster::new(pod_spec(), &names);
    cluster.capacity(150);
    let created = cluster.created_for();
    assert!(created.len() == 150 && created.iter().all(|nodes| nodes.len() == NODES_MAX));
    // However the scheduler chooses, each gets a node as long as the next one is not begun.
    cluster.settle();
    let running = cluster.world.pods.values().filter(|pod| pod.is_available);
    assert_eq!(running.count(), 150);
}

#[test]
fn a_drained_node_loses_its_broker_to_the_other_and_gets_none_back() {
    let mut cluster = one_slot(&["a", "b"]);
    cluster.settle();
    cluster.close("a");
    assert_eq!(cluster.plan(), NONE, "cordon disturbs nothing that runs");
    // Evicted: its slot is its own until its containers have ended.
    cluster.pod("cam-1-pod", |pod| pod.meta.is_deleting = true);
    assert_eq!(cluster.plan(), NONE);
    cluster.world.pods.clear();
    assert_eq!(cluster.step(), ["create cam-1-pod"]);
    assert_eq!(cluster.on("b").as_deref(), Some("cam-1-pod"));
    cluster.open("a");
    assert_eq!(cluster.after(1_000).step(), NONE);
}

#[test]
fn a_broker_that_no_node_takes_waits_and_says_so_and_starts_where_the_first_can() {
    let mut cluster = one_slot(&["a", "b"]);
    cluster.close("a");
    cluster.close("b");
    assert_eq!(cluster.step(), ["create cam-1-pod"]);
    assert_eq!(cluster.report().1, "BrokersStarting");
    for _ in 0..100 {
        assert_eq!(cluster.after(30).step(), NONE);
    }
    let (ratio, reason, message) = cluster.report();
    let expected = "0 of 1 brokers run; cam-1-pod: it waits, because the scheduler puts it on none of the nodes \
        that see the device: 0/2 nodes are available.";
    assert_eq!(
        [ratio.as_str(), reason.as_str(), message.as_str()],
        ["0/1", "BrokerUnschedulable", expected]
    );
    cluster.open("b");
    assert_eq!(cluster.step(), NONE);
    assert_eq!(cluster.report().1, "BrokersRun");
}

#[test]
fn a_device_that_has_a_broker_is_well_though_other_nodes_take_none() {
    let mut cluster = Cluster::new(pod_spec(), &["a", "b"]);
    cluster.close("a");
    cluster.settle();
    assert_eq!(cluster.report().1, "BrokersStarting");
    cluster.after(5);
    let (ratio, reason, message) = cluster.report();
    assert_eq!(
        (ratio.as_str(), reason.as_str()),
        ("1/2", "BrokersRunOnFewer"),
        "{message}"
    );
    let reports = cluster.whole_plan().reports;
    assert_eq!(reports[&key("cam")].problem_of(&key("cam-1")), None);
}

#[test]
fn a_broker_of_a_device_that_only_the_other_node_still_sees_is_moved_at_once() {
    let mut cluster = one_slot(&["a", "b"]);
    cluster.settle();
    cluster.seen_by(&["b"]);
    let gone = ["delete cam-1-pod: its node sees the device no more"];
    assert_eq!(cluster.step(), gone);
    assert_eq!(cluster.step(), ["create cam-1-pod"]);
    assert_eq!(cluster.on("b").as_deref(), Some("cam-1-pod"));
}

#[test]
fn a_broker_that_waits_is_replaced_when_its_nodes_see_the_device_no_more_or_others_do() {
    let mut cluster = one_slot(&["a"]);
    cluster.close("a");
    cluster.settle();
    cluster.node("b", true);
    cluster.seen_by(&["b"]);
    assert_eq!(cluster.step(), ["replace cam-1-pod"]);
    cluster.close("b");
    assert_eq!(cluster.created_for(), [["b"]]);
    cluster.settle();
    // More nodes: after the wait of a device that moves again and again.
    cluster.node("c", true);
    cluster.seen_by(&["b", "c"]);
    assert_eq!(cluster.after(59).step(), NONE);
    let due = cluster.now + SignedDuration::from_secs(1);
    assert_eq!(cluster.wake(), Some(due));
    assert_eq!(cluster.after(1).step(), ["replace cam-1-pod"]);
    assert_eq!(cluster.created_for(), [["b", "c"]]);
    cluster.settle();
    assert_eq!(cluster.on("c").as_deref(), Some("cam-1-pod"));
}

#[test]
fn a_broker_that_waits_stays_while_no_other_node_is_better() {
    let mut cluster = one_slot(&["a", "b"]);
    cluster.close("a");
    cluster.close("b");
    cluster.settle();
    // An agent starts again, and its node looks away for a moment.
    for health in ["Unhealthy", "Healthy"] {
        cluster.health("a", health, "here");
        assert_eq!(cluster.plan(), NONE);
    }
    for is_ready in [false, true] {
        cluster.node("a", is_ready);
        cluster.node("b", is_ready);
        assert_eq!(cluster.plan(), NONE);
    }
    // The scheduler has not answered yet.
    cluster.pod("cam-1-pod", |pod| pod.unscheduled = None);
    cluster.node("c", true);
    cluster.seen_by(&["a", "b", "c"]);
    assert_eq!(cluster.plan(), NONE);
    // Somebody else has changed its affinity.
    cluster.pod("cam-1-pod", |pod| pod.may_run_on.clear());
    assert_eq!(cluster.plan(), NONE);
}

#[test]
fn brokers_that_wait_for_nodes_which_see_the_device_no_more_go() {
    let mut cluster = Cluster::new(pod_spec(), &["a", "b"]);
    cluster.close("b");
    cluster.settle();
    cluster.seen_by(&["a"]);
    let gone = ["delete cam-1-1-pod: the device has fewer slots, or fewer nodes see it"];
    assert_eq!(cluster.step(), gone);
    assert_eq!(cluster.plan(), NONE);
}

#[test]
fn a_node_that_looks_away_for_a_moment_keeps_its_broker() {
    let mut cluster = one_slot(&["a", "b"]);
    cluster.settle();
    cluster.health("a", "Unhealthy", "here");
    assert_eq!(cluster.plan(), NONE);
    cluster.node("a", false);
    assert_eq!(cluster.plan(), NONE);
}

#[test]
fn a_broker_whose_first_containers_run_still_is_left_alone() {
    let mut cluster = one_slot(&["a", "b"]);
    cluster.settle();
    cluster.pod("cam-1-pod", |pod| {
        pod.phase = "Pending".to_owned();
        pod.is_available = false;
    });
    cluster.health("a", "Unhealthy", "here");
    assert_eq!(cluster.after(1_000).plan(), NONE);
    assert_eq!(cluster.report().1, "BrokersStarting");
}

#[test]
fn a_pod_whose_device_is_reached_differently_from_each_node_is_compared_with_its_own() {
    let mut cluster = one_slot(&["a", "b"]);
    cluster.health("b", "Healthy", "there");
    cluster.settle();
    let noted = &cluster.world.pods[&key("cam-1-pod")].meta.annotations[names::BROKER_CONNECTION];
    assert_eq!(noted, "a=here,b=there");
    assert_eq!(cluster.plan(), NONE);
    cluster.health("b", "Healthy", "elsewhere");
    assert_eq!(cluster.plan(), NONE);
    cluster.health("a", "Healthy", "elsewhere");
    assert_eq!(cluster.step(), ["replace cam-1-pod"]);
}

#[test]
fn a_new_device_waits_half_a_second_for_the_reports_of_other_nodes_and_only_if_a_choice_is_left() {
    let mut cluster = one_slot(&["a"]);
    cluster.node("b", true);
    let report = |configurations: Value| -> Arc<NodeDevices> {
        let node_devices = json!({
            "apiVersion": "akri.sh/v0", "kind": "NodeDevices", "metadata": {"name": "b"},
            "spec": {"configurations": configurations},
        });
        Arc::new(serde_json::from_value(node_devices).unwrap())
    };
    let complete = |devices: Value| {
        report(json!([
            {"namespace": "ns", "name": "cam", "complete": true, "devices": devices},
        ]))
    };
    let due = cluster.now + SignedDuration::from_millis(500);
    let does_not_see = complete(json!([]));
    Arc::make_mut(&mut cluster.world.node_devices).insert("b".into(), does_not_see);
    assert_eq!(cluster.plan(), ["create cam-1-pod"]);
    // It sees the device, and the Instance does not name it yet.
    let sees = complete(json!([{"instance": "cam-1"}]));
    Arc::make_mut(&mut cluster.world.node_devices).insert("b".into(), sees);
    assert_eq!(cluster.plan(), NONE);
    assert_eq!(cluster.wake(), Some(due));
    let silent = report(json!([]));
    Arc::make_mut(&mut cluster.world.node_devices).insert("b".into(), silent);
    assert_eq!(cluster.plan(), NONE);
    assert_eq!(cluster.wake(), Some(due));
    cluster.capacity(2);
    assert_eq!(cluster.plan(), ["create cam-1-pod"]);
    cluster.capacity(1);
    cluster.configuration(|configuration| configuration.spec.max_nodes = Some(1));
    assert_eq!(cluster.plan(), ["create cam-1-pod"]);
    cluster.configuration(|configuration| configuration.spec.max_nodes = None);
    assert_eq!(cluster.after(1).plan(), ["create cam-1-pod"]);
}

#[test]
fn a_newer_spec_replaces_a_broker_only_if_a_node_can_have_the_next() {
    let mut cluster = one_slot(&["a", "b"]);
    cluster.settle();
    cluster.health("a", "Unhealthy", "here");
    cluster.health("b", "Unhealthy", "here");
    cluster.broker_spec(json!({"brokerPodSpec": {"containers": []}}));
    assert_eq!(cluster.plan(), NONE);
    cluster.health("b", "Healthy", "here");
    assert_eq!(cluster.step(), ["try cam-1-pod"]);
    let expected = ["delete cam-1-pod: its Configuration asks for another"];
    assert_eq!(cluster.step(), expected);
    assert_eq!(cluster.created_for(), [["b"]]);
}

#[test]
fn the_report_says_the_first_reason_why_a_broker_does_not_run() {
    let mut cluster = one_slot(&["a"]);
    cluster.close("a");
    cluster.settle();
    assert_eq!(cluster.report().1, "BrokersStarting");
    // All slots are in use: one is free again soon.
    let used = json!({"cam-1-0": "C:cam-0:a"});
    cluster.instance(|i| i.spec.device_usage = serde_json::from_value(used).unwrap());
    assert_eq!(cluster.after(11).report().1, "BrokersStarting");
    assert_eq!(cluster.after(20).report().1, "BrokerUnschedulable");
    cluster.open("a");
    cluster.settle();
    assert_eq!(cluster.report().0, "1/1");
    let crash = Problem::new(Reason::BrokerCrashes, "exit code 3");
    let since = cluster.now;
    cluster.pod("cam-1-pod", |pod| pod.restarted = Some((since, crash)));
    assert_eq!(cluster.report().1, "BrokerCrashes");
    cluster.after(10);
    assert_eq!(cluster.report().1, "BrokersRun");
    cluster.world.pods.clear();
    assert_eq!(cluster.report().1, "BrokersStarting");
}

#[test]
fn times_of_objects_are_compared_with_the_clock_and_no_time_ends_the_controller() {
    let mut cluster = one_slot(&["a"]);
    cluster.settle();
    // The machine's clock was 8 hours late when the controller began.
    let ahead = SignedDuration::from_hours(8);
    cluster.ahead = ahead;
    let crash = Problem::new(Reason::BrokerCrashes, "exit code 3");
    let since = cluster.now + ahead;
    cluster.pod("cam-1-pod", |pod| {
        pod.restarted = Some((since, crash.clone()));
    });
    assert_eq!(cluster.report().1, "BrokerCrashes");
    assert_eq!(
        cluster.wake(),
        Some(cluster.now + SignedDuration::from_secs(10))
    );
    assert_eq!(cluster.after(10).report().1, "BrokersRun");
    // A kubelet may write any time.
    cluster.pod("cam-1-pod", |pod| {
        pod.started = Some(Timestamp::MAX);
        pod.restarted = Some((Timestamp::MAX, crash));
    });
    cluster.step();
    cluster.close("a");
    cluster.world.pods.clear();
    cluster.settle();
    cluster.pod("cam-1-pod", |pod| {
        pod.unscheduled.as_mut().unwrap().since = Some(Timestamp::MAX);
    });
    assert_eq!(cluster.report().1, "BrokersStarting");
}

#[test]
fn a_node_that_the_node_selector_leaves_out_gets_no_broker_whatever_the_instance_says() {
    let zone = |zone: &str| [("zone".to_owned(), zone.to_owned())].into();
    for (broker, created) in [
        (pod_spec(), "create cam-1-pod"),
        (job_spec(), "create cam-1-2-job"),
    ] {
        let mut cluster = Cluster::new(broker, &["a", "b"]);
        cluster.configuration(|configuration| configuration.spec.node_selector = zone("a"));
        assert_eq!(cluster.plan(), NONE);
        let nodes = Arc::make_mut(&mut cluster.world.nodes);
        Arc::make_mut(nodes.get_mut("a").unwrap()).labels = zone("a");
        assert_eq!(cluster.plan(), [created]);
        let named = cluster.created_for();
        assert!(named.iter().all(|nodes| *nodes == ["a"]), "{named:?}");
    }
}
