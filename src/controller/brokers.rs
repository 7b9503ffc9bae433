//! Brokers: a Pod for each Instance and each node that sees its device, or a Job for each Instance. The scheduler decides on
//! which of these nodes each is.
mod action;
mod avoided;
mod claim;
mod failures;
pub(crate) mod memory;
mod outcome;
pub(crate) mod plan;
pub(crate) mod report;
mod specs;

use super::{
    nodes::seen,
    outcome::Note,
    parts::News,
    pod_state::one_line,
    queue::Waits,
    shared::Shared,
    world::{BrokerPod, World, broker_job, broker_pod},
};
use crate::{
    api::{instance::Instance, names::CONFIGURATION_LABEL, reason::Reason},
    cluster::{
        changes::{Change, version_of},
        events::about,
        parts::{JobPart, PodPart},
    },
    model::{instance_name::InstanceKey, names::ObjectKey, resource_name::ResourcePrefix},
    store::key_of,
};
use hyper::{Request, header::CONTENT_TYPE};
use k8s_openapi::jiff::Timestamp;
use kube::{
    Api, Client, Resource,
    api::{
        ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, Preconditions,
        PropagationPolicy,
    },
};
use memory::{Memory, Notice, Outcome};
use outcome::first_error;
use plan::{Action, Input, plan};
use report::Reports;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::{fmt::Display, sync::Arc};
use tracing::{debug, info, warn};

/// Remembers of brokers what the next look needs.
pub(crate) struct Brokers {
    pub(crate) memory: Memory,
    resource_prefix: ResourcePrefix,
    /// The reports of all Configurations, which their status shows.
    pub(crate) reports: Reports,
}

/// The result of an action, and the object that the API server returned.
#[derive(Debug)]
pub(crate) struct Performed {
    pub(crate) outcome: Outcome,
    pub(crate) object: Option<News>,
}

impl Brokers {
    pub(crate) fn new(resource_prefix: ResourcePrefix) -> Self {
        Self {
            memory: Memory::default(),
            resource_prefix,
            reports: Reports::new(),
        }
    }

    /// Returns the actions of a part.
    pub(crate) fn plan(
        &mut self,
        world: &World,
        now: Timestamp,
        notes: &mut Vec<Note>,
    ) -> (Vec<Action>, Waits) {
        let mut notices = self.memory.observe(world, now);
        let planned = plan(&Input {
            world,
            memory: &self.memory,
            resource_prefix: &self.resource_prefix,
            now,
        });
        for (configuration, (digest, error)) in &planned.broken {
            let specs = &mut self.memory.specs;
            notices.extend(specs.refuse(configuration, digest, &error.to_string(), now));
        }
        // The reports of the other parts stay as they are.
        self.reports.retain(|key, _| !world.includes(&key.name));
        self.reports.extend(planned.reports);
        notes.extend(notices.iter().filter_map(|notice| note(world, notice)));
        (planned.actions, planned.waits)
    }

    /// Takes in the result of an action.
    pub(crate) fn settle(
        &mut self,
        world: &World,
        action: &Action,
        outcome: &Outcome,
        now: Timestamp,
    ) -> Option<Note> {
        log(action, outcome);
        let notice = self.memory.settle(action, outcome, now)?;
        note(world, &notice)
    }
}

/// Returns the object that an action has deleted, or found deleted, by its result.
pub(crate) fn deleted<'a>(
    action: &'a Action,
    outcome: &Outcome,
) -> Option<(&'a ObjectKey, &'a String)> {
    let is_known = matches!(outcome, Outcome::Done | Outcome::Gone);
    match action {
        // A conflict means that it has changed meanwhile, and stays.
        Action::DeletePod {
            key,
            uid,
            version: Some(_),
            ..
        }
        | Action::ReplacePod {
            key,
            uid,
            version: Some(_),
            ..
        } => is_known.then_some((key, uid)),
        Action::DeletePod { key, uid, .. }
        | Action::ReplacePod { key, uid, .. }
        | Action::DeleteJob { key, uid, .. } => {
            (is_known || *outcome == Outcome::Conflict).then_some((key, uid))
        }
        Action::CreatePod { .. }
        | Action::TryPod { .. }
        | Action::CreateJob { .. }
        | Action::Remember { .. } => None,
    }
}

/// Carries out an action.
pub(super) async fn perform(shared: &Shared, action: &Action) -> Performed {
    match claim::offer(shared, action).await {
        Ok(()) => act(shared, action).await,
        Err(error) => performed(Err(error)),
    }
}

