//! Configuration: which devices to find, and what to do with each.
#![expect(
    unreachable_pub,
    reason = "the schema derive repeats each struct inside a function"
)]
#![allow(
    clippy::duplicated_attributes,
    reason = "columns share a type or a path"
)]
pub use super::{allocation::Allocation, when_gone::WhenGone};
use super::{
    allocation::allocation,
    condition::{Condition, ConditionType},
    defaults,
    reason::Reason,
    when_gone::when_gone,
};
use crate::model::{
    container_devices::ContainerDevices, limits, name_template::NameTemplate,
    resource_name::ResourceName, typed_names::NodeName,
};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::{collections::BTreeMap, time::Duration};

/// Says which devices to find, and what to do with each of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, CustomResource, KubeSchema)]
#[kube(
    group = "akri.sh",
    version = "v0",
    kind = "Configuration",
    namespaced,
    status = "ConfigurationStatus",
    derive = "PartialEq",
    shortname = "akric",
    category = "akri",
    selectable = ".spec.discoveryHandler.name",
    validation = Rule::new("oldSelf.hasValue() || (self.metadata.name.size() <= 52 && !self.metadata.name.contains('.'))")
        .message("metadata.name must be 52 characters at most and have no dots: the names of its Instances and resources begin with it")
        .field_path(".metadata.name")
        .optional_old_self(true),
    doc = "Which devices to find, and what to do with each of them.",
    printcolumn(
        name = "Handler",
        type_ = "string",
        json_path = ".spec.discoveryHandler.name"
    ),
    printcolumn(name = "Capacity", type_ = "integer", json_path = ".spec.capacity"),
    printcolumn(name = "Instances", type_ = "integer", json_path = ".status.instances"),
    printcolumn(name = "Brokers", type_ = "string", json_path = ".status.brokers"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Ready')].status"
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.status!='True')].reason",
        priority = 1
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("self.instances || !has(self.brokerSpec) && !has(self.instanceServiceSpec) && !has(self.configurationServiceSpec) && !has(self.maxNodes) && !self.deviceList && !self.deviceService && !has(self.instanceName) && self.whenGone != 'Evict' && self.allocation != 'DRA'").message("instances is false: without Instances there is no brokerSpec, instanceServiceSpec, configurationServiceSpec, maxNodes, deviceList, deviceService, instanceName, whenGone: Evict and allocation: DRA; remove it, or set instances to true"))]
pub struct ConfigurationSpec {
    /// The handler that finds the devices, and its settings.
    pub discovery_handler: DiscoveryHandlerInfo,

    /// The number of containers that may use one device at a time, over all nodes: the usage slots of its Instance.
    #[serde(default = "defaults::capacity")]
    #[schemars(range(min = 1, max = limits::CAPACITY_MAX))]
    pub capacity: i32,

    /// Who gives out the devices. `DevicePlugin`: the kubelets, by resources of their nodes. `DRA`: the scheduler, by
    /// ResourceClaims or by the same resource, from Kubernetes 1.36 on and with `dra.enabled` of the chart. When it is changed, Pods
    /// that have a device keep it.
    #[serde(default, deserialize_with = "allocation")]
    pub allocation: Allocation,

    /// False for what every machine has, such as `/dev/kvm`: the devices get no Instances. Each agent offers `capacity` slots of
    /// each by the resource of the Configuration alone, and nothing is written when a container gets one. Only for devices of one node, without `brokerSpec`, Services, `maxNodes`, `deviceList`, `deviceService`, `instanceName`, `whenGone: Evict` and `allocation: DRA`.
    #[serde(default = "defaults::instances")]
    pub instances: bool,

    /// A workload to run for each device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broker_spec: Option<BrokerSpec>,

    /// A Service for each Instance: a ServiceSpec.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "any_object")]
    pub instance_service_spec: Option<Value>,

    /// A Service for all brokers of this Configuration: a ServiceSpec.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "any_object")]
    pub configuration_service_spec: Option<Value>,

