//! Holds the Instances. They are read once, and then changed only here; each change is written to the disk first.
use super::{
    disk::{file_name, manifest_names, read_yaml, write_yaml},
    inner::Inner,
};
use crate::{
    api::instance::Instance,
    cluster::instance_key,
    model::{instance_name::InstanceKey, slot_table::SlotChange},
    store::{
        interface::{Instances, StoreError, is_same},
        plan::{by_instance, exchanged},
    },
};
use anyhow::Context as _;
use std::{
    path::{Path, PathBuf},
    sync::Arc,
};
use tracing::warn;

impl Inner {
    pub(super) fn exchange(&self, changes: &[SlotChange]) -> Result<(), StoreError> {
        let _written = self.lock();
        let mut instances = Instances::clone(&self.instances.borrow());
        let mut outcome = Ok(());
        for (key, changes) in by_instance(changes) {
            outcome = outcome.and_then(|()| {
                let instance = instances
                    .get(key)
                    .ok_or_else(|| StoreError::Gone(key.clone()))?;
                let after = exchanged(instance, &changes)?;
                self.write_instance(key, &after)?;
                instances.insert(key.clone(), Arc::new(after));
                Ok(())
            });
        }
        self.publish(instances);
        outcome
    }

    pub(super) fn publish(&self, instances: Instances) {
        self.instances.send_if_modified(|current| {
            let is_changed = !is_same(current, &instances);
            *current = Arc::new(instances);
            if is_changed {
                self.news.send_replace(());
            }
            is_changed
        });
    }

    pub(super) fn instance_path(&self, key: &InstanceKey) -> PathBuf {
        self.settings.state.join("instances").join(file_name(key))
    }

    pub(super) fn write_instance(
        &self,
        key: &InstanceKey,
        instance: &Instance,
    ) -> Result<(), StoreError> {
        write_yaml(&self.instance_path(key), instance)
    }
}

/// Returns the Instances in an agent's state folder, in the order of their names.
pub fn instances(state: &Path) -> anyhow::Result<Vec<Instance>> {
    let folder = state.join("instances");
    let instances = read_instances(&folder)
        .with_context(|| format!("is {} the state folder of an agent?", state.display()))?;
    Ok(instances.into_values().map(Arc::unwrap_or_clone).collect())
}

/// Reads the Instances of an earlier run. An unreadable one is left out, because its device will be found again.
pub(super) fn read_instances(folder: &Path) -> anyhow::Result<Instances> {
    let mut instances = Instances::new();
    let names =
        manifest_names(folder).with_context(|| format!("cannot list {}", folder.display()))?;
    for path in names.iter().map(|name| folder.join(name)) {
        match read_yaml::<Instance>(&path) {
            Ok(instance) => {
                instances.insert(instance_key(&instance.metadata), Arc::new(instance));
            }
            Err(e) => {
                warn!(path = %path.display(), "an Instance of an earlier run cannot be read and is left out: {e:#}")
            }
        }
    }
    Ok(instances)
}
