//! Holds the objects of a cluster at one moment, and finds the ones that belong together. Pure.
use super::{
    claims::gives_out,
    pods::{environment, is_ready, node_of},
};
use k8s_openapi::{
    api::{
        core::v1::{Event, Node, Pod},
        resource::v1::ResourceClaim,
    },
    jiff::Timestamp,
};
use petiole_model::{
    api::{
        condition::ConditionType, configuration::Configuration, instance::Instance, names,
        node_devices::NodeDevicesSpec, reason::Reason,
    },
    model::{
        instance_name::InstanceKey,
        names::ObjectKey,
        resource_name::{ResourceName, ResourcePrefixes},
        typed_names::ConfigurationKey,
    },
};
use std::collections::BTreeMap;

/// Labels and values of the chart's Pods.
pub const COMPONENT: &str = "app.kubernetes.io/component";
const PART_OF: &str = "app.kubernetes.io/part-of";
const CHART_NAME: &str = "petiole";
/// The chart and its version. Pods of earlier versions of the chart have this label, and no [`PART_OF`].
const CHART: &str = "helm.sh/chart";
pub const VERSION: &str = "app.kubernetes.io/version";

/// The objects that were read of a cluster.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    pub configurations: BTreeMap<ConfigurationKey, Configuration>,
    pub instances: BTreeMap<InstanceKey, Instance>,
    pub nodes: BTreeMap<String, Node>,
    /// The NodeDevices by the name of the node.
    pub node_devices: BTreeMap<String, NodeDevicesSpec>,
    /// The Pods that ask for an extended resource or have claims, the brokers, and Petiole's own.
    pub pods: BTreeMap<ObjectKey, Pod>,
    /// All claims, where the scheduler gives out the devices of a Configuration.
    pub claims: Vec<ResourceClaim>,
    /// The warnings about the objects that are asked about.
    pub events: Vec<Event>,
    /// The time at which the workload that is asked about was created, if it is known.
    pub created: Option<Timestamp>,
    /// The prefixes of our resources, as the agents have them, if an agent says them.
    pub prefixes: Option<ResourcePrefixes>,
    /// The objects that could not be read, one sentence each. The answer may be incomplete.
    pub unread: Vec<String>,
    /// The lists that are incomplete.
    pub hidden: Hidden,
}

/// The lists that could not be read as a whole. An object that is missing in such a list may exist.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Hidden {
    /// The Configurations and Instances of other namespaces than the one that is asked about.
    pub objects: bool,
    pub nodes: bool,
    /// The Pods of all namespaces.
    pub pods: bool,
    /// Pods of the namespace that is asked about, too.
    pub own_pods: bool,
    pub node_devices: bool,
}

/// The object behind a resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Owner {
    Configuration(ConfigurationKey),
    Instance(InstanceKey),
}

