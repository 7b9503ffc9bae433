//! The values that the tasks of an agent exchange, or hand to their plans.
use crate::{
    api::configuration::{Allocation, Configuration, Problem},
    discovery::SessionSpec,
    model::{
        device::{Device, Scope},
        instance_name::InstanceName,
        names::ObjectKey,
        resource_name::{ResourceName, ResourcePrefixes},
        resource_names::ResourceNames,
        slot_table::{Resource, Use},
        typed_names::ConfigurationKey,
    },
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, SystemTime},
};
use tokio::time::Instant;

/// The Configurations that this node uses. No two of them have one name, whatever their namespaces.
pub(crate) type Accepted = BTreeMap<ConfigurationKey, AcceptedConfiguration>;

/// The discovery sessions that no handler runs, each with what its handler says.
pub(crate) type Refused = BTreeMap<ConfigurationKey, (SessionSpec, Problem)>;

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct AcceptedConfiguration {
    pub(crate) configuration: Arc<Configuration>,
    pub(crate) session: SessionSpec,
    pub(crate) scope: Scope,
    pub(crate) selection: Selection,
    /// The configured name of the resource that gives any of its devices.
    pub(crate) resource_name: Option<ResourceName>,
}

impl AcceptedConfiguration {
    /// Returns whether its devices get Instances.
    pub(crate) fn has_instances(&self) -> bool {
        self.configuration.spec.instances
    }

    /// Returns the name that `spec.instanceName` gives to the Instance of a device; `None` if it gives none. Another Instance
    /// may have it.
    pub(crate) fn own_name(&self, device: &Device) -> Option<InstanceName> {
        let spec = &self.configuration.spec;
        let name = (spec.name_template()?).name(&[&spec.broker_properties, &device.properties]);
        name.ok()
    }
}

/// The result of `spec.nodeSelector` on this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Selection {
    Selected,
    /// The node does not discover the devices, and leaves their Instances.
    LeftOut,
    /// The node's labels are not known yet, and its Instances stay as they are.
    Unknown,
}

/// The result of the validation of all Configurations.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ValidatedConfigurations {
    pub(crate) accepted: Accepted,
    /// The problem of each Configuration that is not used as it is written.
    pub(crate) problems: BTreeMap<ConfigurationKey, Problem>,
    /// The discovery sessions whose details were refused, so that they are not read again at each validation.
    pub(crate) refused: Refused,
    /// The generation of each Configuration that was validated; none without an API server.
    pub(crate) generations: BTreeMap<ConfigurationKey, i64>,
    /// The names of the resources.
    pub(crate) names: ResourceNames,
    /// The accepted Configurations whose devices the scheduler gives out.
    pub(crate) by_claims: BTreeSet<ConfigurationKey>,
}

impl ValidatedConfigurations {
    /// Returns whether this is the resource of a Configuration whose devices ResourceClaims have.
    pub(crate) fn has_by_claims(&self, resource: &Resource) -> bool {
        match resource {
            // No two have one name.
            Resource::Configuration(name) => self.by_claims.iter().any(|key| key.name == *name),
            Resource::Instance(_) => false,
        }
    }

    /// Notes the accepted Configurations whose devices the scheduler gives out.
    pub(super) fn divide_by_allocation(&mut self) {
        let is_by_claims =
            |of: &AcceptedConfiguration| of.configuration.spec.allocation == Allocation::Dra;
        let accepted = self.accepted.iter().filter(|(_, of)| is_by_claims(of));
        self.by_claims = accepted.map(|(key, _)| key.clone()).collect();
    }

    /// Returns the Configurations that are accepted and were not, or the other way round, and those whose devices others give out now.
    pub(super) fn turned_since(&self, before: &Self) -> BTreeSet<ConfigurationKey> {
        let [before_accepted, accepted] = [before, self].map(|all| {
            let keys = all.accepted.keys().cloned();
            keys.collect::<BTreeSet<ConfigurationKey>>()
        });
        let by_claims = self.by_claims.symmetric_difference(&before.by_claims);
        let accepted = accepted.symmetric_difference(&before_accepted);
        accepted.chain(by_claims).cloned().collect()
    }

    /// Takes over what was known of Configurations that are gone: their Instances follow later, and no plugin is to offer them until
    /// then. One that has the name of another now is forgotten, because the other has its resource.
    pub(super) fn keep_by_claims(&mut self, before: &Self, most: usize) {
        let names: BTreeSet<&str> = self.accepted.keys().map(|key| key.name.as_str()).collect();
        let gone = before.by_claims.iter();
        let gone = gone.filter(|key| !names.contains(key.name.as_str()));
        let room = most.saturating_sub(self.by_claims.len());
        let gone: Vec<_> = gone.take(room).cloned().collect();
        self.by_claims.extend(gone);
    }