async fn act(shared: &Shared, action: &Action) -> Performed {
    match action {
        Action::CreatePod { broker, pod, .. } => {
            let api = pods(shared, &broker.key.namespace);
            let created = create(&api, &shared.client, pod, broker_pod).await;
            if created.outcome == Outcome::Conflict {
                return owner_of(shared, &broker.key).await;
            }
            created
        }
        Action::TryPod { broker, pod } => {
            let api = pods(shared, &broker.key.namespace);
            let query = "dryRun=All&fieldValidation=Strict";
            let tried: Result<DynamicObject, _> = post(&api, &shared.client, query, pod).await;
            performed(tried.map(|_| None))
        }
        Action::DeletePod {
            key,
            uid,
            version,
            is_forced,
            ..
        } => {
            let mut how = only(uid, version.as_deref());
            how.grace_period_seconds = is_forced.then_some(0);
            delete(&pods(shared, &key.namespace), key, how).await
        }
        Action::ReplacePod {
            key, uid, version, ..
        } => {
            let how = only(uid, version.as_deref());
            delete(&pods(shared, &key.namespace), key, how).await
        }
        Action::CreateJob {
            broker,
            owner,
            job,
            generation,
            ..
        } => {
            let api = jobs(shared, &broker.key.namespace);
            let created = create(&api, &shared.client, job, broker_job).await;
            // The generation is written after the Job, so that a device always gets its Job, also if this process ends
            // between the two writes. If the second write fails it is repeated as long as the Job exists. A Job that is
            // garbage-collected within that time runs twice.
            if matches!(created.outcome, Outcome::Done | Outcome::Conflict) {
                remember(shared, &broker.instance, owner, *generation).await;
            }
            created
        }
        Action::DeleteJob { key, uid, .. } => {
            let mut how = only(uid, None);
            how.propagation_policy = Some(PropagationPolicy::Background);
            delete(&jobs(shared, &key.namespace), key, how).await
        }
        Action::Remember {
            instance,
            owner,
            generation,
        } => remember(shared, instance, owner, *generation).await,
    }
}

fn pods(shared: &Shared, namespace: &str) -> Api<DynamicObject> {
    let kind = ApiResource::erase::<PodPart>(&());
    Api::namespaced_with(shared.client.clone(), namespace, &kind)
}

fn jobs(shared: &Shared, namespace: &str) -> Api<DynamicObject> {
    let kind = ApiResource::erase::<JobPart>(&());
    Api::namespaced_with(shared.client.clone(), namespace, &kind)
}

/// Looks at the Pod that has the name of a broker. One of ours, which another replica may have created, is known from then on.
async fn owner_of(shared: &Shared, key: &ObjectKey) -> Performed {
    let api: Api<PodPart> = Api::namespaced(shared.client.clone(), &key.namespace);
    let of_name = ListParams::default().fields(&format!("metadata.name={}", key.name));
    let found = api.list(&of_name).await;
    let found = found.map(|found| found.items.into_iter().next().map(broker_pod));
    let (outcome, object) = match found {
        Err(e) => return performed(Err(e)),
        Ok(Some(pod)) if !pod.meta.labels.contains_key(CONFIGURATION_LABEL) => {
            (Outcome::Taken, None)
        }
        Ok(pod) => (Outcome::Conflict, pod),
    };
    let change = |pod: BrokerPod| Change {
        key: key.clone(),
        version: pod.meta.version,
        object: Some(Arc::new(pod)),
    };
    Performed {
        outcome,
        object: object.map(|pod| vec![change(pod)].into()),
    }
}

/// Creates an object, or has the API server name the fields that it does not know: without being asked it drops them.
async fn create<K, T>(
    api: &Api<DynamicObject>,
    client: &Client,
    object: &Value,
    reduce: impl Fn(K) -> T,
) -> Performed
where
    K: Resource + DeserializeOwned,
    News: From<Vec<Change<T>>>,
{
    let created: Result<K, _> = post(api, client, "fieldValidation=Strict", object).await;
    performed(created.map(|created| {
        let change = Change {
            key: key_of(created.meta()),
            version: version_of(created.meta()),
            object: Some(Arc::new(reduce(created))),
        };
        Some(vec![change].into())
    }))
}

async fn post<K: DeserializeOwned>(
    api: &Api<DynamicObject>,
    client: &Client,
    query: &str,
    object: &Value,
) -> Result<K, kube::Error> {
    let uri = format!("{}?{query}", api.resource_url());
    let sent = Request::post(uri).header(CONTENT_TYPE, "application/json");
    let sent = sent.body(object.to_string().into_bytes());
    client.request(sent.map_err(kube::Error::HttpError)?).await
}

