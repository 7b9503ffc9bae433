//! Maps our resources to the names that the kubelet uses: `akri.sh/<name>`, or the name in the Configuration.
use super::{
    resource_name::{ResourceName, ResourcePrefix},
    slot_table::Resource,
    typed_names::ConfigurationName,
};
use std::collections::BTreeMap;

/// The names of the resources of this node. Without a prefix, as before the first validation, no resource has a name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResourceNames {
    /// The prefix of every resource without a configured name.
    prefix: Option<ResourcePrefix>,
    /// The names of Configurations that have a configured name, or that must have no name now.
    own: BTreeMap<ConfigurationName, Option<ResourceName>>,
    /// True if the Configurations have been read.
    are_known: bool,
}

impl ResourceNames {
    /// Creates the map of a node that has read the Configurations.
    pub fn new(prefix: &ResourcePrefix) -> Self {
        Self {
            are_known: true,
            ..Self::before_the_first_read(prefix)
        }
    }

    /// Creates the map of a node that has not read the Configurations: the names of their resources are unknown.
    pub fn before_the_first_read(prefix: &ResourcePrefix) -> Self {
        Self {
            prefix: Some(prefix.clone()),
            own: BTreeMap::new(),
            are_known: false,
        }
    }

    /// Sets the name of a Configuration's resource; `None` means that the resource must not be offered.
    pub fn set(&mut self, configuration: &ConfigurationName, name: Option<ResourceName>) {
        self.own.insert(configuration.clone(), name);
    }

    /// Returns the name of the resource; `None` if it must not be offered, or if its name is not known yet.
    pub fn of(&self, resource: &Resource) -> Option<ResourceName> {
        let default = || Some(self.prefix.as_ref()?.resource(resource.plugin()));
        match resource {
            Resource::Instance(_) => default(),
            Resource::Configuration(name) => match self.own.get(name) {
                Some(own) => own.clone(),
                None => default().filter(|_| self.are_known),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix() -> ResourcePrefix {
        "akri.sh".parse().unwrap()
    }

    fn configuration(name: &str) -> Resource {
        Resource::Configuration(name.into())
    }

    #[test]
    fn a_configuration_may_have_a_name_of_its_own_or_none_and_an_instance_has_its_own() {
        let mut names = ResourceNames::new(&prefix());
        names.set(&"block".into(), Some("pflex.io/block".parse().unwrap()));
        names.set(&"refused".into(), None);
        assert_eq!(names.of(&configuration("block")).unwrap(), "pflex.io/block");
        assert_eq!(names.of(&configuration("refused")), None);
        assert_eq!(names.of(&configuration("cam")).unwrap(), "akri.sh/cam");
        let instance = Resource::Instance("block".into());
        assert_eq!(names.of(&instance).unwrap(), "akri.sh/block");
    }

    #[test]
    fn before_the_configurations_are_read_only_instances_have_a_name() {
        let names = ResourceNames::before_the_first_read(&prefix());
        assert_eq!(names.of(&configuration("cam")), None);
        let instance = Resource::Instance("cam-1".into());
        assert_eq!(names.of(&instance).unwrap(), "akri.sh/cam-1");
    }
}
