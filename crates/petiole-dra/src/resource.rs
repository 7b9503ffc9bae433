//! Defines the objects of `resource.k8s.io/v1` with the fields that a driver reads and writes. Other fields are ignored when they
//! are read. A field without a value is sent as `null`, which Kubernetes reads as a field that is not there. Pure.
//!
//! Source: `staging/src/k8s.io/api/resource/v1/types.go` of Kubernetes.
use k8s_openapi::{
    ClusterResourceScope, NamespaceResourceScope,
    api::core::v1::NodeSelector,
    apimachinery::pkg::{
        api::resource::Quantity,
        apis::meta::v1::{ObjectMeta, Time},
    },
};
use kube::core::TypeMeta;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A part of a pool of devices, as the scheduler reads it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ResourceSlice {
    /// The version and the kind, which items of a list lack.
    #[serde(flatten)]
    pub types: Option<TypeMeta>,
    /// The name, the owner and the version.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// The devices.
    pub spec: ResourceSliceSpec,
}

/// The content of a [`ResourceSlice`]. One of `node_name`, `node_selector`, `all_nodes` and `per_device_node_selection` is set.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceSliceSpec {
    /// The driver's name. It cannot be changed.
    pub driver: String,
    /// The pool, of which this slice may be one of several.
    pub pool: ResourcePool,
    /// The only node that reaches the devices. It cannot be changed.
    pub node_name: Option<String>,
    /// The nodes that reach the devices, by one term.
    pub node_selector: Option<NodeSelector>,
    /// Whether all nodes reach the devices.
    pub all_nodes: Option<bool>,
    /// Whether each device says which nodes reach it. Servers before 1.36 refuse the slice.
    pub per_device_node_selection: Option<bool>,
    /// The devices: 128 at most, 64 if one of them has a taint.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<Device>,
}

/// The pool of a slice.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourcePool {
    /// The name: DNS subdomains separated by `/`, 253 characters.
    pub name: String,
    /// The scheduler uses the slices of the highest generation only.
    pub generation: i64,
    /// The number of slices. The scheduler waits until it sees all of them.
    pub resource_slice_count: i64,
}

/// One device, as it is published.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Device {
    /// The name, a DNS label, unique in its pool.
    pub name: String,
    /// Values for the selectors of claims, by `name` or `domain/name`: 32 together with `capacity`. A name is an identifier of C
    /// with 32 characters; without a domain it is the driver's.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<String, Attribute>,
    /// Amounts, by names like those of attributes.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub capacity: BTreeMap<String, Capacity>,
    /// Reasons not to use the device: 16 at most.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub taints: Vec<Taint>,
    /// The only node that reaches the device, where the devices say it themselves: this, or one of the next two.
    pub node_name: Option<String>,
    /// The nodes that reach the device, by one term.
    pub node_selector: Option<NodeSelector>,
    /// Whether all nodes reach the device.
    pub all_nodes: Option<bool>,
    /// Whether an allocation is bound to the node of its Pod.
    pub binds_to_node: Option<bool>,
    /// Whether several claims share the device, each with a part of its capacity. Servers before 1.36 drop the field, and
    /// the device is exclusive.
    pub allow_multiple_allocations: Option<bool>,
}

/// The value of an attribute: one field is set.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Attribute {
    /// A number.
    pub int: Option<i64>,
    /// A truth value.
    pub bool: Option<bool>,
    /// A text of 64 characters at most.
    pub string: Option<String>,
    /// A semantic version of 64 characters at most.
    pub version: Option<String>,
}

impl From<i64> for Attribute {
    fn from(int: i64) -> Self {
        Self {
            int: Some(int),
            ..Self::default()
        }
    }
}

impl From<&str> for Attribute {
    fn from(text: &str) -> Self {
        Self {
            string: Some(text.to_owned()),
            ..Self::default()
        }
    }
}

/// An amount of a device.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Capacity {
    /// The whole amount.
    pub value: Quantity,
    /// How much one claim takes of a shared device. Without it, a claim that asks for no amount takes all.
    pub request_policy: Option<RequestPolicy>,
}

