mod avoided;
mod histories;
mod jobs;
mod pods;
mod refusals;
mod scheduling;
mod waiting;

use super::*;
use crate::{
    api::broker::NODES_MAX,
    api::instance::{InstanceSpec, InstanceStatus, NodeHealth},
    controller::{
        brokers::memory::BrokerMemory,
        nodes::absent_node::Now,
        outcome::Outcome,
        pod_state::Unscheduled,
        reported::Reported,
        world::{BrokerJob, BrokerPod, Meta, NodeState, World},
    },
    model::{
        names::{Key, ObjectKey},
        typed_names::NodeName,
    },
};
use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::OwnerReference,
    jiff::{SignedDuration, Timestamp},
};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::{collections::BTreeSet, sync::Arc, time::Duration};
use tokio::time::Instant;

fn pod_spec() -> Value {
    json!({"brokerPodSpec": {"containers": [{"name": "a"}]}})
}

fn job_spec() -> Value {
    json!({"brokerJobSpec": {"template": {"spec": {"containers": [{"name": "a"}]}}}})
}

fn key<Name: From<String>>(name: &str) -> Key<Name> {
    Key::new("ns", name.to_owned())
}

const BEGINNING: Timestamp = Timestamp::constant(1_000_000, 0);

/// A cluster in which what is planned comes true. Its scheduler follows the affinity of Pods, and starts them.
struct Cluster {
    world: World,
    memory: BrokerMemory,
    now: Timestamp,
    /// How far the clock is ahead of the time that is counted from the start.
    ahead: SignedDuration,
    began: Instant,
    uids: u32,
    /// The answer of the API server to a dry run.
    trial: Outcome,
    /// The nodes that take no new Pod.
    closed: BTreeSet<NodeName>,
}

impl Cluster {
    /// Creates a cluster with one Instance, `cam-1`, seen by these nodes.
    fn new(broker: Value, nodes: &[&str]) -> Self {
        let mut cluster = Self {
            world: World::default(),
            memory: BrokerMemory::default(),
            now: BEGINNING,
            ahead: SignedDuration::ZERO,
            began: Instant::now(),
            uids: 0,
            trial: Outcome::Done,
            closed: BTreeSet::new(),
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
                configuration_name: "cam".into(),
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
            cluster.instance(|instance| instance.spec.nodes.push((*node).into()));
            cluster.health(node, "Healthy", "here");
        }
        cluster
    }

