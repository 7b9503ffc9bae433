//! Writes the status of Configurations, and what Instances say of their brokers, which `kubectl get` and `kubectl describe`
//! show.
mod instances;
pub(crate) mod plan;
mod verdict;

use super::{
    Shared, Turns,
    agenda::Pass,
    brokers::report::Reports,
    nodes::{json_patch, not_gone},
    outcome::{Problems, failed_of, is_done},
    pace::Pace,
    parts::{Parts, part_of},
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
    model::typed_names::ConfigurationKey,
};
use k8s_openapi::{api::core::v1::ObjectReference, jiff::Timestamp};
use kube::{
    Api,
    api::{ApiResource, DynamicObject, PatchParams},
};
use plan::{Action, Object, plan};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;
use tracing::warn;

const FIRST_WAIT: Duration = Duration::from_millis(200);
/// A status is behind by this at most, however fast things change.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// The reports of the other tasks about Configurations; `None` until each has looked at the world once.
pub(super) struct Workloads {
    pub(super) brokers: watch::Receiver<Option<Arc<Reports>>>,
    /// The Services that are refused.
    pub(super) services: watch::Receiver<Option<Arc<Problems>>>,
    /// The devices that get no Instance.
    pub(super) nodes: watch::Receiver<Option<Arc<Problems>>>,
}

struct Memory {
    pace: Pace<Object>,
    /// The Configurations that cannot be read and what is wrong, as it was reported.
    unreadable: BTreeMap<ConfigurationKey, String>,
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
    let first = shutdown.run_until_cancelled(workloads.first()).await;
    let Some((mut brokers, mut problems)) = first.transpose()? else {
        return Ok(());
    };
    loop {
        let turn = tokio::select! {
            turn = turns.next(&shutdown) => turn?,
            changed = workloads.changed() => {
                changed?;
                if let Some(now) = workloads.now() {
                    let mut names = differences(&brokers, &now.0);
                    names.extend(differences(&problems, &now.1));
                    turns.touch(Parts::Named(names));
                    (brokers, problems) = now;
                }
                continue;
            }
        };
        let Some(turn) = turn else {
            return Ok(());
        };
        let seen = plan::Seen {
            world: &turn.world,
            brokers: &brokers,
            problems: &problems,
        };
        let pass = pass(&shared, &mut memory, seen).await;
        turns.done(&turn, pass);
    }
}

/// Returns the parts of the Configurations for which the two have something else.
fn differences<T: PartialEq>(
    before: &BTreeMap<ConfigurationKey, T>,
    now: &BTreeMap<ConfigurationKey, T>,
) -> BTreeSet<String> {
    let keys = before.keys().chain(now.keys());
    let changed = keys.filter(|key| before.get(*key) != now.get(*key));
    changed.map(|key| part_of(&key.name).into_owned()).collect()
}

impl Workloads {
    /// Waits for the first reports.
    async fn first(&mut self) -> anyhow::Result<(Arc<Reports>, Arc<Problems>)> {
        loop {
            if let Some(now) = self.now() {
                return Ok(now);
            }
            self.changed().await?;
        }
    }

    async fn changed(&mut self) -> anyhow::Result<()> {
        tokio::select! {
            changed = self.brokers.changed() => changed?,
            changed = self.services.changed() => changed?,
            changed = self.nodes.changed() => changed?,
        }
        Ok(())
    }

    fn now(&mut self) -> Option<(Arc<Reports>, Arc<Problems>)> {
        let brokers = self.brokers.borrow_and_update().clone();
        let services = self.services.borrow_and_update().clone();
        let nodes = self.nodes.borrow_and_update().clone();
        let (services, nodes) = services.zip(nodes)?;
        // Of two problems of a Configuration the one of its Service is shown.
        let mut problems = nodes;
        Arc::make_mut(&mut problems).extend(services.iter().map(|(k, p)| (k.clone(), p.clone())));
        brokers.zip(Some(problems))
    }
}

async fn pass(shared: &Shared, memory: &mut Memory, seen: plan::Seen<'_>) -> Pass {
    let world = seen.world;
    report_unreadable(shared, &mut memory.unreadable, &world.whole().unreadable);
    let planned = plan(seen, Timestamp::now());
    let key = |action: &Action| action.object.clone();
    let (actions, later) = (memory.pace).due(planned.actions, key, Instant::now());
    let mut waits = planned.waits;
    for (action, wait) in later {
        waits.add(&action.part(world), wait);
    }
    let writes = actions.into_iter().map(|action| async move {
        let part = action.part(world).into_owned();
        (!act(shared, world, action).await).then_some(part)
    });
    let failed = failed_of(writes).await;
    Pass { failed, waits }
}

async fn act(shared: &Shared, world: &World, action: Action) -> bool {
    let Action {
        object,
        patch,
        gone,
        troubles,
    } = action;
    if !not_gone(shared, gone).await.is_empty() {
        return false;
    }
    let (resource, key) = match &object {
        Object::Configuration(key) => (ApiResource::erase::<Configuration>(&()), key.untyped()),
        Object::Instance(key) => (ApiResource::erase::<Instance>(&()), key.untyped()),
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
    let configuration = match &object {
        Object::Configuration(key) => world.configurations.get(key),
        Object::Instance(_) => None,
    };
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
    reported: &mut BTreeMap<ConfigurationKey, String>,
    unreadable: &BTreeMap<ConfigurationKey, String>,
) {
    for (key, error) in unreadable {
        if reported.get(key) == Some(error) {
            continue;
        }
        warn!(configuration = %key, "cannot be read and is left as it is: {error}");
        let object = ObjectReference {
            api_version: Some(names::API_VERSION.to_owned()),
            kind: Some("Configuration".to_owned()),
            name: Some(key.name.to_string()),
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
