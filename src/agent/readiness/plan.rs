//! Decides whether an agent is ready, and what it waits for. Pure.
//!
//! While a kubelet restarts the agent is not ready, once, from when the old one lets go of the plugins until the new one
//! listens to all of them. A device that is new to an agent that is ready has some time to be registered: nobody is warned
//! because a Configuration is applied.
use crate::{model::resource_name::ResourceName, store::Configurations};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    time::Duration,
};
use tokio::time::Instant;

/// The time in which the kubelet takes a new plugin. It is some milliseconds.
const REGISTRATION_TIME: Duration = Duration::from_secs(10);

/// What the last answer was about.
#[derive(Debug, Default)]
pub(super) struct LastAnswer {
    pub(super) was_ready: bool,
    registered: BTreeSet<ResourceName>,
    /// The resources that were never registered, since they are wanted.
    new: BTreeMap<ResourceName, Instant>,
}

impl LastAnswer {
    /// Returns the resources whose registration the agent may still wait for.
    pub(super) fn expected(
        &mut self,
        desired: &BTreeSet<ResourceName>,
        registered: &BTreeSet<ResourceName>,
        now: Instant,
    ) -> BTreeSet<ResourceName> {
        let missing: BTreeSet<&ResourceName> = desired.difference(registered).collect();
        self.new.retain(|name, _| missing.contains(name));
        for name in missing {
            if !self.registered.contains(name) {
                self.new.entry(name.clone()).or_insert(now);
            }
        }
        self.registered.clone_from(registered);
        let is_new = |since: &Instant| self.was_ready && now - *since < REGISTRATION_TIME;
        let new = self.new.iter().filter(|(_, since)| is_new(since));
        new.map(|(name, _)| name.clone()).collect()
    }
}

/// The time for which an agent that stands by waits to see the devices of its node. A handler that does not answer stops no
/// update.
const FIRST_LOOKS: Duration = Duration::from_secs(30);

/// What an agent knows that stands by. It registers nothing.
#[derive(Debug, Clone, Copy)]
pub(super) struct StandingBy {
    pub(super) uptime: Duration,
    /// The number of devices of this node that it has neither seen nor missed yet: their containers would wait.
    pub(super) unseen: usize,
}

/// The inputs of the decision.
pub(super) struct World<'a> {
    pub(super) plugin_folder: &'a Path,
    pub(super) has_kubelet: bool,
    pub(super) configurations: &'a Configurations,
    /// The resources of this node's Instances.
    pub(super) desired: &'a BTreeSet<ResourceName>,
    /// The resources that are registered with the kubelet.
    pub(super) registered: &'a BTreeSet<ResourceName>,
    /// `None` if the agent has its place.
    pub(super) standing_by: Option<StandingBy>,
}

/// A line for each thing that is missing; none of an agent that is ready.
pub(super) fn missing(world: &World) -> Vec<String> {
    // One that cannot be read is no reason to be unready: the others are served.
    let configurations = (!world.configurations.are_read())
        .then(|| "the Configurations have not been read".to_owned());
    let kubelet = (!world.has_kubelet)
        .then(|| format!("no kubelet.sock in {}", world.plugin_folder.display()));
    let unregistered = (world.desired.difference(world.registered))
        .filter(|_| world.standing_by.is_none())
        .map(|name| format!("{name} is not registered with the kubelet"));
    let unseen = (world.standing_by)
        .filter(|this| this.unseen > 0 && this.uptime < FIRST_LOOKS)
        .map(|this| {
            format!(
                "{} devices of this node have not been seen yet",
                this.unseen
            )
        });
    configurations
        .into_iter()
        .chain(kubelet)
        .chain(unseen)
        .chain(unregistered)
        .collect()
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
            standing_by: None,
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
    fn a_resource_that_is_new_to_an_agent_that_is_ready_has_time_and_one_that_was_lost_has_none() {
        let names = |names: &[&str]| -> BTreeSet<ResourceName> {
            let whole = |name: &&str| format!("akri.sh/{name}").parse().unwrap();
            names.iter().map(whole).collect()
        };
        let began = Instant::now();
        let mut memory = LastAnswer::default();
        let mut expected = |seconds, desired: &[&str], registered: &[&str], was_ready| {
            memory.was_ready = was_ready;
            let now = began + Duration::from_secs(seconds);
            memory.expected(&names(desired), &names(registered), now)
        };
        assert_eq!(
            expected(0, &["a"], &[], false),
            names(&[]),
            "at the start all must be registered"
        );
        assert_eq!(expected(20, &["a"], &["a"], true), names(&[]));
        assert_eq!(expected(30, &["a", "b"], &["a"], true), names(&["b"]));
        assert_eq!(expected(39, &["a", "b"], &["a"], true), names(&["b"]));
        assert_eq!(
            expected(40, &["a", "b"], &["a"], true),
            names(&[]),
            "that took too long"
        );
        assert_eq!(expected(50, &["a", "b"], &["a", "b"], true), names(&[]));
        assert_eq!(
            expected(60, &["a", "b"], &[], true),
            names(&[]),
            "the kubelet restarts"
        );
        assert_eq!(expected(61, &["a", "b"], &[], false), names(&[]));
    }

    #[test]
    fn an_agent_that_stands_by_waits_for_the_devices_for_a_bounded_time_and_registers_nothing() {
        let standing_by = |seconds, unseen| {
            missing(&World {
                plugin_folder: Path::new("/var/lib/kubelet/device-plugins"),
                has_kubelet: true,
                configurations: &read(),
                desired: &["akri.sh/cam".parse().unwrap()].into(),
                registered: &BTreeSet::new(),
                standing_by: Some(StandingBy {
                    uptime: Duration::from_secs(seconds),
                    unseen,
                }),
            })
        };
        assert_eq!(standing_by(0, 0), [""; 0]);
        let unseen = "2 devices of this node have not been seen yet";
        assert_eq!(standing_by(29, 2), [unseen]);
        assert_eq!(standing_by(30, 2), [""; 0]);
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
                standing_by: None,
            })
        };
        assert_eq!(world(true), [""; 0]);
        assert_eq!(world(false), [NO_KUBELET]);
    }
}