/// How much of a capacity one claim may take: by values, or by a range.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RequestPolicy {
    /// The amount for a claim that asks for none.
    pub default: Option<Quantity>,
    /// The amounts that are allowed, in ascending order with the default among them: 10 at most.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub valid_values: Vec<Quantity>,
    /// The range that is allowed.
    pub valid_range: Option<RequestRange>,
}

/// A range of amounts.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RequestRange {
    /// The least amount.
    pub min: Option<Quantity>,
    /// The largest amount.
    pub max: Option<Quantity>,
    /// An amount is `min` and a multiple of this.
    pub step: Option<Quantity>,
}

/// A reason not to use a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Taint {
    /// The key, as of a label.
    pub key: String,
    /// The value, as of a label.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub value: String,
    /// What it does to Pods that do not tolerate it.
    pub effect: TaintEffect,
    /// When it was added. The server sets it; the publisher keeps it.
    #[serde(default)]
    pub time_added: Option<Time>,
}

/// The effect of a [`Taint`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum TaintEffect {
    /// None; it is information.
    #[serde(rename = "None")]
    Nothing,
    /// No new Pod gets the device.
    NoSchedule,
    /// Pods that have the device are deleted, too.
    NoExecute,
    /// An effect that this crate does not know.
    #[serde(other)]
    Other,
}

/// A claim, as far as a driver reads it.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub struct ResourceClaim {
    /// The namespace, the name and the UID.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// What the scheduler has allocated.
    #[serde(default)]
    pub status: ResourceClaimStatus,
}

/// The status of a [`ResourceClaim`].
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ResourceClaimStatus {
    /// The allocated devices; none while the claim waits.
    pub allocation: Option<AllocationResult>,
}

/// The devices of a claim.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct AllocationResult {
    /// The devices and the configuration of all drivers.
    pub devices: DeviceAllocationResult,
}

/// The devices and the configuration of a claim.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct DeviceAllocationResult {
    /// The devices of all drivers: 32 at most.
    pub results: Vec<AllocatedDevice>,
    /// The configuration for all drivers: that of classes comes first.
    pub config: Vec<AllocatedConfig>,
}

/// One allocated device.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AllocatedDevice {
    /// The request, or `request/subrequest` of one with alternatives.
    pub request: String,
    /// The driver of the device.
    pub driver: String,
    /// The pool of the device.
    pub pool: String,
    /// The name of the device in its pool.
    pub device: String,
    /// The id of this share of a device that allows several allocations.
    #[serde(rename = "shareID")]
    pub share_id: Option<String>,
    /// Whether the claim only looks at a device that others may have.
    pub admin_access: Option<bool>,
    /// The part of the capacity that the claim takes of a shared device.
    pub consumed_capacity: BTreeMap<String, Quantity>,
}

/// Configuration of a class or a claim for its devices.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct AllocatedConfig {
    /// The requests that it is for, each with all its subrequests unless it names one. None: all requests.
    pub requests: Vec<String>,
    /// The parameters for one driver.
    pub opaque: Option<OpaqueConfig>,
}

/// Parameters that only their driver understands.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct OpaqueConfig {
    /// The driver.
    pub driver: String,
    /// An object of any form. Users write it: the driver must validate it.
    pub parameters: serde_json::Value,
}

impl k8s_openapi::Resource for ResourceSlice {
    const API_VERSION: &'static str = "resource.k8s.io/v1";
    const GROUP: &'static str = "resource.k8s.io";
    const KIND: &'static str = "ResourceSlice";
    const VERSION: &'static str = "v1";
    const URL_PATH_SEGMENT: &'static str = "resourceslices";
    type Scope = ClusterResourceScope;
}

impl k8s_openapi::Metadata for ResourceSlice {
    type Ty = ObjectMeta;

    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn metadata_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

impl k8s_openapi::Resource for ResourceClaim {
    const API_VERSION: &'static str = "resource.k8s.io/v1";
    const GROUP: &'static str = "resource.k8s.io";
    const KIND: &'static str = "ResourceClaim";
    const VERSION: &'static str = "v1";
    const URL_PATH_SEGMENT: &'static str = "resourceclaims";
    type Scope = NamespaceResourceScope;
}

impl k8s_openapi::Metadata for ResourceClaim {
    type Ty = ObjectMeta;

    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn metadata_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}
