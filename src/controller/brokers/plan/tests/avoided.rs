//! Tests of nodes on which brokers fail.
use super::{scheduling::one_slot, *};

impl Cluster {
    fn refuses(&mut self, name: &str) {
        self.fails(name, "UnexpectedAdmissionError");
        self.pod(name, |pod| pod.is_refused = true);
    }
}

#[test]
fn a_node_that_refuses_a_broker_is_avoided_for_a_time_if_another_can_take_the_next() {
    let mut cluster = one_slot(&["a", "b"]);
    cluster.settle();
    for rest in [10, 20, 40] {
        let name = cluster.on("a").unwrap();
        cluster.refuses(&name);
        assert_eq!(cluster.step(), NONE);
        let wait = cluster.wake().unwrap().duration_since(cluster.now);
        cluster.now += wait;
        let expected = ["delete cam-1-pod: it ended, and another takes its place"];
        assert_eq!(cluster.step(), expected);
        assert_eq!(cluster.created_for(), [["b"]]);
        cluster.after(rest - 1 - wait.as_secs());
        assert_eq!(cluster.created_for(), [["b"]]);
        cluster.after(1);
        assert_eq!(cluster.created_for(), [["a", "b"]]);
        cluster.settle();
    }
    // Where it is the only one it is tried again.
    cluster.seen_by(&["a"]);
    cluster.refuses("cam-1-pod");
    cluster.step();
    cluster.after(8).step();
    assert_eq!(cluster.created_for(), [["a"]]);
}

#[test]
fn a_node_is_avoided_after_three_failures_and_by_brokers_of_the_same_spec() {
    let mut cluster = one_slot(&["a", "b"]);
    cluster.settle();
    for _ in 0..3 {
        assert_eq!(cluster.on("a").as_deref(), Some("cam-1-pod"));
        cluster.fails("cam-1-pod", "Error");
        cluster.plan();
        cluster.after(4).settle();
    }
    assert_eq!(cluster.on("b").as_deref(), Some("cam-1-pod"));
    cluster.broker_spec(json!({"brokerPodSpec": {"containers": []}}));
    cluster.world.pods.clear();
    assert_eq!(cluster.created_for(), [["a", "b"]]);
}

#[test]
fn a_broker_that_succeeds_says_nothing_against_its_node() {
    let mut cluster = one_slot(&["a", "b"]);
    cluster.settle();
    for _ in 0..4 {
        assert_eq!(cluster.on("a").as_deref(), Some("cam-1-pod"));
        cluster.pod("cam-1-pod", |pod| pod.phase = "Succeeded".to_owned());
        cluster.plan();
        cluster.after(8).settle();
    }
}

#[test]
fn a_broker_that_waits_for_the_end_of_a_nodes_rest_is_replaced() {
    let mut cluster = one_slot(&["a", "b"]);
    cluster.settle();
    cluster.close("b");
    cluster.refuses("cam-1-pod");
    cluster.plan();
    cluster.after(1).step();
    assert_eq!(cluster.step(), ["create cam-1-pod"]);
    assert_eq!(cluster.on("a"), None);
    let due = cluster.now + SignedDuration::from_secs(9);
    cluster.now += SignedDuration::from_secs(6);
    assert_eq!(cluster.wake(), Some(due));
    assert_eq!(cluster.after(3).step(), ["replace cam-1-pod"]);
    cluster.settle();
    assert_eq!(cluster.on("a").as_deref(), Some("cam-1-pod"));
}

#[test]
fn a_pod_that_something_puts_on_a_blind_node_again_and_again_is_made_more_and_more_seldom() {
    let mut cluster = one_slot(&["a"]);
    cluster.node("x", true);
    let mut created = vec![];
    for second in 0..200 {
        for step in cluster.step() {
            if let Some(name) = step.strip_prefix("create ") {
                created.push(second);
                cluster.pod(name, |pod| {
                    pod.node = Some("x".into());
                    pod.is_astray = true;
                });
            }
        }
        cluster.after(1);
    }
    assert_eq!(created, [0, 2, 5, 10, 19, 36, 69, 134]);
    assert_eq!(cluster.report().1, "BrokerFailed");
}
