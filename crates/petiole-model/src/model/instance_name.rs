//! Builds the name of an Instance: `<configuration>-<digest of the device>`, as Akri does. Those of `spec.instanceName` are made in
//! `name_template.rs`. Pure.
use super::{
    device::{DeviceId, Scope},
    names::{Key, digest_6, digest_10},
    typed_names::{ConfigurationName, NodeName, object_name},
};

object_name! {
    /// The name of an Instance: `<configuration>-<digest>`, or what `spec.instanceName` of its Configuration says. An Instance
    /// that somebody else made may have any name.
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

    /// Returns the digest by which variables of an Instance of this Configuration end, in upper case: the one in its name. For a
    /// name of its own it is that of the name, so that the variables are the same on whichever node the device is.
    pub fn digest_in(&self, configuration: &ConfigurationName) -> String {
        if self.is_own(configuration) {
            digest_10(&self.0)
        } else {
            self.digest().unwrap_or_default().to_owned()
        }
    }

    /// Returns whether the name of an Instance of this Configuration is not made of a digest.
    pub fn is_own(&self, configuration: &ConfigurationName) -> bool {
        let rest = self.0.strip_prefix(configuration.as_str());
        !rest.is_some_and(|rest| rest.strip_prefix('-').is_some_and(is_digest))
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

/// Returns whether a text is a digest as names of Instances end with.
pub fn is_digest(text: &str) -> bool {
    matches!(text.len(), 6 | 10) && text.bytes().all(|b| b.is_ascii_hexdigit())
}

/// Returns whether a text is such a digest as variables of containers end with, in upper case.
pub fn is_digest_of_variable(text: &str) -> bool {
    is_digest(text) && !text.bytes().any(|b| b.is_ascii_lowercase())
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
    fn variables_end_with_the_digest_in_a_name_or_with_that_of_a_name_of_its_own() {
        let of = |name: &str| InstanceName::from(name).digest_in(&"cam".into());
        assert_eq!(of("cam-8120fe"), "8120fe");
        assert_eq!(of("cam-0123456789"), "0123456789");
        let own = [
            "cam",
            "8120fe",
            "cam-hall",
            "x-8120fe",
            "cam-x-8120fe",
            "hall",
            "cam-8120f",
            "hall-cam",
        ];
        let digests: std::collections::BTreeSet<String> = own.iter().map(|name| of(name)).collect();
        assert_eq!(digests.len(), own.len());
        assert!(
            digests
                .iter()
                .all(|digest| digest.len() == 10 && is_digest(digest))
        );
    }

    #[test]
    fn a_name_of_another_form_has_no_digest() {
        for name in ["nodigest", "-", "cam-", "-8120fe"] {
            let name = InstanceName::from(name);
            assert_eq!((name.digest(), name.configuration()), (None, None));
        }
    }
}
