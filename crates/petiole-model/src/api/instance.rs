//! Instance: one device, its usage slots, and the nodes that see it.
#![expect(
    unreachable_pub,
    reason = "the schema derive repeats each struct inside a function"
)]
#![allow(
    clippy::duplicated_attributes,
    reason = "columns share a type or a path"
)]
use super::{
    condition::{Condition, ConditionStatus, ConditionType},
    names,
};
use crate::model::{
    device::Scope,
    limits,
    typed_names::{ConfigurationKey, ConfigurationName, NodeName},
};
use k8s_openapi::jiff::Timestamp;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One device that was found: its usage slots and the nodes that see it.
#[derive(
    Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, CustomResource, KubeSchema,
)]
#[kube(
    group = "akri.sh",
    version = "v0",
    kind = "Instance",
    namespaced,
    status = "InstanceStatus",
    derive = "PartialEq",
    shortname = "akrii",
    category = "akri",
    selectable = ".spec.configurationName",
    doc = "One device that was found: its usage slots and the nodes that see it.",
    printcolumn(
        name = "Config",
        type_ = "string",
        json_path = ".spec.configurationName"
    ),
    printcolumn(name = "Shared", type_ = "boolean", json_path = ".spec.shared"),
    printcolumn(name = "Nodes", type_ = "string", json_path = ".spec.nodes"),
    printcolumn(
        name = "Available",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Available')].status",
        description = "False while no node sees the device; empty if it was always seen."
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.status=='False')].reason",
        description = "Why no node sees the device or its brokers do not run; empty if nothing is wrong.",
        priority = 1
    ),
    printcolumn(
        name = "Device",
        type_ = "string",
        json_path = ".metadata.annotations['akri\\.sh/device-id']"
    ),
    printcolumn(
        name = "Used by",
        type_ = "string",
        json_path = ".spec.deviceUsage",
        priority = 1
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct InstanceSpec {
    /// The Configuration that found it, in the same namespace.
    #[schemars(length(max = limits::NAME_MAX))]
    pub configuration_name: ConfigurationName,

    /// The device in CDI's form, `akri.sh/<configuration>=<digest>`; of an Instance with a name of its own the digest of the name.
    #[schemars(length(max = limits::RESOURCE_NAME_MAX))]
    pub cdi_name: String,

    /// The number of its usage slots.
    #[schemars(range(min = 0, max = limits::CAPACITY_MAX))]
    pub capacity: i32,

    /// Environment of the containers that are given it: the device's properties and the Configuration's.
    #[serde(default)]
    #[schemars(extend(
        "maxProperties" = limits::INSTANCE_PROPERTIES_MAX,
        "additionalProperties" = {"type": "string", "maxLength": limits::INSTANCE_PROPERTY_VALUE_MAX}
    ))]
    #[x_kube(validation = Rule::new(format!("self.map(key, key.size() + self[key].size()).sum() <= {}", limits::INSTANCE_PROPERTIES_TEXT_MAX)).message("names and values of all properties together are too long"))]
    pub broker_properties: BTreeMap<String, String>,

    /// True if other nodes may find the same device.
    #[serde(default)]
    pub shared: bool,

    /// The nodes that offer it. A node here sees the device unless `status.nodes` says otherwise.
    #[serde(default)]
    #[schemars(
        length(max = limits::NODES_MAX),
        inner(length(max = limits::NAME_MAX)),
        extend("x-kubernetes-list-type" = "set")
    )]
    pub nodes: Vec<NodeName>,

    /// The user of each slot: absent or empty is free, `<node>` holds it by the Instance's resource,
    /// `C:<configuration>-<n>:<node>` by the Configuration's, `claim:<uid>:<node>` by a ResourceClaim.
    #[serde(default)]
    #[schemars(extend(
        "x-kubernetes-map-type" = "granular",
        "maxProperties" = limits::USAGE_ENTRIES_MAX,
        "additionalProperties" = {"type": "string", "maxLength": limits::SLOT_OWNER_MAX}
    ))]
    #[x_kube(validation = Rule::new(format!("self.all(slot, slot.size() <= {})", limits::SLOT_ID_MAX)).message("a slot is <instance>-<number>"))]
    pub device_usage: BTreeMap<String, String>,
}

/// The present state of the device.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InstanceStatus {
    /// `Available`: at least one node sees the device. `Flapping`, only while it is so: the device comes and goes.
    /// `IdentityChanged`, only while it is so: another host announces the pinned device. `BrokersReady`, only while it
    /// is false: not all brokers of the device run.
    #[serde(default)]
    #[schemars(
        length(max = limits::CONDITIONS_MAX),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"])
    )]
    pub conditions: Vec<Condition>,
    /// The nodes of `spec.nodes` that do not see the device, or have a problem with it. A node without an entry sees it.
    #[serde(default)]
    #[schemars(
        length(max = limits::NODES_MAX),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub nodes: Vec<NodeHealth>,
    /// The `metadata.generation` of the Configuration that the broker Job was last created for: a Job runs once for
    /// each, also when it was collected after its end; 0 after one that was ended because no node saw the device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broker_generation: Option<i64>,
}

/// The `health` of a device that a node sees.
pub const HEALTHY: &str = "Healthy";
/// The `health` of a device that a node does not see, and the `state` of it in the node's NodeDevices.
pub const UNHEALTHY: &str = "Unhealthy";

