use super::*;
use crate::{
    api::instance::{InstanceSpec, InstanceStatus, NodeHealth},
    controller::{
        brokers::memory::{Notice, Outcome},
        world::{Meta, NodeState},
    },
};
use k8s_openapi::{apimachinery::pkg::apis::meta::v1::OwnerReference, jiff::SignedDuration};
use proptest::prelude::*;
use serde_json::json;
use std::sync::Arc;

fn pod_spec() -> Value {
    json!({"brokerPodSpec": {"containers": [{"name": "a"}]}})
}

fn job_spec() -> Value {
    json!({"brokerJobSpec": {"template": {"spec": {"containers": [{"name": "a"}]}}}})
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::new("ns", name)
}

/// A cluster in which what is planned comes true.
struct Cluster {
    world: World,
    memory: Memory,
    now: Timestamp,
    uids: u32,
}

impl Cluster {
    /// One Instance, `cam-1`, seen by these nodes.
    fn new(broker: Value, nodes: &[&str]) -> Self {
        let mut cluster = Self {
            world: World::default(),
            memory: Memory::default(),
            now: Timestamp::from_second(1_000_000).unwrap(),
            uids: 0,
        };
        let mut configuration = Configuration::new(
            "cam",
            serde_json::from_value(json!({
                "discoveryHandler": {"name": "debugEcho"}, "brokerSpec": broker,
            }))
            .unwrap(),
        );
        configuration.metadata.uid = Some("configuration".to_owned());
        configuration.metadata.generation = Some(1);
        (cluster.world.configurations).insert(key("cam"), Arc::new(configuration));
        let mut instance = Instance::new(
            "cam-1",
            InstanceSpec {
                configuration_name: "cam".to_owned(),
                capacity: 10,
                shared: true,
                ..InstanceSpec::default()
            },
        );
        instance.metadata.uid = Some("instance".to_owned());
        instance.metadata.owner_references = Some(vec![OwnerReference {
            uid: "configuration".to_owned(),
            controller: Some(true),
            ..OwnerReference::default()
        }]);
        instance.status = Some(InstanceStatus::default());
        cluster
            .world
            .instances
            .insert(key("cam-1"), Arc::new(instance));
        for node in nodes {
            cluster.node(node, true);
            cluster.instance(|instance| instance.spec.nodes.push((*node).to_owned()));
            cluster.health(node, "Healthy", "here");
        }
        cluster
    }

    fn node(&mut self, node: &str, is_ready: bool) {
        let state = NodeState {
            is_ready,
            ..NodeState::default()
        };
        self.world.nodes.insert(node.to_owned(), Arc::new(state));
    }

    fn instance(&mut self, change: impl FnOnce(&mut Instance)) {
        let instance = self.world.instances.get_mut(&key("cam-1")).unwrap();
        change(Arc::make_mut(instance));
    }

    fn configuration(&mut self, change: impl FnOnce(&mut Configuration)) {
        let configuration = self.world.configurations.get_mut(&key("cam")).unwrap();
        let configuration = Arc::make_mut(configuration);
        change(configuration);
        *configuration.metadata.generation.as_mut().unwrap() += 1;
    }

    fn broker_spec(&mut self, spec: Value) {
        self.configuration(|configuration| {
            configuration.spec.broker_spec = serde_json::from_value(spec).unwrap();
        });
    }

    fn capacity(&mut self, capacity: i32) {
        self.instance(|instance| instance.spec.capacity = capacity);
    }

    fn health(&mut self, node: &str, health: &str, connection: &str) {
        self.instance(|instance| {
            let status = instance.status.as_mut().unwrap();
            status.nodes.retain(|seen| seen.name != node);
            status.nodes.push(NodeHealth {
                name: node.to_owned(),
                health: health.to_owned(),
                last_transition_time: String::new(),
                connection: Some(connection.to_owned()),
            });
        });
    }

    fn pod(&mut self, name: &str, change: impl FnOnce(&mut BrokerPod)) {
        change(Arc::make_mut(self.world.pods.get_mut(&key(name)).unwrap()));
    }

    fn fails(&mut self, name: &str, reason: &str) {
        self.pod(name, |pod| {
            pod.phase = "Failed".to_owned();
            pod.reason = reason.to_owned();
        });
    }

    fn generation_remembered(&self) -> Option<i64> {
        let instance = &self.world.instances[&key("cam-1")];
        instance.status.as_ref().unwrap().broker_generation
    }

