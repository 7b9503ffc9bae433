//! Defines the flags for the scope of a process in a cluster: namespaces and resource prefixes.
use crate::{
    api::names,
    model::resource_name::{ResourcePrefix, ResourcePrefixes},
};
use clap::Args;

#[derive(Debug, Args)]
pub struct ScopeFlags {
    /// Namespaces whose Configurations and Instances are used [default: all]
    #[arg(
        long,
        env = "PETIOLE_WATCH_NAMESPACES",
        value_name = "NAMESPACE,...",
        value_delimiter = ','
    )]
    watch_namespaces: Vec<String>,
    /// Resource prefixes that Petiole may register, publish and remove; new resources get the first one
    #[arg(
        long,
        env = "PETIOLE_RESOURCE_PREFIXES",
        value_name = "PREFIX,...",
        value_delimiter = ',',
        default_value = names::GROUP
    )]
    resource_prefixes: Vec<ResourcePrefix>,
}

impl ScopeFlags {
    /// Returns the namespaces. A variable with an empty value names none.
    pub fn namespaces(&self) -> Vec<String> {
        let named = self.watch_namespaces.iter().filter(|name| !name.is_empty());
        named.cloned().collect()
    }

    pub fn resource_prefixes(&self) -> ResourcePrefixes {
        let prefixes = self.resource_prefixes.split_first();
        let (first, others) = prefixes.expect("the flag has a default, and no empty list");
        ResourcePrefixes::new(first.clone(), others.iter().cloned())
    }
}
