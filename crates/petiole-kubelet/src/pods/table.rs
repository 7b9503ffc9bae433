//! Holds the table of Pods. The Pod manager and its workers write to it; everything else reads it.
use super::{manifest::PodKey, record::PodRecord};
use std::{collections::BTreeMap, sync::Arc};
use tokio::sync::watch;

/// The table of all Pods of this kubelet. All clones share it.
#[derive(Clone)]
pub(crate) struct Pods {
    pub(super) table: Arc<watch::Sender<BTreeMap<PodKey, PodRecord>>>,
}

impl Pods {
    pub(crate) fn new() -> Self {
        Self {
            table: Arc::new(watch::Sender::new(BTreeMap::new())),
        }
    }

    pub(crate) fn table(&self) -> watch::Ref<'_, BTreeMap<PodKey, PodRecord>> {
        self.table.borrow()
    }

    pub(super) fn update(&self, key: &PodKey, change: impl FnOnce(&mut PodRecord)) {
        self.table.send_modify(|table| {
            if let Some(record) = table.get_mut(key) {
                change(record);
                record.update_phase();
            }
        });
    }
}