    fn whole_plan(&self) -> Plan {
        plan(&Input {
            world: &self.world,
            memory: &self.memory,
            resource_prefix: "akri.sh",
            now: self.now,
        })
    }

    /// What is planned after a look at the world, in words.
    fn plan(&mut self) -> Vec<String> {
        self.memory.observe(&self.world, self.now);
        let actions = self.whole_plan().actions;
        actions.iter().map(words).collect()
    }

    /// Carries out one plan, as the API server and the kubelets would. Returns it.
    fn step(&mut self) -> Vec<String> {
        let words = self.plan();
        for action in self.whole_plan().actions {
            let outcome = self.perform(&action);
            let (is_settled, _) = self.memory.settle(&action, &outcome, self.now);
            assert!(is_settled, "{action:?}: {outcome:?}");
        }
        words
    }

    fn perform(&mut self, action: &Action) -> Outcome {
        self.uids += 1;
        let uid = format!("uid-{}", self.uids);
        let owner = Some("instance".to_owned());
        match action {
            Action::CreatePod { broker, pod, .. } => {
                let annotations = pod["metadata"]["annotations"].clone();
                let affinity = pod["spec"]["affinity"].to_string();
                let node = self
                    .world
                    .nodes
                    .keys()
                    .find(|node| affinity.contains(*node));
                let pod = BrokerPod {
                    meta: Meta {
                        uid: uid.clone(),
                        annotations: serde_json::from_value(annotations).unwrap(),
                        owner,
                        ..Meta::default()
                    },
                    node: node.cloned(),
                    phase: "Running".to_owned(),
                    started: Some(self.now),
                    ..BrokerPod::default()
                };
                let before = self.world.pods.insert(broker.key.clone(), Arc::new(pod));
                assert_eq!(before, None);
            }
            Action::CreateJob {
                broker, generation, ..
            } => {
                let mut job = BrokerJob::default();
                job.meta.uid = uid.clone();
                job.meta.owner = owner;
                let before = self.world.jobs.insert(broker.key.clone(), Arc::new(job));
                assert_eq!(before, None);
                self.remember(*generation);
            }
            Action::DeletePod { key, uid, .. } => {
                let gone = self.world.pods.remove(key).unwrap();
                assert_eq!(gone.meta.uid, *uid);
            }
            Action::DeleteJob { key, uid, .. } => {
                let gone = self.world.jobs.remove(key).unwrap();
                assert_eq!(gone.meta.uid, *uid);
            }
            Action::Remember { generation, .. } => self.remember(*generation),
        }
        Outcome::Done(Some(uid))
    }

    fn remember(&mut self, generation: i64) {
        self.instance(|instance| {
            instance.status.as_mut().unwrap().broker_generation = Some(generation);
        });
    }

    fn settle(&mut self) {
        for _ in 0..4 {
            if self.step().is_empty() {
                return;
            }
        }
        panic!("it never ends: {:?}", self.plan());
    }

    fn after(&mut self, seconds: i64) -> &mut Self {
        self.now += SignedDuration::from_secs(seconds);
        self
    }
}

fn words(action: &Action) -> String {
    match action {
        Action::CreatePod { broker, .. } => format!("create {}", broker.key.name),
        Action::CreateJob { broker, .. } => format!("create {}", broker.key.name),
        Action::DeletePod { key, why, .. } => format!("delete {}: {why}", key.name),
        Action::DeleteJob { key, why, .. } => format!("delete {}: {why}", key.name),
        Action::Remember { generation, .. } => format!("remember {generation}"),
    }
}

const NONE: [&str; 0] = [];

#[test]
fn each_node_that_sees_the_device_has_a_pod() {
    let mut cluster = Cluster::new(pod_spec(), &["a", "b"]);
    assert_eq!(cluster.step(), ["create a-cam-1-pod", "create b-cam-1-pod"]);
    assert_eq!(cluster.plan(), NONE);
}

#[test]
fn nothing_new_starts_where_the_device_or_the_node_is_not_well_and_what_runs_goes_on() {
    let mut cluster = Cluster::new(pod_spec(), &["a", "b", "c"]);
    cluster.health("a", "Unhealthy", "here");
    cluster.node("b", false);
    assert_eq!(cluster.step(), ["create c-cam-1-pod"]);
    cluster.health("c", "Unhealthy", "elsewhere");
    cluster.broker_spec(json!({"brokerPodSpec": {"containers": []}}));
    assert_eq!(cluster.plan(), NONE);
    cluster.instance(|instance| instance.status = None);
    assert_eq!(cluster.plan(), NONE);
}

