//! Decides whether an agent is ready, and what it waits for. Pure.
//!
//! Only what is so now counts, nothing that was: while a kubelet restarts the agent is not ready, once, from when the
//! old one lets go of the plugins until the new one listens to all of them. A device that is new is not registered for the
//! few milliseconds its registration takes; a probe at that moment gets the answer "not ready", and the next one "ready".
use crate::{model::resource_name::ResourceName, store::Configurations};
use std::{collections::BTreeSet, path::Path};

/// The inputs of the decision.
pub(super) struct World<'a> {
    pub(super) plugin_folder: &'a Path,
    pub(super) has_kubelet: bool,
    pub(super) configurations: &'a Configurations,
    /// The resources of this node's Instances.
    pub(super) desired: &'a BTreeSet<ResourceName>,
    /// The resources that are registered with the kubelet.
    pub(super) registered: &'a BTreeSet<ResourceName>,
}

/// A line for each thing that is missing; none of an agent that is ready.
pub(super) fn missing(world: &World) -> Vec<String> {
    let configurations = (!are_read(world.configurations))
        .then(|| "the Configurations have not been read".to_owned());
    let kubelet = (!world.has_kubelet)
        .then(|| format!("no kubelet.sock in {}", world.plugin_folder.display()));
    let unregistered = (world.desired.difference(world.registered))
        .map(|name| format!("{name} is not registered with the kubelet"));
    configurations
        .into_iter()
        .chain(kubelet)
        .chain(unregistered)
        .collect()
}

/// A manifest that nobody can read leaves the set incomplete for good, and is no reason to be unready: the others are
/// served.
fn are_read(configurations: &Configurations) -> bool {
    configurations.is_complete
        || !configurations.objects.is_empty()
        || !configurations.hidden.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::typed_names::ConfigurationKey;

    const UNREAD: &str = "the Configurations have not been read";
    const NO_KUBELET: &str = "no kubelet.sock in /var/lib/kubelet/device-plugins";
    const CAM: &str = "akri.sh/cam is not registered with the kubelet";
    const CAM_1: &str = "akri.sh/cam-1 is not registered with the kubelet";

    fn read() -> Configurations {
        Configurations {
            is_complete: true,
            ..Configurations::default()
        }
    }

    fn missing_with(
        configurations: &Configurations,
        has_kubelet: bool,
        registered: &[&str],
    ) -> Vec<String> {
        let whole = |name: &&str| format!("akri.sh/{name}").parse().unwrap();
        missing(&World {
            plugin_folder: Path::new("/var/lib/kubelet/device-plugins"),
            has_kubelet,
            configurations,
            desired: &["cam", "cam-1"].iter().map(whole).collect(),
            registered: &registered.iter().map(whole).collect(),
        })
    }

    #[test]
    fn an_agent_is_ready_when_configurations_are_read_and_every_resource_is_registered() {
        for (configurations, has_kubelet, registered, expected) in [
            (read(), true, &["cam", "cam-1"][..], &[][..]),
            // What is registered and no longer wanted is about to go.
            (read(), true, &["cam", "cam-1", "cam-2"], &[]),
            (read(), true, &["cam"], &[CAM_1]),
            (read(), true, &[], &[CAM, CAM_1]),
            (read(), false, &[], &[NO_KUBELET, CAM, CAM_1]),
            (
                Configurations::default(),
                true,
                &["cam", "cam-1"],
                &[UNREAD],
            ),
            (
                Configurations::default(),
                false,
                &["cam"],
                &[UNREAD, NO_KUBELET, CAM_1],
            ),
        ] {
            assert_eq!(
                missing_with(&configurations, has_kubelet, registered),
                expected
            );
        }
    }

    #[test]
    fn a_configuration_that_cannot_be_read_is_no_reason_to_be_unready() {
        let hidden = Configurations {
            hidden: [ConfigurationKey::new("default", "cam")].into(),
            ..Configurations::default()
        };
        assert_eq!(missing_with(&hidden, true, &["cam", "cam-1"]), [""; 0]);
    }

    #[test]
    fn without_an_instance_only_the_kubelet_and_the_configurations_count() {
        let world = |has_kubelet| {
            missing(&World {
                plugin_folder: Path::new("/var/lib/kubelet/device-plugins"),
                has_kubelet,
                configurations: &read(),
                desired: &BTreeSet::new(),
                registered: &BTreeSet::new(),
            })
        };
        assert_eq!(world(true), [""; 0]);
        assert_eq!(world(false), [NO_KUBELET]);
    }
}
