//! Answers whether this agent is ready, what it waits for, and whether its other thread is stuck. The answer is computed at
//! each request from what the tasks publish.
//!
//! An agent that stands by is ready when it could take over. On the network of a node both agents have one address, where the one
//! that has the place answers for both: it is ready if one of them is.
mod plan;

use super::{
    device_state::{DeviceState, device_state},
    node_only::plan::NodeOnly,
    place::PlaceState,
    plugins,
    settings::{Clock, Settings},
    values::{KubeletSocket, ValidatedConfigurations},
};
use crate::{
    api::instance::Instance,
    discovery::session::Discoveries,
    model::{instance_name::InstanceKey, resource_name::ResourceName},
    own_thread::Pulse,
    store::{Configurations, Instances},
    telemetry::health::Health,
};
use plan::StandingBy;
use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::{
    sync::watch,
    time::{Instant, sleep},
};

/// The interval of the looks whether the agent is ready to take over, or has.
const LOOK: Duration = Duration::from_millis(20);

/// The inputs of the answer.
pub(super) struct Inputs {
    pub(super) settings: Arc<Settings>,
    pub(super) clock: Clock,
    pub(super) place: PlaceState,
    pub(super) configurations: watch::Receiver<Arc<Configurations>>,
    pub(super) instances: watch::Receiver<Arc<Instances>>,
    pub(super) validated: watch::Receiver<Arc<ValidatedConfigurations>>,
    pub(super) discoveries: watch::Receiver<Arc<Discoveries>>,
    pub(super) node_only: watch::Receiver<Arc<NodeOnly>>,
    pub(super) kubelet: watch::Receiver<Option<KubeletSocket>>,
    /// Our resources that are registered with the kubelet.
    pub(super) registered: watch::Receiver<BTreeSet<ResourceName>>,
    /// The pulse of the thread of the discoveries.
    pub(super) discovery: Pulse,
}

/// Says whether the agent is ready.
#[derive(Clone)]
pub(super) struct Readiness(Arc<State>);

struct State {
    inputs: Inputs,
    memory: Mutex<plan::LastAnswer>,
}

impl Readiness {
    pub(super) fn new(inputs: Inputs) -> Self {
        let memory = Mutex::default();
        Self(Arc::new(State { inputs, memory }))
    }

    pub(super) fn health(&self) -> Health {
        let (ready, alive) = (self.clone(), self.clone());
        Health::new(move || ready.missing()).with_life(move || {
            let is_stuck = alive.0.inputs.discovery.is_stuck();
            is_stuck.then_some("the thread of the discoveries is stuck")
        })
    }

    /// Returns what the container of this agent waits for at its start. One that has the place serves as well as it can.
    pub(super) fn unstarted(&self) -> Vec<String> {
        if self.0.inputs.place.is_held() {
            vec![]
        } else {
            self.missing()
        }
    }

    /// Waits until the agent is ready.
    pub(super) async fn until_ready(&self) {
        while !self.missing().is_empty() {
            sleep(LOOK).await;
        }
    }

    /// Waits until all plugins are registered.
    pub(super) async fn until_registered(&self) {
        while !(self.desired()).is_subset(&self.0.inputs.registered.borrow()) {
            sleep(LOOK).await;
        }
    }

    fn desired(&self) -> BTreeSet<ResourceName> {
        let inputs = &self.0.inputs;
        let validated = inputs.validated.borrow().clone();
        let node = &inputs.settings.node_name;
        let (instances, node_only) = (&*inputs.instances.borrow(), &*inputs.node_only.borrow());
        let desired = plugins::desired(instances, node_only, node, &validated);
        desired
            .into_values()
            .map(|offered| offered.full_name)
            .collect()
    }

    fn missing(&self) -> Vec<String> {
        let inputs = &self.0.inputs;
        let is_held = inputs.place.is_held();
        let desired = self.desired();
        let mut registered = inputs.registered.borrow().clone();
        // A panic of another request leaves a valid memory.
        let mut memory = (self.0.memory.lock()).unwrap_or_else(PoisonError::into_inner);
        registered.extend(memory.expected(&desired, &registered, Instant::now()));
        let missing = plan::missing(&plan::World {
            plugin_folder: &inputs.settings.plugin_folder,
            has_kubelet: inputs.kubelet.borrow().is_some(),
            configurations: &inputs.configurations.borrow().clone(),
            desired: &desired,
            registered: &registered,
            standing_by: (!is_held).then(|| StandingBy {
                uptime: inputs.clock.uptime(),
                unseen: self.unseen(),
            }),
        });
        memory.was_ready = is_held && missing.is_empty();
        if is_held && inputs.place.stand_bys.is_one_ready() {
            vec![]
        } else {
            missing
        }
    }

    /// Returns the number of devices of this node that discovery has neither seen nor missed yet.
    fn unseen(&self) -> usize {
        let inputs = &self.0.inputs;
        let (validated, discoveries) = (inputs.validated.borrow(), inputs.discoveries.borrow());
        let instances = inputs.instances.borrow();
        let is_unseen = |(key, instance): &(&InstanceKey, &Arc<Instance>)| {
            instance.spec.names_node(&inputs.settings.node_name)
                && (validated.accepted)
                    .contains_key(&instance.spec.configuration_key(&key.namespace))
                && device_state(instance, &discoveries) == DeviceState::Adopted
        };
        instances.iter().filter(is_unseen).count()
    }
}
