//! Answers whether this agent is ready, and what it waits for. The answer is computed at each request from what the tasks
//! publish.
mod plan;

use super::{
    plugins,
    settings::Settings,
    values::{KubeletSocket, ValidatedConfigurations},
};
use crate::{
    model::resource_name::ResourceName,
    store::{Configurations, Instances},
    telemetry::http::Health,
};
use std::{collections::BTreeSet, sync::Arc};
use tokio::sync::watch;

/// The inputs of the answer.
pub(super) struct Inputs {
    pub(super) settings: Arc<Settings>,
    pub(super) configurations: watch::Receiver<Arc<Configurations>>,
    pub(super) instances: watch::Receiver<Arc<Instances>>,
    pub(super) validated: watch::Receiver<Arc<ValidatedConfigurations>>,
    pub(super) kubelet: watch::Receiver<Option<KubeletSocket>>,
    /// Our resources that are registered with the kubelet.
    pub(super) registered: watch::Receiver<BTreeSet<ResourceName>>,
}

pub(super) fn health(inputs: Inputs) -> Health {
    Health::new(move || {
        let names = inputs.validated.borrow().names.clone();
        let node = &inputs.settings.node_name;
        let desired = plugins::desired(&inputs.instances.borrow(), node, &names);
        let desired = desired.into_values().map(|offered| offered.full_name);
        plan::missing(&plan::World {
            plugin_folder: &inputs.settings.plugin_folder,
            has_kubelet: inputs.kubelet.borrow().is_some(),
            configurations: &inputs.configurations.borrow().clone(),
            desired: &desired.collect(),
            registered: &inputs.registered.borrow(),
        })
    })
}
