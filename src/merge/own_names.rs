//! The names that Instances get by `spec.instanceName`, and why one has another. Pure.
//!
//! An Instance keeps its name while it lives, because Pods ask for it. A device that cannot have its name gets an Instance
//! with a digest in its name, so that it can be used, and its Configuration says so. A name has one owner in all namespaces,
//! because it is the name of a resource of the nodes.
use super::{
    plan::{LeftOut, Merge},
    reports::Identity,
};
use crate::{
    api::{
        configuration::{Configuration, Problem},
        instance::{Instance, is_seen},
        names::GROUP,
        reason::Reason,
    },
    model::{
        instance_name::{InstanceKey, InstanceName, is_digest},
        typed_names::{ConfigurationKey, NodeName},
    },
};
use petiole_base::collect::CollectMap as _;
use std::{
    cell::OnceCell,
    collections::{BTreeMap, BTreeSet},
    fmt,
};

/// The names of the resources of all namespaces.
pub(super) struct OwnNames<'a> {
    merge: &'a Merge<'a>,
    /// The namespaces of all Instances.
    namespaces: BTreeSet<&'a str>,
    /// The Configurations by the names of their resources. It is made when it is needed.
    configurations: OnceCell<BTreeMap<&'a str, &'a ConfigurationKey>>,
}

/// Who has a name, or may get it.
enum Holder<'a> {
    Instance(&'a InstanceKey, &'a Instance),
    Configuration(&'a ConfigurationKey),
    InstanceOf(&'a ConfigurationKey),
}

impl fmt::Display for Holder<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Instance(key, _) => write!(f, "Instance {key}"),
            Self::Configuration(key) => write!(f, "the resource of Configuration {key}"),
            Self::InstanceOf(key) => {
                write!(
                    f,
                    "an Instance that Configuration {key} may get by a digest"
                )
            }
        }
    }
}

impl<'a> OwnNames<'a> {
    pub(super) fn new(merge: &'a Merge<'a>) -> Self {
        let mut namespaces = BTreeSet::new();
        let mut next = merge.all_instances.keys().next();
        while let Some(key) = next {
            namespaces.insert(key.namespace.as_str());
            let after = InstanceKey::new(format!("{}\0", key.namespace), "");
            next = merge
                .all_instances
                .range(after..)
                .next()
                .map(|(key, _)| key);
        }
        Self {
            merge,
            namespaces,
            configurations: OnceCell::new(),
        }
    }

    /// Returns the name of its own that the Instance of a new device gets, if it gets one. A problem says that it waits for the
    /// name, until an Instance of its Configuration is gone whose device no node sees.
    pub(super) fn of_new(
        &self,
        device: &Identity,
        configuration: &Configuration,
        properties: Option<&BTreeMap<String, String>>,
    ) -> Result<Option<InstanceName>, Problem> {
        let of = &device.configuration;
        let template = configuration.spec.name_template();
        let Some((template, properties)) = template.zip(properties) else {
            return Ok(None);
        };
        let Ok(name) = template.name(&[&configuration.spec.broker_properties, properties]) else {
            return Ok(None);
        };
        match self.holder(&name) {
            None => Ok(Some(name)),
            Some(Holder::Instance(key, instance))
                if instance.spec.configuration_key(&key.namespace) == *of
                    && self.is_missing(key, instance) =>
            {
                let message = format!(
                    "a device gets no Instance yet: instanceName calls it {name}, which is the name of an Instance whose device no node sees, until that is deleted after gracePeriodSeconds, and after the Pods with slots of it; its id is {:?}",
                    device.device
                );
                Err(Problem::new(Reason::InstanceNameNotGiven, message))
            }
            Some(_) => Ok(None),
        }
    }

    /// Adds a problem of each Configuration with an Instance that has another name than it says, or whose resource an Instance
    /// has by its name.
    pub(super) fn report(&self, left_out: &mut LeftOut) {
        let mut others: BTreeMap<ConfigurationKey, (String, usize)> = BTreeMap::new();
        for (key, instance) in self.merge.instances {
            let of = instance.spec.configuration_key(&key.namespace);
            let configuration = self.merge.surroundings.configuration(&of);
            let why = configuration.and_then(|of| self.why_other(key, instance, of));
            if let Some(why) = why {
                let why = format!(
                    "Instance {} is not called as instanceName says: {why}",
                    key.name
                );
                others.entry(of).or_insert((why, 0)).1 += 1;
            }
        }
        for (of, (why, count)) in others {
            let more = match count {
                1 => String::new(),
                count => format!("; and {} more Instances", count - 1),
            };
            let problem = || Problem::new(Reason::InstanceNameNotGiven, format!("{why}{more}"));
            left_out.entry(of).or_insert_with(problem);
        }
        for of in self.merge.reports.configurations() {
            if let Some(key) = self.instance_with_resource_of(of) {
                let message = format!(
                    "the resource of this Configuration is not offered on the nodes of Instance {key}, whose resource has the same name: rename this Configuration, or give it another resourceName"
                );
                let problem = || Problem::new(Reason::ResourceTaken, message);
                left_out.entry(of.clone()).or_insert_with(problem);
            }
        }
    }