/// The conditions that an Instance has only while its device is in trouble, the gravest first.
pub const TROUBLES: [ConditionType; 2] = [ConditionType::IdentityChanged, ConditionType::Flapping];

/// The health of a device on one node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeHealth {
    /// The node.
    #[schemars(length(max = limits::NAME_MAX))]
    pub name: NodeName,
    /// Healthy or Unhealthy.
    #[schemars(length(max = limits::WORD_MAX))]
    pub health: String,
    /// The time of the last change of `health`, RFC 3339.
    #[schemars(length(max = limits::WORD_MAX))]
    pub last_transition_time: String,
    /// A digest of how the node reaches the device. A broker that started with another one is replaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = limits::WORD_MAX))]
    pub connection: Option<String>,
    /// One word for what is wrong: `Flapping` of a device that comes and goes, healthy just now or not;
    /// `IdentityChanged` of a pinned device that another host announces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The same in a sentence, as it was when `health` or `reason` last changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

impl InstanceStatus {
    /// Returns the time since which no node sees the device. It is kept on the API server, so that a new controller goes on
    /// counting.
    pub fn unavailable_since(&self) -> Option<Timestamp> {
        let available = Condition::of_type(&self.conditions, ConditionType::Available)?;
        let since = available.last_transition_time.parse().ok();
        since.filter(|_| available.has_status(ConditionStatus::False))
    }
}

impl Instance {
    /// Returns whether the Instance names this node, or has the label by which its agent finds it.
    pub fn is_known_to(&self, node: &str) -> bool {
        let labels = self.metadata.labels.as_ref();
        self.spec.names_node(node)
            || labels.is_some_and(|labels| labels.contains_key(&names::node_label(node)))
    }

    /// Returns whether the node has the device or has had it last: of a device that one node has, a lost node is not named,
    /// and nobody else can tell what became of it.
    pub fn is_of(&self, node: &str) -> bool {
        let is_left = !self.spec.shared && self.spec.nodes.is_empty();
        self.spec.names_node(node) || is_left && self.is_known_to(node)
    }

    /// Returns the id of the device that the Instance was made for. One that Akri made has no note of it until its device is seen.
    pub fn device_id(&self) -> Option<&String> {
        self.metadata.annotations.as_ref()?.get(names::DEVICE_ID)
    }

    /// Returns a condition of the device.
    pub fn condition(&self, type_: ConditionType) -> Option<&Condition> {
        Condition::of_type(&self.status.as_ref()?.conditions, type_)
    }

    /// Returns the condition that says that no node sees the device.
    pub fn unavailable(&self) -> Option<&Condition> {
        // The condition is there from the first time on that no node saw the device.
        let available = self.condition(ConditionType::Available);
        available.filter(|condition| !condition.is_true())
    }

    /// Returns the condition that says what is wrong with the device itself: no node sees it, or it is in one of the [`TROUBLES`].
    pub fn trouble(&self) -> Option<&Condition> {
        let troubles = TROUBLES.iter().filter_map(|type_| self.condition(*type_));
        let mut troubles = troubles.filter(|condition| condition.is_true());
        self.unavailable().or_else(|| troubles.next())
    }
}

impl InstanceSpec {
    /// Returns the key of the Configuration of an Instance in this namespace.
    pub fn configuration_key(&self, namespace: &str) -> ConfigurationKey {
        ConfigurationKey::new(namespace, &self.configuration_name)
    }

    /// Returns which nodes see the device.
    pub fn scope(&self) -> Scope {
        if self.shared {
            Scope::Shared
        } else {
            Scope::Node
        }
    }

    /// Returns whether the Instance names this node.
    pub fn names_node(&self, node: &str) -> bool {
        self.nodes.iter().any(|name| name == node)
    }
}

/// Returns whether a node of an Instance sees the device. It does if the status says nothing else.
pub fn is_seen(status: &InstanceStatus, node: &str) -> bool {
    let mut entries = status.nodes.iter();
    entries.all(|entry| entry.name != node || entry.health == HEALTHY)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_no_node_sees_is_the_gravest_trouble_and_a_device_that_was_always_seen_has_none() {
        for (conditions, expected) in [
            (json!([]), None),
            (
                json!([["Available", "True"], ["BrokersReady", "False"]]),
                None,
            ),
            (json!([["Flapping", "True"]]), Some("Flapping")),
            (
                json!([["Flapping", "True"], ["IdentityChanged", "True"]]),
                Some("IdentityChanged"),
            ),
            (json!([["Flapping", "False"], ["Available", "True"]]), None),
            (
                json!([["IdentityChanged", "True"], ["Available", "False"]]),
                Some("Available"),
            ),
        ] {
            let conditions = conditions.as_array().unwrap().iter();
            let conditions = conditions.map(|of| {
                json!({"type": of[0], "status": of[1], "reason": "", "message": "", "lastTransitionTime": ""})
            });
            let object = json!({
                "metadata": {},
                "spec": {"configurationName": "cams", "cdiName": "", "capacity": 1},
                "status": {"conditions": Vec::from_iter(conditions)},
            });
            let instance: Instance = serde_json::from_value(object).unwrap();
            let trouble = instance.trouble().map(|condition| condition.type_.as_str());
            assert_eq!(trouble, expected, "{instance:?}");
            let is_unavailable = expected == Some("Available");
            assert_eq!(instance.unavailable().is_some(), is_unavailable);
        }
    }
}
