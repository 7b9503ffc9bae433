//! Services of Instances and Configurations: those of brokers follow the specs in the Configuration while brokers run, and those of
//! devices (`deviceService`) have the addresses of the devices in EndpointSlices.
pub(crate) mod action;
mod devices;
mod plan;

use super::{
    news::{News, answered},
    outcome::{Outcome, Problems, Written, tried},
    pod_state::one_line,
    queue::Waits,
    shared::Shared,
    world::{World, owned_service, owned_slice},
};
use crate::{
    api::{configuration::Problem, names, reason::Reason},
    cluster::{changes::Change, deletion_of},
    model::{names::ObjectKey, networks::DeviceNetworks},
};
use action::{Action, Apply, Kind, Owner};
use kube::{
    Api, Resource,
    api::{Patch, PatchParams},
    core::{NamespaceResourceScope, Status},
};
use plan::{Idle, plan};
use serde::de::DeserializeOwned;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Debug,
    time::Duration,
};
use tokio::time::Instant;
use tracing::debug;

/// The name of another owner's Service is looked at again as often: that Service is not watched.
pub(super) const TAKEN_AGAIN: Duration = Duration::from_secs(60);

/// Remembers of Services what the next look needs.
#[derive(Default)]
pub(crate) struct Services {
    parts: BTreeMap<String, OfPart>,
    /// The networks whose devices may have names.
    networks: DeviceNetworks,
}

/// Remembers the same of one part.
#[derive(Debug, Default, PartialEq)]
struct OfPart {
    idle: Idle,
    /// The last reported problem of each Service, and whose it is.
    troubles: BTreeMap<ObjectKey, (Owner, Problem)>,
    /// The problems of devices that get no name.
    refused: Problems,
}

impl Services {
    pub(crate) fn new(networks: DeviceNetworks) -> Self {
        Self {
            parts: BTreeMap::new(),
            networks,
        }
    }

    /// Forgets what another replica may have changed meanwhile.
    pub(crate) fn forget(&mut self) {
        self.parts.clear();
    }

    /// Returns the actions of a part.
    pub(crate) fn plan(&mut self, part: &str, world: &World, now: Instant) -> (Vec<Action>, Waits) {
        let mut of_part = self.parts.remove(part).unwrap_or_default();
        let mut planned = plan(world, &of_part.idle, now);
        of_part.idle = planned.idle;
        let devices = devices::plan(world, &self.networks);
        of_part.refused = devices.refused;
        planned.actions.extend(devices.actions);
        let wanted: BTreeSet<ObjectKey> = planned.actions.iter().map(|a| step(a).0).collect();
        of_part.troubles.retain(|key, _| wanted.contains(key));
        let mut waits = planned.waits;
        if !of_part.troubles.is_empty() {
            waits.add(TAKEN_AGAIN);
        }
        if of_part != OfPart::default() {
            self.parts.insert(part.to_owned(), of_part);
        }
        (planned.actions, waits)
    }

    /// Takes in the problem of an action.
    pub(crate) fn settle(&mut self, part: &str, action: &Action, trouble: Option<Problem>) {
        let owner = match action {
            Action::Apply(apply) => &apply.owner,
            Action::Report(_, owner, _) => owner,
            Action::Delete { .. } => return,
        };
        if let Some(problem) = trouble {
            let of_part = self.parts.entry(part.to_owned()).or_default();
            let key = step(action).0;
            of_part.troubles.insert(key, (owner.clone(), problem));
        }
    }

    /// Returns the first problem of each Configuration of a part.
    pub(crate) fn problems(&self, part: &str, world: &World) -> Problems {
        let mut problems = Problems::new();
        let Some(of_part) = self.parts.get(part) else {
            return problems;
        };
        for (owner, problem) in of_part.troubles.values() {
            let instance = world.instances.get(&owner.key.clone().typed());
            let instance = instance.filter(|_| owner.kind == "Instance");
            let key = instance.map(|i| i.spec.configuration_key(&owner.key.namespace));
            let key = key.unwrap_or_else(|| owner.key.clone().typed());
            problems.entry(key).or_insert_with(|| problem.clone());
        }
        for (key, problem) in &of_part.refused {
            let key = key.clone();
            problems.entry(key).or_insert_with(|| problem.clone());
        }
        problems
    }
}

