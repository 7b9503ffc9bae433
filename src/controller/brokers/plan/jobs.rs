//! Which Jobs there should be. Pure.
use super::{super::report::Found, Action, Of, Planner};
use crate::{
    api::{broker, reason::Reason},
    controller::world::BrokerJob,
    model::{names::ObjectKey, slot::holders},
};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use std::collections::BTreeMap;

impl<'a> Planner<'a> {
    /// One Job for each generation of the Configuration, started when a node has the device.
    pub(super) fn job(&mut self, of: Of<'a>, spec: &Value) {
        let generation = of.configuration.1.metadata.generation.unwrap_or_default();
        let status = of.subject.instance.status.as_ref();
        let remembered = status.and_then(|status| status.broker_generation);
        let name = broker::job_name(of.subject, generation);
        let key = ObjectKey::new(&of.subject.key.namespace, name);
        let mut jobs = self.jobs.remove(&of.owner()).unwrap_or_default();
        if self.is_left(of) {
            for (key, job) in jobs {
                self.delete_job((key, job), "no node sees its device any more");
            }
            return;
        }
        let memory = self.input.memory;
        let is_there = jobs.remove(&key).is_some();
        let was_created =
            is_there || memory.is_created(&key, of.uid) || remembered == Some(generation);
        let is_fit = (self.places(of, None).iter()).any(|place| place.is_fit);
        let current = (self.input.world.jobs.get(&key)).filter(|_| is_there);
        self.report_job(of, (&key, current.map(|job| &**job)), was_created, is_fit);
        if was_created || is_fit {
            for (key, job) in jobs {
                self.delete_job((key, job), "its Configuration is a newer one");
            }
        }
        if is_there && remembered != Some(generation) {
            self.plan.actions.push(Action::Remember {
                instance: of.subject.key.clone(),
                owner: of.uid.to_owned(),
                generation,
            });
        }
        // Another Instance's of this name is on its way out.
        let is_taken = self.input.world.jobs.contains_key(&key);
        let digest = generation.to_string();
        if was_created || is_taken || !is_fit || !self.may_start(&key, &digest) {
            return;
        }
        match broker::job(of.subject, generation, spec) {
            Ok(job) => self.plan.actions.push(Action::CreateJob {
                broker: of.broker(key, &digest),
                owner: of.uid.to_owned(),
                job,
                generation,
            }),
            Err(e) => self.broken(of, (&digest, e)),
        }
    }

    /// A Job that is over runs well; one that was collected was over.
    fn report_job(
        &mut self,
        of: Of<'a>,
        (key, job): (&ObjectKey, Option<&'a BrokerJob>),
        was_created: bool,
        is_fit: bool,
    ) {
        if !was_created && !is_fit {
            return;
        }
        let found = |reason, message: &str| Found {
            reason,
            of: key.name.clone(),
            message: message.to_owned(),
        };
        let problem = job.and_then(|job| {
            if let Some(failure) = &job.failure {
                return Some(found(Reason::BrokerFailed, failure));
            }
            let pods = self.pods.get(&(&*key.namespace, &*job.meta.uid));
            // A Pod that failed is kept, and the Job has tried again since.
            let pods = pods.into_iter().flat_map(BTreeMap::values);
            let mut pods = pods.filter(|pod| !pod.has_ended() && !pod.meta.is_deleting);
            pods.find_map(|pod| {
                let trouble = pod.trouble.as_ref();
                let unscheduled = pod.unscheduled.as_ref();
                let trouble = trouble.map(|trouble| found(trouble.reason, &trouble.message));
                trouble.or(unscheduled.map(|no| found(Reason::BrokerUnschedulable, &no.message)))
            })
        });
        let refusal = self.input.memory.refusal(
            key,
            &of.configuration
                .1
                .metadata
                .generation
                .unwrap_or_default()
                .to_string(),
        );
        let refusal = refusal.map(|message| found(Reason::BrokerRefused, message));
        let starting = || found(Reason::BrokersStarting, "it is being created");
        let report = self.report(of);
        report.wanted += 1;
        match problem {
            None if was_created => report.running += 1,
            problem => report.add(problem.or(refusal).unwrap_or_else(starting)),
        }
    }

    /// Whether the Instance would be deleted if its slots were free, and the nodes of its containers are there: a Job that
    /// has them would keep it for ever.
    fn is_left(&mut self, of: Of<'a>) -> bool {
        let instance = of.subject.instance;
        let holders = holders(&instance.spec.device_usage);
        let nodes = &self.input.world.nodes;
        let is_ready = |node: &String| nodes.get(node).is_some_and(|node| node.is_ready);
        let status = instance.status.iter();
        let mut conditions = status.flat_map(|status| &status.conditions);
        let since = conditions
            .find(|c| c.type_ == "Available" && c.status == "False")
            .and_then(|c| c.last_transition_time.parse::<Timestamp>().ok());
        let is_kept = instance.spec.nodes.is_empty() && holders.iter().all(is_ready);
        let Some(since) = since.filter(|_| is_kept && !holders.is_empty()) else {
            return false;
        };
        let grace = of.configuration.1.spec.grace_period_seconds;
        let over = since.saturating_add(SignedDuration::from_secs(grace));
        let over = over.unwrap_or(Timestamp::MAX);
        if over > self.input.now {
            self.wake_at(over);
        }
        over <= self.input.now
    }

    pub(super) fn delete_job(&mut self, (key, job): (&ObjectKey, &BrokerJob), why: &'static str) {
        if !job.meta.is_deleting && !self.input.memory.is_deleted(&job.meta.uid) {
            self.plan.actions.push(Action::DeleteJob {
                key: key.clone(),
                uid: job.meta.uid.clone(),
                why,
            });
        }
    }
}
