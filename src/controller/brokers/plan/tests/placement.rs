//! Tests of the node on which a broker is, and of when it moves.
use super::*;
use crate::{
    api::{names::UNSCHEDULABLE, node_devices::NodeDevices, reason::Reason},
    cluster::parts::TaintPart,
    controller::pod_state::Unscheduled,
};

impl Cluster {
    fn taint(&mut self, node: &str, key: &str) {
        let node = Arc::make_mut(self.world.nodes.get_mut(node).unwrap());
        node.taints = vec![TaintPart {
            key: key.to_owned(),
            effect: "NoSchedule".to_owned(),
            ..TaintPart::default()
        }];
    }

    pub(super) fn cordon(&mut self, node: &str) {
        self.taint(node, UNSCHEDULABLE);
    }

    pub(super) fn uncordon(&mut self, node: &str) {
        let node = Arc::make_mut(self.world.nodes.get_mut(node).unwrap());
        node.taints.clear();
    }

    /// The scheduler finds no node for the Pod from now on.
    pub(super) fn stuck(&mut self, name: &str, message: &str) {
        let since = Some(self.now);
        self.pod(name, |pod| {
            pod.node = None;
            pod.phase = "Pending".to_owned();
            pod.is_available = false;
            pod.unscheduled = Some(Unscheduled {
                since,
                message: message.to_owned(),
            });
        });
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
}

const CPU: &str = "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) didn't satisfy plugin(s) [NodeAffinity]. no new claims to deallocate, preemption: 0/2";

fn one_slot(nodes: &[&str]) -> Cluster {
    let mut cluster = Cluster::new(pod_spec(), nodes);
    cluster.capacity(1);
    cluster
}

#[test]
fn six_brokers_of_one_slot_are_three_on_each_of_two_nodes() {
    let mut cluster = one_slot(&["a", "b"]);
    cluster.more(6);
    let planned = cluster.plan();
    let on = |node: &str| {
        planned
            .iter()
            .filter(|p| p.starts_with(&format!("create {node}-")))
            .count()
    };
    assert_eq!((on("a"), on("b")), (3, 3), "{planned:?}");
}

#[test]
fn a_drained_node_loses_its_broker_to_the_other_and_gets_none_back() {
    let mut cluster = one_slot(&["a", "b"]);
    cluster.settle();
    cluster.cordon("a");
    assert_eq!(
        cluster.plan(),
        NONE,
        "cordon alone disturbs nothing that runs"
    );
    // Evicted: its slot is its own until its containers have ended.
    cluster.pod("a-cam-1-pod", |pod| pod.meta.is_deleting = true);
    assert_eq!(cluster.plan(), NONE);
    cluster.world.pods.clear();
    assert_eq!(cluster.step(), ["create b-cam-1-pod"]);
    cluster.uncordon("a");
    assert_eq!(cluster.after(1_000).plan(), NONE);
}

#[test]
fn with_all_nodes_cordoned_nothing_is_created_and_the_report_names_them() {
    let mut cluster = one_slot(&["a", "b"]);
    cluster.cordon("a");
    cluster.taint("b", "node-role.kubernetes.io/control-plane");
    assert_eq!(cluster.plan(), NONE);
    assert_eq!(cluster.wake(), None);
    let (ratio, reason, message) = cluster.report();
    assert_eq!(
        (ratio.as_str(), reason.as_str()),
        ("0/1", "NoNodeForBroker")
    );
    let expected = "0 of 1 brokers run; cam-1: no node that sees the device takes a broker: a is cordoned, \
        b has the taint node-role.kubernetes.io/control-plane:NoSchedule, which the broker does not tolerate";
    assert_eq!(message, expected);
    cluster.uncordon("a");
    assert_eq!(cluster.step(), ["create a-cam-1-pod"]);
    assert_eq!(cluster.report().0, "1/1");
}

#[test]
fn a_broker_that_tolerates_a_taint_is_created_there() {
    let spec =
        json!({"brokerPodSpec": {"containers": [], "tolerations": [{"operator": "Exists"}]}});
    let mut cluster = Cluster::new(spec, &["a"]);
    cluster.taint("a", "node-role.kubernetes.io/control-plane");
    assert_eq!(cluster.plan(), ["create a-cam-1-pod"]);
}

#[test]
fn a_broker_that_does_not_fit_is_moved_after_three_seconds_and_more_and_more_seldom() {
    let mut cluster = one_slot(&["a", "b"]);
    cluster.settle();
    cluster.stuck("a-cam-1-pod", CPU);
    let mut moves = vec![];
    for second in 0..400 {
        for step in cluster.step() {
            if step.starts_with("move") {
                moves.push(second);
            }
            if let Some(name) = step.strip_prefix("create ") {
                cluster.stuck(name, CPU);
            }
        }
        cluster.after(1);
    }
    assert_eq!(moves, [3, 33, 63, 123, 183, 303]);
}

#[test]
fn a_broker_that_has_a_node_is_never_moved() {
    let mut cluster = one_slot(&["a", "b"]);
    cluster.settle();
    cluster.stuck("a-cam-1-pod", CPU);
    cluster.pod("a-cam-1-pod", |pod| pod.node = Some("a".to_owned()));
    assert_eq!(cluster.after(1_000).plan(), NONE);
}

#[test]
fn a_broker_that_waits_for_a_slot_stays_and_one_that_its_node_does_not_offer_moves() {
    let mut cluster = one_slot(&["a", "b"]);
    cluster.settle();
    cluster.stuck(
        "a-cam-1-pod",
        "0/2 nodes are available: 1 Insufficient akri.sh/cam-1.",
    );
    let used = json!({"cam-1-0": "C:cam-0:b"});
    cluster.instance(|i| i.spec.device_usage = serde_json::from_value(used).unwrap());
    assert_eq!(cluster.after(100).plan(), NONE);
    cluster.instance(|i| i.spec.device_usage.clear());
    assert_eq!(cluster.plan(), ["move a-cam-1-pod"]);
}

#[test]
fn two_stuck_brokers_and_one_free_node_make_one_move() {
    let mut cluster = Cluster::new(pod_spec(), &["a", "b", "c"]);
    cluster.capacity(2);
    cluster.settle();
    cluster.stuck("a-cam-1-pod", CPU);
    cluster.stuck("b-cam-1-pod", CPU);
    assert_eq!(cluster.after(10).step(), ["move a-cam-1-pod"]);
    assert_eq!(cluster.step(), ["create c-cam-1-pod"]);
}

#[test]
fn a_stuck_broker_of_a_node_that_was_cordoned_is_moved_at_once() {
    let mut cluster = one_slot(&["a", "b"]);
    cluster.settle();
    cluster.cordon("a");
    cluster.stuck(
        "a-cam-1-pod",
        "0/2 nodes are available: 1 node(s) were unschedulable.",
    );
    assert_eq!(cluster.step(), ["move a-cam-1-pod"]);
    assert_eq!(cluster.step(), ["create b-cam-1-pod"]);
}

#[test]
fn a_pod_that_was_scheduled_while_it_was_to_be_moved_stays() {
    let mut cluster = one_slot(&["a", "b"]);
    cluster.settle();
    cluster.stuck("a-cam-1-pod", CPU);
    cluster.after(5);
    cluster.memory.observe(&cluster.world, cluster.now);
    let action = cluster.whole_plan().actions.remove(0);
    let settled = cluster
        .memory
        .settle(&action, &Outcome::Conflict, cluster.now);
    assert_eq!(settled, Settled::DONE);
    cluster.pod("a-cam-1-pod", |pod| {
        pod.node = Some("a".to_owned());
        pod.unscheduled = None;
    });
    assert_eq!(cluster.plan(), NONE);
    assert_eq!(cluster.report().0, "0/1");
}

#[test]
fn a_deleted_broker_comes_back_where_its_slot_still_is() {
    let mut cluster = one_slot(&["a", "b"]);
    let used = json!({"cam-1-0": "b"});
    cluster.instance(|i| i.spec.device_usage = serde_json::from_value(used).unwrap());
    assert_eq!(cluster.plan(), ["create b-cam-1-pod"]);
    // Not if the slot is that of a Pod which is there.
    cluster.capacity(2);
    cluster.settle();
    cluster.world.pods.remove(&key("a-cam-1-pod"));
    assert_eq!(cluster.plan(), ["create a-cam-1-pod"]);
}

#[test]
fn a_broker_that_fails_three_times_on_a_node_tries_the_other() {
    let mut cluster = one_slot(&["a", "b"]);
    cluster.settle();
    for _ in 0..2 {
        cluster.fails("a-cam-1-pod", "UnexpectedAdmissionError");
        cluster.step();
        cluster.after(10).step();
        cluster.instance(|i| i.spec.device_usage = [("cam-1-0".to_owned(), "a".to_owned())].into());
        assert_eq!(cluster.step(), ["create a-cam-1-pod"]);
    }
    cluster.instance(|i| i.spec.device_usage.clear());
    cluster.fails("a-cam-1-pod", "UnexpectedAdmissionError");
    let expected = [
        "delete a-cam-1-pod: it ended too often on its node",
        "create b-cam-1-pod",
    ];
    assert_eq!(cluster.step(), expected);
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
    cluster.world.node_devices.insert("b".into(), does_not_see);
    assert_eq!(cluster.plan(), ["create a-cam-1-pod"]);
    // It sees the device, and the Instance does not name it yet.
    let sees = complete(json!([{"instance": "cam-1"}]));
    cluster.world.node_devices.insert("b".into(), sees);
    assert_eq!(cluster.plan(), NONE);
    assert_eq!(cluster.wake(), Some(due));
    let silent = report(json!([]));
    cluster.world.node_devices.insert("b".into(), silent);
    assert_eq!(cluster.plan(), NONE);
    assert_eq!(cluster.wake(), Some(due));
    cluster.capacity(2);
    assert_eq!(cluster.plan(), ["create a-cam-1-pod"]);
    cluster.capacity(1);
    cluster.configuration(|configuration| configuration.spec.max_nodes = Some(1));
    assert_eq!(cluster.plan(), ["create a-cam-1-pod"]);
    cluster.configuration(|configuration| configuration.spec.max_nodes = None);
    assert_eq!(cluster.after(1).plan(), ["create a-cam-1-pod"]);
}

#[test]
fn a_newer_spec_replaces_a_broker_on_a_cordoned_node_only_if_another_node_can_have_the_next() {
    let mut cluster = one_slot(&["a", "b"]);
    cluster.settle();
    cluster.cordon("a");
    cluster.cordon("b");
    cluster.broker_spec(json!({"brokerPodSpec": {"containers": []}}));
    assert_eq!(cluster.plan(), NONE);
    cluster.uncordon("b");
    assert_eq!(cluster.step(), ["try a-cam-1-pod"]);
    let expected = ["delete a-cam-1-pod: its Configuration asks for another"];
    assert_eq!(cluster.step(), expected);
    assert_eq!(cluster.step(), ["create b-cam-1-pod"]);
}

#[test]
fn the_report_says_the_first_reason_why_a_broker_does_not_run() {
    let mut cluster = one_slot(&["a"]);
    cluster.settle();
    assert_eq!(cluster.report().0, "1/1");
    cluster.stuck("a-cam-1-pod", CPU);
    assert_eq!(cluster.report().1, "BrokersStarting");
    cluster.after(11);
    let (ratio, reason, message) = cluster.report();
    assert_eq!(
        (ratio.as_str(), reason.as_str()),
        ("0/1", "BrokerUnschedulable")
    );
    assert!(message.ends_with("plugin(s) [NodeAffinity]."), "{message}");
    let crash = crate::controller::pod_state::Trouble {
        reason: Reason::BrokerCrashes,
        message: "exit code 3".to_owned(),
    };
    let since = cluster.now;
    cluster.pod("a-cam-1-pod", |pod| {
        pod.unscheduled = None;
        pod.is_available = true;
        pod.restarted = Some((since, crash));
    });
    assert_eq!(cluster.report().1, "BrokerCrashes");
    cluster.after(10);
    assert_eq!(cluster.report().1, "BrokersRun");
    cluster.world.pods.clear();
    assert_eq!(cluster.report().1, "BrokersStarting");
}

#[test]
fn a_node_that_the_node_selector_leaves_out_gets_no_broker_whatever_the_instance_says() {
    for (broker, on_both) in [(pod_spec(), 2), (job_spec(), 1)] {
        let mut cluster = Cluster::new(broker, &["a", "b"]);
        let created = |cluster: &Cluster| -> Vec<String> {
            let actions = cluster.whole_plan().actions;
            let created = actions.iter().filter_map(|action| match action {
                Action::CreatePod { broker, .. } | Action::CreateJob { broker, .. } => {
                    Some(format!("create {}", broker.key.name))
                }
                Action::DeletePod { .. }
                | Action::ReplacePod { .. }
                | Action::MovePod { .. }
                | Action::TryPod { .. }
                | Action::DeleteJob { .. }
                | Action::Remember { .. } => None,
            });
            created.collect()
        };
        assert_eq!(created(&cluster).len(), on_both);
        let zone = |zone: &str| [("zone".to_owned(), zone.to_owned())].into();
        cluster.configuration(|configuration| configuration.spec.node_selector = zone("a"));
        assert_eq!(created(&cluster), Vec::<String>::new());
        let node = Arc::make_mut(cluster.world.nodes.get_mut("a").unwrap());
        node.labels = zone("a");
        let on_a = created(&cluster);
        assert!(on_a.len() == 1 && !on_a[0].contains("-b-"), "{on_a:?}");
    }
}
