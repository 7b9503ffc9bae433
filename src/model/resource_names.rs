//! What each of our resources is called by the kubelet: `akri.sh/<name>`, or what its Configuration says.
use super::{names::ObjectKey, slot_table::Resource};
use std::collections::BTreeMap;

/// The whole names of resources. The one place that makes them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResourceNames {
    /// The prefix of every resource without a name of its own.
    prefix: String,
    /// Those of Configurations that have a name of their own, or must not have one now.
    own: BTreeMap<String, Option<String>>,
    /// Whether the Configurations have been read.
    are_known: bool,
}

impl ResourceNames {
    /// Until the Configurations are read nobody knows what theirs are called.
    pub fn new(prefix: &str, are_known: bool) -> Self {
        Self {
            prefix: prefix.to_owned(),
            own: BTreeMap::new(),
            are_known,
        }
    }

    /// `None` as the name: there is to be no such resource.
    pub fn set(&mut self, configuration: &ObjectKey, name: Option<String>) {
        self.own.insert(configuration.name.clone(), name);
    }

    /// The name of an Instance's resource, and that of a Configuration without one of its own.
    pub fn default_of(&self, name: &str) -> String {
        format!("{}/{name}", self.prefix)
    }

    /// What the kubelet calls the resource; `None` where it is not to be offered, or nobody knows yet.
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

/// Whether a text is the name of an extended resource: a DNS subdomain, a slash, a name.
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
