//! Describes the changes between two snapshots, and decides which step of `--once` is reached. Pure.
use super::snapshot::{Broker, HELD, Resource, Snapshot};
use std::{collections::BTreeMap, time::SystemTime};

/// A change, with the time at which it happened where something says it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Event {
    pub(super) text: String,
    pub(super) happened: Option<SystemTime>,
}

impl From<String> for Event {
    fn from(text: String) -> Self {
        Self {
            text,
            happened: None,
        }
    }
}

/// Describes the change from `before` to `after`, in the order in which it happens.
pub(super) fn events(before: &Snapshot, after: &Snapshot) -> Vec<Event> {
    let mut events: Vec<Event> = vec![];
    match (before.is_kubelet_up, after.is_kubelet_up) {
        (false, true) => events.push("kubelet is up".to_owned().into()),
        (true, false) => events.push("kubelet is down".to_owned().into()),
        (true, true) | (false, false) => {}
    }
    let new = after.instances.iter();
    let new = new.filter(|(name, _)| !before.instances.contains_key(*name));
    events.extend(new.map(|(name, instance)| Event {
        text: format!("Instance {name} created for {:?}", instance.device),
        happened: Some(instance.written),
    }));
    if before.is_kubelet_up == after.is_kubelet_up {
        events.extend(resource_events(before, after));
    }
    for (pod, broker) in &after.brokers {
        events.extend(broker_event(pod, before.brokers.get(pod), broker).map(Event::from));
    }
    let stopped = before.brokers.keys();
    let stopped = stopped.filter(|pod| !after.brokers.contains_key(*pod));
    events.extend(stopped.map(|pod| format!("broker {pod} stopped").into()));
    let deleted = before.instances.keys();
    let deleted = deleted.filter(|name| !after.instances.contains_key(*name));
    events.extend(deleted.map(|name| format!("Instance {name} deleted").into()));
    events
}

fn resource_events(before: &Snapshot, after: &Snapshot) -> Vec<Event> {
    let mut events: Vec<Event> = vec![];
    for (name, now) in &after.resources {
        let offers = if after.is_held_by_brokers(name) {
            format!("node offers {name}: 0, because {HELD}")
        } else {
            format!("node offers {name}: {}", now.allocatable)
        };
        let is = |how: &str| {
            let Resource {
                capacity,
                allocatable,
            } = now;
            Event::from(format!(
                "{name} is {how}: allocatable {allocatable} of {capacity}"
            ))
        };
        match before.resources.get(name) {
            None => {
                let socket = name.strip_prefix("akri.sh/");
                let socket = socket.and_then(|name| after.socket_of(name));
                events.push(Event {
                    text: offers,
                    happened: socket.and_then(|socket| after.sockets.get(socket)).copied(),
                });
            }
            Some(was) if was == now => {}
            Some(_) if now.allocatable < now.capacity => events.push(is("unhealthy")),
            Some(was) if was.allocatable < was.capacity => events.push(is("healthy")),
            Some(_) => events.push(offers.into()),
        }
    }
    let gone = before.resources.keys();
    let gone = gone.filter(|name| !after.resources.contains_key(*name));
    events.extend(gone.map(|name| format!("node no longer lists {name}").into()));
    events
}

fn broker_event(pod: &str, before: Option<&Broker>, after: &Broker) -> Option<String> {
    let printed = |broker: Option<&Broker>| broker.is_some_and(|b| !b.printed.is_empty());
    if printed(Some(after)) && !printed(before) {
        return Some(format!(
            "broker {pod} received {} variables from Allocate",
            after.printed.len()
        ));
    }
    let phase = |broker: &Broker| (broker.phase.clone(), broker.reason.clone());
    (before.map(phase) != Some(phase(after)) && after.phase == "Failed")
        .then(|| format!("broker {pod} failed: {}", after.reason))
}

/// The steps of the scenario in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    InstancesExist,
    ResourcesOffered,
    BrokersPrinted,
    /// One service has said goodbye.
    Unhealthy,
    InstanceGone,
    CapacityGone,
    /// The kubelet was stopped, and another one was started.
    KubeletRestarted,
}

impl Step {
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::InstancesExist => "three services are three Instances",
            Self::ResourcesOffered => {
                "three resources stand in the node's capacity and allocatable"
            }
            Self::BrokersPrinted => "three brokers printed the variables of their devices",
            Self::Unhealthy => {
                "one service said goodbye: its resource is unhealthy, allocatable is 0"
            }
            Self::InstanceGone => {
                "its grace period is over: its Instance, socket and broker are removed"
            }
            Self::CapacityGone => "the kubelet dropped its capacity entry",
            Self::KubeletRestarted => {
                "the kubelet was restarted: both other resources and brokers are back"
            }
        }
    }
}

