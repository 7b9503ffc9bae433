//! Makes Instances of the agent's reports, and writes them to the disk.
use super::{disk::unavailable, inner::Inner};
use crate::{
    api::{instance::Instance, node_devices::ConfigurationView},
    cluster::instance_key,
    files,
    merge::{
        alone::{Alone, Step, changed},
        plan::is_held,
    },
    model::typed_names::ConfigurationKey,
    store::interface::{Instances, Reports, StoreError},
};
use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
use std::sync::Arc;
use tracing::info;

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
            may_have: &|of: &ConfigurationKey| !configurations.is_deleted(of),
        };
        let (steps, left_out) = alone.steps(&views, &instances, Timestamp::now());
        for (of, problem) in left_out {
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
            outcome = outcome.and(self.carry_out_one(&mut instances, step));
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
        self.write_instance(&key, &after)?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        api::node_devices::SeenDevice,
        model::{
            slot::{SlotId, SlotOwner},
            slot_table::SlotChange,
        },
        store::{
            folder::{FolderStore, Settings},
            interface::Report,
        },
    };
    use std::{collections::BTreeMap, fs};

    #[test]
    fn a_slot_that_is_claimed_between_a_plan_and_its_writes_stays_claimed() {
        let folder = tempfile::tempdir().unwrap();
        let settings = Settings {
            node_name: "a".into(),
            configurations: folder.path().join("configurations"),
            state: folder.path().join("state"),
        };
        fs::create_dir_all(&settings.configurations).unwrap();
        let manifest = "{apiVersion: akri.sh/v0, kind: Configuration, metadata: {name: cam}, spec: {discoveryHandler: {name: echo}}}";
        fs::write(settings.configurations.join("cam.yaml"), manifest).unwrap();
        let store = FolderStore::open(settings).unwrap();
        let inner = &store.inner;
        let configurations = inner.configurations.borrow().clone();
        let reports = |address: &str| {
            let (of, configuration) = configurations.objects.first_key_value().unwrap();
            let properties = BTreeMap::from([("ADDRESS".to_owned(), address.to_owned())]);
            let device = SeenDevice {
                id: Some("door".to_owned()),
                properties: Some(properties),
                ..SeenDevice::default()
            };
            let report = Report {
                configuration: Some(configuration.clone()),
                complete: true,
                own: vec![device],
                ..Report::default()
            };
            Reports {
                of: BTreeMap::from([(of.clone(), report)]),
                is_whole: true,
            }
        };
        let plan = |address| inner.take_reports(reports(address));
        let instance = || {
            let instances = inner.instances.borrow();
            let (key, instance) = instances.first_key_value().unwrap();
            let spec = instance.spec.clone();
            let address = spec.broker_properties["ADDRESS"].clone();
            (key.clone(), spec.device_usage.len(), address)
        };
        inner.carry_out(plan("10.0.0.1")).unwrap();
        let (key, ..) = instance();
        let planned = plan("10.0.0.2");
        let claim = SlotChange {
            slot: SlotId::new(key.name.clone(), 0),
            key: key.clone(),
            from: None,
            to: Some(SlotOwner::Node("a".into())),
            connection_digest: None,
        };
        inner.exchange(&[claim]).unwrap();
        inner.carry_out(planned).unwrap();
        assert_eq!(instance(), (key.clone(), 1, "10.0.0.1".to_owned()));
        // The claim leads to another plan.
        inner.carry_out(plan("10.0.0.2")).unwrap();
        assert_eq!(instance(), (key, 1, "10.0.0.2".to_owned()));
    }
}
