//! Decides which Jobs are created and deleted. Pure.
use super::{
    super::{
        action::{Action, Broker},
        report::{BrokerProblem, Report},
    },
    planner::{Planner, Target},
};
use crate::{
    api::{
        broker::{self, SpecError},
        configuration::Problem,
        instance::InstanceStatus,
        reason::Reason,
    },
    controller::world::BrokerJob,
    model::{names::ObjectKey, slot::holders, typed_names::NodeName},
};
use serde_json::Value;
use std::collections::BTreeMap;

/// What an Instance remembers after its Job was deleted at its work, because no node saw the device. No Configuration has this generation.
const NO_JOB: i64 = 0;

/// The state of the Job of the present generation.
enum JobState<'a> {
    /// The Job was not created yet.
    Missing,
    /// The Job was created, and was garbage-collected.
    Created,
    There(&'a BrokerJob),
}

impl<'a> Planner<'a> {
    /// Plans one Job for each generation of the Configuration, started when a node has the device.
    pub(super) fn job(&mut self, target: Target<'a>, spec: &Value) {
        let generation = target.configuration.metadata.generation.unwrap_or_default();
        let status = target.subject.instance.status.as_ref();
        let remembered = status.and_then(|status| status.broker_generation);
        let digest = generation.to_string();
        let name = broker::job_name(target.subject, generation);
        let key = ObjectKey::new(&target.subject.key.namespace, name);
        let mut jobs = self.jobs.remove(&target.owner()).unwrap_or_default();
        if self.check_left(target) {
            let is_at_work = |job: &BrokerJob| job.failure.is_none() && !job.is_complete;
            let is_cut_short = jobs.get(&key).is_some_and(|job| is_at_work(job));
            if is_cut_short && remembered != Some(NO_JOB) {
                // First: a device that returns gets a Job again, also if this process ends between the two writes.
                self.remember(target, NO_JOB);
                return;
            }
            for (key, job) in jobs {
                self.delete_job(key, job, "no node sees its device any more");
            }
            self.delete_pods_of(target);
            return;
        }
        let state = match jobs.remove(&key) {
            Some(job) => JobState::There(job),
            None if remembered == Some(generation) => JobState::Created,
            None => JobState::Missing,
        };
        let is_there = matches!(state, JobState::There(job) if !job.meta.is_deleting);
        let was_created = !matches!(state, JobState::Missing);
        let is_fit = (self.places(target).iter()).any(|place| place.is_fit);
        if was_created || is_fit {
            self.report_job(target, &key, &digest, &state);
        }
        // The API server may refuse the new one: the last one stays until then.
        if !was_created {
            jobs = earlier(jobs);
        }
        for (key, job) in jobs {
            self.delete_job(key, job, "its Configuration has changed");
        }
        if was_created || !(is_fit || target.is_broken) {
            self.delete_pods_of(target);
        }
        if is_there && remembered != Some(generation) {
            self.remember(target, generation);
        }
        // A Job of this name that belongs to another Instance is being deleted.
        let is_taken = self.input.world.whole().jobs.contains_key(&key);
        if was_created || is_taken || !is_fit || !self.check_start(&key, &digest) {
            return;
        }
        let broker = target.broker(key, &digest);
        match started(target, broker, generation, spec) {
            Ok(action) => self.plan.actions.push(action),
            Err(e) => self.add_broken(target, &digest, e),
        }
    }

    /// Remembers at the Instance which Job was created for it.
    fn remember(&mut self, target: Target<'a>, generation: i64) {
        self.plan.actions.push(Action::Remember {
            instance: target.subject.key.clone(),
            owner: target.uid.to_owned(),
            generation,
        });
    }

