//! Builds the name of an Instance: `<configuration>-<digest of the device>`, as Akri does. Pure.
use super::{
    device::{DeviceId, Scope},
    names::{digest_6, digest_10},
    typed_names::NodeName,
};
use std::{fmt, str::FromStr};

/// The name `<configuration>-<digest>`. The digest, in upper case, is the suffix of environment variables.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InstanceName(String);

impl InstanceName {
    /// Returns the possible names of a device, in order of preference: with the 6-digit digest, as in Akri, and with
    /// the 10-digit digest if another device has that name.
    pub fn candidates(
        configuration: &str,
        device: &DeviceId,
        scope: Scope,
        node: &NodeName,
    ) -> [Self; 2] {
        let identity = match scope {
            Scope::Shared => device.to_string(),
            Scope::Node => format!("{device}{node}"),
        };
        [digest_6(&identity), digest_10(&identity)]
            .map(|digest| Self(format!("{configuration}-{digest}")))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the part after the last `-`.
    pub fn digest(&self) -> &str {
        self.0.rsplit_once('-').map_or("", |(_, digest)| digest)
    }
}

impl fmt::Display for InstanceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The error for a text that is not the name of an Instance.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not an Instance name, which is <configuration>-<digest>")]
pub struct NotAnInstanceName(String);

impl FromStr for InstanceName {
    type Err = NotAnInstanceName;

    fn from_str(name: &str) -> Result<Self, NotAnInstanceName> {
        match name.rsplit_once('-') {
            Some((configuration, digest)) if !configuration.is_empty() && !digest.is_empty() => {
                Ok(Self(name.to_owned()))
            }
            Some(_) | None => Err(NotAnInstanceName(name.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(device: &str, scope: Scope, node: &str) -> String {
        let [name, _] = InstanceName::candidates("c", &DeviceId::new(device), scope, &node.into());
        name.to_string()
    }

    #[test]
    fn digests_are_those_akri_makes() {
        for (device, digest) in [
            ("foo0", "8120fe"),
            ("foo1", "a19705"),
            ("bar0", "d46b65"),
            ("bar1", "ab76e6"),
            ("my_shared_device", "4294ea"),
        ] {
            assert_eq!(first(device, Scope::Shared, "any"), format!("c-{digest}"));
        }
        assert_eq!(first("my_local_device", Scope::Node, "my_node"), "c-e77db4");
    }

    #[test]
    fn a_shared_device_has_one_name_on_all_nodes_and_a_local_one_a_name_for_each() {
        assert_eq!(
            first("d", Scope::Shared, "a"),
            first("d", Scope::Shared, "b")
        );
        assert_ne!(first("d", Scope::Node, "a"), first("d", Scope::Node, "b"));
    }

    #[test]
    fn the_second_candidate_has_ten_digits() {
        let [_, long] =
            InstanceName::candidates("cam", &DeviceId::new("x"), Scope::Shared, &"n".into());
        assert_eq!(long.digest().len(), 10);
    }

    #[test]
    fn names_are_read_back_as_they_are_written() {
        let [name, _] =
            InstanceName::candidates("a-b", &DeviceId::new("x"), Scope::Shared, &"n".into());
        assert_eq!(name.to_string().parse(), Ok(name));
        assert!("nodigest".parse::<InstanceName>().is_err());
        assert!("-".parse::<InstanceName>().is_err());
    }
}