/// Returns the object of an action, and what is done to it.
pub(crate) fn step(action: &Action) -> (ObjectKey, String) {
    match action {
        Action::Apply(apply) => (apply.key.clone(), apply.digest.clone()),
        Action::Delete { key, .. } => (key.clone(), "delete".to_owned()),
        Action::Report(_, _, key) => (key.clone(), "report".to_owned()),
    }
}

/// Carries out an action.
pub(super) async fn act(shared: &Shared, action: &Action) -> Written {
    match action.kind() {
        Kind::Service | Kind::DeviceService => act_on(shared, action, owned_service).await,
        Kind::EndpointSlice => act_on(shared, action, owned_slice).await,
    }
}

/// The same of objects of one kind, each of which is reduced to what plans read.
async fn act_on<K, T>(shared: &Shared, action: &Action, reduce: impl FnOnce(K) -> T) -> Written
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    K: Clone + Debug + DeserializeOwned,
    News: From<Vec<Change<T>>>,
{
    let key = step(action).0;
    let api: Api<K> = Api::namespaced(shared.client.clone(), &key.namespace);
    match action {
        Action::Apply(apply) => match self::apply(&api, Apply::clone(apply)).await {
            Ok(applied) => Written::with::<T, String>(answered(applied, reduce)),
            Err(written) => written,
        },
        Action::Delete { uid, reason, .. } => {
            let deleted = api.delete(&key.name, &deletion_of(uid.clone(), None)).await;
            debug!(object = %key, reason, "to be deleted");
            Written::new(tried(&key, "delete it", deleted.map(|_| ())))
        }
        Action::Report(kind, owner, _) => name_is_taken(*kind, owner, &key),
    }
}

