//! Models the labels of a Node that say of which Configurations it has devices. Pure.
use super::{resource_name::ResourceName, typed_names::ConfigurationName};
use std::collections::{BTreeMap, BTreeSet};

/// The beginning of the key of such a label: the API group and `has-`.
const PREFIX: &str = "akri.sh/has-";
/// The value of such a label. One with another value is somebody else's.
pub const VALUE: &str = "true";

/// The labels of an object.
pub type Labels = BTreeMap<String, String>;

/// The Configurations whose labels a Node gets, and those whose labels it loses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LabelChanges {
    pub added: BTreeSet<ConfigurationName>,
    pub removed: BTreeSet<ConfigurationName>,
}

impl LabelChanges {
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty()
    }
}

/// Returns the key of a Configuration's label. The namespace is not in it, because of one name only one Configuration works.
pub fn key(configuration: &ConfigurationName) -> String {
    format!("{PREFIX}{configuration}")
}

/// Returns the Configurations of which a Node says that it has devices.
pub fn labelled(labels: &Labels) -> BTreeSet<ConfigurationName> {
    let ours = (labels.iter()).filter(|(_, value)| *value == VALUE);
    let names = ours.filter_map(|(key, _)| key.strip_prefix(PREFIX));
    names.map(ConfigurationName::from).collect()
}

/// Returns whether a Node may get the label of a Configuration: nobody else has set it, and the API server takes its key, which it
/// does for the name of every Configuration that works.
pub fn is_free(labels: &Labels, configuration: &ConfigurationName) -> bool {
    let key = key(configuration);
    // The rule for the keys of labels is that for the names of resources.
    !labels.contains_key(&key) && key.parse::<ResourceName>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::names::CONFIGURATION_NAME_LIMIT;

    #[test]
    fn the_longest_name_of_a_configuration_has_a_label_and_a_longer_one_that_no_key_can_hold_has_none()
     {
        let is_free = |name: &str| is_free(&Labels::new(), &name.into());
        assert!(is_free(&"a".repeat(CONFIGURATION_NAME_LIMIT)));
        assert!(!is_free(&"a".repeat(64 - "has-".len())));
        assert!(!is_free("ends-with-") && !is_free("") && !is_free("a/b"));
    }

    #[test]
    fn a_label_with_another_value_or_another_key_is_somebody_elses() {
        let labels: Labels = [
            ("akri.sh/has-cam", "true"),
            ("akri.sh/has-usb", "yes"),
            ("akri.sh/hascam", "true"),
            ("example.com/has-cam", "true"),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into();
        assert_eq!(labelled(&labels), ["cam".into()].into());
        assert!(!is_free(&labels, &"usb".into()) && is_free(&labels, &"tty".into()));
    }
}
