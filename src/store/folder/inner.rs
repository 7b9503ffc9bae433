//! Holds what the parts of the store share.
use super::plan::LastReading;
use crate::{
    api::configuration::{Configuration, ConfigurationStatus, Problem},
    model::typed_names::{ConfigurationKey, NodeName},
    store::interface::{Configurations, Instances, Report},
};
use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::{sync::watch, time::Instant};

#[derive(Debug, Clone)]
pub struct Settings {
    pub node_name: NodeName,
    /// The folder of Configurations, one or more in each `.yaml`, `.yml` or `.json` file.
    pub configurations: PathBuf,
    /// The folder of Instances and errors.
    pub state: PathBuf,
}

pub(super) struct Inner {
    pub(super) settings: Settings,
    pub(super) configurations: watch::Sender<Arc<Configurations>>,
    pub(super) instances: watch::Sender<Arc<Instances>>,
    /// Changes with the Instances.
    pub(super) news: watch::Sender<()>,
    /// Changes after each report.
    pub(super) reported: watch::Sender<()>,
    /// The files on the disk other than Instances. Its lock is held during every change of the folder, so that changes
    /// of one Instance are sequential. It is never held over an await.
    pub(super) written: Mutex<Written>,
    pub(super) started: Instant,
}

#[derive(Default)]
pub(super) struct Written {
    pub(super) known: LastReading,
    /// The problems that were found while reading each file.
    pub(super) unreadable: BTreeMap<String, Vec<Problem>>,
    pub(super) reports: BTreeMap<ConfigurationKey, Report>,
    pub(super) errors: BTreeMap<String, String>,
    /// The status files, each with its content.
    pub(super) statuses: BTreeMap<ConfigurationKey, (Arc<Configuration>, ConfigurationStatus)>,
}

impl Inner {
    pub(super) fn lock(&self) -> MutexGuard<'_, Written> {
        // A panic while the lock was held leaves values that the next read replaces.
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
