//! Finds rendered Pods that the kubelet admitted without their device or refused, and plans their next attempt. Pure.
//!
//! A kubelet admits or refuses a static Pod once, when it first reads its manifest. Where that was before the agent had offered
//! the device (after a power cut, say), the Pod has failed for good, or runs without the device (kubelet.go:
//! `HandlePodAdditions`; devicemanager: `Allocate`). A manifest with other contents is another Pod to it.
use crate::{
    agent::values::{IdsByResource, PodList},
    backoff,
    model::{
        names::ObjectKey,
        resource_name::{ResourceName, ResourcePrefixes},
    },
};
use serde_json::Value;
use std::{collections::BTreeSet, time::Duration};

/// A kubelet that runs has read a new manifest within this time.
const PATIENCE: Duration = Duration::from_secs(5);
/// A kubelet that starts begins to read manifests within this time: its loop waits so long at most for the container
/// runtime (kubelet.go: `syncLoop`).
const STARTS: Duration = Duration::from_secs(5);
/// The longest wait between two attempts with a Pod that is refused for another reason, for example too little memory.
const LONGEST_PATIENCE: Duration = Duration::from_secs(300);

/// The kubelet's view of our resources.
#[derive(Debug, Default)]
pub(super) struct Kubelet {
    /// The ids that it would allocate now.
    pub(super) allocatable: IdsByResource,
    pub(super) held: PodList,
    /// The time since it appeared.
    pub(super) age: Duration,
}

/// A Pod that lacks its device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Lack {
    /// The uptime that its patience counts from: first seen without its device, a device became free, or its last try,
    /// whichever was last.
    since: Duration,
    tries: u32,
}

#[derive(Debug, PartialEq, Eq)]
enum State {
    Held,
    /// The Pod has no device, and could get it.
    Lacking,
    /// The device is in use or not there, or the kubelet has just started.
    Unknown,
}

/// Returns the state of a Pod for the next look, and whether it is tried anew now.
pub(super) fn next_attempt(
    pod: &Value,
    kubelet: &Kubelet,
    before: Option<Lack>,
    now: Duration,
) -> (Option<Lack>, bool) {
    let begun = Lack {
        since: now,
        tries: before.map_or(0, |lack| lack.tries),
    };
    match state(pod, kubelet) {
        State::Held => (None, false),
        State::Unknown => (before.map(|_| begun), false),
        State::Lacking => {
            let lack = before.unwrap_or(begun);
            let patience = backoff::after(lack.tries, PATIENCE, LONGEST_PATIENCE);
            if now.saturating_sub(lack.since) < patience {
                (Some(lack), false)
            } else {
                let tries = lack.tries + 1;
                (Some(Lack { since: now, tries }), true)
            }
        }
    }
}

fn state(pod: &Value, kubelet: &Kubelet) -> State {
    // One that has ended holds nothing either, and is not to run again.
    let ends = (pod["spec"]["restartPolicy"].as_str()).is_some_and(|policy| policy != "Always");
    if ends || kubelet.age < STARTS {
        return State::Unknown;
    }
    let asked = asked(pod);
    let ours =
        (kubelet.allocatable.iter()).filter(|(resource, _)| asked.contains(resource.as_str()));
    let mut state = State::Unknown;
    for (resource, healthy) in ours {
        let taken = kubelet.held.by_resource.get(resource);
        let is_taken = |id: &String| taken.is_some_and(|taken| taken.contains(id));
        if kubelet.holds(pod, resource) {
            state = State::Held;
        } else if healthy.iter().all(is_taken) {
            return State::Unknown;
        } else {
            return State::Lacking;
        }
    }
    state
}

impl Kubelet {
    /// Returns whether it has a plugin for every resource with one of these prefixes that the Pod asks for: it would
    /// start the Pod without the others.
    pub(super) fn knows_what_is_asked(&self, pod: &Value, prefixes: &ResourcePrefixes) -> bool {
        let spec = &pod["spec"];
        let containers = ["initContainers", "containers"].map(|list| spec[list].as_array());
        let asked = asked_by(containers.into_iter().flatten()).into_iter();
        let mut ours = asked.filter_map(|name| prefixes.own_name(name));
        ours.all(|resource| self.allocatable.contains_key(&resource))
    }

    /// Returns whether the Pod holds the resource. The kubelet names a static Pod by its own name and the node's.
    fn holds(&self, pod: &Value, resource: &ResourceName) -> bool {
        let metadata = &pod["metadata"];
        let namespace = metadata["namespace"].as_str().unwrap_or("default");
        let name = metadata["name"].as_str().unwrap_or_default();
        let is_this = |holder: &ObjectKey| {
            let node = holder.name.strip_prefix(name);
            holder.namespace == namespace && node.is_some_and(|node| node.starts_with('-'))
        };
        (self.held.holders.get(resource)).is_some_and(|holders| holders.iter().any(is_this))
    }
}

/// The resources that containers ask for as long as the Pod runs: pod resources do not list what an init container
/// was given.
fn asked(pod: &Value) -> BTreeSet<&str> {
    asked_by(pod["spec"]["containers"].as_array())
}

