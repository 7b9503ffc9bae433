//! Defines the names of resources, as the kubelet and the scheduler know them, and our prefixes of them. Pure.
use super::{plugin_name::PluginName, typed_names::name};
use std::{fmt, str::FromStr};

/// The longest part of a resource's name after the slash, in bytes. Beyond it: the name is refused.
const NAME_LIMIT: usize = 63;
/// The longest DNS subdomain, in bytes.
const SUBDOMAIN_LIMIT: usize = 253;
/// The longest prefix of our resources, in bytes. With `requests.` before it, as in a quota, it must still be a DNS
/// subdomain. Beyond it: the program does not start with it.
const PREFIX_LIMIT: usize = SUBDOMAIN_LIMIT - "requests.".len();

name! {
    /// The whole name of an extended resource: a DNS subdomain, a slash and a name, such as `akri.sh/cam-8120fe`.
    ///
    /// Names that users write are parsed. Other names come from the kubelet or from a Node, or are the names of objects
    /// with our prefix: those have been validated before.
    ResourceName
}

/// The error for a text that is not the name of an extended resource.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not the name of a resource, which is <prefix>/<name>")]
pub struct NotAResourceName(String);

impl FromStr for ResourceName {
    type Err = NotAResourceName;

    fn from_str(text: &str) -> Result<Self, NotAResourceName> {
        let is_inner = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
        let is_name = |name: &str| {
            name.len() <= NAME_LIMIT
                && name.starts_with(|c: char| c.is_ascii_alphanumeric())
                && name.ends_with(|c: char| c.is_ascii_alphanumeric())
                && name.bytes().all(is_inner)
        };
        match text.split_once('/') {
            Some((prefix, name)) if is_subdomain(prefix) && is_name(name) => {
                Ok(Self(text.to_owned()))
            }
            Some(_) | None => Err(NotAResourceName(text.to_owned())),
        }
    }
}

impl ResourceName {
    /// Returns the part before the slash, such as `akri.sh`.
    pub fn prefix(&self) -> &str {
        self.0.split_once('/').map_or("", |(prefix, _)| prefix)
    }

    /// Returns the part after the slash.
    pub fn last_segment(&self) -> &str {
        self.0.split_once('/').map_or(&*self.0, |(_, name)| name)
    }
}

/// Returns whether a text is a DNS subdomain of labels that DNS can resolve.
fn is_subdomain(text: &str) -> bool {
    let is_lower = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let is_label = |label: &str| {
        label.len() <= 63
            && label.starts_with(is_lower)
            && label.ends_with(is_lower)
            && label.chars().all(|c| is_lower(c) || c == '-')
    };
    text.len() <= SUBDOMAIN_LIMIT && text.split('.').all(is_label)
}

name! {
    /// The part before the slash of resources of ours, such as `akri.sh`. The kubelet accepts device plugins with it.
    ResourcePrefix
}

/// The error for a text that is not a prefix of resources of ours.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotAPrefix {
    #[error("has {0} characters, {PREFIX_LIMIT} are allowed")]
    TooLong(usize),
    #[error("is no DNS subdomain: write lower-case letters, digits, `-` and `.`, such as akri.sh")]
    NoSubdomain,
    #[error("is Kubernetes' own: the kubelet takes no device plugin with it")]
    OfKubernetes,
}

impl FromStr for ResourcePrefix {
    type Err = NotAPrefix;

    fn from_str(text: &str) -> Result<Self, NotAPrefix> {
        if text.len() > PREFIX_LIMIT {
            return Err(NotAPrefix::TooLong(text.len()));
        }
        if !is_subdomain(text) {
            return Err(NotAPrefix::NoSubdomain);
        }
        // The kubelet rejects both of these from a device plugin.
        if text.ends_with("kubernetes.io") || text.starts_with("requests.") {
            return Err(NotAPrefix::OfKubernetes);
        }
        Ok(Self(text.to_owned()))
    }
}

impl ResourcePrefix {
    /// Returns the name of the resource of an Instance, or of a Configuration that sets no other name.
    pub fn resource(&self, of: impl Into<PluginName>) -> ResourceName {
        ResourceName(format!("{}/{}", self.0, of.into()))
    }
}

