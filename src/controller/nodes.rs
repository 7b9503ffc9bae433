//! Creates, changes and deletes Instances as `crate::merge` decides, of the NodeDevices of all nodes and without lost nodes. It
//! also removes what Akri's agents left on Instances and Configurations.
pub(crate) mod absent_node;
mod looks;
pub(crate) mod lost;
pub(crate) mod notices;
mod patch;
pub(crate) mod plan;
mod state;

pub(super) use looks::not_gone;
pub(crate) use lost::{is_working, settles_in};

use super::{
    Shared, Turns,
    agenda::{CREATED_AGAIN, Pass},
    outcome::{Problems, failed_of, is_done},
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
    cluster::{SIDE_BY_SIDE, code, events::about, is_conflict, reason, untracked},
    model::{
        instance_name::InstanceKey,
        names::ObjectKey,
        status_code::is_busy,
        typed_names::{ConfigurationKey, NodeName},
    },
    publish,
    store::instance_key,
};
use absent_node::Now;
use json_patch::Patch as JsonPatch;
use k8s_openapi::jiff::Timestamp;
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions},
};
use looks::pods_of;
use lost::Memory;
use notices::Notice;
use plan::{Action, Change, plan};
use state::{State, lock, step};
use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
};
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

/// Runs the task. The status of Configurations reads from `problems` which of them have devices without an Instance.
pub(super) async fn run(
    shared: Arc<Shared>,
    problems: watch::Sender<Option<Arc<Problems>>>,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let state = Mutex::new(State::new());
    let mut turns = Turns::new(&shared);
    while let Some(turn) = turns.next(&shutdown).await? {
        let pass = pass(&shared, &state, turn.world.clone()).await;
        turns.done(&turn, pass);
        let now = lock(&state).problems();
        publish::if_changed(&problems, Some(Arc::new(now)));
    }
    Ok(())
}

async fn pass(shared: &Shared, state: &Mutex<State>, mut world: Arc<World>) -> Pass {
    let looks = {
        let (mut state, now) = (lock(state), now());
        state.memory.notice(&world, now);
        state.memory.looks(now.instant)
    };
    for (node, pods) in pods_of(shared, looks).await {
        lock(state).memory.looked(&node, pods, Instant::now());
        // The node may hold slots in every part.
        if let Some(scope) = &world.scope {
            world = scope.whole.clone();
        }
    }
    let (actions, waits) = {
        let (mut state, now) = (lock(state), now());
        let planned = plan(&world, &state.memory, now);
        for notice in &planned.notices {
            report(shared, &world, notice);
            (state.memory).tell(&notice.node, &notice.instance, notice.wait);
        }
        for configuration in &planned.outage_on {
            report_outage(shared, &world, configuration, &state.memory);
            state.memory.tell_outage(configuration);
        }
        state.note_problems(&world, planned.nameless, &planned.actions);
        let (batched, paced): (Vec<_>, Vec<_>) =
            planned.actions.into_iter().partition(Action::is_batched);
        let (mut actions, mut later) = state.batches.due(batched, step, now.instant);
        let (others, others_later) = state.pace.due(paced, step, now.instant);
        actions.extend(others);
        later.extend(others_later);
        let mut waits = planned.waits;
        let created = actions.iter().filter(|action| action.is_creation());
        let created = created.map(|action| (action, CREATED_AGAIN));
        for (action, wait) in created.chain(later.iter().map(|(action, wait)| (action, *wait))) {
            waits.add(&action.part(&world), wait);
        }
        (actions, waits)
    };
    let suspects: BTreeSet<NodeName> = (actions.iter())
        .flat_map(|action| taken_for_gone(action).clone())
        .collect();
    let there = not_gone(shared, suspects).await;
    let (sure, doubtful): (Vec<_>, Vec<_>) =
        (actions.into_iter()).partition(|action| taken_for_gone(action).is_disjoint(&there));
    let world = &world;
    let acts = sure.into_iter().enumerate();
    let acts = acts.map(|(n, action)| async move {
        let part = action.part(world);
        if n < SIDE_BY_SIDE || !is_outdated(shared, world, &action) {
            let is_done = act(shared, state, action).await;
            return (!is_done).then_some(part);
        }
        // With the nodes that have reported meanwhile it is one write instead of two.
        lock(state).batches.reset(&step(&action));
        Some(part)
    });
    let mut failed = failed_of(acts).await;
    failed.extend(doubtful.iter().map(|action| action.part(world)));
    Pass { failed, waits }
}

