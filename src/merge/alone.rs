//! Makes the Instances of a node that is alone. Pure.
use super::{
    plan::{Change, Fate, LeftOut, Merge, Surroundings},
    reports::DeviceReports,
    room::Taken,
};
use crate::{
    api::{
        configuration::Configuration, instance::Instance, names, node_devices::ConfigurationView,
    },
    model::{
        instance_name::InstanceKey,
        typed_names::{ConfigurationKey, NodeName},
    },
};
use json_patch::{Patch, PatchOperation};
use k8s_openapi::jiff::Timestamp;
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// A node without a cluster: it is never lost, and nothing selects among nodes.
pub(crate) struct Alone<'a> {
    pub(crate) node: &'a NodeName,
    pub(crate) configurations: &'a BTreeMap<ConfigurationKey, Arc<Configuration>>,
    pub(crate) may_have: &'a dyn Fn(&ConfigurationKey) -> bool,
}

impl Surroundings for Alone<'_> {
    fn configuration(&self, of: &ConfigurationKey) -> Option<&Configuration> {
        self.configurations.get(of).map(AsRef::as_ref)
    }

    fn all_configurations<'s>(
        &'s self,
    ) -> Box<dyn Iterator<Item = (&'s ConfigurationKey, Option<&'s Configuration>)> + 's> {
        let all = self.configurations.iter();
        Box::new(all.map(|(key, configuration)| (key, Some(configuration.as_ref()))))
    }

    fn may_have(&self, of: &ConfigurationKey) -> bool {
        (self.may_have)(of)
    }

    fn has_node(&self, node: &NodeName) -> bool {
        node == self.node
    }

    fn only_node(&self) -> Option<&NodeName> {
        Some(self.node)
    }

    fn selects(&self, _: &ConfigurationKey, _: &NodeName) -> bool {
        true
    }

    fn is_silent(&self, _: &NodeName) -> bool {
        false
    }

    fn is_released(&self, _: &NodeName, _: &InstanceKey, _: &Instance) -> bool {
        false
    }

    fn slots_before(&self, _: &InstanceKey) -> Option<&BTreeMap<String, String>> {
        None
    }

    /// An agent bounds what it reports.
    fn room(&self, _: &ConfigurationKey) -> usize {
        usize::MAX
    }

    fn unseen_for(&self, _: &Instance) -> Option<Duration> {
        None
    }
}

/// A step is what the node does with one of its Instances.
pub(crate) enum Step {
    Create(Box<Instance>),
    /// The change of the Instance that was looked at.
    Change(InstanceKey, Arc<Instance>, Box<Change>),
    Delete {
        key: InstanceKey,
        is_orphan: bool,
        why: &'static str,
    },
}

impl Alone<'_> {
    /// Returns what the node's reports make of the Instances, and the Configurations with a device that gets none.
    pub(crate) fn steps(
        &self,
        views: &[ConfigurationView],
        instances: &BTreeMap<InstanceKey, Arc<Instance>>,
        now: Timestamp,
    ) -> (Vec<Step>, LeftOut) {
        let views = views.iter().map(|view| (self.node, view));
        let merge = Merge {
            surroundings: self,
            instances,
            all_instances: instances,
            reports: &DeviceReports::new(views, instances),
            labels: BTreeMap::from([(names::node_label(self.node), self.node)]),
            now,
            taken: Taken::default(),
        };
        let steps = instances.iter().filter_map(|(key, instance)| {
            let key = key.clone();
            match merge.fate(&key, instance) {
                Fate::Stays | Fate::EndsIn(_) => None,
                Fate::Changes(change) => {
                    Some(Step::Change(key, instance.clone(), Box::new(change)))
                }
                Fate::Ends(end) => Some(Step::Delete {
                    key,
                    is_orphan: end.orphan_of.is_some(),
                    why: end.why,
                }),
            }
        });
        let mut steps: Vec<Step> = steps.collect();
        let (made, left_out) = merge.new_instances();
        steps.extend(made.into_iter().map(|new| Step::Create(Box::new(new))));
        (steps, left_out)
    }
}

/// Returns an Instance after a change. Nobody else writes it, so the change needs no guard.
pub(crate) fn changed(instance: &Instance, change: Change) -> Result<Instance, String> {
    let mut operations = change.operations;
    operations.retain(|operation| !matches!(operation, PatchOperation::Test(_)));
    let mut value = serde_json::to_value(instance).map_err(|e| e.to_string())?;
    json_patch::patch(&mut value, &Patch(operations)).map_err(|e| e.to_string())?;
    let mut instance: Instance = serde_json::from_value(value).map_err(|e| e.to_string())?;
    if change.status.is_some() {
        instance.status = change.status;
    }
    Ok(instance)
}
