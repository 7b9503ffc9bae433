//! Plans the static Pods of brokers and their content. Pure.
use super::admission::{Kubelet, Lack, next_attempt};
use crate::{
    agent::{
        device_state::{DeviceState, device_state},
        values::ValidatedConfigurations,
    },
    api::{
        broker::{self, SpecError, Subject, Wanted},
        names,
    },
    discovery::session::Discoveries,
    model::{
        container_nodes::connection_digest, instance_name::InstanceKey,
        resource_name::ResourcePrefixes, typed_names::ConfigurationKey,
    },
    store::Instances,
};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

const FILE_START: &str = "petiole-";

pub(super) struct World<'a> {
    pub(super) node: &'a str,
    pub(super) resource_prefixes: &'a ResourcePrefixes,
    pub(super) validated: &'a ValidatedConfigurations,
    pub(super) discoveries: &'a Discoveries,
    pub(super) instances: &'a Instances,
    pub(super) kubelet: &'a Kubelet,
    /// Our manifests as they stand, by file name.
    pub(super) existing: &'a BTreeMap<String, Value>,
    /// The Pods that lacked their device after the last plan.
    pub(super) lacking: &'a Lacking,
    /// The agent's uptime.
    pub(super) now: Duration,
}

/// The Pods that stand without their device, by file name.
pub(super) type Lacking = BTreeMap<String, Lack>;

#[derive(Debug, PartialEq)]
pub(super) enum Action {
    Write {
        file: String,
        pod: Value,
    },
    /// The same Pod under another attempt: the kubelet takes it for another one.
    Retry {
        file: String,
        pod: Value,
    },
    Remove {
        file: String,
    },
}

impl Action {
    pub(super) fn file(&self) -> &str {
        match self {
            Self::Write { file, .. } | Self::Retry { file, .. } | Self::Remove { file } => file,
        }
    }

    pub(super) fn is_removal(&self) -> bool {
        matches!(self, Self::Remove { .. })
    }
}

#[derive(Debug, Default, PartialEq)]
pub(super) struct Plan {
    pub(super) actions: Vec<Action>,
    pub(super) lacking: Lacking,
    /// Configurations that no Pod can be made of. What runs of them goes on.
    pub(super) broken: BTreeMap<ConfigurationKey, SpecError>,
}

fn file_name(key: &InstanceKey) -> String {
    format!("{FILE_START}{}_{}.yaml", key.namespace, key.name)
}

/// Returns whether a file may be one of ours, by its name.
pub(super) fn is_ours(file: &str) -> bool {
    let rest = file.strip_prefix(FILE_START);
    let key = rest.and_then(|rest| rest.strip_suffix(".yaml")?.split_once('_'));
    key.is_some_and(|(namespace, name)| !namespace.is_empty() && !name.is_empty())
}

/// Returns whether an agent rendered this Pod: the folder is everybody's, and only our own are taken away. What is no
/// object under a name of ours is what a power cut left.
fn is_rendered(pod: &Value) -> bool {
    !pod.is_object() || pod["metadata"]["annotations"][names::BROKER_CONNECTION].is_string()
}

/// A new Pod waits until the kubelet knows its resources: it would start one without the device. One whose device is
/// gone stays until its Instance goes, one whose device is reached differently now is replaced, and one that the
/// kubelet took without its device is tried again.
pub(super) fn plan(world: &World<'_>) -> Plan {
    let mut plan = Plan::default();
    let mut wanted = BTreeSet::new();
    for (key, instance) in world.instances {
        let configuration = instance.spec.configuration_key(&key.namespace);
        let file = file_name(key);
        let Some(accepted) = world.validated.accepted.get(&configuration) else {
            // The Configuration is refused or not validated yet: its brokers stay. If it was deleted, its Instances are deleted.
            wanted.insert(file);
            continue;
        };
        let spec = match broker::wanted(accepted.configuration.spec.broker_spec.as_ref()) {
            None => continue,
            Some(Wanted::Pod(spec)) => spec,
            Some(Wanted::Job(_)) => {
                plan.broken.insert(configuration, broker::no_job());
                continue;
            }
        };
        // Its grace is over, and it stays only until its slots are free: the broker's too.
        let is_left = instance.spec.nodes.is_empty();
        if is_left && device_state(instance, world.discoveries) == DeviceState::Gone {
            continue;
        }
        let existing = world.existing.get(&file);
        wanted.insert(file.clone());
        if let DeviceState::Seen(device) = device_state(instance, world.discoveries) {
            let subject = Subject {
                key,
                instance,
                resource_prefix: world.resource_prefixes.first(),
            };
            let wish = accepted.configuration.spec.container_devices.as_ref();
            match pod(world, subject, spec, &connection_digest(device, wish)) {
                Err(e) => drop(plan.broken.insert(configuration, e)),
                Ok(mut pod) => match existing {
                    Some(existing) if is_same(&mut pod, existing) => plan.tried(world, file, pod),
                    _ => {
                        let kubelet = world.kubelet;
                        let is_known = kubelet.allocatable.contains_key(&subject.resource());
                        if is_known && kubelet.knows_what_is_asked(&pod, world.resource_prefixes) {
                            plan.actions.push(Action::Write { file, pod });
                        }
                    }
                },
            }
        }
    }
    let removed = (world.existing.iter())
        .filter(|(file, pod)| !wanted.contains(*file) && is_rendered(pod))
        .map(|(file, _)| Action::Remove { file: file.clone() });
    plan.actions.extend(removed);
    plan
}

impl Plan {
    /// Returns how many Pods are new, or others than before.
    pub(super) fn writes(&self) -> usize {
        let is_write = |action: &&Action| matches!(action, Action::Write { .. });
        self.actions.iter().filter(is_write).count()
    }

    /// Writes a Pod whose file is up to date once more, if the kubelet refused it and may accept it now.
    fn tried(&mut self, world: &World<'_>, file: String, mut pod: Value) {
        let before = world.lacking.get(&file).copied();
        let (lack, is_due) = next_attempt(&pod, world.kubelet, before, world.now);
        self.lacking.extend(lack.map(|lack| (file.clone(), lack)));
        if is_due {
            let attempt = attempt(&pod) + 1;
            pod["metadata"]["annotations"][names::ATTEMPT] = json!(attempt.to_string());
            self.actions.push(Action::Retry { file, pod });
        }
    }
}

/// Returns whether `existing` is `pod`, by whichever attempt; `pod` is that attempt then.
fn is_same(pod: &mut Value, existing: &Value) -> bool {
    if let attempt @ Value::String(_) = &existing["metadata"]["annotations"][names::ATTEMPT] {
        pod["metadata"]["annotations"][names::ATTEMPT] = attempt.clone();
    }
    pod == existing
}

/// The first is without a number.
pub(super) fn attempt(pod: &Value) -> u64 {
    let attempt = pod["metadata"]["annotations"][names::ATTEMPT].as_str();
    attempt.and_then(|text| text.parse().ok()).unwrap_or(1)
}

fn pod(
    world: &World<'_>,
    subject: Subject<'_>,
    spec: &Value,
    connection: &str,
) -> Result<Value, SpecError> {
    let mut pod = broker::static_pod(subject, world.node, spec)?;
    // Changes when the device must be reached differently: another Pod then.
    pod["metadata"]["annotations"] = json!({ (names::BROKER_CONNECTION): connection });
    Ok(pod)
}

#[cfg(test)]
mod tests;