    /// Environment for every container that is given a device; wins over the device's own properties. Names and values
    /// have 32 KiB together.
    #[serde(default)]
    #[schemars(extend(
        "maxProperties" = limits::BROKER_PROPERTIES_MAX,
        "additionalProperties" = {"type": "string", "maxLength": limits::PROPERTY_VALUE_MAX}
    ))]
    #[x_kube(validation = Rule::new(format!("self.all(key, key.size() <= {})", limits::NAME_MAX)).message("the name of a property is too long"))]
    #[x_kube(validation = Rule::new(format!("self.map(key, key.size() + self[key].size()).sum() <= {}", limits::BROKER_PROPERTIES_BYTES_MAX)).message("names and values of all properties together are too long"))]
    pub broker_properties: BTreeMap<String, String>,

    /// The time for which the Instance of a vanished device stays, unhealthy, before it is deleted.
    #[serde(default = "defaults::grace_period_seconds")]
    #[schemars(range(min = 0, max = limits::GRACE_SECONDS_MAX))]
    pub grace_period_seconds: i64,

    /// What becomes of Pods that are no brokers and have a slot of the device: `Keep`: they run on. `Evict`: they are evicted
    /// when their node has not seen the device for the grace period, and when the node reaches the device differently than
    /// they were told, such as by another device node. Without a cluster this has no effect.
    #[serde(default, deserialize_with = "when_gone")]
    pub when_gone: WhenGone,

    /// Whether the controller keeps a ConfigMap `<configuration>-devices` in this namespace, whose key `devices.json` has the list of
    /// all devices with their addresses, properties and health. Without a cluster this has no effect.
    #[serde(default)]
    pub device_list: bool,

    /// Whether the devices have names in the cluster: the controller keeps a headless Service `<instance>-device` for each device and
    /// `<configuration>-devices` for all of them, whose endpoints are the addresses of the devices, ready while they are healthy. Only for addresses
    /// in networks that `deviceServices.networks` of the chart names. Without a cluster this has no effect.
    #[serde(default)]
    pub device_service: bool,

    /// The most Instances of shared devices that this Configuration may have, and on each node the most Instances of devices
    /// that this node alone has: anyone on a LAN can announce services. Of shared devices that one of several
    /// nodes reports alone, at most half of what the others leave. Devices beyond it are left out, and the Configuration says so.
    #[serde(default = "defaults::max_instances")]
    #[schemars(range(min = 1, max = limits::INSTANCES_MAX))]
    pub max_instances: i64,

    /// The most nodes that offer one shared device; without it, 16 for `onvif`, `opcua`, `mqtt` and `probe`, and all that see
    /// it for other handlers. Which ones is the same for all that look: when one of them does not see the device any more, the
    /// next one steps in. With 1, no two Pods on two nodes ever race for a device with one slot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = limits::NODES_MAX))]
    pub max_nodes: Option<i64>,

    /// The labels that a Node must have for its agent to look for these devices; without any, all nodes do. Without a
    /// cluster there are no Nodes, and this has no effect.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend(
        "maxProperties" = limits::NODE_SELECTOR_MAX,
        "additionalProperties" = {"type": "string", "maxLength": limits::LABEL_MAX}
    ))]
    pub node_selector: BTreeMap<String, String>,

    /// The time that a node must be not ready until the slots that it holds are given to others: its containers may run
    /// on, cut off from the API server. 0 means never; 1 to 119 act as 120. The slots are free earlier if the Node is marked
    /// as shut down by the taint `node.kubernetes.io/out-of-service`, or if the Node and its Pods are deleted.
    #[serde(default = "defaults::slot_release_seconds")]
    #[schemars(range(min = 0, max = 604800))]
    pub slot_release_seconds: i64,

    /// A name of its own for the resource that gives any of the devices, such as `example.com/camera`; otherwise it is
    /// named after the Configuration. Its prefix must be one that the agents have (`--resource-prefixes`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(max = limits::RESOURCE_NAME_MAX),
        regex(
            pattern = r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*/[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"
        )
    )]
    pub resource_name: Option<String>,

    /// A name of its own for each Instance and its resource, made of the properties of its device and of `brokerProperties`:
    /// `zigbee-{UDEV_ID_SERIAL_SHORT}`. Values are put in lower case, with a hyphen for each run of other characters than letters
    /// and digits. An Instance keeps its name while it lives. A device whose name is taken, or that lacks a property, is named
    /// by a digest, and the status says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(max = limits::NAME_MAX),
        regex(pattern = r"^([a-z0-9]|\{[^{}]+\})(([-a-z0-9]|\{[^{}]+\})*([a-z0-9]|\{[^{}]+\}))?$")
    )]
    pub instance_name: Option<String>,

    /// Further paths, rights and owners of the device nodes in the containers that get a device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container_devices: Option<ContainerDevices>,
}

