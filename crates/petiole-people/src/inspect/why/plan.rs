//! Decides what is missing to an object, and what to do. Pure.
mod agents;
mod brokers;
mod device;
mod evictions;
mod given;
mod kubelet;
mod nodes;
mod pod;
mod problems;
mod resource;
mod rollout;
mod slots;
mod twice;
mod unhealthy;
mod unscheduled;
mod without_instances;

use super::finding::{Cause, Explanation, Finding, first_of, with};
use crate::inspect::{
    claims::gives_out,
    devices::device_name,
    node_only,
    object::{Kind, Object},
    pods::{is_ready, label},
    snapshot::Snapshot,
    words::{listed, plural},
    workloads,
};
use agents::{agent_trouble, controller_trouble};
use brokers::{Alike, alike};
use k8s_openapi::{api::core::v1::Pod, jiff::Timestamp};
use petiole_model::{
    api::{
        condition::ConditionType,
        configuration::Configuration,
        instance::Instance,
        names::{CONFIGURATION_LABEL, INSTANCE_LABEL},
    },
    model::{
        dra,
        instance_name::InstanceKey,
        names::{Key, ObjectKey},
        typed_names::ConfigurationKey,
    },
};
use std::collections::BTreeSet;

/// The most nodes and slots whose troubles are reported.
const TROUBLES_MAX: usize = 2;
/// The names of what is counted and not reported.
const SLOTS: &str = "slots that stay in use";
const AGENTS: &str = "nodes of its devices without a ready agent";

/// Returns the answer to `petiole why`.
pub fn explain(snapshot: &Snapshot, object: &Object, now: Timestamp) -> Explanation {
    let Object { kind, key } = object;
    match kind {
        Kind::Pod => match snapshot.pods.get(key) {
            None => evictions::of_former_pod(snapshot, object, now)
                .unwrap_or_else(|| absent(snapshot, object, snapshot.pods.keys().cloned())),
            Some(pod) => Explanation {
                subject: pod::subject(key, pod),
                findings: pod::explain(snapshot, key, pod, now),
            },
        },
        Kind::Instance => match snapshot.instances.get_key_value(&key.clone().typed()) {
            None => absent(
                snapshot,
                object,
                snapshot.instances.keys().map(Key::untyped),
            ),
            Some((key, instance)) => of_instance(snapshot, key, instance, now),
        },
        Kind::Configuration => match snapshot.configurations.get_key_value(&key.clone().typed()) {
            None => absent(
                snapshot,
                object,
                snapshot.configurations.keys().map(Key::untyped),
            ),
            Some((key, configuration)) => of_configuration(snapshot, key, configuration, now),
        },
        Kind::Deployment | Kind::ReplicaSet | Kind::StatefulSet | Kind::DaemonSet | Kind::Job => {
            of_workload(snapshot, object, now)
        }
    }
}

/// Returns whether there was such a Pod, which was evicted.
pub fn evicted(snapshot: &Snapshot, pod: &Object) -> bool {
    evictions::of(snapshot, pod, Timestamp::MAX).is_some()
}

/// Returns what one Pod of a workload waits for, or what is amiss with its device.
fn of_workload(snapshot: &Snapshot, workload: &Object, now: Timestamp) -> Explanation {
    let pods = workloads::foremost_first(workloads::pods_of(snapshot, workload));
    let mut groups = alike(snapshot, &pods, now);
    let is_amiss = |group: &Alike<'_>| {
        let is_fine = |finding: &Finding| finding.cause == Cause::Fine;
        workloads::lasts(group.pod) && !group.findings.iter().all(is_fine)
    };
    groups.sort_by_key(|group| !is_amiss(group));
    let Some(group) = groups.into_iter().next() else {
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
        all => format!("has {ready} of {} ready", plural(all, "Pod")),
    };
    let subject = format!("{workload} {state}. {}", pod::subject(group.key, group.pod));
    let is_whole = ready == workloads::unfinished(&pods);
    let evicted = evictions::of_workload(snapshot, workload, is_whole, now);
    Explanation {
        subject: with(subject, evicted),
        findings: group.counted("Pod"),
    }
}

/// Returns what is said of an object that is not there. Another namespace may have one of its name.
fn absent(
    snapshot: &Snapshot,
    object: &Object,
    mut known: impl Iterator<Item = ObjectKey>,
) -> Explanation {
    let Object { kind, key } = object;
    let kind = kind.as_str();
    let place = if snapshot.hidden.pods || snapshot.hidden.objects {
        format!("-n {}", key.namespace)
    } else {
        "-A".to_owned()
    };
    let finding = match known.find(|other| other.name == key.name) {
        Some(other) => {
            Finding::new(Cause::NoSuchObject, format!("There is {kind} {other}.")).then(format!(
                "kubectl petiole why -n {} {}/{}",
                other.namespace,
                kind.to_lowercase(),
                other.name
            ))
        }
        None => Finding::new(
            Cause::NoSuchObject,
            "Give another name, or another namespace (-n).",
        )
        .then(format!("kubectl get configurations,instances,pods {place}")),
    };
    Explanation {
        subject: format!("{object} does not exist."),
        findings: vec![finding],
    }
}

