//! Decides what is missing to an object, and what to do. Pure.
mod agents;
mod device;
mod nodes;
mod pod;
mod problems;
mod resource;
mod unscheduled;

use super::finding::{Cause, Explanation, Finding, counted, first_of, sentence};
use crate::inspect::{
    devices::device_name,
    pods::{is_ready, label, phase},
    slots::used,
    snapshot::Snapshot,
    workloads::{self, Workload},
};
use agents::{agent_trouble, controller_trouble};
use k8s_openapi::{api::core::v1::Pod, jiff::Timestamp};
use petiole_model::{
    api::{
        condition::{Condition, ConditionStatus, ConditionType},
        configuration::Configuration,
        instance::Instance,
        names::{CONFIGURATION_LABEL, INSTANCE_LABEL},
        reason::Reason,
    },
    model::{
        instance_name::InstanceKey,
        names::{Key, ObjectKey},
        typed_names::ConfigurationKey,
    },
};
use std::{collections::BTreeSet, fmt::Display};

/// The most brokers and Instances whose troubles are reported.
const TROUBLES_MAX: usize = 2;
/// The names of what is counted and not reported.
const SLOTS: &str = "slots that stay in use";
const AGENTS: &str = "nodes of its devices without a ready agent";
/// Warnings of the controller about what it creates.
const REFUSALS: &[Reason] = &[
    Reason::BrokerRefused,
    Reason::BrokerSpecInvalid,
    Reason::ServiceNameTaken,
    Reason::ServiceRefused,
];

/// The object that is asked about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    Pod(ObjectKey),
    Instance(InstanceKey),
    Configuration(ConfigurationKey),
    Workload(Workload),
}

/// Returns the answer to `petiole why`.
pub fn explain(snapshot: &Snapshot, target: &Target, now: Timestamp) -> Explanation {
    match target {
        Target::Pod(key) => match snapshot.pods.get(key) {
            None => absent(snapshot, "Pod", key),
            Some(pod) => Explanation {
                subject: pod::subject(key, pod),
                findings: pod::explain(snapshot, key, pod, now),
            },
        },
        Target::Instance(key) => match snapshot.instances.get(key) {
            None => absent(snapshot, "Instance", key),
            Some(instance) => of_instance(snapshot, key, instance, now),
        },
        Target::Configuration(key) => match snapshot.configurations.get(key) {
            None => absent(snapshot, "Configuration", key),
            Some(configuration) => of_configuration(snapshot, key, configuration, now),
        },
        Target::Workload(workload) => of_workload(snapshot, workload, now),
    }
}

/// Returns what one Pod of a workload waits for.
fn of_workload(snapshot: &Snapshot, workload: &Workload, now: Timestamp) -> Explanation {
    let pods = workloads::pods_of(snapshot, workload);
    let Some((key, pod)) = workloads::foremost(&pods) else {
        let ObjectKey { namespace, name } = &workload.key;
        let kind = workload.kind.as_str().to_lowercase();
        let text = "It does not exist, or has no Pods, or the limits of its containers name no resource of a device plugin, so that they get no device.";
        let next = format!("kubectl -n {namespace} describe {kind} {name}");
        return Explanation {
            subject: format!("No Pod of {workload} asks for a device."),
            findings: vec![Finding::new(Cause::NoResourceRequested, text).then(next)],
        };
    };
    let ready = pods.iter().filter(|(_, pod)| is_ready(pod)).count();
    let state = match workloads::unfinished(&pods) {
        0 => "has only Pods that have ended".to_owned(),
        all => format!("has {ready} of {all} Pods ready"),
    };
    Explanation {
        subject: format!("{workload} {state}. {}", pod::subject(key, pod)),
        findings: pod::explain(snapshot, key, pod, now),
    }
}

fn absent<Name>(snapshot: &Snapshot, kind: &str, key: &Key<Name>) -> Explanation
where
    Key<Name>: Display,
{
    let text = "Give another name, or another namespace (-n).";
    let place = match snapshot.hidden.pods || snapshot.hidden.objects {
        true => format!("-n {}", key.namespace),
        false => "-A".to_owned(),
    };
    let next = format!("kubectl get configurations,instances,pods {place}");
    Explanation {
        subject: format!("{kind} {key} does not exist."),
        findings: vec![Finding::new(Cause::NoSuchObject, text).then(next)],
    }
}

