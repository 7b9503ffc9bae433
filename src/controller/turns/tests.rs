//! A controller whose API server does what a test says.
mod events;
mod evictions;
mod history;
mod limits;
mod nodes;
mod older;
mod sequences;
mod server;

use super::*;
use crate::{
    api::{configuration::Configuration, instance::Instance},
    cluster::{
        SIDE_BY_SIDE,
        changes::{Change, version_of},
    },
    controller::{
        brokers::plan::Action as BrokerAction,
        fixtures::{at, configuration, instance, key, node_devices, ready},
        nodes::absent_node::Pods,
        outcome::{Outcome, Written},
        status,
        world::NodeState,
    },
    model::{instance_name::InstanceName, names::Key},
    store::{configuration_key, instance_key},
};
use json_patch::PatchOperation;
use serde_json::{Value, json};
use std::sync::Arc;

/// A controller that leads, with an API server that does what a test says.
struct Controller {
    turns: Turns,
    now: Now,
    version: u64,
    /// The requests that are not answered.
    open: Vec<(String, Request)>,
}

fn words(request: &Request) -> String {
    match request {
        Request::Look(node) => format!("look {node}"),
        Request::Device(DeviceAction::Create(instance)) => {
            let key = instance_key(&instance.metadata);
            format!("create {} on {}", key, instance.spec.nodes.join(","))
        }
        Request::Device(DeviceAction::Change(change)) => format!("change {}", change.key),
        Request::Device(DeviceAction::Delete { key, .. }) => format!("delete {key}"),
        Request::Device(action) => format!("{action:?}"),
        Request::Broker(BrokerAction::CreatePod { broker, .. }) => format!("pod {}", broker.key),
        Request::Broker(action) => format!("{action:?}"),
        Request::Service(action) => format!("{action:?}"),
        Request::List(action) => format!("{action:?}"),
        Request::Status(action) => format!("status {:?}", action.object),
        Request::Eviction(action) => format!("evict {} from {}", action.configuration, action.node),
    }
}

fn view(namespace: &str, name: &str, devices: usize) -> Value {
    let device = |n| json!({ "id": format!("device-{n}"), "properties": {} });
    json!({
        "namespace": namespace, "name": name, "complete": true, "generation": 1,
        "devices": (0..devices).map(device).collect::<Vec<_>>(),
    })
}

fn in_namespace(namespace: &str, name: &str) -> Configuration {
    let fields = json!({ "metadata": { "namespace": namespace }, "spec": { "maxInstances": 100 } });
    configuration(name, fields)
}

impl Controller {
    /// Creates one that knows these Configurations and two nodes.
    fn new(configurations: &[(&str, &str)]) -> Self {
        let now = Now {
            clock: at(0),
            instant: Instant::now(),
        };
        let mut controller = Self {
            turns: Turns::new("akri.sh".parse().unwrap(), now),
            now,
            version: 100,
            open: vec![],
        };
        let turns = &mut controller.turns;
        turns.see(News::Instances(vec![]));
        turns.see(News::NodeDevices(vec![]));
        turns.see(News::Pods(vec![]));
        turns.see(News::Jobs(vec![]));
        turns.see(News::Services(vec![]));
        turns.see(News::Slices(vec![]));
        let node = |name: &str| Change {
            key: Key::new("", name),
            object: Some(Arc::new(ready())),
            version: 1,
        };
        turns.see(News::Nodes(vec![node("a"), node("b")]));
        turns.see(News::Configurations(vec![]));
        for (namespace, name) in configurations {
            controller.configures(in_namespace(namespace, name));
        }
        assert!(controller.turns.is_listed());
        controller.turns.lead(true, now);
        controller
    }

    fn configures(&mut self, configuration: Configuration) {
        self.turns.see(News::Configurations(vec![Change {
            key: configuration_key(&configuration.metadata),
            version: 1,
            object: Some(Arc::new(configuration)),
        }]));
    }

    fn reports(&mut self, node: &str, views: Value) {
        self.version += 1;
        self.turns.see(News::NodeDevices(vec![Change {
            key: Key::new("", node),
            object: Some(Arc::new(node_devices(node, views))),
            version: self.version,
        }]));
    }

