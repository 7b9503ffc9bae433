//! Maps our resources to the names that the kubelet uses: `akri.sh/<name>`, or the name in the Configuration.
use super::{names::ObjectKey, slot_table::Resource};
use std::collections::BTreeMap;

/// The full names of resources. All full names are made here.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResourceNames {
    /// The prefix of every resource without a configured name.
    prefix: String,
    /// The names of Configurations that have a configured name, or that must have no name now.
    own: BTreeMap<String, Option<String>>,
    /// Whether the Configurations have been read.
    are_known: bool,
}

impl ResourceNames {
    /// Creates the map. Until the Configurations have been read, the names of their resources are unknown.
    pub fn new(prefix: &str, are_known: bool) -> Self {
        Self {
            prefix: prefix.to_owned(),
            own: BTreeMap::new(),
            are_known,
        }
    }

    /// Sets the name of a Configuration's resource; `None` means that the resource must not be offered.
    pub fn set(&mut self, configuration: &ObjectKey, name: Option<String>) {
        self.own.insert(configuration.name.clone(), name);
    }

    /// Returns the name of an Instance's resource, or that of a Configuration without a configured name.
    pub fn default_of(&self, name: &str) -> String {
        format!("{}/{name}", self.prefix)
    }

    /// Returns the full name of the resource; `None` if it must not be offered, or if its name is not known yet.
    pub fn of(&self, resource: &Resource) -> Option<String> {
        match resource {
            Resource::Instance(name) => Some(self.default_of(name)),
            Resource::Configuration(name) => match self.own.get(name) {
                Some(own) => own.clone(),
                None => self.are_known.then(|| self.default_of(name)),
            },
        }
    }
}

/// Returns whether a text is the name of an extended resource: a DNS subdomain, a slash, a name.
pub fn is_resource_name(text: &str) -> bool {
    let is_ends = |text: &str, is: fn(char) -> bool| text.starts_with(is) && text.ends_with(is);
    let is_lower = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let is_label = |label: &str| {
        label.len() <= 63
            && is_ends(label, is_lower)
            && label.chars().all(|c| is_lower(c) || c == '-')
    };
    text.split_once('/').is_some_and(|(prefix, name)| {
        prefix.len() <= 253
            && prefix.split('.').all(is_label)
            && name.len() <= 63
            && is_ends(name, |c| c.is_ascii_alphanumeric())
            && name
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn configuration(name: &str) -> Resource {
        Resource::Configuration(name.to_owned())
    }

    #[test]
    fn a_configuration_may_have_a_name_of_its_own_or_none_and_an_instance_has_its_own() {
        let mut names = ResourceNames::new("akri.sh", true);
        names.set(
            &ObjectKey::new("a", "block"),
            Some("pflex.io/block".to_owned()),
        );
        names.set(&ObjectKey::new("a", "refused"), None);
        assert_eq!(names.of(&configuration("block")).unwrap(), "pflex.io/block");
        assert_eq!(names.of(&configuration("refused")), None);
        assert_eq!(names.of(&configuration("cam")).unwrap(), "akri.sh/cam");
        let instance = Resource::Instance("block".to_owned());
        assert_eq!(names.of(&instance).unwrap(), "akri.sh/block");
    }

    #[test]
    fn before_the_configurations_are_read_only_instances_have_a_name() {
        let names = ResourceNames::new("akri.sh", false);
        assert_eq!(names.of(&configuration("cam")), None);
        let instance = Resource::Instance("cam-1".to_owned());
        assert_eq!(names.of(&instance).unwrap(), "akri.sh/cam-1");
    }

    proptest! {
        #[test]
        fn what_is_a_resource_name_is_what_the_schema_says(
            text in "[a-zA-Z0-9./_-]{0,12}|[a-z0-9.-]{1,70}/[a-zA-Z0-9._-]{1,70}"
        ) {
            let pattern = r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*/[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$";
            prop_assert_eq!(is_resource_name(&text), regex::Regex::new(pattern).unwrap().is_match(&text));
        }
    }
}