    /// Adds a Job to the report. A Job that has ended counts as running, also after it was garbage-collected.
    fn report_job(
        &mut self,
        target: Target<'a>,
        key: &ObjectKey,
        digest: &str,
        state: &JobState<'a>,
    ) {
        let found = |problem| BrokerProblem {
            of: key.name.clone(),
            problem,
        };
        let job = match state {
            JobState::There(job) => Some(*job),
            JobState::Missing | JobState::Created => None,
        };
        let problem = job.and_then(|job| {
            if let Some(failure) = &job.failure {
                return Some(Problem::new(Reason::BrokerFailed, failure));
            }
            let pods = self.pods.get(&(&*key.namespace, &*job.meta.uid));
            // A Pod that failed is kept, and the Job has tried again since.
            let pods = pods.into_iter().flat_map(BTreeMap::values);
            let live = pods.filter(|pod| !pod.has_ended() && !pod.meta.is_deleting);
            let live: Vec<_> = live.copied().collect();
            live.into_iter().find_map(|pod| self.trouble(target, pod))
        });
        let refusal = self.input.memory.failures.refusal(key, digest);
        let refusal = refusal.map(|message| Problem::new(Reason::BrokerRefused, message));
        let starting = || Problem::new(Reason::BrokersStarting, "it is being created");
        let runs = !matches!(state, JobState::Missing) && problem.is_none();
        let report = Report {
            wanted: 1,
            running: usize::from(runs),
            first: (!runs).then(|| found(problem.or(refusal).unwrap_or_else(starting))),
            ..Report::default()
        };
        self.report(target, report);
    }

    /// Returns whether only this Job's slots keep the Instance from being deleted, and the nodes that hold them are ready.
    /// A Job that goes on would keep the Instance for ever.
    fn check_left(&mut self, target: Target<'a>) -> bool {
        let instance = target.subject.instance;
        let holders = holders(&instance.spec.device_usage);
        let nodes = &self.input.world.nodes;
        let is_ready = |node: &NodeName| nodes.get(node).is_some_and(|node| node.is_ready);
        let status = instance.status.as_ref();
        let since = status.and_then(InstanceStatus::unavailable_since);
        let is_kept = instance.spec.nodes.is_empty() && holders.iter().all(is_ready);
        let Some(since) = since.filter(|_| is_kept && !holders.is_empty()) else {
            return false;
        };
        self.has_passed(target.configuration.spec.grace(), since)
    }

    /// Deletes the Jobs of an Instance whose Configuration asks for none.
    pub(super) fn delete_jobs_of(&mut self, target: Target<'a>) {
        for (key, job) in self.jobs.remove(&target.owner()).unwrap_or_default() {
            self.delete_job(key, job, "its Configuration asks for no Job");
        }
    }

    /// Plans the deletion of all Jobs of a Configuration but the last one.
    pub(super) fn delete_earlier_jobs_of(&mut self, target: Target<'a>) {
        let jobs = self.jobs.remove(&target.owner()).unwrap_or_default();
        for (key, job) in earlier(jobs) {
            self.delete_job(key, job, "its Configuration has changed");
        }
    }

    fn delete_job(&mut self, key: &ObjectKey, job: &BrokerJob, why: &'static str) {
        if !job.meta.is_deleting {
            self.plan.actions.push(Action::DeleteJob {
                key: key.clone(),
                uid: job.meta.uid.clone(),
                why,
            });
        }
    }
}

/// Returns the Jobs without the last one.
fn earlier<'a>(
    mut jobs: BTreeMap<&'a ObjectKey, &'a BrokerJob>,
) -> BTreeMap<&'a ObjectKey, &'a BrokerJob> {
    let last = jobs.iter().max_by_key(|(_, job)| job.meta.created);
    if let Some(key) = last.map(|(key, _)| *key) {
        jobs.remove(key);
    }
    jobs
}

/// Returns the action that starts a Job.
fn started(
    target: Target<'_>,
    broker: Broker,
    generation: i64,
    spec: &Value,
) -> Result<Action, SpecError> {
    let selector = &target.configuration.spec.node_selector;
    let mut job = broker::job(target.subject, generation, spec, selector)?;
    if target.is_by_claims() {
        broker::by_claim(target.subject, &mut job["spec"]["template"]["spec"]);
    }
    Ok(Action::CreateJob {
        broker,
        owner: target.uid.to_owned(),
        job,
        claim: target.claim(),
        generation,
    })
}
