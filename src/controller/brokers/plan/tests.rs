mod histories;
mod jobs;
mod placement;
mod pods;
mod refusals;

use super::*;
use crate::{
    api::instance::{InstanceSpec, InstanceStatus, NodeHealth},
    controller::{
        brokers::memory::{Notice, Outcome},
        world::{Meta, NodeState},
    },
    model::names::Key,
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

fn key<Name: From<String>>(name: &str) -> Key<Name> {
    Key::new("ns", name.to_owned())
}

/// A cluster in which what is planned comes true.
struct Cluster {
    world: World,
    memory: Memory,
    now: Timestamp,
    uids: u32,
    /// The answer of the API server to a dry run.
    trial: Outcome,
}

impl Cluster {
    /// Creates a cluster with one Instance, `cam-1`, seen by these nodes.
    fn new(broker: Value, nodes: &[&str]) -> Self {
        let mut cluster = Self {
            world: World::default(),
            memory: Memory::default(),
            now: Timestamp::from_second(1_000_000).unwrap(),
            uids: 0,
            trial: Outcome::Done,
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

    /// Returns when the next look is due.
    fn wake(&self) -> Option<Timestamp> {
        let wait = self.whole_plan().waits.first()?;
        Some(self.now + wait)
    }

    fn whole_plan(&self) -> Plan {
        plan(&Input {
            world: &self.world,
            memory: &self.memory,
            coming: &[],
            resource_prefix: &"akri.sh".parse().unwrap(),
            now: self.now,
        })
    }

    /// Returns what is planned after a look at the world, in words.
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
            self.memory.settle(&action, &outcome, self.now);
        }
        words
    }

    fn perform(&mut self, action: &Action) -> Outcome {
        self.uids += 1;
        let uid = format!("uid-{}", self.uids);
        let owner = Some("instance".to_owned());
        match action {
            Action::CreatePod {
                broker, pod, node, ..
            } => {
                let annotations = pod["metadata"]["annotations"].clone();
                let affinity = pod["spec"]["affinity"].to_string();
                assert!(affinity.contains(&format!("[\"{node}\"]")));
                let pod = BrokerPod {
                    meta: Meta {
                        uid: uid.clone(),
                        annotations: serde_json::from_value(annotations).unwrap(),
                        owner,
                        ..Meta::default()
                    },
                    node: Some(node.to_string()),
                    is_available: true,
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
            Action::DeletePod { key, uid, .. }
            | Action::ReplacePod { key, uid }
            | Action::MovePod {
                broker: Broker { key, .. },
                uid,
                ..
            } => {
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
        Action::MovePod { broker, .. } => format!("move {}", broker.key.name),
        Action::TryPod { broker, .. } => format!("try {}", broker.key.name),
        Action::DeleteJob { key, why, .. } => format!("delete {}: {why}", key.name),
        Action::Remember { generation, .. } => format!("remember {generation}"),
    }
}

fn time() -> k8s_openapi::apimachinery::pkg::apis::meta::v1::Time {
    k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(Timestamp::UNIX_EPOCH)
}

const NONE: [&str; 0] = [];
