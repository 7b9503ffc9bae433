//! Writes the status of Configurations, and what Instances say of their brokers, which `kubectl get` and `kubectl describe`
//! show.
mod instances;
pub(crate) mod plan;
mod verdict;

use super::{
    Pass, Shared, Turns,
    brokers::report::Reports,
    nodes::{json_patch, not_gone},
    outcome::{all_done, is_done},
    pace::{Pace, sooner},
    world::World,
};
use crate::{
    api::{
        configuration::{Configuration, Problem},
        instance::Instance,
        names,
        reason::Reason,
    },
    cluster::events::about,
    model::names::ObjectKey,
};
use k8s_openapi::{api::core::v1::ObjectReference, jiff::Timestamp};
use kube::{
    Api,
    api::{ApiResource, DynamicObject, PatchParams},
};
use plan::{Action, Kind, Problems, plan};
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;
use tracing::warn;

const FIRST_WAIT: Duration = Duration::from_millis(200);
/// A status is behind by this at most, however fast things change.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// The reports of the other tasks about the workloads of Configurations; `None` until each has looked at the world
/// once.
pub(super) struct Workloads {
    pub(super) brokers: watch::Receiver<Option<Arc<Reports>>>,
    /// The Services that are refused.
    pub(super) services: watch::Receiver<Option<Arc<Problems>>>,
}

struct Memory {
    pace: Pace<(Kind, ObjectKey)>,
    /// The Configurations that cannot be read and what is wrong, as it was reported.
    unreadable: BTreeMap<ObjectKey, String>,
}

pub(super) async fn run(
    shared: Arc<Shared>,
    mut workloads: Workloads,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let mut memory = Memory {
        pace: Pace::new(FIRST_WAIT, LONGEST_WAIT),
        unreadable: BTreeMap::new(),
    };
    let mut turns = Turns::new(&shared);
    loop {
        let world = tokio::select! {
            world = turns.next(&shutdown) => world?,
            changed = workloads.changed() => {
                changed?;
                turns.again();
                continue;
            }
        };
        let Some(world) = world else {
            return Ok(());
        };
        if let Some((brokers, services)) = workloads.now() {
            let seen = plan::Seen {
                world: &world,
                brokers: &brokers,
                services: &services,
            };
            turns.done(pass(&shared, &mut memory, seen).await);
        }
    }
}

impl Workloads {
    async fn changed(&mut self) -> anyhow::Result<()> {
        tokio::select! {
            changed = self.brokers.changed() => changed?,
            changed = self.services.changed() => changed?,
        }
        Ok(())
    }

    fn now(&self) -> Option<(Arc<Reports>, Arc<Problems>)> {
        let brokers = self.brokers.borrow().clone();
        brokers.zip(self.services.borrow().clone())
    }
}

async fn pass(shared: &Shared, memory: &mut Memory, seen: plan::Seen<'_>) -> Pass {
    let world = seen.world;
    report_unreadable(shared, &mut memory.unreadable, &world.unreadable);
    let planned = plan(seen, Timestamp::now());
    let key = |action: &Action| (action.kind, action.key.clone());
    let (actions, wait) = (memory.pace).due(planned.actions, key, Instant::now());
    let wake_in = sooner(planned.wake_in, wait);
    let writes = actions.into_iter();
    let is_done = all_done(writes.map(|action| act(shared, world, action))).await;
    Pass { is_done, wake_in }
}

async fn act(shared: &Shared, world: &World, action: Action) -> bool {
    let Action {
        kind,
        key,
        patch,
        gone,
        troubles,
    } = action;
    if !not_gone(shared, gone).await.is_empty() {
        return false;
    }
    let resource = match kind {
        Kind::Configuration => ApiResource::erase::<Configuration>(&()),
        Kind::Instance => ApiResource::erase::<Instance>(&()),
    };
    let api: Api<DynamicObject> =
        Api::namespaced_with(shared.client.clone(), &key.namespace, &resource);
    let params = PatchParams {
        field_manager: Some(names::CONTROLLER_MANAGER.to_owned()),
        ..PatchParams::default()
    };
    let written = api
        .patch_status(&key.name, &params, &json_patch(&patch))
        .await;
    let is_done = is_done(&key, "write the status", written.map(|_| ()));
    let configuration = world.configurations.get(&key);
    if let Some(configuration) = configuration.filter(|_| is_done) {
        for Problem { reason, message } in troubles {
            warn!(configuration = %key, reason, "{message}");
            (shared.events).warning(about(configuration.as_ref()), &reason, message);
        }
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
