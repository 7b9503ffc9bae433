//! Decides which brokers to create, replace and delete. On which node a broker runs is the scheduler's decision. Pure.
mod jobs;
mod planner;
mod pods;
mod reach;
mod reported;
mod specs;

pub(crate) use super::action::Action;
use crate::{
    api::{
        broker::{self, Subject, Wanted},
        configuration::Configuration,
        instance::Instance,
    },
    model::instance_name::InstanceKey,
};
pub(crate) use planner::{Input, Plan};
use planner::{Planner, Target, owned};
use std::collections::BTreeMap;

pub(crate) fn plan(input: &Input<'_>) -> Plan {
    let mut planner = Planner {
        input,
        pods: owned(&input.world.pods, |pod| pod.meta.owner.as_deref()),
        jobs: owned(&input.world.jobs, |job| job.meta.owner.as_deref()),
        specs: BTreeMap::new(),
        plan: Plan::default(),
    };
    for (key, instance) in &input.world.instances {
        planner.instance(key, instance);
    }
    planner.report_refusals();
    planner.plan
}

impl<'a> Planner<'a> {
    fn instance(&mut self, key: &'a InstanceKey, instance: &'a Instance) {
        let configuration = instance.spec.configuration_key(&key.namespace);
        // If the Configuration is gone its Instances will be deleted. If it cannot be read, its brokers stay.
        let known = (self.input.world.configurations).get_key_value(&configuration);
        let Some(((configuration_key, configuration), uid)) =
            known.zip(instance.metadata.uid.as_deref())
        else {
            return;
        };
        if is_being_deleted(instance, configuration) {
            return;
        }
        let target = Target {
            subject: Subject {
                key,
                instance,
                resource_prefix: self.input.resource_prefix,
            },
            uid,
            configuration_key,
            configuration,
            is_broken: self.checked(configuration_key, configuration).is_broken,
        };
        let wanted = broker::wanted(configuration.spec.broker_spec.as_ref());
        match wanted {
            None => {
                self.delete_pods_of(target);
                self.delete_jobs_of(target);
            }
            Some(Wanted::Pod(spec)) => self.pods(target, spec),
            Some(Wanted::Job(spec)) => self.job(target, spec),
        }
    }
}

/// Returns whether the Instance or its Configuration is being deleted. The garbage collector deletes their brokers.
fn is_being_deleted(instance: &Instance, configuration: &Configuration) -> bool {
    let owners = instance.metadata.owner_references.iter().flatten();
    let owner = owners
        .into_iter()
        .find(|owner| owner.controller == Some(true));
    let is_anothers =
        owner.is_some_and(|owner| Some(&owner.uid) != configuration.metadata.uid.as_ref());
    let is_deleting = [&instance.metadata, &configuration.metadata]
        .iter()
        .any(|metadata| metadata.deletion_timestamp.is_some());
    is_deleting || is_anothers
}

#[cfg(test)]
mod tests;