    fn node(&mut self, node: &str, is_ready: bool) {
        let state = NodeState {
            is_ready,
            ..NodeState::default()
        };
        Arc::make_mut(&mut self.world.nodes).insert(node.into(), Arc::new(state));
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
                name: node.into(),
                health: health.to_owned(),
                connection: Some(connection.to_owned()),
                ..NodeHealth::default()
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

    fn time(&self) -> Now {
        let passed = Duration::try_from(self.now.duration_since(BEGINNING)).unwrap();
        Now {
            clock: self.now + self.ahead,
            instant: self.began + passed,
        }
    }

    /// Returns when the next look is due.
    fn wake(&self) -> Option<Timestamp> {
        let wait = self.whole_plan().waits.first()?;
        Some(self.now + wait)
    }

    fn whole_plan(&self) -> Plan {
        let reported = Reported::new(&self.world);
        plan(&Input {
            world: &self.world,
            device_reports: reported.by_device(),
            memory: &self.memory,
            resource_prefix: &"akri.sh".parse().unwrap(),
            now: self.time(),
        })
    }

    /// Returns what is planned after a look at the world, in words.
    fn plan(&mut self) -> Vec<String> {
        self.memory.observe(&self.world, self.time());
        let actions = self.whole_plan().actions;
        actions.iter().map(words).collect()
    }

    /// Carries out one plan, as the API server and the kubelets would. Returns it.
    fn step(&mut self) -> Vec<String> {
        self.schedule();
        let words = self.plan();
        for action in self.whole_plan().actions {
            let outcome = self.perform(&action);
            self.memory.settle(&action, &outcome, self.time().instant);
        }
        words
    }

    fn perform(&mut self, action: &Action) -> Outcome {
        self.uids += 1;
        let uid = format!("uid-{}", self.uids);
        match action {
            Action::CreatePod {
                broker, owner, pod, ..
            } => {
                let annotations = pod["metadata"]["annotations"].clone();
                let may_run_on = broker::named_nodes(&pod["spec"]["affinity"]);
                assert!((1..=NODES_MAX).contains(&may_run_on.len()));
                let pod = BrokerPod {
                    meta: Meta {
                        uid: uid.clone(),
                        annotations: serde_json::from_value(annotations).unwrap(),
                        owner: Some(owner.clone()),
                        ..Meta::default()
                    },
                    may_run_on,
                    phase: "Pending".to_owned(),
                    ..BrokerPod::default()
                };
                let before = self.world.pods.insert(broker.key.clone(), Arc::new(pod));
                assert_eq!(before, None);
                self.schedule();
            }
            Action::CreateJob {
                broker, generation, ..
            } => {
                let mut job = BrokerJob::default();
                job.meta.uid = uid.clone();
                job.meta.owner = Some("instance".to_owned());
                let before = self.world.jobs.insert(broker.key.clone(), Arc::new(job));
                assert_eq!(before, None);
                self.remember(*generation);
            }
            Action::DeletePod { key, uid, .. } | Action::ReplacePod { key, uid, .. } => {
                let gone = self.world.pods.remove(key).unwrap();
                assert_eq!(gone.meta.uid, *uid);
            }
            Action::DeleteJob { key, uid, .. } => {
                let gone = self.world.jobs.remove(key).unwrap();
                assert_eq!(gone.meta.uid, *uid);
            }
            Action::Remember { generation, .. } => self.remember(*generation),
            Action::TryPod { .. } => return self.trial.clone(),
        }
        Outcome::Done
    }

    /// Puts the Pods that have no node on nodes that their affinity names, the emptiest first, and starts them. None has two
    /// Pods of one Instance.
    fn schedule(&mut self) {
        let names: Vec<ObjectKey> = self.world.pods.keys().cloned().collect();
        for name in names {
            let pods = self.world.pods.clone();
            let pod = &pods[&name];
            if pod.node.is_some() || pod.meta.is_deleting || pod.has_ended() {
                continue;
            }
            let count = |node: &&NodeName, is: &dyn Fn(&BrokerPod) -> bool| {
                let on = |other: &&Arc<BrokerPod>| other.node.as_ref() == Some(*node);
                let on = pods.values().filter(on).filter(|other| !other.has_ended());
                on.filter(|other| is(other)).count()
            };
            let is_open = |node: &&NodeName| {
                let state = self.world.nodes.get(*node);
                let is_ready = state.is_some_and(|state| state.is_ready);
                let is_taken = count(node, &|other| other.meta.owner == pod.meta.owner) > 0;
                is_ready && !self.closed.contains(*node) && !is_taken
            };
            let open = pod.may_run_on.iter().filter(is_open);
            let node = open.min_by_key(|node| count(node, &|_| true)).cloned();
            let now = self.now;
            let pod = Arc::make_mut(self.world.pods.get_mut(&name).unwrap());
            match node {
                Some(node) => {
                    *pod = BrokerPod {
                        meta: pod.meta.clone(),
                        node: Some(node),
                        is_available: true,
                        phase: "Running".to_owned(),
                        started: Some(now),
                        ..BrokerPod::default()
                    };
                }
                None => {
                    pod.unscheduled.get_or_insert(Unscheduled {
                        since: Some(now),
                        message: "0/2 nodes are available.".to_owned(),
                    });
                }
            }
        }
    }

    /// Returns the name of the Pod on a node.
    fn on(&self, node: &str) -> Option<String> {
        let mut pods = self.world.pods.iter();
        let (key, _) = pods.find(|(_, pod)| pod.node.as_deref() == Some(node))?;
        Some(key.name.clone())
    }

    fn remember(&mut self, generation: i64) {
        self.instance(|instance| {
            instance.status.as_mut().unwrap().broker_generation = Some(generation);
        });
    }

    /// Plans until nothing is left to do. The longest way has a trial, a deletion of the old, a creation and a move.
    fn settle(&mut self) {
        for _ in 0..6 {
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
        Action::ReplacePod { key, .. } => format!("replace {}", key.name),
        Action::TryPod { broker, .. } => format!("try {}", broker.key.name),
        Action::DeleteJob { key, why, .. } => format!("delete {}: {why}", key.name),
        Action::Remember { generation, .. } => format!("remember {generation}"),
    }
}

fn time() -> k8s_openapi::apimachinery::pkg::apis::meta::v1::Time {
    k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(Timestamp::UNIX_EPOCH)
}

const NONE: [&str; 0] = [];
