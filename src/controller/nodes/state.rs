//! What one pass of the task leaves for the next: what is known of lost nodes, the pace of writes, and problems.
use super::{lost::Memory, plan::Action};
use crate::{
    api::configuration::Problem,
    controller::{outcome::Problems, pace::Pace, world::World},
    model::{instance_name::InstanceKey, names::ObjectKey, typed_names::ConfigurationKey},
    store::key_of,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// The kind of an action, and its object.
pub(super) type PaceKey = (&'static str, ObjectKey);

/// The wait after the first write of an Instance. It doubles with each write. Changes that come meanwhile are one write.
const FIRST_BATCH: Duration = Duration::from_millis(100);
/// The longest such wait.
const LONGEST_BATCH: Duration = Duration::from_secs(2);
/// The wait between two tries of a creation, a deletion, or a removal of finalizers. It doubles with each try.
const FIRST_WAIT: Duration = Duration::from_millis(500);
/// The longest such wait.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

pub(super) struct State {
    pub(super) memory: Memory,
    /// The pace of each kind of action on each object. Instances follow their nodes at once, then in batches.
    pub(super) pace: Pace<PaceKey>,
    pub(super) batches: Pace<PaceKey>,
    /// The Configurations with devices that have no Instance because their names are taken.
    nameless: Problems,
    /// The Instances that the API server refuses, each with its Configuration.
    pub(super) refused: BTreeMap<InstanceKey, (ConfigurationKey, Problem)>,
}

impl State {
    pub(super) fn new() -> Self {
        Self {
            memory: Memory::default(),
            pace: Pace::new(FIRST_WAIT, LONGEST_WAIT),
            batches: Pace::new(FIRST_BATCH, LONGEST_BATCH),
            nameless: Problems::new(),
            refused: BTreeMap::new(),
        }
    }

    /// Returns a problem of each Configuration with devices that have no Instance.
    pub(super) fn problems(&self) -> Problems {
        let refused = self.refused.values().cloned();
        refused.chain(self.nameless.clone()).collect()
    }

    /// Takes over the problems of a plan, and forgets refusals of Instances that are planned no more.
    pub(super) fn note_problems(&mut self, world: &World, nameless: Problems, actions: &[Action]) {
        (self.nameless).retain(|key, _| !world.includes(&key.name));
        self.nameless.extend(nameless);
        let created = actions.iter().filter(|action| action.is_creation());
        let created: BTreeSet<ObjectKey> = created.map(|action| step(action).1).collect();
        let is_planned = |key: &InstanceKey| created.contains(&key.untyped());
        (self.refused).retain(|key, (of, _)| !world.includes(&of.name) || is_planned(key));
    }
}

pub(super) fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn step(action: &Action) -> PaceKey {
    match action {
        Action::Change(change) => ("change", change.key.untyped()),
        Action::Create(instance) => ("create", key_of(&instance.metadata)),
        Action::Delete { key, .. } => ("delete", key.untyped()),
        Action::DeleteNodeDevices { node, .. } => ("silence", ObjectKey::new("", node)),
        Action::Strip { key, .. } => ("strip", key.untyped()),
    }
}