fn now() -> Now {
    Now {
        clock: Timestamp::now(),
        instant: Instant::now(),
    }
}

/// Returns whether an Instance would be created without a node that has reported since this look at the world.
fn is_outdated(shared: &Shared, world: &World, action: &Action) -> bool {
    let now = shared.world.borrow();
    matches!(action, Action::Create(_))
        && now.as_ref().is_some_and(|now| !now.has_reports_of(world))
}

fn taken_for_gone(action: &Action) -> &BTreeSet<NodeName> {
    const NONE: &BTreeSet<NodeName> = &BTreeSet::new();
    match action {
        Action::Change(change) => &change.gone,
        Action::Create(_)
        | Action::Delete { .. }
        | Action::DeleteNodeDevices { .. }
        | Action::Strip { .. } => NONE,
    }
}

fn report(shared: &Shared, world: &World, notice: &Notice) {
    let (instance, node) = (&notice.instance, &notice.node);
    let reason = Reason::SlotsHeldByLostNode;
    warn!(%instance, %node, "{reason}: {}", notice.note);
    if let Some(object) = world.instances.get(instance) {
        (shared.events).warning(about(&**object), reason.as_str(), notice.note.clone());
    }
}

fn report_outage(
    shared: &Shared,
    world: &World,
    configuration: &ConfigurationKey,
    memory: &Memory,
) {
    let object = world.configurations.get(configuration);
    if let Some((outage, object)) = memory.outage.as_ref().zip(object) {
        let note = notices::outage(outage);
        let reason = Reason::MostNodesNotReady;
        warn!(%configuration, "{reason}: {note}");
        (shared.events).warning(about(&**object), reason.as_str(), note);
    }
}

/// Reports a deletion on the Configuration of the Instance.
fn report_deletion(shared: &Shared, key: &InstanceKey, why: &str) {
    let world = shared.world.borrow().clone().unwrap_or_default();
    let instance = world.instances.get(key);
    let of = instance.map(|instance| instance.spec.configuration_key(&key.namespace));
    if let Some(configuration) = of.and_then(|of| world.configurations.get(&of)) {
        let note = format!("Instance {} is deleted: {why}", key.name);
        let reason = Reason::InstanceDeleted.as_str();
        (shared.events).normal(about(&**configuration), reason, note);
    }
}

async fn act(shared: &Shared, state: &Mutex<State>, action: Action) -> bool {
    match action {
        Action::Change(change) => change_instance(shared, state, &change).await,
        Action::Create(instance) => create(shared, state, &instance).await,
        Action::DeleteNodeDevices { node, uid } => delete_node_devices(shared, &node, uid).await,
        Action::Delete {
            key,
            uid,
            resource_version,
            orphan_of,
            why,
        } => {
            if let Some(of) = &orphan_of
                && !is_gone(shared, of).await
            {
                return false;
            }
            let api: Api<Instance> = Api::namespaced(shared.client.clone(), &key.namespace);
            let params = DeleteParams {
                preconditions: Some(Preconditions {
                    uid: Some(uid),
                    resource_version: Some(resource_version),
                }),
                ..DeleteParams::default()
            };
            let result = api.delete(&key.name, &params).await;
            if result.is_ok() {
                info!(instance = %key, "Instance deleted: {why}");
                report_deletion(shared, &key, why);
            }
            is_done(&key, "delete the Instance", result.map(|_| ()))
        }
        Action::Strip { key, patch } => {
            let api: Api<Configuration> = Api::namespaced(shared.client.clone(), &key.namespace);
            let result = (api.patch(&key.name, &params(), &json_patch(&patch))).await;
            is_done(&key, "remove Akri's finalizers", result.map(|_| ()))
        }
    }
}

