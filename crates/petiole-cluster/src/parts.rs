//! Defines partial types of Kubernetes' own objects, with the fields that are read here. The complete types would be a
//! tenth of the program. What is small in an object is complete.
use k8s_openapi::{
    api::{
        apps::v1::{DaemonSet, DaemonSetStatus, Deployment, DeploymentStatus},
        batch::v1::Job,
        core::v1::{ContainerState, Node, NodeAddress, NodeCondition, Pod, ResourceStatus, Taint},
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    apimachinery::pkg::{
        api::resource::Quantity,
        apis::meta::v1::{ObjectMeta, Time},
    },
};
use kube::Resource;
use serde::Deserialize;
use std::collections::BTreeMap;

#[derive(Debug, Clone, Default, Deserialize, Resource)]
#[resource(inherit = Pod)]
pub struct PodPart {
    #[serde(default)]
    pub metadata: ObjectMeta,
    #[serde(default)]
    pub spec: PodSpecPart,
    #[serde(default)]
    pub status: PodStatusPart,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodSpecPart {
    pub node_name: Option<String>,
    #[serde(default)]
    pub affinity: serde_json::Value,
    #[serde(default)]
    pub containers: Vec<ContainerPart>,
    #[serde(default)]
    pub init_containers: Vec<ContainerPart>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ContainerPart {
    #[serde(default)]
    pub resources: ResourcesPart,
    pub restart_policy: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
pub struct ResourcesPart {
    #[serde(default)]
    pub limits: BTreeMap<String, Quantity>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodStatusPart {
    #[serde(default)]
    pub phase: String,
    #[serde(default)]
    pub reason: String,
    #[serde(default)]
    pub message: String,
    pub start_time: Option<Time>,
    #[serde(default)]
    pub conditions: Vec<ConditionPart>,
    #[serde(default)]
    pub init_container_statuses: Vec<ContainerStatusPart>,
    #[serde(default)]
    pub container_statuses: Vec<ContainerStatusPart>,
}

/// A condition of a Pod or a Job.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConditionPart {
    #[serde(default, rename = "type")]
    pub type_: String,
    #[serde(default)]
    pub status: String,
    #[serde(default)]
    pub reason: String,
    #[serde(default)]
    pub message: String,
    pub last_transition_time: Option<Time>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ContainerStatusPart {
    #[serde(default)]
    pub name: String,
    #[serde(default)]
    pub image: String,
    pub state: Option<ContainerState>,
    pub last_state: Option<ContainerState>,
    /// The devices that it has, from Kubernetes 1.36 on.
    #[serde(default)]
    pub allocated_resources_status: Vec<ResourceStatus>,
}

#[derive(Debug, Clone, Default, Deserialize, Resource)]
#[resource(inherit = CustomResourceDefinition)]
pub struct CustomResourceDefinitionPart {
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// The untyped `spec` and `status`: those of the cluster may be newer than any type.
    #[serde(flatten)]
    pub rest: serde_json::Value,
}

#[derive(Debug, Clone, Default, Deserialize, Resource)]
#[resource(inherit = Job)]
pub struct JobPart {
    #[serde(default)]
    pub metadata: ObjectMeta,
    #[serde(default)]
    pub status: JobStatusPart,
}

#[derive(Debug, Clone, Default, Deserialize)]
pub struct JobStatusPart {
    #[serde(default)]
    pub conditions: Vec<ConditionPart>,
}

#[derive(Debug, Clone, Default, Deserialize, Resource)]
#[resource(inherit = Node)]
pub struct NodePart {
    #[serde(default)]
    pub metadata: ObjectMeta,
    #[serde(default)]
    pub spec: NodeSpecPart,
    #[serde(default)]
    pub status: NodeStatusPart,
}

#[derive(Debug, Clone, Default, Deserialize)]
pub struct NodeSpecPart {
    #[serde(default)]
    pub taints: Vec<Taint>,
    #[serde(default, rename = "podCIDRs")]
    pub pod_networks: Vec<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
pub struct NodeStatusPart {
    #[serde(default)]
    pub conditions: Vec<NodeCondition>,
    #[serde(default)]
    pub capacity: BTreeMap<String, Quantity>,
    #[serde(default)]
    pub allocatable: BTreeMap<String, Quantity>,
    #[serde(default)]
    pub addresses: Vec<NodeAddress>,
}

impl NodePart {
    pub fn has_taint(&self, key: &str) -> bool {
        self.spec.taints.iter().any(|taint| taint.key == key)
    }

    pub fn ready(&self) -> Option<&NodeCondition> {
        let mut conditions = self.status.conditions.iter();
        conditions.find(|condition| condition.type_ == "Ready")
    }
}

#[derive(Debug, Clone, Default, Deserialize, Resource)]
#[resource(inherit = DaemonSet)]
pub struct DaemonSetPart {
    #[serde(default)]
    pub metadata: ObjectMeta,
    pub status: Option<DaemonSetStatus>,
}

#[derive(Debug, Clone, Default, Deserialize, Resource)]
#[resource(inherit = Deployment)]
pub struct DeploymentPart {
    #[serde(default)]
    pub metadata: ObjectMeta,
    pub status: Option<DeploymentStatus>,
}
