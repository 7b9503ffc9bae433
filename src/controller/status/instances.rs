//! Decides the condition `BrokersReady` of each Instance, which it has only while something is wrong. Pure.
use crate::{
    api::{
        condition::{self, Condition, ConditionStatus, ConditionType},
        configuration::Problem,
        instance::{Instance, InstanceStatus},
        reason::Reason,
    },
    controller::{brokers::report::Reports, world::World},
    model::{
        instance_name::InstanceKey,
        patch::{add, remove, test},
    },
};
use json_patch::{Patch, PatchOperation};
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

/// Returns the writes of the condition. A broker that only starts is nothing wrong: an Instance whose brokers start and
/// run costs no write.
pub(super) fn patches(
    world: &World,
    brokers: &Reports,
    now: Timestamp,
) -> Vec<(InstanceKey, Patch)> {
    let patch = |(key, instance): (&InstanceKey, &std::sync::Arc<Instance>)| {
        if instance.metadata.deletion_timestamp.is_some() {
            return None;
        }
        let of = instance.spec.configuration_key(&key.namespace);
        let generation = world.configurations.get(&of)?.metadata.generation;
        let report = brokers.get(&of);
        // A report about an earlier generation says nothing of this one.
        if report.is_some_and(|report| report.generation != generation) {
            return None;
        }
        let problem = report.and_then(|report| report.problem_of(key));
        Some((key.clone(), written(instance, problem, now)?))
    };
    world.instances.iter().filter_map(patch).collect()
}

/// Returns the patch that makes the condition say this. It changes no other condition, which others write.
fn written(instance: &Instance, problem: Option<Problem>, now: Timestamp) -> Option<Patch> {
    let conditions = instance.status.as_ref().map(|status| &status.conditions);
    let mut before = conditions.into_iter().flatten();
    let index = before.position(|c| c.type_ == ConditionType::BrokersReady.as_str());
    let before = index.and_then(|index| conditions?.get(index));
    let problem = problem.filter(|p| before.is_some() || p.reason != Reason::BrokersStarting);
    if before.is_none() && problem.is_none() {
        return None;
    }
    let mut operations = vec![test(&["metadata", "uid"], json!(instance.metadata.uid))];
    let index = index.unwrap_or_default().to_string();
    let at = |field| ["status", "conditions", &index, field];
    if before.is_some() {
        operations.push(test(
            &at("type"),
            json!(ConditionType::BrokersReady.as_str()),
        ));
    }
    match (before, problem) {
        (_, None) => operations.push(remove(&["status", "conditions", &index])),
        (None, Some(problem)) => {
            let condition = Condition::new(
                ConditionType::BrokersReady,
                ConditionStatus::False,
                &problem.reason,
                problem.message,
                &condition::time(now),
            );
            operations.extend(appended(instance.status.as_ref(), condition));
        }
        (Some(before), Some(problem)) => {
            if before.reason == problem.reason && before.message == problem.message {
                return None;
            }
            operations.push(add(&at("reason"), json!(problem.reason)));
            operations.push(add(&at("message"), json!(problem.message)));
        }
    }
    Some(Patch(operations))
}

fn appended(status: Option<&InstanceStatus>, condition: Condition) -> Vec<PatchOperation> {
    if status.is_some() {
        return vec![add(&["status", "conditions", "-"], json!(condition))];
    }
    let status = InstanceStatus {
        conditions: vec![condition],
        ..InstanceStatus::default()
    };
    vec![
        test(&["status"], Value::Null),
        add(&["status"], json!(status)),
    ]
}
