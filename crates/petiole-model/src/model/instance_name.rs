//! Builds the name of an Instance: `<configuration>-<digest of the device>`, as Akri does. Pure.
use super::{
    device::{DeviceId, Scope},
    names::{Key, digest_6, digest_10},
    typed_names::{ConfigurationName, NodeName, object_name},
};

object_name! {
    /// The name of an Instance. Agents and controllers make `<configuration>-<digest>`; the digest, in upper case, is the
    /// suffix of environment variables. An Instance that somebody else made may have any name.
    InstanceName
}

/// The key of an Instance.
pub type InstanceKey = Key<InstanceName>;

impl InstanceName {
    /// Returns the possible names of a device, in order of preference: with the 6-digit digest, as in Akri, and with
    /// the 10-digit digest if another device has that name.
    pub fn candidates(
        configuration: &ConfigurationName,
        device: &DeviceId,
        scope: Scope,
        node: &NodeName,
    ) -> [Self; 2] {
        let identity = match scope {
            Scope::Shared => device.to_string(),
            Scope::Node => format!("{device}{node}"),
        };
        [digest_6(&identity), digest_10(&identity)]
            .map(|digest| Self::with_digest(configuration, &digest))
    }

    pub fn with_digest(configuration: &ConfigurationName, digest: &str) -> Self {
        Self(format!("{configuration}-{digest}"))
    }

    /// Returns the part after the last `-`; `None` for a name of another form.
    pub fn digest(&self) -> Option<&str> {
        self.parts().map(|(_, digest)| digest)
    }

    /// Returns the Configuration that the name begins with; `None` for a name of another form.
    pub fn configuration(&self) -> Option<ConfigurationName> {
        self.parts().map(|(configuration, _)| configuration.into())
    }

    fn parts(&self) -> Option<(&str, &str)> {
        let parts = self.0.rsplit_once('-');
        parts.filter(|(configuration, digest)| !configuration.is_empty() && !digest.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(device: &str, scope: Scope, node: &str) -> String {
        let [name, _] =
            InstanceName::candidates(&"c".into(), &DeviceId::new(device), scope, &node.into());
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
        let id = DeviceId::new("x");
        let [short, long] =
            InstanceName::candidates(&"a-b".into(), &id, Scope::Shared, &"n".into());
        for (name, digits) in [(short, 6), (long, 10)] {
            assert_eq!(name.digest().map(str::len), Some(digits));
            assert_eq!(name.configuration().unwrap(), "a-b");
        }
    }

    #[test]
    fn a_name_of_another_form_has_no_digest() {
        for name in ["nodigest", "-", "cam-", "-8120fe"] {
            let name = InstanceName::from(name);
            assert_eq!((name.digest(), name.configuration()), (None, None));
        }
    }
}