#[test]
fn there_are_at_most_as_many_pods_as_slots_those_that_run_first() {
    let mut cluster = Cluster::new(pod_spec(), &["a", "b", "c"]);
    cluster.capacity(2);
    assert_eq!(cluster.step(), ["create a-cam-1-pod", "create b-cam-1-pod"]);
    cluster.pod("a-cam-1-pod", |pod| pod.phase = "Pending".to_owned());
    cluster.capacity(1);
    let planned = cluster.step();
    assert_eq!(planned, ["delete a-cam-1-pod: the device has fewer slots"]);
    assert_eq!(cluster.plan(), NONE);
}

#[test]
fn a_pod_that_leaves_has_its_slot_until_it_is_gone_unless_its_node_is_lost() {
    let mut cluster = Cluster::new(pod_spec(), &["a", "b"]);
    cluster.capacity(1);
    cluster.settle();
    cluster.instance(|instance| instance.spec.nodes = vec!["b".to_owned()]);
    cluster.pod("a-cam-1-pod", |pod| pod.meta.is_deleting = true);
    assert_eq!(cluster.plan(), NONE);
    cluster.node("a", false);
    assert_eq!(cluster.plan(), ["create b-cam-1-pod"]);
    // It is back, and its Pod still on the way out: the other has begun and stays.
    cluster.settle();
    cluster.node("a", true);
    assert_eq!(cluster.plan(), NONE);
}

#[test]
fn a_node_that_left_loses_its_pod() {
    let mut cluster = Cluster::new(pod_spec(), &["a", "b"]);
    cluster.settle();
    cluster.instance(|instance| instance.spec.nodes = vec!["b".to_owned()]);
    let planned = cluster.step();
    assert_eq!(
        planned,
        ["delete a-cam-1-pod: its node sees the device no more"]
    );
    assert_eq!(cluster.plan(), NONE);
}

#[test]
fn a_pod_is_replaced_when_the_device_is_reached_differently_and_only_if_both_are_known() {
    let mut cluster = Cluster::new(pod_spec(), &["a", "b"]);
    cluster.settle();
    cluster.health("a", "Healthy", "elsewhere");
    let expected = ["delete a-cam-1-pod: the device is reached differently"];
    assert_eq!(cluster.step(), expected);
    assert_eq!(cluster.step(), ["create a-cam-1-pod"]);
    assert_eq!(cluster.step(), NONE);
    cluster.pod("a-cam-1-pod", |pod| pod.meta.annotations.clear());
    cluster.health("a", "Healthy", "moved again");
    assert_eq!(cluster.plan(), NONE);
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
    let expected = ["delete a-cam-1-pod: its Configuration asks for another"];
    assert_eq!(cluster.step(), expected);
    cluster.settle();
    cluster.broker_spec(json!({"brokerPodSpec": {"containers": []}}));
    assert_eq!(cluster.plan(), expected);
}

#[test]
fn a_pod_that_ends_has_a_successor_after_a_wait_that_grows() {
    let mut cluster = Cluster::new(pod_spec(), &["a"]);
    cluster.settle();
    for wait in [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300] {
        cluster.fails("a-cam-1-pod", "UnexpectedAdmissionError");
        assert_eq!(cluster.step(), NONE);
        let due = cluster.now + SignedDuration::from_secs(wait);
        assert_eq!(cluster.whole_plan().wake, Some(due));
        cluster.after(wait - 1);
        assert_eq!(cluster.step(), NONE, "{wait}");
        let expected = ["delete a-cam-1-pod: it ended, and another takes its place"];
        assert_eq!(cluster.after(1).step(), expected);
        assert_eq!(cluster.step(), ["create a-cam-1-pod"]);
    }
}