/// A discovery handler and its settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct DiscoveryHandlerInfo {
    /// The handler, such as `zeroconf` or `udev`. Cannot be changed later.
    #[schemars(length(max = limits::LABEL_MAX))]
    #[x_kube(validation = Rule::new("self == oldSelf").message("the handler of a Configuration cannot be changed: delete it and create another"))]
    pub name: String,

    /// The devices that the handler looks for, in the handler's own terms: YAML or JSON.
    #[serde(default)]
    #[schemars(length(max = limits::DETAILS_MAX))]
    pub discovery_details: String,

    /// Values handed to the handler. `onvif` takes all for credentials, `mqtt`, `probe` and `udev` read some, and a handler in another
    /// process gets all; the status names those that nobody reads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = limits::DISCOVERY_PROPERTIES_MAX))]
    pub discovery_properties: Option<Vec<DiscoveryProperty>>,
}

/// A value handed to a discovery handler.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!(has(self.value) && has(self.valueFrom))").message("give value or valueFrom, not both"))]
pub struct DiscoveryProperty {
    /// The value's name.
    #[schemars(length(max = limits::NAME_MAX), regex(pattern = r"^[_A-Za-z][_A-Za-z0-9]*$"))]
    pub name: String,
    /// The value itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = limits::PROPERTY_VALUE_MAX))]
    pub value: Option<String>,
    /// The Secret or ConfigMap that has the value. Agents watch it: another value starts the discovery again. They may
    /// read it only in namespaces that `discoveryProperties.namespaces` of the chart names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value_from: Option<DiscoveryPropertySource>,
}

/// The source of a discovery property's value: a Secret or a ConfigMap.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.secretKeyRef) != has(self.configMapKeyRef)").message("give one of secretKeyRef and configMapKeyRef"))]
pub struct DiscoveryPropertySource {
    /// A key of a Secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_key_ref: Option<KeyReference>,
    /// A key of a ConfigMap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map_key_ref: Option<KeyReference>,
}

/// A key of a Secret or ConfigMap.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KeyReference {
    /// The object's name.
    #[schemars(length(max = limits::NAME_MAX))]
    pub name: String,
    /// The object's namespace. It can only be the Configuration's own, which is the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = limits::LABEL_MAX))]
    pub namespace: Option<String>,
    /// The key in its data. Its value is text of 8192 characters at most.
    #[schemars(length(max = limits::NAME_MAX))]
    pub key: String,
    /// True if discovery goes on without the value where the object or the key does not exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub optional: Option<bool>,
}

/// The workload run for each device: a Pod on each node that sees it, or one Job.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.brokerPodSpec) != has(self.brokerJobSpec)").message("give one of brokerPodSpec and brokerJobSpec"))]
pub struct BrokerSpec {
    /// A PodSpec. The resource `{{PLACEHOLDER}}` in it becomes the Instance's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "any_object")]
    pub broker_pod_spec: Option<Value>,
    /// A JobSpec. The resource `{{PLACEHOLDER}}` in it becomes the Instance's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "any_object")]
    pub broker_job_spec: Option<Value>,
}

