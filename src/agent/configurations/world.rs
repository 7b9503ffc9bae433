//! The inputs of the validation of Configurations.
use crate::{
    agent::values::{Accepted, Refused},
    api::configuration::Problem,
    discovery::{Reads, SessionSpec},
    model::{
        container_devices::ContainerRules,
        device::Scope,
        property_source::{Contents, Wanted},
        resource_name::{ResourceName, ResourcePrefixes},
        typed_names::ConfigurationKey,
        variables::Variables,
    },
    store::Configurations,
};
use std::collections::{BTreeMap, BTreeSet};

/// The labels of this node, as far as they are known.
#[derive(Debug, Clone)]
pub(super) enum Labels<'a> {
    /// There is no Node, because there is no cluster. Every Configuration selects this node.
    NoNode,
    /// They are not known yet. Of these Configurations the node has devices, as an earlier run has it: it was selected.
    Unknown(BTreeSet<ConfigurationKey>),
    Known(&'a BTreeMap<String, String>),
}

/// Everything that the validation depends on.
pub(super) struct World<'a> {
    pub(super) configurations: &'a Configurations,
    pub(super) before: &'a Accepted,
    pub(super) refused_before: &'a Refused,
    pub(super) labels: Labels<'a>,
    /// The prefixes of our resources. Resources without a configured name have the first one.
    pub(super) prefixes: &'a ResourcePrefixes,
    /// The resources of foreign plugins, each with one of its ids; `None` if the kubelet has not answered yet.
    pub(super) foreign: Option<&'a BTreeMap<ResourceName, String>>,
    /// Our resources that are registered with the kubelet.
    pub(super) registered: &'a BTreeSet<ResourceName>,
    /// The most Configurations that are accepted.
    pub(super) max_configurations: usize,
    pub(super) scope_of: &'a dyn Fn(&SessionSpec) -> Result<Scope, Problem>,
    /// The `discoveryProperties` that a handler reads.
    pub(super) reads: &'a dyn Fn(&str) -> Reads,
    /// True if this agent writes static Pods of brokers. In a cluster the controller reports about brokers.
    pub(super) has_static_pods: bool,
    /// The variables that containers may get.
    pub(super) variables: &'a Variables,
    /// True if this agent prepares ResourceClaims.
    pub(super) has_claims: bool,
    /// What Configurations may ask of containers.
    pub(super) containers: &'a ContainerRules,
    /// The Secrets and ConfigMaps that are watched, and their contents; `None` without a cluster.
    pub(super) sources: Option<(&'a Wanted, &'a Contents)>,
}
