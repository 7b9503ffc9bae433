//! Defines the name that a device plugin has, whether it is the plugin of an Instance or of a Configuration. Pure.
//!
//! This is the only place where the names of Instances and of Configurations become one kind, and where a text that the
//! kubelet has becomes either.
use super::{
    instance_name::InstanceName,
    typed_names::{ConfigurationName, name},
};

name! {
    /// The name of a device plugin: that of the Instance or Configuration whose slots it lists. Its socket, and each id
    /// that it lists, begin with this name. So does the last segment of its resource, unless the Configuration sets
    /// another one.
    PluginName
}

impl PluginName {
    /// Returns the name that an id in the kubelet's words begins with.
    pub fn of_id(id: &str) -> Option<Self> {
        id.rsplit_once('-').map(|(name, _)| Self(name.to_owned()))
    }

    /// Returns the Instance, if the plugin is that of an Instance.
    pub fn as_instance(&self) -> InstanceName {
        InstanceName::new(self.as_str())
    }

    /// Returns the Configuration, if the plugin is that of a Configuration.
    pub fn as_configuration(&self) -> ConfigurationName {
        ConfigurationName::new(self.as_str())
    }
}

impl From<&InstanceName> for PluginName {
    fn from(instance: &InstanceName) -> Self {
        Self(instance.into())
    }
}

impl From<&ConfigurationName> for PluginName {
    fn from(configuration: &ConfigurationName) -> Self {
        Self(configuration.into())
    }
}

impl PartialEq<InstanceName> for PluginName {
    fn eq(&self, other: &InstanceName) -> bool {
        self.as_str() == other.as_str()
    }
}

impl PartialEq<ConfigurationName> for PluginName {
    fn eq(&self, other: &ConfigurationName) -> bool {
        self.as_str() == other.as_str()
    }
}