/// The result of a Configuration: its devices, its brokers, and what is wrong.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfigurationStatus {
    /// The `metadata.generation` this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// `Ready`: every node works with this Configuration as it stands, and its broker and Services are not refused.
    /// `BrokersReady`, where there is a `brokerSpec`: all its brokers run.
    #[serde(default)]
    #[schemars(
        length(max = limits::CONDITIONS_MAX),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"])
    )]
    pub conditions: Vec<Condition>,
    /// The number of its Instances.
    #[serde(default)]
    pub instances: i64,
    /// The number of brokers that run, and the number that there should be, such as `3/4`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = limits::WORD_MAX))]
    pub brokers: Option<String>,
    /// The nodes that have problems with it, up to 128 KiB of them.
    #[serde(default)]
    #[schemars(
        length(max = limits::NODES_MAX),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub nodes: Vec<NodeReport>,
}

/// One node's report about a Configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeReport {
    /// The node.
    #[schemars(length(max = limits::NAME_MAX))]
    pub name: NodeName,
    /// The number of devices that it offers.
    #[serde(default)]
    pub instances: i64,
    /// The problems; empty if there are none.
    #[serde(default)]
    #[schemars(length(max = limits::PROBLEMS_MAX))]
    pub problems: Vec<Problem>,
}

/// Something that keeps a Configuration from working as written.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Problem {
    /// One word that names the cause, such as `UnknownHandler`.
    #[schemars(length(max = limits::WORD_MAX))]
    pub reason: String,
    /// The cause in a sentence, and what to do about it.
    #[schemars(length(max = limits::PROBLEM_MESSAGE_MAX))]
    pub message: String,
}

/// Handlers whose devices are reached through networks, so that every node of a large cluster may see all of them.
const ROUTED: [&str; 4] = ["onvif", "opcua", "mqtt", "probe"];
/// The most nodes that offer one shared device of these, where `maxNodes` says nothing: enough to survive drains, and an
/// Instance does not name a thousand nodes.
const ROUTED_NODES: usize = 16;

impl ConfigurationSpec {
    /// Returns the most nodes that offer one shared device; `None` if all that see it do.
    pub fn most_nodes(&self) -> Option<usize> {
        let said = self.max_nodes.and_then(|most| most.try_into().ok());
        let is_routed = ROUTED.contains(&self.discovery_handler.name.as_str());
        said.or(is_routed.then_some(ROUTED_NODES))
    }

    /// Returns the time for which the Instance of a vanished device stays.
    pub fn grace(&self) -> Duration {
        Duration::from_secs(u64::try_from(self.grace_period_seconds).unwrap_or_default())
    }

    /// Returns the most Instances on one node.
    pub fn most_instances(&self) -> usize {
        usize::try_from(self.max_instances).unwrap_or(usize::MAX)
    }

    /// Returns the configured name of the resource that gives any of the devices. A text that is no name of a resource
    /// counts as none.
    pub fn resource(&self) -> Option<ResourceName> {
        self.resource_name.as_ref()?.parse().ok()
    }

    /// Returns the template of the names of Instances. A text that is no template counts as none.
    pub fn name_template(&self) -> Option<NameTemplate> {
        self.instance_name.as_ref()?.parse().ok()
    }
}

impl Configuration {
    /// Returns whether `spec.nodeSelector` selects a Node with these labels.
    pub fn selects(&self, labels: &BTreeMap<String, String>) -> bool {
        let mut wanted = self.spec.node_selector.iter();
        wanted.all(|(key, value)| labels.get(key) == Some(value))
    }

    /// Returns a condition of the status.
    pub fn condition(&self, type_: ConditionType) -> Option<&Condition> {
        Condition::of_type(&self.status.as_ref()?.conditions, type_)
    }
}

impl Problem {
    /// Returns a problem that the schema accepts: a message that is too long is cut.
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self {
            reason: reason.as_str().to_owned(),
            message: limits::cut(message.into(), limits::PROBLEM_MESSAGE_MAX),
        }
    }

    /// Returns the same problem with another message.
    pub fn with_message(&self, message: String) -> Self {
        Self {
            reason: self.reason.clone(),
            message: limits::cut(message, limits::PROBLEM_MESSAGE_MAX),
        }
    }
}

/// User-written specs stay JSON: a typed round trip would drop fields newer than the types.
fn any_object(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "object",
        "nullable": true,
        "x-kubernetes-preserve-unknown-fields": true
    })
}