/// Returns whether `step` is reached. `devices` are the ids of the demo's own services; the last one is the one that is
/// removed.
pub(super) fn is_reached(step: Step, devices: &[String], snapshot: &Snapshot) -> bool {
    let by_device: BTreeMap<&str, &str> = (snapshot.instances.iter())
        .map(|(name, instance)| (instance.device.as_str(), name.as_str()))
        .collect();
    let instance = |device: &String| by_device.get(device.as_str()).copied();
    let is_offered = |device: &String| {
        instance(device).is_some_and(|name| {
            snapshot
                .resource_of(name)
                .is_some_and(|r| r.capacity > 0 && r.allocatable == r.capacity)
                && snapshot.socket_of(name).is_some()
        })
    };
    let is_served = |device: &String| {
        let broker = instance(device).and_then(|name| snapshot.broker_of(name));
        broker.is_some_and(|broker| {
            let name = broker.printed.get("AKRI_ZEROCONF_DEVICE_NAME");
            broker.phase == "Running" && name.is_some_and(|name| device.starts_with(name.as_str()))
        })
    };
    let Some((gone, staying)) = devices.split_last() else {
        return false;
    };
    match step {
        Step::InstancesExist => devices.iter().all(|device| instance(device).is_some()),
        Step::ResourcesOffered => devices.iter().all(is_offered),
        Step::BrokersPrinted => devices.iter().all(is_served),
        Step::Unhealthy => {
            let resource = instance(gone).and_then(|name| snapshot.resource_of(name));
            resource.is_some_and(|resource| resource.capacity > 0 && resource.allocatable == 0)
                && staying.iter().all(is_offered)
        }
        Step::InstanceGone | Step::CapacityGone | Step::KubeletRestarted => {
            instance(gone).is_none()
                && snapshot.is_kubelet_up
                && (step == Step::InstanceGone
                    || (staying.iter().all(is_offered) && staying.iter().all(is_served)))
        }
    }
}

/// Returns whether everything of a deleted Instance is removed that `step` requires.
pub(super) fn is_removed(step: Step, instance: &str, snapshot: &Snapshot) -> bool {
    match step {
        Step::InstanceGone => {
            snapshot.socket_of(instance).is_none() && snapshot.broker_of(instance).is_none()
        }
        Step::CapacityGone => snapshot.resource_of(instance).is_none(),
        Step::InstancesExist
        | Step::ResourcesOffered
        | Step::BrokersPrinted
        | Step::Unhealthy
        | Step::KubeletRestarted => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::snapshot::Instance;
    use std::time::Duration;

    fn at(millis: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_millis(millis)
    }

    /// A node that has the device `a` of the Configuration `cam`.
    fn found() -> Snapshot {
        let instance = Instance {
            configuration: "cam".to_owned(),
            device: "a".to_owned(),
            is_shared: true,
            nodes: vec![],
            age: Duration::ZERO,
            written: at(5),
        };
        let resource = |n| Resource {
            capacity: n,
            allocatable: n,
        };
        Snapshot {
            instances: [("cam-1".to_owned(), instance)].into(),
            sockets: [("cam-1-7.sock".to_owned(), at(8))].into(),
            resources: [("akri.sh/cam", 1), ("akri.sh/cam-1", 1)]
                .map(|(name, n)| (name.to_owned(), resource(n)))
                .into(),
            ..Snapshot::default()
        }
    }

    #[test]
    fn each_event_has_the_time_at_which_it_happened_where_something_says_it() {
        let events = events(&Snapshot::default(), &found());
        let events: Vec<_> = events
            .iter()
            .map(|event| (event.text.as_str(), event.happened))
            .collect();
        assert_eq!(
            events,
            [
                ("Instance cam-1 created for \"a\"", Some(at(5))),
                ("node offers akri.sh/cam: 1", None),
                ("node offers akri.sh/cam-1: 1", Some(at(8))),
            ]
        );
    }

    #[test]
    fn a_resource_that_offers_nothing_says_that_brokers_hold_it() {
        let mut after = found();
        let broker = Broker {
            instance: "cam-1".to_owned(),
            phase: "Running".to_owned(),
            restarts: 0,
            reason: String::new(),
            printed: BTreeMap::new(),
        };
        after.brokers.insert("pod".to_owned(), broker);
        let nothing = Resource {
            capacity: 0,
            allocatable: 0,
        };
        after.resources.insert("akri.sh/cam".to_owned(), nothing);
        let said = |after: &Snapshot| -> Vec<String> {
            let events = events(&found(), after).into_iter();
            events.map(|event| event.text).collect()
        };
        assert_eq!(
            said(&after),
            ["node offers akri.sh/cam: 0, because brokers hold them"]
        );
        after.brokers.clear();
        assert_eq!(said(&after), ["node offers akri.sh/cam: 0"]);
    }
}