    /// Returns the state before the first validation: the names of the Instances' resources are known.
    pub(super) fn before_the_first(prefixes: &ResourcePrefixes) -> Self {
        Self {
            names: ResourceNames::before_the_first_read(prefixes.first()),
            ..Self::default()
        }
    }
}

/// A resource and the name under which it is registered with the kubelet. With another name it is another plugin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Offered {
    pub(crate) resource: Resource,
    pub(crate) full_name: ResourceName,
    /// True if ResourceClaims have the devices. A kubelet that knows the resource asks its plugin before it starts a container that
    /// has a device by a claim, finds none of the plugin's, and fails (devicemanager/manager.go: `callPreStartContainerIfNeeded`), so
    /// this plugin is not asked.
    pub(crate) is_by_claims: bool,
}

/// A slot as its plugin lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) id: String,
    pub(crate) is_healthy: bool,
}

/// The lists of all plugins that run or start.
pub(super) type Listed = BTreeMap<ResourceName, Arc<[Slot]>>;

/// The kubelet's folder for device plugins as it was last read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct KubeletFolder {
    pub(super) kubelet: Option<KubeletSocket>,
    /// The time at which this agent first saw that kubelet. Setting the machine's clock does not change it.
    pub(super) since: Option<Instant>,
    /// The file names of the other sockets.
    pub(super) sockets: BTreeSet<String>,
}

impl KubeletFolder {
    /// Returns how long the kubelet has been running. It is the longer one of the times by the machine's clock, which can
    /// have been set, and by what this agent has seen.
    pub(super) fn kubelet_age(&self) -> Option<Duration> {
        let by_clock = self.kubelet?.created.elapsed().unwrap_or_default();
        Some(by_clock.max(self.since?.elapsed()))
    }
}

/// The socket of one kubelet. Each kubelet makes its own when it starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct KubeletSocket {
    pub(super) created: SystemTime,
    pub(super) inode: u64,
}

/// The ids of slots in the kubelet's words, by the resource that the kubelet has them for.
pub(crate) type IdsByResource = BTreeMap<ResourceName, BTreeSet<String>>;

/// The kubelet's list of the devices that containers hold.
#[derive(Debug, Clone, Default)]
pub(crate) struct PodList {
    /// All Pods, also those without a device.
    pub(crate) pods: BTreeSet<ObjectKey>,
    /// The ids that containers hold of our resources.
    pub(crate) by_resource: IdsByResource,
    /// The Pods that hold them.
    pub(crate) holders: BTreeMap<ResourceName, BTreeSet<ObjectKey>>,
}

/// The ResourceClaims that the kubelet had prepared on this node. It says when one is not needed any more, so this is never doubted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Prepared {
    pub(crate) uids: BTreeSet<String>,
    /// True if this agent prepares none, and cannot know which were: nobody has unprepared a claim that has a slot.
    pub(crate) are_unknown: bool,
    /// What their containers were given, as far as it is on disk.
    pub(crate) uses: Vec<Use>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by_claims(keys: &[(&str, &str)]) -> ValidatedConfigurations {
        let key = |(namespace, name): &(&str, &str)| ConfigurationKey::new(*namespace, *name);
        ValidatedConfigurations {
            by_claims: keys.iter().map(key).collect(),
            ..ValidatedConfigurations::default()
        }
    }

    #[test]
    fn what_claims_had_is_no_plugins_until_its_instances_are_gone_or_another_has_the_name() {
        let before = by_claims(&[("a", "cam"), ("a", "tv")]);
        let mut now = ValidatedConfigurations::default();
        now.keep_by_claims(&before, 10);
        assert_eq!(now.by_claims, before.by_claims);
        let spec = serde_json::json!({"discoveryHandler": {"name": "debugEcho"}});
        let accepted = AcceptedConfiguration {
            configuration: Arc::new(Configuration::new(
                "cam",
                serde_json::from_value(spec).unwrap(),
            )),
            session: SessionSpec::default(),
            scope: Scope::Node,
            selection: Selection::Selected,
            resource_name: None,
        };
        let mut other = ValidatedConfigurations::default();
        let key = ConfigurationKey::new("b", "cam");
        other.accepted.insert(key, accepted);
        other.keep_by_claims(&before, 10);
        assert_eq!(other.by_claims, by_claims(&[("a", "tv")]).by_claims);
        assert!(!other.has_by_claims(&Resource::Configuration("cam".into())));
        let mut bounded = ValidatedConfigurations::default();
        bounded.keep_by_claims(&before, 1);
        assert_eq!(bounded.by_claims.len(), 1);
    }
}