/// The prefixes of all resources that are ours. There is at least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourcePrefixes {
    first: ResourcePrefix,
    others: Vec<ResourcePrefix>,
}

impl ResourcePrefixes {
    pub fn new(first: ResourcePrefix, others: impl IntoIterator<Item = ResourcePrefix>) -> Self {
        Self {
            first,
            others: others.into_iter().collect(),
        }
    }

    /// Returns the prefix of resources without a configured name.
    pub fn first(&self) -> &ResourcePrefix {
        &self.first
    }

    /// Returns whether a resource has one of these prefixes.
    pub fn owns(&self, resource: &ResourceName) -> bool {
        self.iter().any(|prefix| prefix == resource.prefix())
    }

    /// Returns a name that the kubelet or the API server has, if it has one of these prefixes.
    pub fn own_name(&self, resource: impl Into<String>) -> Option<ResourceName> {
        let resource = ResourceName(resource.into());
        self.owns(&resource).then_some(resource)
    }

    fn iter(&self) -> impl Iterator<Item = &ResourcePrefix> {
        std::iter::once(&self.first).chain(&self.others)
    }
}

impl fmt::Display for ResourcePrefixes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.first)?;
        self.others
            .iter()
            .try_for_each(|prefix| write!(f, ", {prefix}"))
    }
}

/// Parses prefixes with commas between them, as in `--resource-prefixes`.
impl FromStr for ResourcePrefixes {
    type Err = NotAPrefix;

    fn from_str(text: &str) -> Result<Self, NotAPrefix> {
        let (first, others) = match text.split_once(',') {
            None => return Ok(Self::new(text.parse()?, [])),
            Some(parts) => parts,
        };
        let others: Result<Vec<_>, _> = others.split(',').map(str::parse).collect();
        Ok(Self::new(first.parse()?, others?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::instance_name::InstanceName;
    use proptest::prelude::*;

    #[test]
    fn prefixes_are_dns_subdomains_that_the_kubelet_takes() {
        for text in ["akri.sh", "x", "a-b.example.com", "1.io"] {
            assert_eq!(text.parse::<ResourcePrefix>().unwrap(), text);
        }
        let long = "a.".repeat(122) + "b";
        for text in [
            "",
            "Akri.sh",
            "akri.sh/",
            "-a.sh",
            "a-.sh",
            "a..sh",
            ".sh",
            "a_b.sh",
            "kubernetes.io",
            "x.kubernetes.io",
            "requests.akri.sh",
            &long,
        ] {
            assert!(text.parse::<ResourcePrefix>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_prefix_is_all_that_is_before_the_slash() {
        let ours: ResourcePrefixes = "akri.sh,pflex.io".parse().unwrap();
        for (resource, expected) in [
            ("akri.sh/cam", true),
            ("pflex.io/cam", true),
            ("akri.sh.example.com/cam", false),
            ("not-akri.sh/cam", false),
            ("akri.sh", false),
            ("cpu", false),
        ] {
            let own = ours.own_name(resource);
            assert_eq!(own.is_some(), expected, "{resource}");
        }
        assert_eq!(ours.to_string(), "akri.sh, pflex.io");
        assert!("akri.sh,".parse::<ResourcePrefixes>().is_err());
    }

    #[test]
    fn the_resource_of_an_object_has_the_first_prefix_and_its_name() {
        let ours: ResourcePrefixes = "akri.sh,pflex.io".parse().unwrap();
        let name = ours.first().resource(&InstanceName::from("cam-8120fe"));
        assert_eq!(name, "akri.sh/cam-8120fe");
        assert_eq!(
            (name.prefix(), name.last_segment()),
            ("akri.sh", "cam-8120fe")
        );
        assert_eq!(name.parse(), Ok(name));
    }

    proptest! {
        #[test]
        fn what_is_a_resource_name_is_what_the_schema_says(
            text in "[a-zA-Z0-9./_-]{0,12}|[a-z0-9.-]{1,70}/[a-zA-Z0-9._-]{1,70}"
        ) {
            let pattern = r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*/[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$";
            let is_name = text.parse::<ResourceName>().is_ok();
            prop_assert_eq!(is_name, regex_lite::Regex::new(pattern).unwrap().is_match(&text));
        }
    }
}
