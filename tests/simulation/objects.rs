//! Defines Nodes and Pods as the API server of `api_server.rs` has them, and how it shows objects and their changes: as JSON.
use super::{
    api_server::{ApiServer, Entry, Table},
    pods::{Container, Kind},
};
use crate::{
    api::{
        configuration::Configuration, instance::Instance, names::OUT_OF_SERVICE,
        node_devices::NodeDevices,
    },
    controller::world::NodeState,
};
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use std::fmt::Display;
use tokio::sync::watch;

/// The time at which Pods are deleted, for those who read only whether they are.
const SOMETIME: &str = "2027-01-15T08:00:00Z";

/// An object as the API server has it.
pub(super) trait Stored {
    fn json(&self) -> Value;
}

impl Stored for Instance {
    fn json(&self) -> Value {
        json!(self)
    }
}

impl Stored for Configuration {
    fn json(&self) -> Value {
        json!(self)
    }
}

impl Stored for NodeDevices {
    fn json(&self) -> Value {
        json!(self)
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Node {
    pub(super) name: String,
    pub(super) version: u64,
    pub(super) state: NodeState,
}

impl Stored for Node {
    fn json(&self) -> Value {
        let NodeState {
            uid,
            is_ready,
            since,
            is_out_of_service,
            labels,
            networks: _,
        } = &self.state;
        let taints = is_out_of_service.then(|| json!({ "key": OUT_OF_SERVICE }));
        json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {
                "name": self.name, "uid": uid, "labels": labels,
                "resourceVersion": self.version.to_string(),
            },
            "spec": { "taints": Vec::from_iter(taints) },
            "status": { "conditions": [{
                "type": "Ready", "status": if *is_ready { "True" } else { "Unknown" },
                "lastTransitionTime": since.map(|since| since.to_string()),
            }] },
        })
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Pod {
    pub(super) name: String,
    pub(super) uid: u64,
    pub(super) version: u64,
    /// The name of its node; empty until it has one.
    pub(super) node: String,
    /// The time since when the scheduler finds no node for it.
    pub(super) unscheduled: Option<Timestamp>,
    pub(super) containers: Vec<Container>,
    /// The devices that the scheduler gave it, and their pool.
    pub(super) claim: Option<Claim>,
    /// True if containers that end are started again, until the Pod is deleted.
    pub(super) restarts: bool,
    /// True if it stays on a node that is not ready.
    pub(super) tolerates: bool,
    pub(super) is_deleting: bool,
    pub(super) phase: &'static str,
    /// The object that the controller made, if it is a broker.
    pub(super) broker: Option<Value>,
    pub(super) started: Option<Timestamp>,
}

/// A ResourceClaim with its allocation. Pods may share it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Claim {
    pub(super) uid: String,
    pub(super) pool: String,
    pub(super) devices: Vec<String>,
    /// The resource in whose place it is.
    pub(super) resource: Option<String>,
}

impl Claim {
    /// Returns the UID of the claim that is made for a Pod.
    pub(super) fn uid_of(pod: u64) -> String {
        format!("claim-{pod}")
    }
}

impl Pod {
    /// Returns whether a resource is given to it by its claim.
    pub(super) fn claims(&self, resource: &str) -> bool {
        let of = self.claim.as_ref();
        of.is_some_and(|claim| claim.resource.as_deref() == Some(resource))
    }

    /// Returns a broker, from the object that the controller made.
    pub(super) fn broker(made: &Value) -> Self {
        let limits = &made["spec"]["containers"][0]["resources"]["limits"];
        let asks = limits.as_object().into_iter().flatten();
        Self {
            name: made["metadata"]["name"].as_str().unwrap().to_owned(),
            uid: 0,
            version: 0,
            node: String::new(),
            unscheduled: None,
            containers: vec![Container {
                name: "broker",
                kind: Kind::App,
                asks: asks.map(|(resource, _)| (resource.clone(), 1)).collect(),
                runs: 10_000_000,
            }],
            claim: None,
            restarts: true,
            tolerates: false,
            is_deleting: false,
            phase: "Pending",
            broker: Some(made.clone()),
            started: None,
        }
    }

    pub(super) fn has_ended(&self) -> bool {
        ["Succeeded", "Failed"].contains(&self.phase)
    }