#[test]
fn a_pod_that_ran_well_or_was_asked_for_anew_starts_over_with_the_shortest_wait() {
    let mut cluster = Cluster::new(pod_spec(), &["a"]);
    cluster.settle();
    let fail = |cluster: &mut Cluster| {
        cluster.fails("a-cam-1-pod", "");
        let notices = cluster.memory.observe(&cluster.world, cluster.now);
        let [Notice::Ended { retry_in, .. }] = &notices[..] else {
            panic!("{notices:?}");
        };
        assert_eq!(cluster.memory.observe(&cluster.world, cluster.now), []);
        let wait = retry_in.as_secs();
        cluster.after(wait).settle();
        wait
    };
    assert_eq!(fail(&mut cluster), 1);
    assert_eq!(fail(&mut cluster), 2);
    cluster.after(601);
    let now = cluster.now;
    cluster.pod("a-cam-1-pod", |pod| pod.finished = Some(now));
    assert_eq!(fail(&mut cluster), 1);
    assert_eq!(fail(&mut cluster), 2);
    // Seen to run for long.
    cluster.after(601).settle();
    assert_eq!(fail(&mut cluster), 1);
    assert_eq!(fail(&mut cluster), 2);
    cluster.fails("a-cam-1-pod", "");
    assert_eq!(cluster.plan(), NONE);
    cluster.broker_spec(json!({"brokerPodSpec": {"containers": []}}));
    cluster.settle();
    assert_eq!(cluster.world.pods[&key("a-cam-1-pod")].phase, "Running");
    assert_eq!(fail(&mut cluster), 1);
}

#[test]
fn a_pod_that_failed_keeps_its_place_and_is_no_live_one() {
    let mut cluster = Cluster::new(pod_spec(), &["a", "b"]);
    cluster.capacity(1);
    cluster.settle();
    cluster.fails("a-cam-1-pod", "Evicted");
    assert_eq!(cluster.plan(), NONE);
    cluster.health("a", "Unhealthy", "here");
    assert_eq!(cluster.step(), ["create b-cam-1-pod"]);
    cluster.health("a", "Healthy", "here");
    let planned = cluster.step();
    assert_eq!(
        planned,
        ["delete a-cam-1-pod: it ended, and others have its slots"]
    );
    assert_eq!(cluster.plan(), NONE);
}

#[test]
fn a_pod_that_is_being_deleted_holds_its_name() {
    let mut cluster = Cluster::new(pod_spec(), &["a"]);
    cluster.settle();
    cluster.pod("a-cam-1-pod", |pod| pod.meta.is_deleting = true);
    assert_eq!(cluster.plan(), NONE);
    cluster.world.pods.clear();
    assert_eq!(cluster.plan(), ["create a-cam-1-pod"]);
}

#[test]
fn what_was_done_is_not_done_again_while_it_does_not_show() {
    let mut cluster = Cluster::new(pod_spec(), &["a", "b"]);
    cluster.capacity(1);
    let before = cluster.world.clone();
    cluster.step();
    let after = std::mem::replace(&mut cluster.world, before.clone());
    // Another node is first now, and there still is only one slot.
    cluster.instance(|instance| instance.spec.nodes.reverse());
    assert_eq!(cluster.plan(), NONE);
    cluster.world = after;
    assert_eq!(cluster.plan(), NONE);
    // Seen, then gone.
    cluster.world = before;
    assert_eq!(cluster.plan(), ["create a-cam-1-pod"]);
    cluster.settle();
    cluster.instance(|instance| instance.spec.nodes = vec!["b".to_owned()]);
    let before = cluster.world.clone();
    assert_eq!(cluster.step().len(), 1);
    cluster.world = before;
    assert_eq!(cluster.plan(), NONE);
}

#[test]
fn what_never_shows_is_made_again_after_a_while() {
    let mut cluster = Cluster::new(pod_spec(), &["a"]);
    cluster.step();
    cluster.world.pods.clear();
    assert_eq!(cluster.plan(), NONE);
    assert!(cluster.whole_plan().wake.is_some());
    assert_eq!(cluster.after(31).plan(), ["create a-cam-1-pod"]);
}

