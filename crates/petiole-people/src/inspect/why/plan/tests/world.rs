//! A cluster of two nodes whose Configuration `cam` has the device `door` with one slot. Tests change it.
use super::{Snapshot, Value, json};
use crate::inspect::snapshot::Hidden;
use k8s_openapi::jiff::Timestamp;
use petiole_model::model::names::Key;
use serde::de::DeserializeOwned;

/// The Instance of the device.
pub(super) const DOOR: &str = "cam-0a1b2c";

pub(super) struct World {
    pub(super) configurations: Vec<Value>,
    pub(super) instances: Vec<Value>,
    pub(super) nodes: Vec<Value>,
    pub(super) node_devices: Vec<(&'static str, Value)>,
    pub(super) pods: Vec<Value>,
    pub(super) claims: Vec<Value>,
    pub(super) events: Vec<Value>,
    /// When the Deployment `shop` was created, if that can be read.
    pub(super) created: Option<&'static str>,
    pub(super) hidden: Hidden,
}

fn read<T: DeserializeOwned>(value: &Value) -> T {
    serde_json::from_value(value.clone()).unwrap_or_else(|e| panic!("{e}: {value}"))
}

fn key<Name: From<String>>(value: &Value) -> Key<Name> {
    let text = |field: &str| value["metadata"][field].as_str().unwrap_or("default");
    Key::new(text("namespace"), text("name").to_owned())
}

fn node(name: &str) -> Value {
    json!({
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "spec": {},
        "status": {
            "conditions": [{"type": "Ready", "status": "True"}],
            "capacity": {"akri.sh/cam": "1", format!("akri.sh/{DOOR}"): "1"},
            "allocatable": {"akri.sh/cam": "1", format!("akri.sh/{DOOR}"): "1"},
        },
    })
}

/// A Pod of Petiole's own.
fn own(component: &str, name: &str, node: &str) -> Value {
    json!({
        "metadata": {
            "namespace": "petiole", "name": name,
            "labels": {
                "app.kubernetes.io/component": component, "app.kubernetes.io/instance": "leaf",
                "app.kubernetes.io/part-of": "petiole",
            },
        },
        "spec": {"nodeName": node, "containers": [{"name": component}]},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    })
}

impl World {
    /// Nothing is wrong.
    pub(super) fn new() -> Self {
        let seen = json!({"configurations": [{
            "namespace": "default", "name": "cam", "complete": true, "devices": [{"id": "door"}],
        }]});
        Self {
            configurations: vec![json!({
                "metadata": {"namespace": "default", "name": "cam"},
                "spec": {"discoveryHandler": {"name": "zeroconf"}},
                "status": {"conditions": [{
                    "type": "Ready", "status": "True", "reason": "Working", "lastTransitionTime": "",
                }]},
            })],
            instances: vec![json!({
                "metadata": {
                    "namespace": "default", "name": DOOR, "annotations": {"akri.sh/device-id": "door"},
                },
                "spec": {
                    "configurationName": "cam", "cdiName": "", "capacity": 1, "shared": true,
                    "nodes": ["node-1", "node-2"],
                },
            })],
            nodes: vec![node("node-1"), node("node-2")],
            node_devices: vec![("node-1", seen.clone()), ("node-2", seen)],
            pods: vec![
                own("agent", "agent-1", "node-1"),
                own("agent", "agent-2", "node-2"),
                own("controller", "controller-1", "node-1"),
            ],
            claims: vec![],
            events: vec![],
            created: None,
            hidden: Hidden::default(),
        }
    }

    pub(super) fn now() -> Timestamp {
        "2026-01-01T10:00:30Z".parse().unwrap()
    }

    /// Adds a Pod that asks for a resource and has no node yet.
    pub(super) fn pending(mut self, name: &str, resource: &str) -> Self {
        self.pods.push(json!({
            "metadata": {"namespace": "default", "name": name},
            "spec": {"containers": [{"name": "main", "resources": {"limits": {resource: "1"}}}]},
            "status": {"phase": "Pending", "conditions": [{
                "type": "PodScheduled", "status": "False", "message": "0/2 nodes are available: 2 Insufficient",
            }]},
        }));
        self
    }

    /// Changes the Pod that was added last.
    pub(super) fn pod(mut self, change: impl FnOnce(&mut Value)) -> Self {
        change(self.pods.last_mut().unwrap());
        self
    }

