//! Carries out what was decided of brokers: one request, or two where an Instance remembers its Job.
use super::{
    super::{
        news::{News, answered},
        nodes::seen,
        shared::Shared,
        world::{BrokerPod, broker_job, broker_pod},
    },
    claim,
    memory::Outcome,
    outcome::outcome_of,
    plan::Action,
};
use crate::{
    api::{instance::Instance, names::CONFIGURATION_LABEL},
    cluster::{
        changes::Change,
        deletion_of,
        parts::{JobPart, PodPart},
        post,
    },
    model::{instance_name::InstanceKey, names::ObjectKey},
};
use kube::{
    Api, Client, Resource,
    api::{
        ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PropagationPolicy,
    },
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::sync::Arc;

/// The result of an action, and the object that the API server returned.
#[derive(Debug)]
pub(crate) struct Performed {
    pub(crate) outcome: Outcome,
    pub(crate) object: Option<News>,
}

/// Carries out an action.
pub(in crate::controller) async fn perform(shared: &Shared, action: &Action) -> Performed {
    match claim::offer(shared, action).await {
        Ok(()) => act(shared, action).await,
        Err(outcome) => failed(outcome),
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
            let uri = format!("{}?dryRun=All&fieldValidation=Strict", api.resource_url());
            let tried: Result<DynamicObject, _> = post(&shared.client, uri, pod).await;
            performed(tried.map(|_| None))
        }
        Action::DeletePod {
            key,
            uid,
            version,
            is_forced,
            ..
        } => {
            let mut how = deletion_of(uid.clone(), version.as_deref());
            how.grace_period_seconds = is_forced.then_some(0);
            delete(&pods(shared, &key.namespace), key, how).await
        }
        Action::ReplacePod {
            key, uid, version, ..
        } => {
            let how = deletion_of(uid.clone(), version.as_deref());
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
            // between the two writes. If the second write fails, or the answer to the first was lost, it is repeated as long as
            // the watch shows the Job. A Job that is garbage-collected within that time runs twice. The name may also be that of
            // somebody else's Job.
            if created.outcome == Outcome::Done {
                remember(shared, &broker.instance, owner, *generation).await;
            }
            created
        }
        Action::DeleteJob { key, uid, .. } => {
            let mut how = deletion_of(uid.clone(), None);
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
    reduce: impl FnOnce(K) -> T,
) -> Performed
where
    K: Resource + DeserializeOwned,
    News: From<Vec<Change<T>>>,
{
    let uri = format!("{}?fieldValidation=Strict", api.resource_url());
    let created: Result<K, _> = post(client, uri, object).await;
    performed(created.map(|created| {
        let change: Change<T> = answered(created, reduce);
        Some(vec![change].into())
    }))
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
    match result {
        Ok(object) => Performed {
            outcome: Outcome::Done,
            object,
        },
        Err(error) => failed(outcome_of(&error)),
    }
}

fn failed(outcome: Outcome) -> Performed {
    Performed {
        outcome,
        object: None,
    }
}
