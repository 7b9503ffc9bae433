//! Defines the template of the names of Instances (`spec.instanceName`): text, and names of properties in braces. Pure.
use super::{instance_name::InstanceName, limits};
use std::{collections::BTreeMap, str::FromStr};

/// The template of the names of a Configuration's Instances, such as `zigbee-{UDEV_ID_SERIAL_SHORT}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameTemplate(Vec<Part>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(String),
    Property(String),
}

/// The error for a text that is not the template of a name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "is {0:?}; it must be lower-case letters, digits, inner hyphens and names of properties in braces, such as zigbee-{{UDEV_ID_SERIAL_SHORT}}"
)]
pub struct NotATemplate(String);

/// The reason why a template makes no name of the properties of a device.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoName {
    #[error("the device has no property {0}")]
    Missing(String),
    #[error("its property {0} is {1:?}, which has no letter a to z and no digit")]
    Empty(String, String),
    #[error("the name would begin with {0}, and {most} characters are the most", most = limits::INSTANCE_NAME_MAX)]
    TooLong(String),
}

impl FromStr for NameTemplate {
    type Err = NotATemplate;

    fn from_str(text: &str) -> Result<Self, NotATemplate> {
        let parts = parts(text).filter(|parts| {
            let is_edge = |part: Option<&Part>, is_hyphen: fn(&str) -> bool| match part {
                Some(Part::Text(text)) => !is_hyphen(text),
                Some(Part::Property(_)) => true,
                None => false,
            };
            is_edge(parts.first(), |text| text.starts_with('-'))
                && is_edge(parts.last(), |text| text.ends_with('-'))
        });
        parts.map(Self).ok_or_else(|| NotATemplate(text.to_owned()))
    }
}

fn parts(text: &str) -> Option<Vec<Part>> {
    let is_text = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    let (mut parts, mut rest) = (vec![], text);
    while !rest.is_empty() {
        let (part, after) = match rest.strip_prefix('{') {
            Some(inner) => {
                let (name, after) = inner.split_once('}')?;
                let is_name = !name.is_empty() && !name.contains('{');
                (is_name.then(|| Part::Property(name.to_owned()))?, after)
            }
            None => {
                let (text, after) = rest.split_at(rest.find('{').unwrap_or(rest.len()));
                let is_text = text.bytes().all(is_text);
                (is_text.then(|| Part::Text(text.to_owned()))?, after)
            }
        };
        parts.push(part);
        rest = after;
    }
    Some(parts)
}

impl NameTemplate {
    /// Returns the name of an Instance with these properties. Of several maps the first that has a property counts.
    pub fn name(&self, properties: &[&BTreeMap<String, String>]) -> Result<InstanceName, NoName> {
        let mut name = String::new();
        for part in &self.0 {
            match part {
                Part::Text(text) => name += text,
                Part::Property(property) => {
                    let value = properties.iter().find_map(|all| all.get(property));
                    let value = value.ok_or_else(|| NoName::Missing(property.clone()))?;
                    let label = label(value);
                    if label.is_empty() {
                        let value = limits::cut(value.clone(), limits::INSTANCE_NAME_MAX);
                        return Err(NoName::Empty(property.clone(), value));
                    }
                    name += &label;
                }
            }
            if name.len() > limits::INSTANCE_NAME_MAX {
                name.truncate(limits::INSTANCE_NAME_MAX);
                return Err(NoName::TooLong(name));
            }
        }
        Ok(name.into())
    }

    /// Returns whether a device could give its Instance this name, by the text of the template. One without any text says
    /// nothing about names.
    pub fn may_make(&self, name: &str) -> bool {
        let text = |part: Option<&Part>| match part {
            Some(Part::Text(text)) => text.clone(),
            Some(Part::Property(_)) | None => String::new(),
        };
        let (start, end) = (text(self.0.first()), text(self.0.last()));
        match self.0.as_slice() {
            [Part::Text(text)] => text == name,
            _ if start.is_empty() && end.is_empty() => false,
            _ => {
                let inner = name.strip_prefix(&*start);
                let inner = inner.and_then(|rest| rest.strip_suffix(&*end));
                inner.is_some_and(|inner| !inner.is_empty())
            }
        }
    }
}

