//! Creates, changes and deletes Instances as `crate::merge` decides, of the NodeDevices of all nodes and without lost nodes. It
//! also removes what Akri's agents left on Instances and Configurations.
pub(crate) mod absent_node;
mod looks;
pub(crate) mod lost;
pub(crate) mod notices;
mod patch;
pub(crate) mod plan;

use looks::not_gone;
pub(super) use looks::{pods_of, that_may_run};
pub(crate) use lost::{is_working, settles_in};

use super::{
    news::answered,
    outcome::{Note, Outcome, Problems, Written, tried},
    queue::Waits,
    reported::Reported,
    shared::Shared,
    world::World,
};
use crate::{
    api::{
        configuration::{Configuration, Problem},
        instance::Instance,
        names,
        node_devices::NodeDevices,
        reason::Reason,
    },
    cluster::{
        changes::Change as Seen, code, created_by, deletion_of, events::about, is_conflict,
        patched_by, reason, untracked, without_fields,
    },
    model::{
        instance_name::{InstanceKey, InstanceName},
        names::ObjectKey,
        status_code::is_busy,
        typed_names::{ConfigurationKey, NodeName},
    },
    store::{instance_key, key_of},
};
use absent_node::Now;
use kube::{Api, api::Patch};
use lost::NodeMemory;
use notices::Notice;
use petiole_base::collect::CollectMap as _;
use plan::{Action, Change, plan};
use std::collections::{BTreeMap, BTreeSet};
use tracing::{debug, info, warn};

/// Remembers of nodes and devices what the next look needs.
#[derive(Default)]
pub(crate) struct Devices {
    pub(crate) memory: NodeMemory,
    /// The Configurations with devices that get no Instance, because their names or all places are taken.
    left_out: Problems,
    /// The Instances that the API server refuses, each with its Configuration.
    refused: BTreeMap<InstanceKey, (ConfigurationKey, Problem)>,
}

impl Devices {
    /// Returns the actions in a part that was noticed.
    pub(crate) fn plan(
        &mut self,
        reported: &Reported<'_>,
        now: Now,
        notes: &mut Vec<Note>,
    ) -> (Vec<Action>, Waits) {
        let world = reported.world;
        let planned = plan(reported, &self.memory, now);
        for notice in planned.notices {
            (self.memory).tell(&notice.node, &notice.instance, notice.wait);
            notes.extend(note(world, notice));
        }
        for configuration in &planned.outage_on {
            notes.extend(self.note_of_outage(world, configuration));
            self.memory.tell_outage(configuration);
        }
        (self.left_out).retain(|key, _| !world.includes(&key.name));
        self.left_out.extend(planned.left_out);
        self.forget_refused(world, &planned.actions);
        (planned.actions, planned.waits)
    }

    /// Forgets the refusals of Instances of a part that are planned no more.
    fn forget_refused(&mut self, world: &World, actions: &[Action]) {
        let created = actions.iter().filter_map(|action| {
            let Action::Create(instance) = action else {
                return None;
            };
            Some(instance_key(&instance.metadata))
        });
        let planned: BTreeSet<InstanceKey> = created.collect();
        (self.refused).retain(|key, (of, _)| !world.includes(&of.name) || planned.contains(key));
    }

    /// Returns a problem of each Configuration of a part with devices that have no Instance.
    pub(crate) fn problems(&self, world: &World) -> Problems {
        let refused = self.refused.values();
        let all = refused
            .map(|(of, problem)| (of, problem))
            .chain(&self.left_out);
        let of_part = all.filter(|(of, _)| world.includes(&of.name));
        of_part
            .map(|(of, problem)| (of.clone(), problem.clone()))
            .collect_map()
    }

