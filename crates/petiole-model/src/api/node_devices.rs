//! NodeDevices: what one node sees. Its agent alone writes it, and the controller makes of all of them what
//! Instances and Configurations say of nodes.
#![expect(
    unreachable_pub,
    reason = "the schema derive repeats each struct inside a function"
)]
use super::{
    configuration::{Configuration, Problem},
    reason::Reason,
};
use crate::model::{limits, typed_names::ConfigurationKey};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The devices that one node sees. The object is named after the node, and only its agent writes it.
#[derive(
    Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, CustomResource, KubeSchema,
)]
#[kube(
    group = "akri.sh",
    version = "v0",
    kind = "NodeDevices",
    plural = "nodedevices",
    singular = "nodedevices",
    derive = "PartialEq",
    doc = "What one node sees of devices and makes of Configurations. Its agent writes it; the controller reads it.",
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct NodeDevicesSpec {
    /// Each Configuration that the node has validated, without those whose `spec.nodeSelector` leaves it out: these are here
    /// as long as one of their Instances has a label of the node.
    #[serde(default)]
    #[schemars(
        length(max = limits::CONFIGURATIONS_MAX),
        extend("x-kubernetes-list-type" = "atomic")
    )]
    pub configurations: Vec<ConfigurationView>,
    /// The problem of the Configurations that select the node and are not in `configurations`: there are more than it works
    /// with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_out: Option<Problem>,
}

/// The state of a Configuration on one node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfigurationView {
    /// The Configuration's namespace.
    #[schemars(length(max = limits::LABEL_MAX))]
    pub namespace: String,
    /// The Configuration.
    #[schemars(length(max = limits::NAME_MAX))]
    pub name: String,
    /// The `metadata.generation` that the node has validated last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<i64>,
    /// True if the node has looked everywhere once since its agent began: until then a device that is not here may only be
    /// late.
    #[serde(default)]
    pub complete: bool,
    /// The problems that the node has with the Configuration; absent where it has none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = limits::PROBLEMS_MAX),
        extend("x-kubernetes-list-type" = "atomic")
    )]
    pub problems: Vec<Problem>,
    /// The devices that other nodes may see too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = limits::INSTANCES_MAX),
        extend("x-kubernetes-list-type" = "atomic")
    )]
    pub devices: Vec<SeenDevice>,
    /// The devices that the node alone has. Absent where an agent of an earlier version does not report them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(max = limits::INSTANCES_MAX),
        extend("x-kubernetes-list-type" = "atomic")
    )]
    pub own: Option<Vec<SeenDevice>>,
}

impl NodeDevicesSpec {
    /// Returns the state of a Configuration on the node.
    pub fn view_of(&self, key: &ConfigurationKey) -> Option<&ConfigurationView> {
        let mut views = self.configurations.iter();
        views.find(|view| view.namespace == key.namespace && view.name == *key.name)
    }
}

impl ConfigurationView {
    /// Returns whether the node has not validated the Configuration as it stands. Older agents do not say.
    pub fn is_late(&self, configuration: &Configuration) -> bool {
        self.generation.is_some() && self.generation < configuration.metadata.generation
    }

    /// Returns all devices, whoever else sees them.
    pub fn all(&self) -> impl Iterator<Item = &SeenDevice> {
        self.devices.iter().chain(self.own.iter().flatten())
    }
}

/// A device as one node sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SeenDevice {
    /// The id of the device, as the discovery handler says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = limits::DEVICE_ID_MAX))]
    pub id: Option<String>,
    /// The Instance, where the id of its device is not known: an Instance of Akri's has no note of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = limits::NAME_MAX))]
    pub instance: Option<String>,
    /// Absent of a device that the node sees. `Unhealthy`: it does not see the device any more, and may see it again.
    /// `Left`: it does not offer the device, and a container on it may have a slot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = limits::WORD_MAX))]
    pub state: Option<String>,
    /// True of a device that was missing for the grace period while a container had a slot of it. Its Pod is evicted where
    /// `spec.whenGone` of the Configuration says so.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub gone: bool,
    /// A digest of how the node reaches the device. A broker that started with another one is replaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = limits::WORD_MAX))]
    pub connection: Option<String>,
    /// A sentence about a device that comes and goes; absent of others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = limits::PROBLEM_MESSAGE_MAX))]
    pub flapping: Option<String>,
    /// A sentence about a pinned device that another host announces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = limits::PROBLEM_MESSAGE_MAX))]
    pub other_host: Option<String>,
    /// The host and the networks of a pinned device; absent where the Instance has a pin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = limits::PIN_MAX))]
    pub pin: Option<String>,
    /// The device's own properties, of which and of the Configuration's the Instance is to be made or described; absent
    /// where the Instance says them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend(
        "maxProperties" = limits::DEVICE_PROPERTIES_MAX,
        "additionalProperties" = {"type": "string", "maxLength": limits::INSTANCE_PROPERTY_VALUE_MAX}
    ))]
    pub properties: Option<BTreeMap<String, String>>,
    /// Slots that containers of the node have already, of an Instance that was deleted: its successor begins with them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend(
        "maxProperties" = limits::USAGE_ENTRIES_MAX,
        "additionalProperties" = {"type": "string", "maxLength": limits::SLOT_OWNER_MAX}
    ))]
    pub usage: BTreeMap<String, String>,
}

/// The `state` of a device that the node does not offer, while a container on it may hold a slot.
pub const LEFT: &str = "Left";

impl SeenDevice {
    /// Returns whether the node offers the device, healthy or not.
    pub fn is_offered(&self) -> bool {
        self.state.as_deref() != Some(LEFT)
    }

    pub fn is_healthy(&self) -> bool {
        self.state.is_none()
    }

    /// Returns what is wrong with the device, healthy or not: one word and a sentence.
    pub fn trouble(&self) -> Option<(&'static str, &String)> {
        let other_host = self
            .other_host
            .as_ref()
            .map(|text| (Reason::IdentityChanged.as_str(), text));
        let flapping = self
            .flapping
            .as_ref()
            .map(|text| (Reason::Flapping.as_str(), text));
        other_host.or(flapping)
    }
}
