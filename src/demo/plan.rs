//! Describes the changes between two snapshots, and decides which step of `--once` is reached. Pure.
use super::snapshot::{Broker, Snapshot};
use std::collections::BTreeMap;

/// Describes the change from `before` to `after`, in the order in which it happens.
pub(super) fn events(before: &Snapshot, after: &Snapshot) -> Vec<String> {
    let mut events = vec![];
    match (before.is_kubelet_up, after.is_kubelet_up) {
        (false, true) => events.push("kubelet is up".to_owned()),
        (true, false) => events.push("kubelet is down".to_owned()),
        (true, true) | (false, false) => {}
    }
    for (name, instance) in &after.instances {
        if !before.instances.contains_key(name) {
            events.push(format!("Instance {name} created for {:?}", instance.device));
        }
    }
    if before.is_kubelet_up == after.is_kubelet_up {
        resource_events(before, after, &mut events);
    }
    for (pod, broker) in &after.brokers {
        events.extend(broker_event(pod, before.brokers.get(pod), broker));
    }
    for pod in before
        .brokers
        .keys()
        .filter(|pod| !after.brokers.contains_key(*pod))
    {
        events.push(format!("broker {pod} stopped"));
    }
    for name in before
        .instances
        .keys()
        .filter(|name| !after.instances.contains_key(*name))
    {
        events.push(format!("Instance {name} deleted"));
    }
    events
}

fn resource_events(before: &Snapshot, after: &Snapshot, events: &mut Vec<String>) {
    for (name, now) in &after.resources {
        match before.resources.get(name) {
            None => events.push(format!("node offers {name}: {}", now.allocatable)),
            Some(was) if was == now => {}
            Some(_) if now.allocatable < now.capacity => {
                events.push(format!(
                    "{name} is unhealthy: allocatable {} of {}",
                    now.allocatable, now.capacity
                ));
            }
            Some(was) if was.allocatable < was.capacity => {
                events.push(format!(
                    "{name} is healthy: allocatable {} of {}",
                    now.allocatable, now.capacity
                ));
            }
            Some(_) => events.push(format!("node offers {name}: {}", now.allocatable)),
        }
    }
    for name in before
        .resources
        .keys()
        .filter(|name| !after.resources.contains_key(*name))
    {
        events.push(format!("node no longer lists {name}"));
    }
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