#[test]
fn another_instances_pod_of_the_same_name_is_waited_for() {
    let mut cluster = Cluster::new(pod_spec(), &["a"]);
    cluster.settle();
    cluster.pod("a-cam-1-pod", |pod| {
        pod.meta.owner = Some("before".to_owned())
    });
    assert_eq!(cluster.step(), NONE);
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

fn time() -> k8s_openapi::apimachinery::pkg::apis::meta::v1::Time {
    k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(Timestamp::UNIX_EPOCH)
}

#[test]
fn a_refused_pod_is_tried_again_after_a_wait_that_grows_and_its_user_is_told_once() {
    let mut cluster = Cluster::new(pod_spec(), &["a", "b"]);
    let mut told = vec![];
    for _ in 0..10 {
        cluster.memory.observe(&cluster.world, cluster.now);
        let plan = cluster.whole_plan();
        assert_eq!(plan.actions.len(), 2);
        for action in &plan.actions {
            let outcome = Outcome::from_status(422, "no such field");
            let (is_settled, notice) = cluster.memory.settle(action, &outcome, cluster.now);
            assert!(is_settled);
            told.extend(notice);
        }
        let plan = cluster.whole_plan();
        assert_eq!(plan.actions, []);
        cluster.now = plan.wake.unwrap();
    }
    let expected = Notice::SpecInvalid {
        configuration: key("cam"),
        message: "no such field".to_owned(),
    };
    assert_eq!(told[0], expected);
    assert_eq!(told.len(), 2, "at first, and again after five minutes");
    assert!(cluster.now < Timestamp::from_second(1_000_000 + 20 * 60).unwrap());
    // A user who mends it need not wait.
    cluster.now = Timestamp::from_second(1_000_000).unwrap();
    assert_eq!(cluster.plan(), NONE);
    cluster.broker_spec(json!({"brokerPodSpec": {"containers": []}}));
    assert_eq!(cluster.plan().len(), 2);
}

#[test]
fn a_refusal_for_another_reason_is_told_on_the_instance() {
    let mut cluster = Cluster::new(pod_spec(), &["a"]);
    let action = cluster.whole_plan().actions.remove(0);
    let outcome = Outcome::from_status(403, "exceeded quota");
    let (is_settled, notice) = cluster.memory.settle(&action, &outcome, cluster.now);
    assert!(is_settled);
    assert!(matches!(notice, Some(Notice::Refused { message, .. }) if message == "exceeded quota"));
    let away = cluster
        .memory
        .settle(&action, &Outcome::from_status(503, "away"), cluster.now);
    assert_eq!(away, (false, None));
}

#[test]
fn a_name_that_somebody_else_has_is_told_after_some_tries() {
    let mut cluster = Cluster::new(pod_spec(), &["a"]);
    let action = cluster.whole_plan().actions.remove(0);
    let told: Vec<_> = (0..4)
        .map(|_| {
            cluster
                .memory
                .settle(&action, &Outcome::Conflict, cluster.now)
                .1
                .is_some()
        })
        .collect();
    assert_eq!(told, [false, false, true, true]);
}

#[test]
fn a_spec_that_nothing_can_be_made_of_is_named_and_what_runs_of_it_goes_on() {
    let mut cluster = Cluster::new(pod_spec(), &["a"]);
    cluster.settle();
    cluster.node("b", true);
    cluster.health("b", "Healthy", "here");
    cluster.instance(|instance| instance.spec.nodes.push("b".to_owned()));
    cluster.broker_spec(json!({"brokerPodSpec": {"containers": 3}}));
    let plan = cluster.whole_plan();
    assert_eq!(plan.actions, []);
    assert_eq!(plan.broken[&key("cam")].1.path, "brokerPodSpec.containers");
}

#[test]
fn a_job_runs_once_for_each_generation_also_when_it_was_collected() {
    let mut cluster = Cluster::new(job_spec(), &["a", "b"]);
    assert_eq!(cluster.step(), ["create cam-1-1-job"]);
    assert_eq!(cluster.generation_remembered(), Some(1));
    assert_eq!(cluster.step(), NONE);
    cluster.world.jobs.clear();
    assert_eq!(cluster.after(100).step(), NONE);
    cluster.configuration(|_| {});
    assert_eq!(cluster.step(), ["create cam-1-2-job"]);
    cluster.configuration(|_| {});
    let expected = [
        "delete cam-1-2-job: its Configuration is a newer one",
        "create cam-1-3-job",
    ];
    assert_eq!(cluster.step(), expected);
    assert_eq!(cluster.step(), NONE);
}

#[test]
fn a_job_waits_for_its_device_and_its_predecessor_stays_until_then() {
    let mut cluster = Cluster::new(job_spec(), &["a"]);
    cluster.health("a", "Unhealthy", "here");
    assert_eq!(cluster.step(), NONE);
    cluster.health("a", "Healthy", "here");
    assert_eq!(cluster.step(), ["create cam-1-1-job"]);
    cluster.health("a", "Unhealthy", "here");
    cluster.configuration(|_| {});
    assert_eq!(cluster.step(), NONE);
}

#[test]
fn a_job_that_is_there_already_is_remembered() {
    let mut cluster = Cluster::new(job_spec(), &["a"]);
    cluster.step();
    cluster.instance(|instance| instance.status.as_mut().unwrap().broker_generation = None);
    assert_eq!(cluster.step(), ["remember 1"]);
    assert_eq!(cluster.step(), NONE);
}

#[test]
fn a_job_whose_creation_was_not_answered_is_tried_again() {
    for outcome in [Outcome::Failed("away".to_owned()), Outcome::Conflict] {
        let mut cluster = Cluster::new(job_spec(), &["a"]);
        let action = cluster.whole_plan().actions.remove(0);
        cluster.memory.settle(&action, &outcome, cluster.now);
        assert_eq!(cluster.after(1).step(), ["create cam-1-1-job"]);
        cluster.plan();
        cluster.world.jobs.clear();
        assert_eq!(cluster.after(60).step(), NONE);
    }
}

#[test]
fn a_switch_between_pod_and_job_and_none_deletes_what_was() {
    let mut cluster = Cluster::new(pod_spec(), &["a"]);
    cluster.settle();
    cluster.broker_spec(job_spec());
    let expected = [
        "delete a-cam-1-pod: its Configuration asks for no Pod",
        "create cam-1-2-job",
    ];
    assert_eq!(cluster.step(), expected);
    cluster.broker_spec(pod_spec());
    let expected = [
        "delete cam-1-2-job: its Configuration asks for no Job",
        "create a-cam-1-pod",
    ];
    assert_eq!(cluster.step(), expected);
    cluster.broker_spec(Value::Null);
    let expected = ["delete a-cam-1-pod: its Configuration asks for no Pod"];
    assert_eq!(cluster.step(), expected);
    assert_eq!(cluster.step(), NONE);
}

#[derive(Debug, Clone)]
enum Event {
    Nodes(Vec<usize>),
    Healthy(usize, bool),
    Ready(usize, bool),
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
        (node(), any::<bool>()).prop_map(|(node, is)| Event::Ready(node, is)),
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
            instance.spec.nodes = nodes.iter().map(|node| NODES[*node].to_owned()).collect();
        }),
        Event::Healthy(node, is) => {
            let health = if is { "Healthy" } else { "Unhealthy" };
            cluster.health(NODES[node], health, "here");
        }
        Event::Ready(node, is) => cluster.node(NODES[node], is),
        Event::Capacity(capacity) => cluster.capacity(capacity),
        Event::Fails(node) if cluster.world.pods.contains_key(&key(&pod(node))) => {
            cluster.fails(&pod(node), "Error");
        }
        Event::Leaves(node) if cluster.world.pods.contains_key(&key(&pod(node))) => {
            cluster.pod(&pod(node), |pod| pod.meta.is_deleting = true);
        }
        Event::Fails(_) | Event::Leaves(_) => {}
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