    /// Returns whether no kubelet has anything to end before the Pod can go.
    pub(super) fn is_idle(&self) -> bool {
        self.has_ended() || self.node.is_empty()
    }
}

impl Stored for Pod {
    fn json(&self) -> Value {
        let somebodys = || json!({ "apiVersion": "v1", "kind": "Pod", "spec": {} });
        let mut object = self.broker.clone().unwrap_or_else(somebodys);
        object["metadata"]["name"] = json!(self.name);
        object["metadata"]["namespace"] = json!("default");
        object["metadata"]["uid"] = json!(self.uid.to_string());
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        if self.is_deleting {
            object["metadata"]["deletionTimestamp"] = json!(SOMETIME);
        }
        if !self.node.is_empty() {
            object["spec"]["nodeName"] = json!(self.node);
        }
        // A kubelet starts containers again for ever, so that only one that it refuses fails.
        let reason = match self.phase {
            "Failed" => "UnexpectedAdmissionError",
            _ => "",
        };
        let unscheduled = self.unscheduled.map(|since| {
            json!({
                "type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                "lastTransitionTime": since.to_string(),
            })
        });
        object["status"] = json!({
            "phase": self.phase, "reason": reason,
            "startTime": self.started.map(|started| started.to_string()),
            "conditions": Vec::from_iter(unscheduled),
        });
        object
    }
}

/// The objects of a kind, as requests read them.
pub(super) trait Served {
    fn all(&self) -> Vec<Value>;
    fn length(&self) -> usize;
    fn lengths(&self) -> watch::Receiver<usize>;
    /// Returns the place in the log after a version, unless entries after it were compacted.
    fn after(&self, version: u64) -> Option<usize>;
    fn changes(&self, from: usize) -> Vec<&Change>;
}

/// An object before and after a change, made once for all watches.
pub(super) struct Change {
    before: Option<Value>,
    after: Option<Value>,
    /// `after` as text.
    text: String,
    version: u64,
}

impl<T: Stored> Served for Table<T> {
    fn all(&self) -> Vec<Value> {
        self.objects.values().map(|object| object.json()).collect()
    }

    fn length(&self) -> usize {
        self.log.len()
    }

    fn lengths(&self) -> watch::Receiver<usize> {
        self.changed.subscribe()
    }

    fn after(&self, version: u64) -> Option<usize> {
        let position = self.log.partition_point(|entry| entry.version <= version);
        (position >= self.compacted).then_some(position)
    }

    fn changes(&self, from: usize) -> Vec<&Change> {
        let entries = self.log[from..].iter();
        entries
            .map(|entry| entry.shown.get_or_init(|| Change::new(entry)))
            .collect()
    }
}

impl Change {
    fn new<T: Stored>(entry: &Entry<T>) -> Self {
        let after = entry.after.as_ref().map(|object| object.json());
        Self {
            before: entry.before.as_ref().map(|object| object.json()),
            text: after.as_ref().map_or_else(String::new, Value::to_string),
            after,
            version: entry.version,
        }
    }

    /// Returns the event of a watch that selects the object before or after.
    pub(super) fn event(&self, selects: impl Fn(&Value) -> bool) -> Option<String> {
        let before = self.before.as_ref().filter(|object| selects(object));
        let after = self.after.as_ref().filter(|object| selects(object));
        match (before, after) {
            (None, None) => None,
            (None, Some(_)) => Some(line("ADDED", &self.text)),
            (Some(_), Some(_)) => Some(line("MODIFIED", &self.text)),
            (Some(object), None) => {
                let mut object = object.clone();
                object["metadata"]["resourceVersion"] = json!(self.version.to_string());
                Some(line("DELETED", &object))
            }
        }
    }
}

/// Returns an event. Its type comes first: a client reads the object by it.
pub(super) fn line(type_: &str, object: &impl Display) -> String {
    format!("{{\"type\":\"{type_}\",\"object\":{object}}}\n")
}

/// Returns the objects of a kind. Of many kinds there are none.
pub(super) fn served<'a>(server: &'a ApiServer, resource: &str) -> &'a dyn Served {
    match resource {
        "instances" => &server.instances,
        "nodes" => &server.nodes,
        "nodedevices" => &server.node_devices,
        "pods" => &server.pods,
        "configurations" => &server.configurations,
        "resourceslices" => &server.slices,
        "deviceclasses" => &server.classes,
        "leases" => &server.leases,
        _ => &server.others,
    }
}