async fn apply<K>(api: &Api<K>, mut apply: Apply) -> Result<K, Written>
where
    K: Resource + Clone + Debug + DeserializeOwned,
{
    let (kind, key) = (apply.kind, apply.key.clone());
    if apply.uid.is_none() {
        // Somebody else's has no label of ours, so that it is not among those watched.
        match api.get_opt(&key.name).await {
            Ok(None) => {}
            Ok(Some(found)) if is_owned(&found, &apply) => {
                apply.uid.clone_from(&found.meta().uid);
            }
            Ok(Some(_)) => return Err(name_is_taken(kind, &apply.owner, &key)),
            Err(e) => {
                let outcome = tried(&key, "look for it", Err(e));
                return Err(Written::new(outcome));
            }
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
    result.map_err(|e| {
        if let kube::Error::Api(status) = &e
            && is_refused(status)
        {
            return refused(&apply, status);
        }
        Written::new(tried(&key, "apply it", Err(e)))
    })
}

fn refused(apply: &Apply, status: &Status) -> Written {
    let (reason, remedy) = match apply.kind {
        Kind::Service => (
            Reason::ServiceRefused,
            "correct the ServiceSpec in the Configuration, or have it allowed",
        ),
        Kind::DeviceService | Kind::EndpointSlice => (
            Reason::DeviceServiceRefused,
            "have that allowed, or set spec.deviceService to false",
        ),
    };
    let (kind, name) = (apply.kind.name(), &apply.key.name);
    let note = format!("{kind} {name} is refused: {}; {remedy}", status.message);
    with_problem(Outcome::Failed(status.message.clone()), reason, &note)
}

pub(super) fn name_is_taken(kind: Kind, owner: &Owner, key: &ObjectKey) -> Written {
    let note = format!(
        "{} {} exists and is not of this {}: it is left as it is; delete or rename it",
        kind.name(),
        key.name,
        owner.kind
    );
    with_problem(Outcome::Done, Reason::ServiceNameTaken, &note)
}

/// The status of the Configuration says it, in the log and in an Event, too.
fn with_problem(outcome: Outcome, reason: Reason, note: &str) -> Written {
    Written::new(outcome).with_problem(Problem::new(reason, one_line(note)))
}

/// A spec that does not have the types of a ServiceSpec is answered with 500, as a server that is ill would.
fn is_refused(status: &Status) -> bool {
    matches!(status.code, 400 | 403 | 422) || status.message.contains("typed patch object")
}

/// Returns whether an object has the owner that its manifest names.
fn is_owned(found: &impl Resource, apply: &Apply) -> bool {
    let owner = &apply.manifest["metadata"]["ownerReferences"][0]["uid"];
    let mut owners = found.meta().owner_references.iter().flatten();
    owners.any(|found| found.controller == Some(true) && *owner == found.uid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::{
        fixtures::{Fake, configuration, instance, key, moment, pod, refusal},
        world::{Meta, OwnedService},
    };
    use k8s_openapi::api::core::v1::ServiceSpec;
    use serde_json::{Value, json};
    use std::sync::Arc;

    const PATH: &str = "/api/v1/namespaces/default/services/cam-svc?";

    fn world_without_brokers() -> World {
        let spec = json!({ "spec": { "configurationServiceSpec": { "ports": [{ "port": 1 }] } } });
        World::default()
            .with_configuration(configuration("cam", spec))
            .with_instance(instance("cam-1", json!({})))
    }

    fn world() -> World {
        world_without_brokers().with_pod("broker", pod("cam-1", "Running"))
    }

    fn service(owner: &str) -> Value {
        let owner = json!({ "apiVersion": "v1", "kind": "X", "name": "x", "uid": owner, "controller": true });
        let metadata = json!({ "name": "cam-svc", "uid": "u", "ownerReferences": [owner] });
        json!({ "apiVersion": "v1", "kind": "Service", "metadata": metadata })
    }

    /// Looks at a world once, and returns whether everything is done.
    async fn pass(shared: &Shared, services: &mut Services, world: &World, seconds: u64) -> bool {
        let now = moment(seconds);
        let mut is_done = true;
        for action in services.plan("cam", world, now).0 {
            let acted = act(shared, &action).await;
            services.settle("cam", &action, acted.problem);
            is_done &= acted.outcome == Outcome::Done;
        }
        is_done
    }

    /// Returns what is asked of a server that has `found` under the name of the Service, whether everything is done, and
    /// the trouble.
    async fn asked(found: (u16, Value)) -> (Vec<String>, bool, Option<String>) {
        let fake = Fake::new(move |request| {
            if request.starts_with("GET") {
                found.clone()
            } else {
                (200, service("uid-cam"))
            }
        });
        let (mut services, world) = (Services::default(), world());
        let is_done = pass(&fake.shared, &mut services, &world, 0).await;
        let mut problems = services.problems("cam", &world);
        let trouble = problems.remove(&key("cam"));
        (
            fake.asked(),
            is_done,
            trouble.map(|problem| problem.message),
        )
    }

    #[tokio::test]
    async fn a_name_that_is_free_is_taken_without_force() {
        let (asked, is_done, trouble) = asked(refusal(404)).await;
        let written = format!("PATCH {PATH}&fieldManager=petiole-controller");
        assert_eq!(
            asked,
            [format!("GET {PATH}").trim_end_matches('?'), &written]
        );
        assert!(is_done && trouble.is_none());
    }

    #[tokio::test]
    async fn a_service_without_brokers_is_deleted_after_a_minute() {
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
        let mut services = Services::default();
        pass(&fake.shared, &mut services, &world, 0).await;
        pass(&fake.shared, &mut services, &world, 61).await;
        let deleted = format!("DELETE {PATH}");
        assert_eq!(fake.asked().last(), Some(&deleted));
    }

    #[tokio::test]
    async fn a_service_that_a_quota_or_a_webhook_refuses_is_said_in_the_configuration() {
        let fake = Fake::new(|request| refusal(if request.starts_with("GET") { 404 } else { 403 }));
        let (mut services, world) = (Services::default(), world());
        pass(&fake.shared, &mut services, &world, 0).await;
        let problem = services.problems("cam", &world).remove(&key("cam"));
        assert_eq!(problem.unwrap().reason, "ServiceRefused");
    }

    #[tokio::test]
    async fn our_own_service_that_lost_its_labels_is_mended() {
        let (asked, is_done, _) = asked((200, service("uid-cam"))).await;
        assert!(
            asked[1].starts_with("PATCH") && asked[1].contains("force=true"),
            "{asked:?}"
        );
        assert!(is_done);
    }

    #[tokio::test]
    async fn a_service_of_somebody_else_is_never_written_to() {
        let (asked, is_done, trouble) = asked((200, service("other"))).await;
        assert_eq!(asked.len(), 1, "{asked:?}");
        assert!(trouble.unwrap().contains("is not of this Configuration"));
        assert!(is_done);
    }

    #[tokio::test]
    async fn a_server_that_cannot_answer_is_asked_again_and_nothing_is_written() {
        let (asked, is_done, _) = asked(refusal(503)).await;
        assert_eq!(asked.len(), 1, "{asked:?}");
        assert!(!is_done);
    }
}