impl Snapshot {
    /// Returns the sentence about an object of which nothing bad is known.
    pub fn nothing_is_missing(&self) -> &'static str {
        if self.hidden.pods || self.hidden.nodes || self.hidden.objects {
            "Nothing is missing in what you may read."
        } else {
            "Nothing is missing."
        }
    }

    /// Returns the words that follow "no Configuration" in a sentence: one that cannot be read may exist.
    pub fn readable_objects(&self) -> &'static str {
        if self.hidden.objects {
            " that you may read"
        } else {
            ""
        }
    }

    /// Returns Petiole's Pods of a component: `agent`, `controller` or `discovery`.
    pub fn own_pods(&self, component: &str) -> impl Iterator<Item = (&ObjectKey, &Pod)> {
        let is_it = move |pod: &Pod| {
            let label = |key: &str| pod.metadata.labels.as_ref()?.get(key);
            let chart = label(CHART).and_then(|chart| chart.strip_prefix(CHART_NAME));
            label(COMPONENT).is_some_and(|its| its == component)
                && (label(PART_OF).is_some_and(|its| its == CHART_NAME)
                    || chart.is_some_and(|version| version.starts_with('-')))
        };
        self.pods.iter().filter(move |(_, pod)| is_it(pod))
    }

    /// Returns the agent's Pod on a node: the ready one while an update is in progress.
    pub fn agent_on(&self, node: &str) -> Option<(&ObjectKey, &Pod)> {
        self.pod_on(node, "agent")
    }

    /// Returns the Pod of a component on a node.
    pub fn pod_on(&self, node: &str, component: &str) -> Option<(&ObjectKey, &Pod)> {
        let here = self.own_pods(component);
        let here = here.filter(|(_, pod)| node_of(pod) == Some(node));
        here.max_by_key(|(_, pod)| is_ready(pod))
    }

    /// Returns a setting of the agents: of a ready one, because that of a node which is down may be from before an update.
    fn setting(&self, name: &str) -> Option<&str> {
        let newest = |(_, pod): &(&ObjectKey, &Pod)| {
            let created = pod.metadata.creation_timestamp.clone();
            (is_ready(pod), created.map(|time| time.0))
        };
        let (_, agent) = self.own_pods("agent").max_by_key(newest)?;
        environment(agent, name)
    }

    /// Notes the prefixes of our resources, once for the many names that are made of them.
    pub(super) fn note_prefixes(&mut self) {
        let named = self.setting("PETIOLE_RESOURCE_PREFIXES");
        // An agent does not start with a text that is no list of prefixes.
        self.prefixes = named.and_then(|prefixes| prefixes.parse().ok());
    }

    /// Returns the prefixes of our resources. Resources without a name of their own have the first one.
    pub fn prefixes(&self) -> ResourcePrefixes {
        let noted = self.prefixes.clone();
        noted.unwrap_or_else(|| names::GROUP.parse().expect("the API group is a prefix"))
    }

    /// Returns whether the agents' prefixes are not known, because none of their Pods can be read.
    pub fn has_assumed_prefixes(&self) -> bool {
        self.hidden.pods && self.own_pods("agent").next().is_none()
    }

    /// Returns the namespaces that the agents read, separated by commas. `None` stands for all.
    pub fn watched(&self) -> Option<&str> {
        self.setting("PETIOLE_WATCH_NAMESPACES")
            .filter(|namespaces| !namespaces.is_empty())
    }

    /// Returns whether the agents read the Configurations of a namespace.
    pub fn is_watched(&self, namespace: &str) -> bool {
        let watched = self.watched();
        watched.is_none_or(|all| all.split(',').any(|its| its.trim() == namespace))
    }

    pub fn is_ours(&self, resource: &ResourceName) -> bool {
        self.prefixes().owns(resource) || self.owner_of(resource).is_some()
    }

    /// Returns the name of an Instance's resource.
    pub fn instance_resource(&self, instance: &InstanceKey) -> ResourceName {
        self.prefixes().first().resource(&instance.name)
    }

    /// Returns the name of the resource that gives any device of a Configuration.
    pub fn configuration_resource(
        &self,
        key: &ConfigurationKey,
        configuration: &Configuration,
    ) -> ResourceName {
        let own = configuration.spec.resource();
        own.unwrap_or_else(|| self.prefixes().first().resource(&key.name))
    }

    /// Returns every resource that Configurations and Instances offer or are to offer. If several Configurations have one
    /// name, the resource is that of the one that works. Instances whose slots the scheduler gives out have none of their own.
    pub fn resources(&self) -> BTreeMap<ResourceName, Owner> {
        let has_its_name = |configuration: &&Configuration| {
            let ready = configuration.condition(ConditionType::Ready);
            ready.is_none_or(|ready| ready.reason != Reason::ConfigurationNameTaken)
        };
        let has_own = |(key, instance): &(&InstanceKey, &Instance)| {
            let configuration = self.configuration_of(key, instance);
            !configuration.is_some_and(|(_, of)| gives_out(of))
        };
        let instances = self.instances.iter().filter(has_own).map(|(key, _)| {
            let resource = self.instance_resource(key);
            (resource, Owner::Instance(key.clone()))
        });
        let all = self.configurations.iter();
        let (named, others): (Vec<_>, Vec<_>) = all.partition(|(_, c)| has_its_name(c));
        let configurations = others.into_iter().chain(named).map(|(key, configuration)| {
            let resource = self.configuration_resource(key, configuration);
            (resource, Owner::Configuration(key.clone()))
        });
        configurations.chain(instances).collect()
    }

    pub fn owner_of(&self, resource: &ResourceName) -> Option<Owner> {
        self.resources().remove(resource)
    }

    pub fn instances_of<'a>(
        &'a self,
        configuration: &'a ConfigurationKey,
    ) -> impl Iterator<Item = (&'a InstanceKey, &'a Instance)> {
        let is_its = move |key: &InstanceKey, instance: &Instance| {
            instance.spec.configuration_name == configuration.name
                && key.namespace == configuration.namespace
        };
        (self.instances.iter()).filter(move |(key, instance)| is_its(key, instance))
    }

    pub fn configuration_of(
        &self,
        key: &InstanceKey,
        instance: &Instance,
    ) -> Option<(ConfigurationKey, &Configuration)> {
        let key = instance.spec.configuration_key(&key.namespace);
        let configuration = self.configurations.get(&key)?;
        Some((key, configuration))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_the_agent_of_a_dead_node_was_told_before_an_update_does_not_count() {
        let agent = |name: &str, ready: &str, env: &[&str]| {
            let env: Vec<_> = (env.iter())
                .map(|value| json!({"name": "PETIOLE_WATCH_NAMESPACES", "value": value}))
                .collect();
            let pod = json!({
                "metadata": {"name": name, "namespace": "petiole", "labels": {
                    PART_OF: CHART_NAME, COMPONENT: "agent",
                }},
                "spec": {"containers": [{"name": "agent", "env": env}]},
                "status": {"conditions": [{"type": "Ready", "status": ready}]},
            });
            let key = ObjectKey::new("petiole", name);
            (key, serde_json::from_value(pod).unwrap())
        };
        let mut snapshot = Snapshot::default();
        snapshot.pods.extend([agent("a", "False", &["cams"])]);
        assert_eq!(snapshot.watched(), Some("cams"), "it is all that is known");
        snapshot.pods.extend([agent("b", "True", &[])]);
        snapshot.pods.extend([agent("c", "False", &["doors"])]);
        assert_eq!(snapshot.watched(), None);
    }
}