fn asked_by<'a>(containers: impl IntoIterator<Item = &'a Vec<Value>>) -> BTreeSet<&'a str> {
    let lists = containers.into_iter().flatten().flat_map(|container| {
        let resources = &container["resources"];
        [&resources["limits"], &resources["requests"]]
    });
    let entries = lists.filter_map(Value::as_object).flatten();
    entries.map(|(resource, _)| resource.as_str()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const RESOURCE: &str = "akri.sh/cam-1";

    fn broker() -> Value {
        json!({
            "metadata": {"name": "box-cam-1-pod", "namespace": "default"},
            "spec": {"containers": [
                {"name": "main", "resources": {"limits": {"cpu": "100m", (RESOURCE): 1}}},
            ]},
        })
    }

    /// The kubelet has one slot to give, and these Pods hold ids.
    fn kubelet(holders: &[(&str, &str, &str)]) -> Kubelet {
        let mut kubelet = Kubelet {
            age: Duration::from_secs(3600),
            ..Kubelet::default()
        };
        let slots = BTreeSet::from(["cam-1-0".to_owned()]);
        let resource: ResourceName = RESOURCE.parse().unwrap();
        kubelet.allocatable.insert(resource.clone(), slots);
        for &(namespace, pod, id) in holders {
            let held = &mut kubelet.held;
            let ids = held.by_resource.entry(resource.clone()).or_default();
            ids.insert(id.to_owned());
            let holders = held.holders.entry(resource.clone()).or_default();
            holders.insert(ObjectKey::new(namespace, pod));
        }
        kubelet
    }

    const NONE: [u64; 0] = [];
    const HELD: &[(&str, &str, &str)] = &[("default", "box-cam-1-pod-box", "cam-1-0")];

    /// The seconds at which a Pod is tried anew, if it is looked at each second.
    fn tries(pod: &Value, looks: impl IntoIterator<Item = Kubelet>) -> Vec<u64> {
        let mut lack = None;
        let mut tries = vec![];
        for (second, kubelet) in (0..).zip(looks) {
            let (next, is_tried) = next_attempt(pod, &kubelet, lack, Duration::from_secs(second));
            lack = next;
            tries.extend(is_tried.then_some(second));
        }
        tries
    }

    fn always(holders: &[(&str, &str, &str)], seconds: usize) -> Vec<Kubelet> {
        (0..seconds).map(|_| kubelet(holders)).collect()
    }

    #[test]
    fn a_pod_that_holds_its_device_is_left_alone() {
        assert_eq!(tries(&broker(), always(HELD, 100)), NONE);
    }

    #[test]
    fn a_pod_without_its_device_is_tried_anew_ever_more_seldom() {
        let all = tries(&broker(), always(&[], 2000));
        assert_eq!(all[..5], [5, 15, 35, 75, 155]);
        assert!(all.windows(2).all(|two| two[1] - two[0] <= 300), "{all:?}");
        assert_eq!(all.last(), Some(&1815));
    }

    #[test]
    fn one_that_gets_its_device_in_time_is_not_tried_and_one_that_loses_it_is_soon() {
        let looks = [always(&[], 4), always(HELD, 10), always(&[], 6)];
        assert_eq!(tries(&broker(), looks.into_iter().flatten()), [19]);
        let looks = [always(&[], 6), always(HELD, 1), always(&[], 6)];
        assert_eq!(tries(&broker(), looks.into_iter().flatten()), [5, 12]);
    }

    #[test]
    fn while_its_device_is_somebody_elses_or_not_there_it_is_not_tried() {
        let others = [
            ("default", "mine-box", "cam-1-0"),
            ("default", "box-cam-1-podium-box", "cam-1-0"),
            ("elsewhere", "box-cam-1-pod-box", "cam-1-0"),
        ];
        for other in others {
            assert_eq!(tries(&broker(), always(&[other], 100)), NONE, "{other:?}");
        }
        let gone = (0..100).map(|_| Kubelet::default());
        assert_eq!(tries(&broker(), gone), NONE);
        // Its patience begins when there is a device to give.
        let looks = [always(&[others[0]], 50), always(&[], 7)];
        assert_eq!(tries(&broker(), looks.into_iter().flatten()), [55]);
    }

    #[test]
    fn a_kubelet_that_starts_is_given_time_to_read_its_manifests() {
        let looks = (0..12).map(|second| Kubelet {
            age: Duration::from_secs(second),
            ..kubelet(&[])
        });
        assert_eq!(tries(&broker(), looks), [10]);
    }

    #[test]
    fn one_that_ends_by_itself_or_asks_for_nothing_is_not_tried() {
        for policy in ["Never", "OnFailure"] {
            let mut pod = broker();
            pod["spec"]["restartPolicy"] = json!(policy);
            assert_eq!(tries(&pod, always(&[], 100)), NONE);
        }
        let mut pod = broker();
        let containers = pod["spec"]["containers"].take();
        pod["spec"]["initContainers"] = containers;
        pod["spec"]["containers"] = json!([{"name": "main"}]);
        assert_eq!(tries(&pod, always(&[], 100)), NONE);
    }
}