    /// Takes in the result of an action.
    pub(crate) fn settle(&mut self, action: &Action, written: &Written, now: Now) {
        if let Action::Create(instance) = action {
            let key = instance_key(&instance.metadata);
            let of = instance.spec.configuration_key(&key.namespace);
            let problem = written.problem.clone();
            (self.refused).extend(problem.map(|problem| (key, (of, problem))));
        }
        if let Action::Change(change) = action
            && change.patch.is_some()
            && !written.objects.is_empty()
        {
            let left = change.absent.iter().chain(&change.gone);
            self.memory.left(&change.key, left, now.instant);
        }
    }

    fn note_of_outage(&self, world: &World, configuration: &ConfigurationKey) -> Option<Note> {
        let object = world.configurations.get(configuration)?;
        let text = notices::outage(self.memory.outage.as_ref()?);
        let reason = Reason::MostNodesNotReady;
        warn!(%configuration, "{reason}: {text}");
        Some(Note::warning(about(&**object), reason.as_str(), text))
    }
}

/// Returns what is done, and to which object.
pub(crate) fn step(action: &Action) -> (&'static str, ObjectKey) {
    match action {
        Action::Change(change) => ("change", change.key.untyped()),
        Action::Create(instance) => ("create", key_of(&instance.metadata)),
        Action::Delete { key, .. } => ("delete", key.untyped()),
        Action::DeleteNodeDevices { node, .. } => ("silence", ObjectKey::new("", node)),
        Action::Strip { key, .. } => ("strip", key.untyped()),
    }
}

fn note(world: &World, notice: Notice) -> Option<Note> {
    let (instance, node) = (&notice.instance, &notice.node);
    let reason = Reason::SlotsHeldByLostNode;
    warn!(%instance, %node, "{reason}: {}", notice.note);
    let object = world.instances.get(instance)?;
    Some(Note::warning(
        about(&**object),
        reason.as_str(),
        notice.note,
    ))
}

/// Returns the note, on the Configuration, that an Instance is deleted.
pub(crate) fn note_of_deletion(world: &World, action: &Action) -> Option<Note> {
    let Action::Delete { key, of, why, .. } = action else {
        return None;
    };
    let configuration = world.configurations.get(of)?;
    Some(Note::new(
        about(&**configuration),
        Reason::InstanceDeleted.as_str(),
        format!("Instance {} is deleted: {why}", key.name),
    ))
}

/// Returns the nodes that an action takes for deleted.
pub(crate) fn taken_for_gone(action: &Action) -> BTreeSet<NodeName> {
    match action {
        Action::Change(change) => change.gone.clone(),
        Action::Create(_)
        | Action::Delete { .. }
        | Action::DeleteNodeDevices { .. }
        | Action::Strip { .. } => BTreeSet::new(),
    }
}

/// Carries out an action.
pub(super) async fn act(shared: &Shared, action: &Action) -> Written {
    if !not_gone(shared, taken_for_gone(action)).await.is_empty() {
        return Written::failed("a node that counts as deleted may be there");
    }
    match action {
        Action::Change(change) => change_instance(shared, change).await,
        Action::Create(instance) => create(shared, instance).await,
        Action::DeleteNodeDevices { node, uid } => {
            Written::new(delete_node_devices(shared, node, uid).await)
        }
        Action::Delete {
            key,
            uid,
            resource_version,
            orphan_of,
            why,
            ..
        } => {
            if let Some(of) = orphan_of
                && !is_gone(shared, of).await
            {
                return Written::failed("its Configuration may be there");
            }
            let api: Api<Instance> = Api::namespaced(shared.client.clone(), &key.namespace);
            let this = deletion_of(uid.clone(), Some(resource_version));
            let result = api.delete(&key.name, &this).await;
            if result.is_ok() {
                info!(instance = %key, "Instance deleted: {why}");
            }
            Written::new(tried(key, "delete the Instance", result.map(|_| ())))
        }
        Action::Strip { key, patch } => {
            let api: Api<Configuration> = Api::namespaced(shared.client.clone(), &key.namespace);
            let result = (api.patch(
                &key.name,
                &patched_by(names::CONTROLLER_MANAGER),
                &Patch::Json::<()>(patch.clone()),
            ))
            .await;
            Written::new(tried(key, "remove Akri's finalizers", result.map(|_| ())))
        }
    }
}

