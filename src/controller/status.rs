//! Writes the status of Configurations, which `kubectl get` and `kubectl describe` show.
pub(crate) mod plan;

use super::{
    Pass, Shared, follow,
    nodes::{json_patch, not_gone},
    outcome::{all_done, is_done},
    pace::{Pace, sooner},
    world::World,
};
use crate::{
    api::{
        configuration::{Configuration, Problem},
        names,
        reason::Reason,
    },
    cluster::events::about,
    model::names::ObjectKey,
};
use k8s_openapi::{api::core::v1::ObjectReference, jiff::Timestamp};
use kube::{Api, api::PatchParams};
use plan::{Action, plan};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::warn;

const FIRST_WAIT: Duration = Duration::from_millis(200);
/// A status is behind by this at most, however fast things change.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

struct Memory {
    pace: Pace<ObjectKey>,
    /// The Configurations that cannot be read and what is wrong, as it was reported.
    unreadable: BTreeMap<ObjectKey, String>,
}

pub(super) async fn run(shared: Arc<Shared>, shutdown: CancellationToken) -> anyhow::Result<()> {
    let memory = Mutex::new(Memory {
        pace: Pace::new(FIRST_WAIT, LONGEST_WAIT),
        unreadable: BTreeMap::new(),
    });
    follow(&shared, |world| pass(&shared, &memory, world), shutdown).await
}

async fn pass(shared: &Shared, memory: &Mutex<Memory>, world: Arc<World>) -> Pass {
    let (actions, wake_in) = {
        let mut memory = memory.lock().unwrap_or_else(PoisonError::into_inner);
        report_unreadable(shared, &mut memory.unreadable, &world.unreadable);
        let planned = plan(&world, Timestamp::now());
        let (actions, wait) =
            (memory.pace).due(planned.actions, |action| action.key.clone(), Instant::now());
        (actions, sooner(planned.wake_in, wait))
    };
    let writes = actions.into_iter();
    let is_done = all_done(writes.map(|action| act(shared, &world, action))).await;
    Pass { is_done, wake_in }
}

async fn act(shared: &Shared, world: &World, action: Action) -> bool {
    let Action {
        key,
        patch,
        gone,
        trouble,
    } = action;
    if !not_gone(shared, gone).await.is_empty() {
        return false;
    }
    let api: Api<Configuration> = Api::namespaced(shared.client.clone(), &key.namespace);
    let params = PatchParams {
        field_manager: Some(names::CONTROLLER_MANAGER.to_owned()),
        ..PatchParams::default()
    };
    let written = api
        .patch_status(&key.name, &params, &json_patch(&patch))
        .await;
    let is_done = is_done(&key, "write the status", written.map(|_| ()));
    let configuration = world.configurations.get(&key);
    if let Some((problem, configuration)) = trouble.zip(configuration)
        && is_done
    {
        let Problem { reason, message } = problem;
        (shared.events).warning(about(configuration.as_ref()), &reason, message);
    }
    is_done
}

/// A status cannot be trusted to an object that is not what its kind should be: the log and an Event name it, once.
fn report_unreadable(
    shared: &Shared,
    reported: &mut BTreeMap<ObjectKey, String>,
    unreadable: &BTreeMap<ObjectKey, String>,
) {
    for (key, error) in unreadable {
        if reported.get(key) == Some(error) {
            continue;
        }
        warn!(configuration = %key, "cannot be read and is left as it is: {error}");
        let object = ObjectReference {
            api_version: Some(names::API_VERSION.to_owned()),
            kind: Some("Configuration".to_owned()),
            name: Some(key.name.clone()),
            namespace: Some(key.namespace.clone()),
            ..ObjectReference::default()
        };
        let note = format!("this Configuration cannot be read: {error}; correct it");
        shared
            .events
            .warning(object, Reason::Unreadable.as_str(), note);
    }
    reported.clone_from(unreadable);
}