    fn shows(&mut self, change: Change<Instance, InstanceName>) {
        self.turns.see(News::Instances(vec![change]));
    }

    fn passes(&mut self, millis: u64) {
        self.now.instant += Duration::from_millis(millis);
    }

    /// Returns the requests that are sent, and answers none.
    fn sends(&mut self) -> Vec<String> {
        let mut sent = vec![];
        loop {
            let requests = self.turns.step(self.now);
            sent.extend(requests.iter().map(|(_, request)| words(request)));
            self.open.extend(requests);
            let wakes_at = self.turns.wakes_at(self.now.instant);
            if wakes_at.is_none_or(|at| at > self.now.instant) {
                return sent;
            }
        }
    }

    /// Returns the requests that are not answered, and those that wait for their turn.
    fn waiting(&self) -> Vec<String> {
        let turns = self.turns.open.turns.values();
        let queued = turns.flat_map(|turn| &turn.queue);
        let open = self.open.iter().map(|(_, request)| request);
        open.chain(queued).map(words).collect()
    }

    fn answers(&mut self, n: usize, answer: Answer) {
        let (part, request) = self.open.remove(n);
        self.turns.answered(part, &request, answer, self.now);
    }

    /// Returns the answer to a creation, and the object that was created.
    fn created(&mut self, n: usize) -> (Answer, Change<Instance, InstanceName>) {
        let Request::Device(DeviceAction::Create(created)) = &self.open[n].1 else {
            panic!("{:?}", self.open[n]);
        };
        let mut created = Instance::clone(created);
        self.version += 1;
        created.metadata.uid = Some(format!("uid-{}", self.version));
        created.metadata.resource_version = Some(self.version.to_string());
        let answer = Written::with(shown(created.clone()));
        (Answer::Written(answer), shown(created))
    }

    fn creates(&mut self, n: usize) -> Change<Instance, InstanceName> {
        let (answer, created) = self.created(n);
        self.answers(n, answer);
        created
    }

    /// Sends what is to be sent, and answers that brokers cannot be written now. Returns these.
    fn fails(&mut self) -> Vec<String> {
        let mut tried = vec![];
        loop {
            self.sends();
            let Some((part, request)) = self.open.pop() else {
                return tried;
            };
            let answer = if matches!(request, Request::Broker(_)) {
                tried.push(words(&request));
                Answer::Written(Written::failed("away"))
            } else {
                Answer::Written(Written::new(Outcome::Done))
            };
            self.turns.answered(part, &request, answer, self.now);
        }
    }

    /// Answers all writes of statuses.
    fn writes_statuses(&mut self) {
        self.sends();
        while let Some(n) = (self.open.iter()).position(|(_, r)| matches!(r, Request::Status(_))) {
            let Request::Status(action) = &self.open[n].1 else {
                unreachable!("it is one")
            };
            let status::plan::Object::Configuration(key) = &action.object else {
                panic!("{action:?}");
            };
            let mut patch = action.patch.clone();
            // A test for `null` holds of what is not there, and fails in this crate.
            (patch.0).retain(|o| !matches!(o, PatchOperation::Test(_)));
            let before = &self.turns.world().configurations[key];
            let mut object = serde_json::to_value(&**before).unwrap();
            json_patch::patch(&mut object, &patch).unwrap();
            self.version += 1;
            object["metadata"]["resourceVersion"] = json!(self.version.to_string());
            let written = Written::with(Change {
                key: key.clone(),
                version: self.version,
                object: Some(Arc::new(serde_json::from_value(object).unwrap())),
            });
            self.answers(n, Answer::Written(written));
        }
        self.sends();
    }
}

fn shown(instance: Instance) -> Change<Instance, InstanceName> {
    Change {
        key: instance_key(&instance.metadata),
        version: version_of(&instance.metadata),
        object: Some(Arc::new(instance)),
    }
}

fn is_of(words: &str) -> impl Fn(&String) -> bool + '_ {
    move |sent| sent.starts_with(words)
}
