//! Decides which broker specs are valid, and which the API server has accepted. Pure.
use super::{
    super::report::BrokerProblem,
    planner::{CheckedSpec, Planner, Target},
};
use crate::{
    api::{
        broker::{self, SpecError},
        configuration::{Configuration, Problem},
        names,
        reason::Reason,
    },
    controller::world::World,
    model::typed_names::ConfigurationKey,
};

impl<'a> Planner<'a> {
    /// Returns the validated broker spec of a Configuration.
    pub(super) fn checked(
        &mut self,
        key: &'a ConfigurationKey,
        configuration: &Configuration,
    ) -> &mut CheckedSpec {
        let broken = &mut self.plan.broken;
        self.specs.entry(key).or_insert_with(|| {
            let digest = broker::digest(configuration);
            let error = broker::check(configuration).err();
            let is_broken = error.is_some();
            broken.extend(error.map(|error| (key.clone(), (digest.clone(), error))));
            let is_accepted = self.input.memory.specs.is_accepted(key, &digest)
                || has_pod_of(self.input.world, key, &digest);
            CheckedSpec {
                digest,
                is_broken,
                is_accepted,
                is_tried: false,
            }
        })
    }

    pub(super) fn add_broken(&mut self, target: Target<'_>, digest: &str, error: SpecError) {
        let key = target.configuration_key.clone();
        self.plan.broken.insert(key, (digest.to_owned(), error));
    }

    /// Adds the broker specs that are refused as a whole, by us or by the API server, to the reports.
    pub(super) fn report_refusals(&mut self) {
        let specs = self.specs.iter();
        let refused = specs.filter_map(|(key, checked)| {
            let broken = self
                .plan
                .broken
                .get(*key)
                .map(|(_, error)| error.to_string());
            let generation = self.input.world.configurations.get(*key);
            let generation = generation.and_then(|of| of.metadata.generation);
            // The digest of a Job is the generation of its Configuration.
            let job_digest = generation.unwrap_or_default().to_string();
            let specs = &self.input.memory.specs;
            // One Pod of a spec that others are made of is refused alone.
            let refused = specs.refusal(key, &checked.digest);
            let refused = refused.filter(|_| !checked.is_accepted);
            let refused = refused.or_else(|| specs.refusal(key, &job_digest));
            let message = broken.or(refused.map(str::to_owned))?;
            Some(((*key).clone(), generation, message))
        });
        for (key, generation, message) in refused.collect::<Vec<_>>() {
            let report = self.plan.reports.entry(key).or_default();
            report.generation = generation;
            report.add(BrokerProblem {
                of: String::new(),
                problem: Problem::new(Reason::BrokerSpecInvalid, message),
            });
        }
    }
}

/// Returns whether a Pod of a Configuration was created from the spec with this digest.
fn has_pod_of(world: &World, configuration: &ConfigurationKey, digest: &str) -> bool {
    world.pods.iter().any(|(key, pod)| {
        let of = pod.meta.labels.get(names::CONFIGURATION_LABEL);
        key.namespace == configuration.namespace
            && of.is_some_and(|of| *of == configuration.name)
            && pod
                .meta
                .annotations
                .get(names::BROKER_DIGEST)
                .map(String::as_str)
                == Some(digest)
    })
}
