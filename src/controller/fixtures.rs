//! Worlds for tests.
use super::world::{BrokerPod, Meta, NodeState, World};
use crate::{
    api::{configuration::Configuration, instance::Instance},
    model::names::ObjectKey,
};
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use std::{collections::BTreeMap, sync::Arc};

pub(super) fn key(name: &str) -> ObjectKey {
    ObjectKey::new("default", name)
}

/// So many seconds after some time.
pub(super) fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).unwrap()
}

pub(super) fn text(time: Timestamp) -> String {
    time.to_string()
}

/// `fields` are laid over a Configuration that is called `name`.
pub(super) fn configuration(name: &str, fields: Value) -> Configuration {
    let mut object = json!({
        "apiVersion": "akri.sh/v0", "kind": "Configuration",
        "metadata": {
            "name": name, "namespace": "default", "uid": format!("uid-{name}"), "generation": 1,
            "resourceVersion": "1",
        },
        "spec": { "discoveryHandler": { "name": "echo" } },
    });
    json_patch::merge(&mut object, &fields);
    serde_json::from_value(object).unwrap()
}

/// `fields` are laid over an Instance of `cam` that is called `name`.
pub(super) fn instance(name: &str, fields: Value) -> Instance {
    let mut object = json!({
        "apiVersion": "akri.sh/v0", "kind": "Instance",
        "metadata": {
            "name": name, "namespace": "default", "uid": format!("uid-{name}"), "resourceVersion": "1",
        },
        "spec": { "configurationName": "cam", "cdiName": "akri.sh/cam=1", "capacity": 2 },
    });
    json_patch::merge(&mut object, &fields);
    serde_json::from_value(object).unwrap()
}

/// A broker of `instance`, of the Configuration `cam`.
pub(super) fn pod(instance: &str, phase: &str) -> BrokerPod {
    let labels = [
        ("akri.sh/configuration", "cam"),
        ("akri.sh/instance", instance),
    ];
    BrokerPod {
        meta: Meta {
            labels: labels.map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
            ..Meta::default()
        },
        phase: phase.to_owned(),
        ..BrokerPod::default()
    }
}

impl World {
    pub(super) fn with_configuration(mut self, configuration: Configuration) -> Self {
        let key = crate::store::key_of(&configuration.metadata);
        self.configurations.insert(key, Arc::new(configuration));
        self
    }

    pub(super) fn with_instance(mut self, instance: Instance) -> Self {
        let key = crate::store::key_of(&instance.metadata);
        self.instances.insert(key, Arc::new(instance));
        self
    }

    pub(super) fn with_pod(mut self, name: &str, pod: BrokerPod) -> Self {
        self.pods.insert(key(name), Arc::new(pod));
        self
    }

    pub(super) fn with_nodes<const N: usize>(mut self, nodes: [(&str, NodeState); N]) -> Self {
        let nodes = nodes.map(|(name, node)| (name.to_owned(), Arc::new(node)));
        self.nodes = BTreeMap::from(nodes);
        self
    }
}

pub(super) fn ready() -> NodeState {
    NodeState {
        is_ready: true,
        since: Some(at(-10_000)),
        ..NodeState::default()
    }
}

pub(super) fn not_ready(since: Timestamp) -> NodeState {
    NodeState {
        is_ready: false,
        since: Some(since),
        ..NodeState::default()
    }
}