/// Returns a value as a name has it: in lower case, with a hyphen for each run of other characters than letters and digits. Of a
/// long value enough is returned to see that it is too long.
fn label(value: &str) -> String {
    let mut label = String::new();
    for c in value.chars().map(|c| c.to_ascii_lowercase()) {
        match c {
            c if c.is_ascii_alphanumeric() => label.push(c),
            _ if label.is_empty() || label.ends_with('-') => {}
            _ => label.push('-'),
        }
        // The last of them may be a hyphen.
        if label.len() > limits::INSTANCE_NAME_MAX + 1 {
            break;
        }
    }
    label.truncate(label.trim_end_matches('-').len());
    label
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::resource_name::{ResourceName, ResourcePrefix};
    use proptest::{collection::btree_map, prelude::*};

    fn template(text: &str) -> NameTemplate {
        text.parse().unwrap()
    }

    fn properties(all: &[(&str, &str)]) -> BTreeMap<String, String> {
        let all = all.iter();
        all.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn a_name_is_text_and_the_values_of_properties_in_lower_case_with_hyphens() {
        let stick = properties(&[
            ("SERIAL", "DE_2132..111 "),
            ("PATH", "pci-0000:00:14.0-usb-0:2:1.0"),
            ("txt key", "Hall é 1"),
        ]);
        for (text, name) in [
            ("zigbee-{SERIAL}", "zigbee-de-2132-111"),
            ("{PATH}", "pci-0000-00-14-0-usb-0-2-1-0"),
            ("{txt key}--x", "hall-1--x"),
            ("zigbee", "zigbee"),
        ] {
            assert_eq!(template(text).name(&[&stick]).unwrap(), name);
        }
        let site = properties(&[("SERIAL", "site")]);
        let name = template("a-{SERIAL}").name(&[&site, &stick]).unwrap();
        assert_eq!(name, "a-site");
    }

    #[test]
    fn what_makes_no_name_says_which_property_and_why() {
        let long = "x".repeat(10_000);
        let at_most = "y".repeat(63);
        let hyphen = format!("{at_most}-z");
        let all = properties(&[
            ("EMPTY", ""),
            ("SIGNS", "é/-_"),
            ("LONG", &long),
            ("MOST", &at_most),
            ("HYPHEN", &hyphen),
        ]);
        let why = |text: &str| template(text).name(&[&all]).unwrap_err().to_string();
        assert_eq!(why("a-{NONE}"), "the device has no property NONE");
        assert!(why("a-{EMPTY}").starts_with("its property EMPTY is \"\""));
        assert!(why("{SIGNS}").starts_with("its property SIGNS is \"é/-_\""));
        let most = "63 characters are the most";
        for text in ["{LONG}", "a{MOST}", "{MOST}a", "{HYPHEN}"] {
            assert!(why(text).ends_with(most), "{text}");
        }
        assert!(template("{MOST}").name(&[&all]).is_ok());
    }

    #[test]
    fn a_name_that_a_template_may_make_is_known_by_its_text() {
        for (text, name, is_possible) in [
            ("zigbee", "zigbee", true),
            ("zigbee", "zigbee-1", false),
            ("zigbee-{A}", "zigbee-1", true),
            ("zigbee-{A}", "zigbee-", false),
            ("zigbee-{A}", "zwave-1", false),
            ("{A}-hall-{B}", "x-hall-y", false),
            ("{A}-hall", "cam-hall", true),
            ("a-{A}-a", "a-a", false),
            ("{A}", "anything", false),
        ] {
            let may_make = template(text).may_make(name);
            assert_eq!(may_make, is_possible, "{text} {name}");
        }
    }

    proptest! {
        #[test]
        fn what_is_a_template_is_what_the_schema_says(text in "[a-zA{}._-]{0,10}") {
            let pattern = r"^([a-z0-9]|\{[^{}]+\})(([-a-z0-9]|\{[^{}]+\})*([a-z0-9]|\{[^{}]+\}))?$";
            let is_template = text.parse::<NameTemplate>().is_ok();
            prop_assert_eq!(is_template, regex_lite::Regex::new(pattern).unwrap().is_match(&text));
        }

        #[test]
        fn every_name_is_that_of_a_resource_and_of_an_object(
            text in "([a-z0-9]|\\{[AB]\\}){1,3}(-([a-z]{1,20}|\\{[ABC]\\})){0,4}",
            values in btree_map("[ABC]", "\\PC{0,80}|[a-z._-]{60,70}", 0..4),
        ) {
            let template = template(&text);
            let prefix: ResourcePrefix = "akri.sh".parse().unwrap();
            if let Ok(name) = template.name(&[&values]) {
                let resource = prefix.resource(&name);
                prop_assert!(resource.parse::<ResourceName>().is_ok(), "{}", resource);
                let is_inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
                prop_assert!(name.bytes().all(is_inner), "{}", name);
            }
        }
    }
}