fn of_instance(
    snapshot: &Snapshot,
    key: &InstanceKey,
    instance: &Instance,
    now: Timestamp,
) -> Explanation {
    let mut findings: Vec<Finding> = device::gone(snapshot, key, instance, now)
        .into_iter()
        .collect();
    let seen = device::seen_by(instance);
    let agents = seen.iter().filter_map(|node| agent_trouble(snapshot, node));
    findings.extend(first_of(agents, TROUBLES_MAX, AGENTS));
    let slots = used(snapshot, key, instance);
    let staying = slots.iter();
    let staying = staying.filter_map(|slot| device::stays(snapshot, key, slot));
    findings.extend(first_of(staying, TROUBLES_MAX, SLOTS));
    let conditions = instance.status.iter().flat_map(|s| &s.conditions);
    let its = |pod: &Pod| label(pod, INSTANCE_LABEL).is_some_and(|its| *its == key.name);
    let of_pods = brokers(snapshot, &key.namespace, its, now);
    let of_brokers = or_else(of_pods, || {
        of_brokers(conditions).or_else(|| refusal(snapshot, &key.namespace, &key.name))
    });
    findings.extend(of_brokers);
    if findings.is_empty() {
        let holders: Vec<String> = slots.iter().map(|slot| slot.holder()).collect();
        let by = match holders.as_slice() {
            [] => String::new(),
            some => format!(", by {}", some.join(", ")),
        };
        let text = format!(
            "It is offered by {} as {}, and {} of {} slots are in use{by}. {}",
            seen.join(", "),
            snapshot.instance_resource(key),
            slots.len(),
            instance.spec.capacity,
            snapshot.nothing_is_missing()
        );
        findings.push(Finding::new(Cause::Fine, text));
    }
    Explanation {
        subject: format!("Instance {key} is the device {}.", device_name(instance)),
        findings,
    }
}

fn of_configuration(
    snapshot: &Snapshot,
    key: &ConfigurationKey,
    configuration: &Configuration,
    now: Timestamp,
) -> Explanation {
    let instances: Vec<_> = snapshot.instances_of(key).collect();
    let mut findings: Vec<Finding> = problems::problem(snapshot, key, configuration)
        .into_iter()
        .collect();
    if instances.is_empty() && findings.is_empty() {
        findings.push(problems::no_device(snapshot, key, configuration));
    }
    findings.extend(of_devices(snapshot, &instances, now));
    let conditions = configuration.status.iter().flat_map(|s| &s.conditions);
    let its = |pod: &Pod| label(pod, CONFIGURATION_LABEL).is_some_and(|its| *its == key.name);
    let of_pods = brokers(snapshot, &key.namespace, its, now);
    let refusal = || {
        let own = key.name.as_str();
        let names = instances.iter().map(|(key, _)| key.name.as_str());
        let mut names = [own].into_iter().chain(names);
        names.find_map(|name| refusal(snapshot, &key.namespace, name))
    };
    let fallback = || of_brokers(conditions).or_else(refusal);
    let of_brokers = or_else(of_pods, || {
        fallback().filter(|finding| !problems::repeats(configuration, finding))
    });
    findings.extend(of_brokers);
    if configuration.spec.broker_spec.is_some() || findings.is_empty() {
        let is_reported = findings
            .iter()
            .any(|finding| finding.cause == Cause::ControllerMissing);
        findings.extend(controller_trouble(snapshot).filter(|_| !is_reported));
    }
    if findings.is_empty() {
        let text = format!(
            "Its devices are offered as {}, and each has a resource of its own. {}",
            snapshot.configuration_resource(key, configuration),
            snapshot.nothing_is_missing()
        );
        findings.push(Finding::new(Cause::Fine, text));
    }
    let devices = match instances.len() {
        1 => "1 device".to_owned(),
        n => format!("{n} devices"),
    };
    Explanation {
        subject: format!("Configuration {key} has {devices}."),
        findings,
    }
}

