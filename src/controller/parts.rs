//! Divides the world into parts, so that a job plans those that have changed and not the whole world. Pure.
//!
//! A part is what belongs to the Configurations of one name, in all namespaces: of one name only one Configuration works.
//! Nodes and NodeDevices belong to each part, but a part shows only the reports about its own Configurations.
use super::world::{Meta, Scope, World};
use crate::{
    api::{names, node_devices::ConfigurationView},
    model::{names::shortened, typed_names::NodeName},
};
use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// The most bytes of a label's value.
const LABEL_LIMIT: usize = 63;

/// Some parts of the world, or the whole world.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Parts {
    All,
    Named(BTreeSet<String>),
}

/// Returns the name of a Configuration's part: the value of the label of its objects.
pub(crate) fn part_of(configuration: &str) -> Cow<'_, str> {
    match configuration.len() <= LABEL_LIMIT {
        true => Cow::Borrowed(configuration),
        false => Cow::Owned(shortened(configuration, LABEL_LIMIT)),
    }
}

impl World {
    /// Returns the world with these parts alone. A plan of it is what the plan of the whole world says of them,
    /// but for the nodes of new Pods: parts do not see each other's.
    pub(crate) fn part(self: &Arc<Self>, parts: &Parts) -> Arc<Self> {
        let Parts::Named(names) = parts else {
            return self.clone();
        };
        let scope = Scope {
            names: names.clone(),
            whole: self.clone(),
        };
        let mut part = Self {
            configurations: only(&self.configurations, |key, _| scope.includes(&key.name)),
            unreadable: (self.unreadable.iter())
                .filter(|(key, _)| scope.includes(&key.name))
                .map(|(key, error)| (key.clone(), error.clone()))
                .collect(),
            instances: only(&self.instances, |_, instance| {
                scope.includes(&instance.spec.configuration_name)
            }),
            nodes: self.nodes.clone(),
            node_devices: self.node_devices.clone(),
            ..Self::default()
        };
        let instances = part.instances.keys();
        let labels: BTreeSet<String> = instances
            .map(|key| part_of(&key.name).into_owned())
            .collect();
        let uids = (part.instances.values()).filter_map(|i| i.metadata.uid.as_deref());
        let mut owners: BTreeSet<&str> = uids.collect();
        let is_labelled = |meta: &Meta| {
            let label = meta.labels.get(names::CONFIGURATION_LABEL);
            label.is_some_and(|label| scope.names.contains(label))
        };
        let is_owned = |meta: &Meta, owners: &BTreeSet<&str>| {
            (meta.owner.as_deref()).is_some_and(|owner| owners.contains(owner))
        };
        part.jobs = only(&self.jobs, |_, job| {
            is_labelled(&job.meta) || is_owned(&job.meta, &owners)
        });
        // The Pods of a Job are owned by it.
        owners.extend(part.jobs.values().map(|job| job.meta.uid.as_str()));
        part.pods = only(&self.pods, |_, pod| {
            let label = pod.meta.labels.get(names::INSTANCE_LABEL);
            is_labelled(&pod.meta)
                || is_owned(&pod.meta, &owners)
                || label.is_some_and(|label| labels.contains(label))
        });
        part.scope = Some(scope);
        Arc::new(part)
    }

    /// Returns the whole world, where this is a part of it.
    pub(crate) fn whole(&self) -> &Self {
        self.scope.as_ref().map_or(self, |scope| &scope.whole)
    }

    /// Returns whether the Configurations of this name are in this part of the world.
    pub(crate) fn includes(&self, configuration: &str) -> bool {
        let scope = self.scope.as_ref();
        scope.is_none_or(|scope| scope.includes(configuration))
    }

    /// Returns the reports of all nodes about Configurations.
    pub(crate) fn views(&self) -> impl Iterator<Item = (&NodeName, &ConfigurationView)> {
        let objects = self.node_devices.iter();
        let all = objects.flat_map(|(node, object)| {
            let views = object.spec.configurations.iter();
            views.map(move |view| (node, view))
        });
        all.filter(|(_, view)| self.includes(&view.name))
    }
}

impl Scope {
    fn includes(&self, configuration: &str) -> bool {
        self.names.contains(&*part_of(configuration))
    }
}

fn only<K: Clone + Ord, T>(
    objects: &BTreeMap<K, Arc<T>>,
    is_in: impl Fn(&K, &T) -> bool,
) -> BTreeMap<K, Arc<T>> {
    let mut part = BTreeMap::new();
    for (key, object) in objects {
        if is_in(key, object) {
            part.insert(key.clone(), object.clone());
        }
    }
    part
}
