//! Which static Pods there should be, and what is in them. Pure.
use super::admission::{Kubelet, Lack, judged};
use crate::{
    agent::{
        configurations::{AcceptedConfiguration, Judged},
        plan_inputs::{Sight, sight},
    },
    api::{
        broker::{self, SpecError, Subject},
        names,
    },
    discovery::session::Discoveries,
    model::names::ObjectKey,
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
    pub(super) resource_prefix: &'a str,
    pub(super) judged: &'a Judged,
    pub(super) discoveries: &'a Discoveries,
    pub(super) instances: &'a Instances,
    pub(super) kubelet: &'a Kubelet,
    /// Our manifests as they stand, by file name.
    pub(super) existing: &'a BTreeMap<String, Value>,
    /// As the last plan left it.
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

#[derive(Debug, Default, PartialEq)]
pub(super) struct Plan {
    pub(super) actions: Vec<Action>,
    pub(super) lacking: Lacking,
    /// Configurations that no Pod can be made of. What runs of them goes on.
    pub(super) broken: BTreeMap<ObjectKey, SpecError>,
}

pub(super) fn is_ours(file: &str) -> bool {
    file.starts_with(FILE_START) && file.ends_with(".yaml")
}

/// A new Pod waits until the kubelet knows its resource: it would start one without the device. One whose device is
/// gone stays until its Instance goes, one whose device is reached differently now is replaced, and one that the
/// kubelet took without its device is tried again.
pub(super) fn plan(world: &World<'_>) -> Plan {
    let mut plan = Plan::default();
    let mut wanted = BTreeSet::new();
    for (key, instance) in world.instances {
        let configuration = ObjectKey::new(&key.namespace, &instance.spec.configuration_name);
        let file = format!("{FILE_START}{}_{}.yaml", key.namespace, key.name);
        let Some(accepted) = world.judged.accepted.get(&configuration) else {
            // Refused as it stands, or not judged yet: what runs goes on. One that is deleted takes its Instances along.
            wanted.insert(file);
            continue;
        };
        let Some(spec) = pod_spec(accepted) else {
            continue;
        };
        let existing = world.existing.get(&file);
        wanted.insert(file.clone());
        let resource = format!("{}/{}", world.resource_prefix, key.name);
        if let Sight::Seen(device) = sight(instance, world.discoveries) {
            let subject = Subject {
                key,
                instance,
                resource_prefix: world.resource_prefix,
            };
            match pod(world, subject, (spec, &device.connection_digest())) {
                Err(e) => drop(plan.broken.insert(configuration, e)),
                Ok(mut pod) => match existing {
                    Some(existing) if is_same(&mut pod, existing) => plan.tried(world, file, pod),
                    _ if world.kubelet.allocatable.contains_key(&resource) => {
                        plan.actions.push(Action::Write { file, pod });
                    }
                    _ => {}
                },
            }
        }
    }
    let removed = world.existing.keys().filter(|file| !wanted.contains(*file));
    plan.actions
        .extend(removed.map(|file| Action::Remove { file: file.clone() }));
    plan
}

impl Plan {
    /// How many Pods are new, or others than before.
    pub(super) fn writes(&self) -> usize {
        let is_write = |action: &&Action| matches!(action, Action::Write { .. });
        self.actions.iter().filter(is_write).count()
    }

    /// For a Pod that stands as it should.
    fn tried(&mut self, world: &World<'_>, file: String, mut pod: Value) {
        let before = world.lacking.get(&file).copied();
        let (lack, is_due) = judged(&pod, world.kubelet, (before, world.now));
        self.lacking.extend(lack.map(|lack| (file.clone(), lack)));
        if is_due {
            let attempt = attempt(&pod) + 1;
            pod["metadata"]["annotations"][names::ATTEMPT] = json!(attempt.to_string());
            self.actions.push(Action::Retry { file, pod });
        }
    }
}

/// Whether `existing` is `pod`, by whichever attempt; `pod` is that attempt then.
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

fn pod_spec(accepted: &AcceptedConfiguration) -> Option<&Value> {
    let spec = accepted.configuration.spec.broker_spec.as_ref()?;
    spec.broker_pod_spec.as_ref()
}

fn pod(
    world: &World<'_>,
    subject: Subject<'_>,
    (spec, told): (&Value, &str),
) -> Result<Value, SpecError> {
    let mut pod = broker::static_pod(subject, world.node, spec)?;
    // Changes when the device must be reached differently: another Pod then.
    pod["metadata"]["annotations"] = json!({ (names::TOLD_CONNECTION): told });
    Ok(pod)
}

#[cfg(test)]
mod tests;
