//! Services of Instances and Configurations: they follow the specs in the Configuration while brokers run.
pub(crate) mod plan;

use super::{
    Shared, Turns,
    agenda::{CREATED_AGAIN, Pass},
    outcome::{Problems, failed_of, is_done},
    pace::{Pace, SteadyClock},
    pod_state::one_line,
    world::World,
};
use crate::{
    api::{configuration::Problem, names, reason::Reason},
    model::names::ObjectKey,
    publish,
};
use k8s_openapi::api::core::v1::Service;
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, Preconditions},
    core::Status,
};
use plan::{Action, Apply, Idle, Owner, plan};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;
use tracing::debug;

const FIRST_WAIT: Duration = Duration::from_millis(500);
/// A spec that the API server refuses is tried again as often.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// The state that one look at the world leaves for the next.
struct Memory {
    clock: SteadyClock,
    idle: Idle,
    /// The pace of each kind of action on each Service.
    pace: Pace<(ObjectKey, String)>,
    /// The last reported problem of each Service, and whose it is.
    troubles: BTreeMap<ObjectKey, (Owner, Problem)>,
}

impl Memory {
    fn new() -> Self {
        Self {
            clock: SteadyClock::new(),
            idle: Idle::new(),
            pace: Pace::new(FIRST_WAIT, LONGEST_WAIT),
            troubles: BTreeMap::new(),
        }
    }
}

/// The parts that a write uses.
#[derive(Clone, Copy)]
struct Writer<'a> {
    shared: &'a Shared,
    memory: &'a Mutex<Memory>,
}

/// Runs the task. The status of Configurations reads from `problems` which Services are refused.
pub(super) async fn run(
    shared: Arc<Shared>,
    problems: watch::Sender<Option<Arc<Problems>>>,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let (memory, mut turns) = (Mutex::new(Memory::new()), Turns::new(&shared));
    while let Some(turn) = turns.next(&shutdown).await? {
        turns.done(&turn, pass(&shared, &memory, &turn.world).await);
        let now = of_configurations(turn.world.whole(), &lock(&memory).troubles);
        publish::if_changed(&problems, Some(Arc::new(now)));
    }
    Ok(())
}

/// Returns the first problem of each Configuration.
fn of_configurations(world: &World, troubles: &BTreeMap<ObjectKey, (Owner, Problem)>) -> Problems {
    let mut problems = Problems::new();
    for (owner, problem) in troubles.values() {
        let instance = world.instances.get(&owner.key.clone().typed());
        let instance = instance.filter(|_| owner.kind == "Instance");
        let key = instance.map(|i| i.spec.configuration_key(&owner.key.namespace));
        let key = key.unwrap_or_else(|| owner.key.clone().typed());
        problems.entry(key).or_insert_with(|| problem.clone());
    }
    problems
}

async fn pass(shared: &Shared, memory: &Mutex<Memory>, world: &World) -> Pass {
    let (actions, mut waits) = {
        let mut memory = lock(memory);
        let planned = plan(world, &memory.idle, memory.clock.now());
        // What belongs to the other parts stays as it is.
        (memory.idle).retain(|_, idle| !world.includes(&idle.part));
        memory.idle.extend(planned.idle);
        let wanted: BTreeSet<ObjectKey> = planned.actions.iter().map(|a| step(a).0).collect();
        (memory.troubles)
            .retain(|key, (owner, _)| wanted.contains(key) || !world.includes(&owner.part));
        let (actions, later) = (memory.pace).due(planned.actions, step, Instant::now());
        let mut waits = planned.waits;
        for (action, wait) in later {
            waits.add(action.part(), wait);
        }
        for action in actions.iter().filter(|action| action.is_creation()) {
            waits.add(action.part(), CREATED_AGAIN);
        }
        (actions, waits)
    };
    let writer = Writer { shared, memory };
    let acts = actions.into_iter().map(|action| async move {
        let part = action.part().to_owned();
        (!writer.act(action).await).then_some(part)
    });
    let failed = failed_of(acts).await;
    let memory = lock(memory);
    let owners = memory.troubles.values().map(|(owner, _)| owner);
    for owner in owners.filter(|owner| world.includes(&owner.part)) {
        // Another owner's Service may have gone, which is not watched.
        waits.add(&owner.part, LONGEST_WAIT);
    }
    Pass { failed, waits }
}

