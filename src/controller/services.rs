//! Services of Instances and Configurations: they follow the specs in the Configuration while brokers run.
mod plan;

use super::{
    Pass, Shared, follow,
    outcome::{all_done, is_done},
    pace::{Pace, sooner},
    world::World,
};
use crate::{api::names, cluster, model::names::ObjectKey};
use k8s_openapi::{
    api::core::v1::{ObjectReference, Service},
    jiff::Timestamp,
};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, Preconditions},
};
use plan::{Action, Apply, Idle, Owner, plan};
use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::debug;

const FIRST_WAIT: Duration = Duration::from_millis(500);
/// A spec that the API server refuses is tried again as often.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// What is known from earlier looks at the world.
struct Memory {
    idle: Idle,
    /// By the Service, and by what is done to it.
    pace: Pace<(ObjectKey, String)>,
}

pub(super) async fn run(shared: Arc<Shared>, shutdown: CancellationToken) -> anyhow::Result<()> {
    let memory = Mutex::new(Memory {
        idle: Idle::new(),
        pace: Pace::new(FIRST_WAIT, LONGEST_WAIT),
    });
    follow(&shared, |world| pass(&shared, &memory, world), shutdown).await
}

async fn pass(shared: &Shared, memory: &Mutex<Memory>, world: Arc<World>) -> Pass {
    let (actions, wake_in) = {
        let mut memory = memory.lock().unwrap_or_else(PoisonError::into_inner);
        let planned = plan(&world, &memory.idle, Timestamp::now());
        memory.idle = planned.idle;
        let (actions, wait) = (memory.pace).due(planned.actions, step, Instant::now());
        (actions, sooner(planned.wake_in, wait))
    };
    let is_done = all_done(actions.into_iter().map(|action| act(shared, action))).await;
    Pass { is_done, wake_in }
}

fn step(action: &Action) -> (ObjectKey, String) {
    match action {
        Action::Apply(apply) => (apply.key.clone(), apply.digest.clone()),
        Action::Delete { key, .. } => (key.clone(), "delete".to_owned()),
        Action::Report(_, key) => (key.clone(), "report".to_owned()),
    }
}

async fn act(shared: &Shared, action: Action) -> bool {
    match action {
        Action::Apply(apply) => apply_service(shared, *apply).await,
        Action::Delete { key, uid, reason } => {
            let api: Api<Service> = Api::namespaced(shared.client.clone(), &key.namespace);
            let params = DeleteParams {
                preconditions: Some(Preconditions {
                    uid: Some(uid),
                    resource_version: None,
                }),
                ..DeleteParams::default()
            };
            debug!(service = %key, reason, "to be deleted");
            let result = api.delete(&key.name, &params).await;
            is_done(&key, "Service deleted", result.map(|_| ()))
        }
        Action::Report(owner, key) => {
            report_foreign(shared, &owner, &key.name);
            true
        }
    }
}

async fn apply_service(shared: &Shared, mut apply: Apply) -> bool {
    let key = apply.key.clone();
    let api: Api<Service> = Api::namespaced(shared.client.clone(), &key.namespace);
    if apply.uid.is_none() {
        // Somebody else's has no label of ours, so that it is not among those watched.
        match api.get_opt(&key.name).await {
            Ok(None) => {}
            Ok(Some(found)) if is_owned(&found, &apply.owner) => apply.uid = found.metadata.uid,
            Ok(Some(_)) => {
                report_foreign(shared, &apply.owner, &key.name);
                return true;
            }
            Err(e) => return is_done(&key, "Service looked for", Err(e)),
        }
    }
    let mut params = PatchParams::apply(names::CONTROLLER_MANAGER);
    if let Some(uid) = &apply.uid {
        // One that was deleted meanwhile is not made again.
        apply.manifest["metadata"]["uid"] = uid.as_str().into();
        params = params.force();
    }
    let result = api
        .patch(&key.name, &params, &Patch::Apply(&apply.manifest))
        .await;
    if let Err(e) = &result
        && cluster::code(e).is_some_and(|code| code == 400 || code == 422)
    {
        let note = format!(
            "Service {} is refused: {e}; correct the ServiceSpec in the Configuration",
            key.name
        );
        (shared.events).warning(reference(&apply.owner), "ServiceRefused", note);
    }
    is_done(&key, "Service applied", result.map(|_| ()))
}

fn is_owned(service: &Service, owner: &Owner) -> bool {
    let mut owners = service.metadata.owner_references.iter().flatten();
    owners.any(|found| found.controller == Some(true) && found.uid == owner.uid)
}

fn report_foreign(shared: &Shared, owner: &Owner, name: &str) {
    let note = format!(
        "Service {name} exists and is not of this {}: it is left as it is; delete or rename it",
        owner.kind
    );
    debug!(owner = %owner.key, "{note}");
    (shared.events).warning(reference(owner), "ServiceNameTaken", note);
}

fn reference(owner: &Owner) -> ObjectReference {
    ObjectReference {
        api_version: Some(names::API_VERSION.to_owned()),
        kind: Some(owner.kind.to_owned()),
        name: Some(owner.key.name.clone()),
        namespace: Some(owner.key.namespace.clone()),
        uid: Some(owner.uid.clone()),
        ..ObjectReference::default()
    }
}