    /// Puts the Pod that was added last on a node, in this phase.
    pub(super) fn on(self, node: &str, phase: &str) -> Self {
        let is_ready = phase == "Running";
        self.pod(|pod| {
            pod["spec"]["nodeName"] = json!(node);
            let ready = if is_ready { "True" } else { "False" };
            pod["status"] =
                json!({"phase": phase, "conditions": [{"type": "Ready", "status": ready}]});
        })
    }

    /// Gives the Pod that was added last a waiting container.
    pub(super) fn waiting(self, reason: &str, message: &str) -> Self {
        self.pod(|pod| {
            pod["status"]["containerStatuses"] = json!([{
                "name": "main", "ready": false, "restartCount": 4, "image": "", "imageID": "",
                "state": {"waiting": {"reason": reason, "message": message}},
                "lastState": {"terminated": {"exitCode": 3}},
            }]);
        })
    }

    /// Changes both Nodes.
    pub(super) fn nodes(mut self, change: impl Fn(&mut Value)) -> Self {
        self.nodes.iter_mut().for_each(change);
        self
    }

    pub(super) fn instance(mut self, change: impl FnOnce(&mut Value)) -> Self {
        change(&mut self.instances[0]);
        self
    }

    pub(super) fn configuration(mut self, change: impl FnOnce(&mut Value)) -> Self {
        change(&mut self.configurations[0]);
        self
    }

    /// Lets a Pod of a node have the only slot.
    pub(super) fn held_by(self, node: &'static str) -> Self {
        let slot = format!("{DOOR}-0");
        let held = self.instance(|instance| instance["spec"]["deviceUsage"] = json!({slot: node}));
        held.pending("holder", &format!("akri.sh/{DOOR}"))
            .on(node, "Running")
    }

    /// Gives the Configuration a condition that is not True.
    pub(super) fn ready(self, status: &str, reason: &str, message: &str) -> Self {
        self.configuration(|configuration| {
            configuration["status"]["conditions"] = json!([{
                "type": "Ready", "status": status, "reason": reason, "message": message,
                "lastTransitionTime": "",
            }]);
        })
    }

    pub(super) fn without_device(mut self) -> Self {
        self.instances.clear();
        for (_, devices) in &mut self.node_devices {
            devices["configurations"][0]["devices"] = json!([]);
        }
        self
    }

    pub(super) fn without(mut self, pod: &str) -> Self {
        self.pods.retain(|its| its["metadata"]["name"] != pod);
        self
    }

    /// Lets the Nodes be unreadable.
    pub(super) fn without_nodes(mut self) -> Self {
        self.nodes.clear();
        self.hidden.nodes = true;
        self
    }

    /// Lets the Pods of all namespaces be unreadable. The caller's own Pods are read.
    pub(super) fn without_pods(mut self) -> Self {
        self.pods
            .retain(|pod| pod["metadata"]["namespace"] != "petiole");
        self.hidden.pods = true;
        self
    }

    /// Lets the Configurations and Instances of other namespaces be unreadable.
    pub(super) fn without_other_namespaces(mut self) -> Self {
        self.hidden.objects = true;
        self
    }

    /// Gives the device more slots.
    pub(super) fn capacity(self, capacity: u8) -> Self {
        self.instance(|instance| instance["spec"]["capacity"] = json!(capacity))
    }

    pub(super) fn event(mut self, kind: &str, name: &str, (reason, message): (&str, &str)) -> Self {
        self.events.push(json!({
            "metadata": {}, "reason": reason, "message": message, "lastTimestamp": "2026-01-01T10:00:10Z",
            "involvedObject": {"kind": kind, "namespace": "default", "name": name},
        }));
        self
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        let node = |value: &Value| value["metadata"]["name"].as_str().unwrap().to_owned();
        let devices = self.node_devices.iter();
        let mut snapshot = Snapshot {
            configurations: self
                .configurations
                .iter()
                .map(|v| (key(v), read(v)))
                .collect(),
            instances: self.instances.iter().map(|v| (key(v), read(v))).collect(),
            nodes: self.nodes.iter().map(|v| (node(v), read(v))).collect(),
            node_devices: devices
                .map(|(name, v)| ((*name).to_owned(), read(v)))
                .collect(),
            pods: self.pods.iter().map(|v| (key(v), read(v))).collect(),
            claims: self.claims.iter().map(read).collect(),
            events: self.events.iter().map(read).collect(),
            created: self.created.map(|at| at.parse().unwrap()),
            hidden: self.hidden,
            ..Snapshot::default()
        };
        snapshot.note_prefixes();
        snapshot
    }
}