fn lock(memory: &Mutex<Memory>) -> MutexGuard<'_, Memory> {
    memory.lock().unwrap_or_else(PoisonError::into_inner)
}

fn step(action: &Action) -> (ObjectKey, String) {
    match action {
        Action::Apply(apply) => (apply.key.clone(), apply.digest.clone()),
        Action::Delete { key, .. } => (key.clone(), "delete".to_owned()),
        Action::Report(_, key) => (key.clone(), "report".to_owned()),
    }
}

impl Writer<'_> {
    async fn act(self, action: Action) -> bool {
        match action {
            Action::Apply(apply) => self.apply(*apply).await,
            Action::Delete {
                key, uid, reason, ..
            } => {
                let params = DeleteParams {
                    preconditions: Some(Preconditions {
                        uid: Some(uid),
                        resource_version: None,
                    }),
                    ..DeleteParams::default()
                };
                debug!(service = %key, reason, "to be deleted");
                let result = self.api(&key).delete(&key.name, &params).await;
                is_done(&key, "delete the Service", result.map(|_| ()))
            }
            Action::Report(owner, key) => {
                self.name_is_taken(&owner, &key);
                true
            }
        }
    }

    fn api(self, key: &ObjectKey) -> Api<Service> {
        Api::namespaced(self.shared.client.clone(), &key.namespace)
    }

    async fn apply(self, mut apply: Apply) -> bool {
        let key = apply.key.clone();
        let api = self.api(&key);
        if apply.uid.is_none() {
            // Somebody else's has no label of ours, so that it is not among those watched.
            match api.get_opt(&key.name).await {
                Ok(None) => {}
                Ok(Some(found)) if is_owned(&found, &apply.owner) => apply.uid = found.metadata.uid,
                Ok(Some(_)) => {
                    self.name_is_taken(&apply.owner, &key);
                    return true;
                }
                Err(e) => return is_done(&key, "look for the Service", Err(e)),
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
        if let Err(kube::Error::Api(status)) = &result
            && is_refused(status)
        {
            let note = format!(
                "Service {} is refused: {}; correct the ServiceSpec in the Configuration",
                key.name, status.message
            );
            self.trouble(&apply.owner, &key, Reason::ServiceRefused, note);
            return false;
        }
        is_done(&key, "apply the Service", result.map(|_| ()))
    }

    fn name_is_taken(self, owner: &Owner, key: &ObjectKey) {
        let note = format!(
            "Service {} exists and is not of this {}: it is left as it is; delete or rename it",
            key.name, owner.kind
        );
        self.trouble(owner, key, Reason::ServiceNameTaken, note);
    }

    /// The status of the Configuration says it, in the log and in an Event, too.
    fn trouble(self, owner: &Owner, key: &ObjectKey, reason: Reason, note: String) {
        let problem = Problem::new(reason, one_line(&note));
        lock(self.memory)
            .troubles
            .insert(key.clone(), (owner.clone(), problem));
    }
}

/// A spec that does not have the types of a ServiceSpec is answered with 500, as a server that is ill would.
fn is_refused(status: &Status) -> bool {
    matches!(status.code, 400 | 422) || status.message.contains("typed patch object")
}

fn is_owned(service: &Service, owner: &Owner) -> bool {
    let mut owners = service.metadata.owner_references.iter().flatten();
    owners.any(|found| found.controller == Some(true) && found.uid == owner.uid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::{
        fixtures::{Fake, configuration, instance, key, pod, refusal},
        world::{Meta, OwnedService},
    };
    use k8s_openapi::api::core::v1::ServiceSpec;
    use serde_json::{Value, json};
    use tokio::time::advance;

    const PATH: &str = "/api/v1/namespaces/default/services/cam-svc?";

    fn world_without_brokers() -> World {
        let spec = json!({ "spec": { "configurationServiceSpec": { "ports": [{ "port": 1 }] } } });
        World::default()
            .with_configuration(configuration("cam", spec))
            .with_instance(instance("cam-1", json!({})))
    }

    fn world() -> Arc<World> {
        Arc::new(world_without_brokers().with_pod("broker", pod("cam-1", "Running")))
    }

    fn service(owner: &str) -> Value {
        let owner = json!({ "apiVersion": "v1", "kind": "X", "name": "x", "uid": owner, "controller": true });
        let metadata = json!({ "name": "cam-svc", "uid": "u", "ownerReferences": [owner] });
        json!({ "apiVersion": "v1", "kind": "Service", "metadata": metadata })
    }

    /// Returns what is asked of a server that has `found` under the name of the Service.
    async fn asked(found: (u16, Value)) -> (Vec<String>, Pass, Option<String>) {
        let fake = Fake::new(move |request| match request.starts_with("GET") {
            true => found.clone(),
            false => (200, service("uid-cam")),
        });
        let memory = Mutex::new(Memory::new());
        let pass = pass(&fake.shared, &memory, &world()).await;
        let trouble = lock(&memory).troubles.get(&key("cam-svc")).cloned();
        let trouble = trouble.map(|(_, problem)| problem.message);
        (fake.asked(), pass, trouble)
    }

    #[tokio::test]
    async fn a_name_that_is_free_is_taken_without_force() {
        let (asked, pass, trouble) = asked(refusal(404)).await;
        let written = format!("PATCH {PATH}&fieldManager=petiole-controller");
        assert_eq!(
            asked,
            [format!("GET {PATH}").trim_end_matches('?'), &written]
        );
        assert!(pass.failed.is_empty() && trouble.is_none());
    }

    /// The time of tokio passes here, and that of the machine does not.
    #[tokio::test(start_paused = true)]
    async fn a_service_is_idle_by_a_clock_that_nobody_sets() {
        let fake = Fake::new(|_| (200, service("uid-cam")));
        let owned = OwnedService {
            meta: Meta {
                uid: "u".to_owned(),
                owner: Some("uid-cam".to_owned()),
                ..Meta::default()
            },
            spec: ServiceSpec::default(),
        };
        let mut world = world_without_brokers();
        world.services.insert(key("cam-svc"), Arc::new(owned));
        let memory = Mutex::new(Memory::new());
        pass(&fake.shared, &memory, &world).await;
        advance(Duration::from_secs(61)).await;
        pass(&fake.shared, &memory, &world).await;
        let deleted = format!("DELETE {PATH}");
        assert_eq!(fake.asked().last(), Some(&deleted));
    }

    #[tokio::test]
    async fn our_own_service_that_lost_its_labels_is_mended() {
        let (asked, pass, _) = asked((200, service("uid-cam"))).await;
        assert!(
            asked[1].starts_with("PATCH") && asked[1].contains("force=true"),
            "{asked:?}"
        );
        assert!(pass.failed.is_empty());
    }

    #[tokio::test]
    async fn a_service_of_somebody_else_is_never_written_to() {
        let (asked, pass, trouble) = asked((200, service("other"))).await;
        assert_eq!(asked.len(), 1, "{asked:?}");
        assert!(trouble.unwrap().contains("is not of this Configuration"));
        assert!(pass.failed.is_empty());
    }

    #[tokio::test]
    async fn a_server_that_cannot_answer_is_asked_again_and_nothing_is_written() {
        let (asked, pass, _) = asked(refusal(503)).await;
        assert_eq!(asked.len(), 1, "{asked:?}");
        assert!(!pass.failed.is_empty());
    }
}
