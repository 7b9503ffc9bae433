//! Makes Instances of the agent's reports, and writes them to the disk.
use super::{
    Inner,
    disk::{unavailable, write_yaml},
};
use crate::{
    api::{instance::Instance, node_devices::ConfigurationView},
    files,
    merge::alone::{Alone, Step, changed, is_held},
    model::typed_names::ConfigurationKey,
    store::{Instances, Reports, StoreError, instance_key},
};
use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
use std::sync::Arc;
use tracing::{info, warn};

impl Inner {
    /// Takes over the reports. Returns what they make of the Instances.
    pub(super) fn take_reports(&self, mut reports: Reports) -> Vec<Step> {
        let mut written = self.lock();
        let configurations = self.configurations.borrow().clone();
        let instances = self.instances.borrow().clone();
        let views = reports.of.iter().map(|(of, report)| report.view(of));
        let views: Vec<ConfigurationView> = views.collect();
        let used = reports.of.iter();
        let used =
            used.filter_map(|(of, report)| Some((of.clone(), report.configuration.clone()?)));
        let alone = Alone {
            node: &self.settings.node_name,
            configurations: &used.collect(),
            may_have: &|of: &ConfigurationKey| {
                !configurations.is_complete || configurations.may_have(of)
            },
        };
        let (steps, nameless) = alone.steps(&views, &instances, Timestamp::now());
        for (of, problem) in nameless {
            let report = reports.of.entry(of).or_default();
            report.problems.push(problem);
        }
        written.reports = reports.of;
        steps
    }

    pub(super) fn carry_out(&self, steps: Vec<Step>) -> Result<(), StoreError> {
        let _written = self.lock();
        let mut instances = Instances::clone(&self.instances.borrow());
        let mut outcome = Ok(());
        for step in steps {
            let key = step.key();
            if let Err(e) = self.carry_out_one(&mut instances, step) {
                warn!(instance = %key, "the Instance cannot be written, and is tried again: {e}");
                outcome = Err(e);
            }
        }
        self.publish(instances);
        outcome
    }

    fn carry_out_one(&self, instances: &mut Instances, step: Step) -> Result<(), StoreError> {
        let (key, after) = match step {
            Step::Create(new) => {
                let mut instance = *new;
                instance.metadata.creation_timestamp = Some(Time(Timestamp::now()));
                let key = instance_key(&instance.metadata);
                info!(instance = %key, "device found: Instance created");
                (key, instance)
            }
            Step::Change(key, planned, change) => {
                // A slot that was exchanged meanwhile leads to another plan.
                let is_planned = |there: &&Arc<Instance>| Arc::ptr_eq(there, &planned);
                let Some(instance) = instances.get(&key).filter(is_planned) else {
                    return Ok(());
                };
                for event in &change.events {
                    info!(instance = %key, "{}: {}", event.reason, event.note);
                }
                let changed = changed(instance, *change).map_err(StoreError::Unavailable)?;
                (key, changed)
            }
            Step::Delete {
                key,
                is_orphan,
                why,
            } => {
                // A container may have got a slot meanwhile.
                if is_orphan || !instances.get(&key).is_some_and(|there| is_held(there)) {
                    files::remove(&self.instance_path(&key)).map_err(unavailable)?;
                    instances.remove(&key);
                    info!(instance = %key, "Instance deleted: {why}");
                }
                return Ok(());
            }
        };
        write_yaml(&self.instance_path(&key), &after)?;
        instances.insert(key, Arc::new(after));
        Ok(())
    }

    /// Writes the reports beside the Configurations.
    pub(super) fn publish_reports(&self) -> Result<(), StoreError> {
        let outcome = self.write_reports(&mut self.lock());
        self.reported.send_replace(());
        outcome
    }
}
