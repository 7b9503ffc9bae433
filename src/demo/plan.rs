//! Describes what a look saw besides the devices, and decides what steps of `--once` wait for. Pure.
use super::seen::{Resource, Seen, status_of, unprefixed};
use petiole_people::inspect::{
    pods::{containers, phase},
    words::plural,
};
use std::collections::BTreeMap;

/// Why a Configuration's resource offers nothing while its devices are there.
pub(super) const HELD: &str = "brokers hold them";

/// What changes besides the devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Subject<'a> {
    Kubelet,
    Resource(&'a str),
    Broker(&'a str),
}

/// Describes the change from `before` to `after`.
pub(super) fn changes(before: &Seen, after: &Seen) -> Vec<String> {
    let (was, is) = (facts(before), facts(after));
    // A kubelet that is down offers nothing, and one that was down has yet to hear from the plugins.
    let has_same_kubelet = before.is_kubelet_up() == after.is_kubelet_up();
    let is_told =
        |subject: &Subject<'_>| has_same_kubelet || !matches!(subject, Subject::Resource(_));
    let new = is
        .iter()
        .filter(|(subject, fact)| was.get(subject) != Some(fact));
    let new = new.filter(|(subject, _)| is_told(subject));
    let gone = was
        .keys()
        .filter(|subject| !is.contains_key(subject) && is_told(subject));
    let gone = gone.filter_map(|subject| match subject {
        Subject::Kubelet => None,
        Subject::Resource(name) => Some(format!("node no longer lists {name}")),
        Subject::Broker(pod) => Some(format!("broker {pod} stopped")),
    });
    new.map(|(_, fact)| fact.clone()).chain(gone).collect()
}

/// Returns a sentence about each subject.
fn facts(seen: &Seen) -> BTreeMap<Subject<'_>, String> {
    let kubelet = if seen.is_kubelet_up() {
        "kubelet is up"
    } else {
        "kubelet is down"
    };
    let resources = seen.resources().into_iter();
    let resources =
        resources.map(|(name, resource)| (Subject::Resource(name), offer(seen, name, resource)));
    let brokers = seen.brokers().map(|(pod, object)| {
        let fact = match seen.printed_by(pod) {
            count if count > 0 && phase(object) != "Failed" => {
                let variables = plural(count, "variable");
                format!("broker {pod} received {variables} from Allocate")
            }
            _ => format!("broker {pod} is {}", status_of(object)),
        };
        (Subject::Broker(pod), fact)
    });
    let mut facts: BTreeMap<_, _> = resources.chain(brokers).collect();
    facts.insert(Subject::Kubelet, kubelet.to_owned());
    facts
}

fn offer(seen: &Seen, name: &str, resource: Resource) -> String {
    let Resource {
        capacity,
        allocatable,
    } = resource;
    if seen.is_held_by_brokers(name, resource) {
        format!("node offers {name}: 0, because {HELD}")
    } else if allocatable < capacity {
        format!("{name} is unhealthy: allocatable {allocatable} of {capacity}")
    } else {
        format!("node offers {name}: {allocatable}")
    }
}

/// Returns the rows of the node's resources, each with the socket on which the kubelet calls its plugin, and the broker of its
/// Instance.
pub(super) fn rows(seen: &Seen) -> Vec<[String; 5]> {
    let resources = seen.resources().into_iter();
    let rows = resources.map(|(name, resource)| {
        let is_held = seen.is_held_by_brokers(name, resource);
        let held = is_held.then(|| format!(" ({HELD})"));
        let instance = unprefixed(name).unwrap_or_default();
        let broker = seen.broker_of(instance);
        let broker = broker.map(|(pod, object)| {
            let restarts: i32 = containers(object).map(|c| c.restart_count).sum();
            let restarts = plural(usize::try_from(restarts).unwrap_or_default(), "restart");
            let variables = plural(seen.printed_by(pod), "variable");
            format!("{}, {variables}, {restarts}", status_of(object))
        });
        [
            name.to_owned(),
            resource.capacity.to_string(),
            format!("{}{}", resource.allocatable, held.unwrap_or_default()),
            seen.socket_of(instance).unwrap_or("-").to_owned(),
            broker.unwrap_or_else(|| "-".to_owned()),
        ]
    });
    rows.collect()
}

/// Returns whether the node offers a device, healthy, by a plugin of ours.
pub(super) fn is_offered(seen: &Seen, device: &str) -> bool {
    seen.instance_of(device).is_some_and(|instance| {
        let resource = seen.resource_of(instance);
        resource.is_some_and(|its| its.capacity > 0 && its.allocatable == its.capacity)
            && seen.socket_of(instance).is_some()
    })
}

/// Returns whether a broker runs that has printed the name of this device.
pub(super) fn is_served(seen: &Seen, device: &str) -> bool {
    let instance = seen.instance_of(device);
    let broker = instance.and_then(|instance| seen.broker_of(instance));
    broker.is_some_and(|(pod, object)| {
        let printed = seen.printed.get(pod);
        let name = printed.and_then(|printed| printed.get("AKRI_ZEROCONF_DEVICE_NAME"));
        phase(object) == "Running" && name.is_some_and(|name| device.starts_with(name))
    })
}

/// Returns whether the kubelet offers nothing of a device that it has had.
pub(super) fn is_unhealthy(seen: &Seen, device: &str) -> bool {
    let instance = seen.instance_of(device);
    let resource = instance.and_then(|instance| seen.resource_of(instance));
    resource.is_some_and(|resource| resource.capacity > 0 && resource.allocatable == 0)
}