    fn why_other(
        &self,
        key: &InstanceKey,
        instance: &Instance,
        configuration: &Configuration,
    ) -> Option<String> {
        let template = configuration.spec.name_template()?;
        let name = match template.name(&[&instance.spec.broker_properties]) {
            Ok(name) => name,
            Err(why) => {
                return Some(format!(
                    "{why}: let instanceName have properties that all devices have, or set this one in brokerProperties"
                ));
            }
        };
        if name == key.name.as_str() {
            let (other, _) = self
                .instances(&name)
                .find(|(_, other)| is_older(other, instance))?;
            return Some(format!(
                "the resource of this name is that of the older Instance {other}: change instanceName, and delete this Instance"
            ));
        }
        Some(match self.holder(&name) {
            Some(holder) => format!(
                "{name} is the name of {holder}: let instanceName have a property that tells them apart, such as UDEV_ID_PATH_TAG"
            ),
            None => format!(
                "{name} is free, and an Instance keeps the name that Pods ask for: delete it when none does, and it comes back with that name (kubectl -n {} delete instance {})",
                key.namespace, key.name
            ),
        })
    }

    /// Returns who has a name, or may get it by a digest.
    fn holder(&self, name: &InstanceName) -> Option<Holder<'a>> {
        let configurations = self.configurations.get_or_init(|| self.resources());
        if let Some(key) = configurations.get(name.as_str()) {
            return Some(Holder::Configuration(key));
        }
        let start = name.rsplit_once('-').filter(|(_, end)| is_digest(end));
        if let Some(key) = start.and_then(|(start, _)| configurations.get(start)) {
            return Some(Holder::InstanceOf(key));
        }
        let first = self.instances(name).next();
        first.map(|(key, instance)| Holder::Instance(key, instance))
    }

    /// Returns the Configurations by the names of their resources, without the prefixes: those are of the nodes.
    fn resources(&self) -> BTreeMap<&'a str, &'a ConfigurationKey> {
        let all = self.merge.surroundings.all_configurations();
        let names = all.flat_map(|(key, configuration)| {
            let resource = configuration.and_then(|of| of.spec.resource_name.as_deref());
            let resource = resource.and_then(|name| Some(name.split_once('/')?.1));
            [Some(key.name.as_str()), resource]
                .into_iter()
                .flatten()
                .map(move |name| (name, key))
        });
        names.collect_map()
    }

    /// Returns the Instances with a name, in all namespaces.
    fn instances(
        &self,
        name: &InstanceName,
    ) -> impl Iterator<Item = (&'a InstanceKey, &'a Instance)> {
        let keys = self.namespaces.iter();
        let keys = keys.map(move |namespace| InstanceKey::new(*namespace, name));
        keys.filter_map(|key| {
            let (key, instance) = self.merge.all_instances.get_key_value(&key)?;
            Some((key, instance.as_ref()))
        })
    }

    /// Returns the Instance whose resource has the name of a Configuration's.
    fn instance_with_resource_of(&self, of: &ConfigurationKey) -> Option<&'a InstanceKey> {
        let configuration = self.merge.surroundings.configuration(of)?;
        let name = match configuration.spec.resource() {
            None => of.name.as_str().into(),
            Some(resource) if resource.prefix() == GROUP => resource.last_segment().into(),
            Some(_) => return None,
        };
        self.instances(&name).next().map(|(key, _)| key)
    }

    /// Returns whether no node sees the device of an Instance, as far as is known.
    fn is_missing(&self, key: &InstanceKey, instance: &Instance) -> bool {
        let of = instance.spec.configuration_key(&key.namespace);
        let reports = self.merge.reports_of(key, instance);
        let status = instance.status.clone().unwrap_or_default();
        let sees = |node: &NodeName| match reports.get(node) {
            Some(report) => report.is_healthy(),
            None => {
                is_seen(&status, node)
                    && !self.merge.reports.has_complete_report(instance, &of, node)
            }
        };
        let is_there = |node: &&NodeName| {
            !self.merge.is_gone(node) && !self.merge.surroundings.is_silent(node)
        };
        !instance.spec.nodes.iter().filter(is_there).any(sees)
    }
}

/// Returns whether an Instance of another namespace is older, as agents rank them.
fn is_older(other: &Instance, instance: &Instance) -> bool {
    let rank = |instance: &Instance| {
        let metadata = &instance.metadata;
        let created = metadata.creation_timestamp.as_ref().map(|time| time.0);
        (created, metadata.namespace.clone())
    };
    rank(other) < rank(instance)
}
