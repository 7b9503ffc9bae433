//! Answers whether this agent is ready, what it waits for, and whether its other thread is stuck. The answer is computed at
//! each request from what the tasks publish.
mod plan;

use super::{
    node_only::plan::NodeOnly,
    plugins,
    settings::Settings,
    values::{KubeletSocket, ValidatedConfigurations},
};
use crate::{
    model::resource_name::ResourceName,
    own_thread::Pulse,
    store::{Configurations, Instances},
    telemetry::health::Health,
};
use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
};
use tokio::{sync::watch, time::Instant};

/// The inputs of the answer.
pub(super) struct Inputs {
    pub(super) settings: Arc<Settings>,
    pub(super) configurations: watch::Receiver<Arc<Configurations>>,
    pub(super) instances: watch::Receiver<Arc<Instances>>,
    pub(super) validated: watch::Receiver<Arc<ValidatedConfigurations>>,
    pub(super) node_only: watch::Receiver<Arc<NodeOnly>>,
    pub(super) kubelet: watch::Receiver<Option<KubeletSocket>>,
    /// Our resources that are registered with the kubelet.
    pub(super) registered: watch::Receiver<BTreeSet<ResourceName>>,
    /// The pulse of the thread of the discoveries.
    pub(super) discovery: Pulse,
}

pub(super) fn health(inputs: Inputs) -> Health {
    let discovery = inputs.discovery;
    let memory = Mutex::new(plan::Memory::default());
    let ready = move || {
        let names = inputs.validated.borrow().names.clone();
        let node = &inputs.settings.node_name;
        let (instances, node_only) = (&*inputs.instances.borrow(), &*inputs.node_only.borrow());
        let desired = plugins::desired(instances, node_only, node, &names);
        let desired = desired.into_values().map(|offered| offered.full_name);
        let desired = desired.collect();
        let mut registered = inputs.registered.borrow().clone();
        // A panic of another request leaves a valid memory.
        let mut memory = memory.lock().unwrap_or_else(PoisonError::into_inner);
        registered.extend(memory.expected(&desired, &registered, Instant::now()));
        let missing = plan::missing(&plan::World {
            plugin_folder: &inputs.settings.plugin_folder,
            has_kubelet: inputs.kubelet.borrow().is_some(),
            configurations: &inputs.configurations.borrow().clone(),
            desired: &desired,
            registered: &registered,
        });
        memory.was_ready = missing.is_empty();
        missing
    };
    Health::new(ready).with_life(move || {
        let is_stuck = discovery.is_stuck();
        is_stuck.then_some("the thread of the discoveries is stuck")
    })
}