/// Returns whether an Instance was removed, and all that the agent made for it.
pub(super) fn is_removed(seen: &Seen, instance: &str) -> bool {
    let mut instances = seen.objects.instances.keys();
    seen.is_kubelet_up()
        && instances.all(|key| *key.name != *instance)
        && seen.socket_of(instance).is_none()
        && seen.broker_of(instance).is_none()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{instance_name::InstanceKey, names::ObjectKey};
    use petiole_people::inspect::snapshot::Snapshot;
    use serde_json::{Value, json};

    /// A node whose kubelet is up, with the device `a` of the Configuration `cam`, and these Pods.
    fn seen(cams: u64, pods: &[Value]) -> Seen {
        let instance = json!({
            "metadata": {"name": "cam-1", "annotations": {"akri.sh/device-id": "a"}},
            "spec": {"configurationName": "cam", "cdiName": "", "capacity": 1},
        });
        let resources = json!({"akri.sh/cam": cams.to_string(), "akri.sh/cam-1": "1"});
        let node = json!({"status": {"capacity": resources, "allocatable": resources}});
        let pods = pods.iter().map(|pod| {
            let name = pod["metadata"]["name"].as_str().unwrap();
            let key = ObjectKey::new("default", name);
            (key, serde_json::from_value(pod.clone()).unwrap())
        });
        let objects = Snapshot {
            instances: [(
                InstanceKey::new("default", "cam-1"),
                serde_json::from_value(instance).unwrap(),
            )]
            .into(),
            nodes: [("laptop".to_owned(), serde_json::from_value(node).unwrap())].into(),
            pods: pods.collect(),
            ..Snapshot::default()
        };
        Seen {
            objects,
            sockets: ["cam-1-7.sock", "kubelet.sock"].map(str::to_owned).into(),
            ..Seen::default()
        }
    }

    fn broker(phase: &str, message: Value) -> Value {
        json!({
            "metadata": {"name": "pod", "labels": {"akri.sh/instance": "cam-1"}},
            "status": {"phase": phase, "message": message},
        })
    }

    #[test]
    fn each_change_is_said_once_and_a_kubelet_that_is_down_takes_no_resources_away() {
        let down = Seen::default();
        let up = seen(1, &[]);
        assert_eq!(changes(&down, &up), ["kubelet is up"]);
        assert_eq!(changes(&up, &up), [""; 0]);
        assert_eq!(changes(&up, &down), ["kubelet is down"]);
        let mut without = seen(1, &[]);
        without
            .objects
            .nodes
            .values_mut()
            .for_each(|node| node.status = None);
        let offers = ["node offers akri.sh/cam: 1", "node offers akri.sh/cam-1: 1"];
        assert_eq!(changes(&without, &up), offers);
        let gone = [
            "node no longer lists akri.sh/cam",
            "node no longer lists akri.sh/cam-1",
        ];
        assert_eq!(changes(&up, &without), gone);
    }

    #[test]
    fn a_resource_that_offers_nothing_says_that_brokers_hold_it() {
        let before = seen(1, &[broker("Pending", Value::Null)]);
        let mut after = seen(0, &[broker("Running", Value::Null)]);
        let printed = [("AKRI_ZEROCONF_DEVICE_NAME".to_owned(), "a".to_owned())];
        after.printed.insert("pod".to_owned(), printed.into());
        let held = "node offers akri.sh/cam: 0, because brokers hold them";
        let received = "broker pod received 1 variable from Allocate";
        assert_eq!(changes(&before, &after), [held, received]);
        let shown = rows(&after).remove(0);
        assert_eq!(
            shown,
            ["akri.sh/cam", "0", "0 (brokers hold them)", "-", "-"]
        );
        let of_device = ["cam-1-7.sock", "Running, 1 variable, 0 restarts"];
        assert_eq!(rows(&after).remove(1)[3..], of_device);
        let stopped = ["node offers akri.sh/cam: 0", "broker pod stopped"];
        assert_eq!(changes(&after, &seen(0, &[])), stopped);
    }

    #[test]
    fn a_broker_that_fails_says_why_even_if_it_printed() {
        let mut failed = seen(1, &[broker("Failed", json!("no \u{1b}disk"))]);
        failed
            .printed
            .insert("pod".to_owned(), [("A".to_owned(), String::new())].into());
        let said = changes(&seen(1, &[broker("Running", Value::Null)]), &failed);
        assert_eq!(said, ["broker pod is Failed: no \\u{1b}disk"]);
    }

    #[test]
    fn a_step_is_reached_once_all_of_it_is_there() {
        let mut served = seen(1, &[broker("Running", Value::Null)]);
        assert!(is_offered(&served, "a") && !is_served(&served, "a"));
        let printed = [("AKRI_ZEROCONF_DEVICE_NAME".to_owned(), "a".to_owned())];
        served.printed.insert("pod".to_owned(), printed.into());
        assert!(is_served(&served, "a") && !is_served(&served, "b") && !is_offered(&served, "b"));
        assert!(!is_unhealthy(&served, "a") && !is_removed(&served, "cam-1"));
        let node = served.objects.nodes.get_mut("laptop").unwrap();
        node.status.as_mut().unwrap().allocatable = None;
        assert!(is_unhealthy(&served, "a") && !is_offered(&served, "a"));
        served.objects.instances.clear();
        served.objects.pods.clear();
        assert!(!is_removed(&served, "cam-1"), "its socket is left");
        served.sockets.clear();
        assert!(is_removed(&served, "cam-1"));
        assert!(!is_removed(&Seen::default(), "cam-1"), "nobody answers");
    }
}