fn of_instance(
    snapshot: &Snapshot,
    key: &InstanceKey,
    instance: &Instance,
    now: Timestamp,
) -> Explanation {
    let of = instance.spec.configuration_key(&key.namespace);
    let seen = device::seen_by(instance);
    let slots = slots::taken(snapshot, [(key, instance)]);
    let mut findings = of_devices(snapshot, &[(key, instance)], now);
    let its = |pod: &Pod| label(pod, INSTANCE_LABEL).is_some_and(|its| *its == key.name);
    let of_pods = brokers::of_pods(snapshot, &key.namespace, its, now);
    let ready = instance.condition(ConditionType::BrokersReady);
    let name = key.name.as_str();
    findings.extend(or_else(of_pods, || {
        brokers::said(snapshot, &of, ready, [name])
    }));
    if findings.is_empty() {
        let configuration = snapshot.configuration_of(key, instance);
        findings.extend(configuration.and_then(|(key, its)| problems::unused(snapshot, &key, its)));
    }
    if findings.is_empty() {
        let holders: Vec<String> = slots.iter().map(|taken| taken.slot.holder()).collect();
        let by = match holders.as_slice() {
            [] => String::new(),
            some => format!(", by {}", listed(some)),
        };
        let capacity = instance.spec.capacity;
        let used = match slots::lowered_capacity(&[(key, instance)], slots.len()) {
            Some(_) => format!(
                "{} slots are in use, more than spec.capacity {capacity}",
                slots.len()
            ),
            None => format!(
                "{} of {} {} in use",
                slots.len(),
                plural(usize::try_from(capacity).unwrap_or_default(), "slot"),
                if slots.len() == 1 { "is" } else { "are" }
            ),
        };
        let configuration = snapshot.configuration_of(key, instance);
        let class = configuration.filter(|(_, its)| gives_out(its));
        let as_what = match &class {
            Some((of, _)) => format!("a device of class {}", dra::class_name(of)),
            None => snapshot.instance_resource(key).to_string(),
        };
        let text = format!(
            "It is offered by {} as {as_what}, and {used}{by}. {}",
            listed(&seen),
            snapshot.nothing_is_missing()
        );
        findings.push(Finding::new(Cause::Fine, text));
    }
    let subject = format!("Instance {key} is the device {}.", device_name(instance));
    let object = Object::new(Kind::Instance, key.untyped());
    let evicted = evictions::of(snapshot, &object, now);
    Explanation {
        subject: with(subject, evicted),
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
    let resource = snapshot.configuration_resource(key, configuration);
    let offering = node_only::offering(snapshot, configuration, &resource);
    if instances.is_empty() && offering.is_empty() && findings.is_empty() {
        findings.push(problems::no_device(snapshot, key, configuration));
    }
    findings.extend(of_devices(snapshot, &instances, now));
    let its = |pod: &Pod| label(pod, CONFIGURATION_LABEL).is_some_and(|its| *its == key.name);
    let of_pods = brokers::of_pods(snapshot, &key.namespace, its, now);
    let ready = configuration.condition(ConditionType::BrokersReady);
    let names = instances.iter().map(|(key, _)| key.name.as_str());
    let names = [key.name.as_str()].into_iter().chain(names);
    findings.extend(or_else(of_pods, || {
        brokers::said(snapshot, key, ready, names)
            .filter(|finding| !problems::repeats(configuration, finding))
    }));
    if configuration.spec.broker_spec.is_some() || findings.is_empty() {
        let is_reported = findings
            .iter()
            .any(|finding| finding.cause == Cause::ControllerMissing);
        findings.extend(controller_trouble(snapshot).filter(|_| !is_reported));
    }
    if findings.is_empty() {
        let how = match offering.is_empty() {
            true if gives_out(configuration) => format!(
                "by claims of class {}; the scheduler gives them out",
                dra::class_name(key)
            ),
            true => "each has a resource of its own".to_owned(),
            false => node_only::amounts(&offering),
        };
        let text = format!(
            "Its devices are offered as {resource}, and {how}. {}",
            snapshot.nothing_is_missing()
        );
        findings.push(Finding::new(Cause::Fine, text));
    }
    let subject = match offering.len() {
        0 => format!(
            "Configuration {key} has {}.",
            plural(instances.len(), "device")
        ),
        nodes => format!(
            "Configuration {key} has devices on {}.",
            plural(nodes, "node")
        ),
    };
    Explanation { subject, findings }
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
    let mut findings = first_of(gone, 1, "devices that are not available");
    let seen: BTreeSet<String> = (instances.iter())
        .flat_map(|(_, instance)| device::seen_by(instance))
        .collect();
    let twice = twice::of_instances(snapshot, instances);
    findings.extend(first_of(twice, 1, "slots that two Pods use"));
    let agents = seen.iter().filter_map(|node| agent_trouble(snapshot, node));
    findings.extend(first_of(agents, TROUBLES_MAX, AGENTS));
    let slots = slots::taken(snapshot, instances.iter().copied());
    let moved = slots.iter();
    let moved = moved.filter_map(|taken| slots::moved(snapshot, taken));
    findings.extend(first_of(moved, 1, "containers with a former address"));
    let staying = slots::staying(snapshot, &slots, now);
    findings.extend(first_of(staying, TROUBLES_MAX, SLOTS));
    findings
}

/// Returns `findings`, or one other finding if there are none. A condition repeats what Pods report, and an Event repeats
/// a condition.
fn or_else(findings: Vec<Finding>, other: impl FnOnce() -> Option<Finding>) -> Vec<Finding> {
    if findings.is_empty() {
        other().into_iter().collect()
    } else {
        findings
    }
}

#[cfg(test)]
mod tests;