/// Returns what keeps the devices of a Configuration from being used.
fn of_devices(
    snapshot: &Snapshot,
    instances: &[(&InstanceKey, &Instance)],
    now: Timestamp,
) -> Vec<Finding> {
    let gone = instances
        .iter()
        .filter_map(|(key, instance)| device::gone(snapshot, key, instance, now));
    let mut findings = first_of(gone, TROUBLES_MAX, "devices that are not available");
    let seen: BTreeSet<String> = (instances.iter())
        .flat_map(|(_, instance)| device::seen_by(instance))
        .collect();
    let agents = seen.iter().filter_map(|node| agent_trouble(snapshot, node));
    findings.extend(first_of(agents, TROUBLES_MAX, AGENTS));
    let slots = instances.iter().flat_map(|(key, instance)| {
        let slots = used(snapshot, key, instance).into_iter();
        slots.map(|slot| (*key, slot))
    });
    let staying = slots.filter_map(|(key, slot)| device::stays(snapshot, key, &slot));
    findings.extend(first_of(staying, TROUBLES_MAX, SLOTS));
    findings
}

/// Returns the controller's last warning about what it creates for an object.
fn refusal(snapshot: &Snapshot, namespace: &str, name: &str) -> Option<Finding> {
    let event = snapshot.events.iter().rev().find(|event| {
        let reason = event.reason.as_deref().unwrap_or_default();
        event.involved_object.name.as_deref() == Some(name)
            && event.involved_object.namespace.as_deref() == Some(namespace)
            && REFUSALS.iter().any(|refusal| refusal.as_str() == reason)
    })?;
    let reason = event.reason.as_deref().unwrap_or_default();
    let message = sentence(event.message.as_deref().unwrap_or_default());
    let kind = event.involved_object.kind.as_deref().unwrap_or("object");
    let text =
        format!("The controller warned about {kind} {namespace}/{name} ({reason}): {message}");
    let verb = match kind {
        "Configuration" => "edit",
        _ => "describe",
    };
    let next = format!(
        "kubectl -n {namespace} {verb} {} {name}",
        kind.to_lowercase()
    );
    Some(Finding::new(Cause::BrokerRefused, text).then(next))
}

/// Returns `findings`, or one other finding if there are none. A condition repeats what Pods report, and an Event repeats
/// a condition.
fn or_else(findings: Vec<Finding>, other: impl FnOnce() -> Option<Finding>) -> Vec<Finding> {
    match findings.is_empty() {
        true => other().into_iter().collect(),
        false => findings,
    }
}

/// Returns what a condition says about brokers that are not ready.
fn of_brokers<'a>(mut conditions: impl Iterator<Item = &'a Condition>) -> Option<Finding> {
    let condition = conditions.find(|c| {
        c.type_ == ConditionType::BrokersReady.as_str() && c.has_status(ConditionStatus::False)
    })?;
    let text = format!(
        "Its brokers are not ready ({}): {}",
        condition.reason,
        sentence(&condition.message)
    );
    Some(Finding::new(Cause::BrokerRefused, text))
}

/// Returns the troubles of the first brokers that are not ready, or else that a broker has no device because it asks for none.
fn brokers(
    snapshot: &Snapshot,
    namespace: &str,
    is_its: impl Fn(&Pod) -> bool,
    now: Timestamp,
) -> Vec<Finding> {
    let all = snapshot.pods.iter();
    let (ready, others): (Vec<_>, Vec<_>) = all
        .filter(|(key, pod)| key.namespace == namespace && is_its(pod))
        .partition(|(_, pod)| is_ready(pod));
    let mut troubled = others;
    troubled.retain(|(_, pod)| phase(pod) != "Succeeded");
    if troubled.is_empty() {
        // What one broker lacks, the others lack too.
        let without_device = |(_, pod): &(&ObjectKey, &Pod)| pod::lacks_request(snapshot, pod);
        troubled.extend(ready.into_iter().find(without_device));
    }
    let more = troubled.len().saturating_sub(TROUBLES_MAX);
    troubled.truncate(TROUBLES_MAX);
    let findings = troubled.into_iter().flat_map(|(key, pod)| {
        let mut findings = pod::explain(snapshot, key, pod, now);
        if let Some(first) = findings.first_mut() {
            first.text = format!("Its broker: {} {}", pod::subject(key, pod), first.text);
        }
        findings
    });
    let mut findings: Vec<Finding> = findings.collect();
    findings.extend(counted(&findings, more, "brokers that are not ready"));
    findings
}

#[cfg(test)]
mod tests;