/// Deletes nothing but this object, in this version.
fn only(uid: &str, version: Option<&str>) -> DeleteParams {
    let preconditions = Preconditions {
        uid: Some(uid.to_owned()),
        resource_version: version.map(str::to_owned),
    };
    DeleteParams {
        preconditions: Some(preconditions),
        ..DeleteParams::default()
    }
}

async fn delete(api: &Api<DynamicObject>, key: &ObjectKey, how: DeleteParams) -> Performed {
    let deleted = api.delete(&key.name, &how).await;
    performed(deleted.map(|_| None))
}

/// Writes the generation of an Instance's Job. The uid makes the write fail if the Instance was replaced.
async fn remember(
    shared: &Shared,
    instance: &InstanceKey,
    uid: &str,
    generation: i64,
) -> Performed {
    let api: Api<Instance> = Api::namespaced(shared.client.clone(), &instance.namespace);
    let patch = json!({
        "metadata": { "uid": uid },
        "status": { "brokerGeneration": generation },
    });
    let (parameters, patch) = (PatchParams::default(), Patch::Merge(patch));
    let patched = api.patch_status(&instance.name, &parameters, &patch).await;
    performed(patched.map(|patched| Some(vec![seen(patched)].into())))
}

fn performed(result: Result<Option<News>, kube::Error>) -> Performed {
    let outcome = match &result {
        Ok(_) => Outcome::Done,
        Err(kube::Error::Api(status)) => Outcome::from_status(status.code, &first_error(status)),
        Err(e) => Outcome::Failed(e.to_string()),
    };
    Performed {
        outcome,
        object: result.ok().flatten(),
    }
}

fn log(action: &Action, outcome: &Outcome) {
    let (what, object, why): (&str, &dyn Display, &str) = match action {
        Action::CreatePod { broker, .. } => ("broker Pod created", &broker.key, "wanted"),
        Action::DeletePod { key, why, .. } => ("broker Pod deleted", key, *why),
        Action::ReplacePod { key, cause, .. } => ("broker Pod deleted", key, cause.as_str()),
        Action::TryPod { broker, .. } => ("broker Pod of a new spec tried", &broker.key, "wanted"),
        Action::CreateJob { broker, .. } => ("broker Job created", &broker.key, "wanted"),
        Action::DeleteJob { key, why, .. } => ("broker Job deleted", key, *why),
        Action::Remember { instance, .. } => ("generation of the broker Job noted", instance, ""),
    };
    match outcome {
        Outcome::Done => info!(%object, why, "{what}"),
        Outcome::Gone => debug!(%object, why, "not {what}: it is gone"),
        Outcome::Taken => info!(%object, why, "not {what}: a Pod of somebody else has the name"),
        Outcome::Conflict => debug!(%object, why, "not {what}: it is another one now"),
        Outcome::Refused { code, message } => {
            warn!(%object, why, code, "not {what}, refused: {message}");
        }
        Outcome::Failed(e) => warn!(%object, why, "not {what}, tried again: {e}"),
    }
}

/// Returns the Event on the Instance of a broker. A refused spec is said by the status, and its Event.
fn note(world: &World, notice: &Notice) -> Option<Note> {
    let (broker, reason, text) = match notice {
        Notice::SpecInvalid {
            configuration,
            message,
        } => {
            warn!(%configuration, "the broker spec is refused: {}", one_line(message));
            return None;
        }
        Notice::Created(broker) => {
            let text = format!("created {}", broker.key.name);
            (broker, Reason::BrokerCreated, text)
        }
        Notice::Ended {
            broker,
            why,
            retry_in,
        } => {
            let pod = &broker.key;
            warn!(%pod, why, ?retry_in, "broker: it ended");
            let text = format!("{} ended: {why}. Another follows in {retry_in:#}", pod.name);
            (broker, Reason::BrokerFailed, text)
        }
        Notice::Refused {
            broker,
            message,
            retry_in,
        } => {
            let name = &broker.key.name;
            let message = one_line(message);
            let text = format!("cannot create {name}: {message}. Next try in {retry_in:#}");
            (broker, Reason::BrokerRefused, text)
        }
    };
    let instance = world.instances.get(&broker.instance)?;
    Some(Note {
        about: about(&**instance),
        reason: reason.as_str().to_owned(),
        text,
        is_warning: matches!(notice, Notice::Ended { .. } | Notice::Refused { .. }),
    })
}

#[cfg(test)]
mod tests;