async fn change_instance(shared: &Shared, state: &Mutex<State>, change: &Change) -> bool {
    let Change { key, .. } = change;
    let api: Api<Instance> = Api::namespaced(shared.client.clone(), &key.namespace);
    if let Some(patch) = &change.patch {
        match (api.patch(&key.name, &params(), &untracked(patch.clone()))).await {
            Ok(changed) => {
                let left = change.absent.iter().chain(&change.gone);
                lock(state).memory.left(key, left, Instant::now());
                if let Some(note) = notices::released(&change.freed) {
                    (shared.events).normal(about(&changed), Reason::SlotsReleased.as_str(), note);
                }
                info!(instance = %key, gone = ?change.gone, not_ready = ?change.absent, "adjusted to its nodes");
                debug!(instance = %key, %patch, "the patch");
            }
            Err(e) => return is_done(key, "adjust the Instance to its nodes", Err(e)),
        }
    }
    let Some(patch) = &change.status else {
        return true;
    };
    let result = api
        .patch_status(&key.name, &params(), &untracked(patch.clone()))
        .await;
    if let Ok(changed) = &result {
        for event in &change.events {
            match event.is_warning {
                true => (shared.events).warning(
                    about(changed),
                    event.reason.as_str(),
                    event.note.clone(),
                ),
                false => (shared.events).normal(
                    about(changed),
                    event.reason.as_str(),
                    event.note.clone(),
                ),
            }
        }
    }
    is_done(key, "write the health of the device", result.map(|_| ()))
}

async fn create(shared: &Shared, state: &Mutex<State>, instance: &Instance) -> bool {
    let key = instance_key(&instance.metadata);
    let api: Api<Instance> = Api::namespaced(shared.client.clone(), &key.namespace);
    let params = PostParams {
        field_manager: Some(names::CONTROLLER_MANAGER.to_owned()),
        ..PostParams::default()
    };
    match api.create(&params, instance).await {
        Ok(_) => {
            info!(instance = %key, nodes = ?instance.spec.nodes, "device found: Instance created");
            true
        }
        // The replica that led before has created it, or this one a moment ago: the watch will show it.
        Err(e) if is_conflict(&e) => {
            debug!(instance = %key, "not created, it is there: {e}");
            false
        }
        Err(e) => {
            if code(&e).is_some_and(|code| !is_busy(code)) {
                let of = instance.spec.configuration_key(&key.namespace);
                let message = format!("Instance {} cannot be created: {}", key.name, reason(&e));
                let problem = Problem::new(Reason::NotCreated, message);
                lock(state).refused.insert(key.clone(), (of, problem));
            }
            is_done(&key, "create the Instance", Err(e))
        }
    }
}

/// Returns whether a Configuration is gone. The watch may be behind, so the API server is asked.
async fn is_gone(shared: &Shared, key: &ConfigurationKey) -> bool {
    let api: Api<Configuration> = Api::namespaced(shared.client.clone(), &key.namespace);
    matches!(api.get_metadata_opt(&key.name).await, Ok(None))
}

async fn delete_node_devices(shared: &Shared, node: &NodeName, uid: String) -> bool {
    let api: Api<NodeDevices> = Api::all(shared.client.clone());
    let params = DeleteParams::default().preconditions(Preconditions {
        uid: Some(uid),
        resource_version: None,
    });
    let result = api.delete(node, &params).await;
    let key = ObjectKey::new("", node);
    is_done(
        &key,
        "delete the NodeDevices of a lost node",
        result.map(|_| ()),
    )
}

fn params() -> PatchParams {
    PatchParams {
        field_manager: Some(names::CONTROLLER_MANAGER.to_owned()),
        ..PatchParams::default()
    }
}

pub(crate) fn json_patch(patch: &JsonPatch) -> Patch<()> {
    Patch::Json(patch.clone())
}

#[cfg(test)]
mod tests;