proptest! {
    #[test]
    fn a_plan_that_is_carried_out_leaves_nothing_to_do_and_never_more_pods_than_slots(
        events in prop::collection::vec(event(), 1..40)
    ) {
        let mut cluster = Cluster::new(pod_spec(), &NODES);
        for event in events {
            let before = live(&cluster);
            happen(&mut cluster, event);
            let capacity = &cluster.world.instances[&key("cam-1")].spec.capacity;
            let capacity = usize::try_from(*capacity).unwrap();
            prop_assert!(live(&cluster) <= capacity.max(before));
            prop_assert!(cluster.world.jobs.len() <= 1);
        }
        // What is on its way out is gone in the end.
        cluster.world.pods.retain(|_, pod| !pod.meta.is_deleting);
        cluster.settle();
        let capacity = cluster.world.instances[&key("cam-1")].spec.capacity;
        prop_assert!(live(&cluster) <= usize::try_from(capacity).unwrap());
        prop_assert_eq!(cluster.plan(), NONE);
        // And once all waits are over, every seat that can be taken is.
        cluster.after(301);
        cluster.settle();
        let pods = cluster.world.pods.values();
        let fit = |node: &&String| {
            let instance = &cluster.world.instances[&key("cam-1")];
            let seen = instance.status.iter().flat_map(|status| &status.nodes);
            let mut seen = seen.filter(|seen| seen.name == **node);
            cluster.world.nodes[*node].is_ready && seen.any(|seen| seen.health == HEALTHY)
        };
        let spec = &cluster.world.configurations[&key("cam")].spec.broker_spec;
        if matches!(broker::wanted(spec.as_ref()), Some(Wanted::Pod(_))) {
            let nodes = &cluster.world.instances[&key("cam-1")].spec.nodes;
            let possible = nodes.iter().filter(fit).count();
            prop_assert!(live(&cluster) >= possible.min(usize::try_from(capacity).unwrap()));
        } else {
            prop_assert_eq!(pods.len(), 0);
        }
    }
}