async fn change_instance(shared: &Shared, change: &Change) -> Written {
    let Change { key, .. } = change;
    let api: Api<Instance> = Api::namespaced(shared.client.clone(), &key.namespace);
    let mut written = Written::new(Outcome::Done);
    if let Some(patch) = &change.patch {
        match (api.patch(
            &key.name,
            &patched_by(names::CONTROLLER_MANAGER),
            &untracked(patch.clone()),
        ))
        .await
        {
            Ok(changed) => {
                if let Some(note) = notices::released(&change.freed) {
                    (shared.events).normal(about(&changed), Reason::SlotsReleased.as_str(), note);
                }
                info!(instance = %key, gone = ?change.gone, not_ready = ?change.absent, "adjusted to its nodes");
                debug!(instance = %key, %patch, "the patch");
                written = Written::with(seen(changed));
            }
            Err(e) => {
                return Written::new(tried(key, "adjust the Instance to its nodes", Err(e)));
            }
        }
    }
    let Some(patch) = &change.status else {
        return written;
    };
    let result = api
        .patch_status(
            &key.name,
            &patched_by(names::CONTROLLER_MANAGER),
            &untracked(patch.clone()),
        )
        .await;
    let result = result.map(|changed| {
        for event in &change.events {
            let note = Note::new(about(&changed), event.reason.as_str(), &event.note);
            let is_warning = event.is_warning;
            Note { is_warning, ..note }.write(&shared.events);
        }
        written.objects.push(vec![seen(changed)].into());
    });
    written.outcome = tried(key, "write the health of the device", result);
    written
}

/// Returns an Instance that the API server has returned.
pub(super) fn seen(instance: Instance) -> Seen<Instance, InstanceName> {
    answered(instance, without_fields)
}

async fn create(shared: &Shared, instance: &Instance) -> Written {
    let key = instance_key(&instance.metadata);
    let api: Api<Instance> = Api::namespaced(shared.client.clone(), &key.namespace);
    let params = created_by(names::CONTROLLER_MANAGER);
    match api.create(&params, instance).await {
        Ok(created) => {
            info!(instance = %key, nodes = ?instance.spec.nodes, "device found: Instance created");
            Written::with(seen(created))
        }
        // The replica that led before has created it: the watch will show it, unless nobody can read it.
        Err(e) if is_conflict(&e) => {
            debug!(instance = %key, "not created, it is there: {e}");
            Written::failed("it is there")
        }
        // No other object would make it another creation.
        Err(e) => {
            warn!(instance = %key, "cannot create the Instance; tried again: {e}");
            let written = Written::failed(reason(&e));
            if code(&e).is_none_or(is_busy) {
                return written;
            }
            let text = format!("Instance {} cannot be created: {}", key.name, reason(&e));
            written.with_problem(Problem::new(Reason::NotCreated, text))
        }
    }
}

/// Returns whether a Configuration is gone. The watch may be behind, so the API server is asked.
async fn is_gone(shared: &Shared, key: &ConfigurationKey) -> bool {
    let api: Api<Configuration> = Api::namespaced(shared.client.clone(), &key.namespace);
    matches!(api.get_metadata_opt(&key.name).await, Ok(None))
}

async fn delete_node_devices(shared: &Shared, node: &NodeName, uid: &str) -> Outcome {
    let api: Api<NodeDevices> = Api::all(shared.client.clone());
    let result = api.delete(node, &deletion_of(uid.to_owned(), None)).await;
    let key = ObjectKey::new("", node);
    tried(
        &key,
        "delete the NodeDevices of a lost node",
        result.map(|_| ()),
    )
}

#[cfg(test)]
mod tests;
