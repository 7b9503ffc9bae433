//! Carries out what was decided of brokers: one request, or two where an Instance remembers its Job.
use super::{
    super::{
        news::{News, answered},
        nodes::seen,
        outcome::{Outcome, Written},
        shared::Shared,
        world::{BrokerPod, broker_job, broker_pod},
    },
    claim,
    plan::Action,
};
use crate::{
    api::{instance::Instance, names::CONFIGURATION_LABEL},
    cluster::{
        changes::Change,
        deletion_of, is_conflict,
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

/// Carries out an action.
pub(in crate::controller) async fn perform(shared: &Shared, action: &Action) -> Written {
    if let Err(outcome) = claim::offer(shared, action).await {
        return Written::new(outcome);
    }
    let acted = act(shared, action).await;
    acted.unwrap_or_else(|e| Written::new(Outcome::of(&e)))
}

async fn act(shared: &Shared, action: &Action) -> kube::Result<Written> {
    match action {
        Action::CreatePod { broker, pod, .. } => {
            let api = pods(shared, &broker.key.namespace);
            match create(&api, &shared.client, pod, broker_pod).await {
                Err(e) if is_conflict(&e) => owner_of(shared, &broker.key).await,
                created => created,
            }
        }
        Action::TryPod { broker, pod } => {
            let api = pods(shared, &broker.key.namespace);
            let uri = format!("{}?dryRun=All&fieldValidation=Strict", api.resource_url());
            let _: DynamicObject = post(&shared.client, uri, pod).await?;
            Ok(Written::new(Outcome::Done))
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
            let created = create(&api, &shared.client, job, broker_job).await?;
            // The generation is written after the Job, so that a device always gets its Job, also if this process ends
            // between the two writes. If the second write fails, or the answer to the first was lost, it is repeated as long as
            // the watch shows the Job. A Job that is garbage-collected within that time runs twice. The name may also be that of
            // somebody else's Job.
            drop(remember(shared, &broker.instance, owner, *generation).await);
            Ok(created)
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
async fn owner_of(shared: &Shared, key: &ObjectKey) -> kube::Result<Written> {
    let api: Api<PodPart> = Api::namespaced(shared.client.clone(), &key.namespace);
    let of_name = ListParams::default().fields(&format!("metadata.name={}", key.name));
    let found = api.list(&of_name).await?;
    let Some(pod) = found.items.into_iter().next().map(broker_pod) else {
        return Ok(Written::new(Outcome::Conflict));
    };
    if !pod.meta.labels.contains_key(CONFIGURATION_LABEL) {
        return Ok(Written::new(Outcome::Taken));
    }
    let change: Change<BrokerPod> = Change {
        key: key.clone(),
        version: pod.meta.version,
        object: Some(Arc::new(pod)),
    };
    Ok(Written {
        outcome: Outcome::Conflict,
        ..Written::with(change)
    })
}

/// Creates an object, or has the API server name the fields that it does not know: without being asked it drops them.
async fn create<K, T>(
    api: &Api<DynamicObject>,
    client: &Client,
    object: &Value,
    reduce: impl FnOnce(K) -> T,
) -> kube::Result<Written>
where
    K: Resource + DeserializeOwned,
    News: From<Vec<Change<T>>>,
{
    let uri = format!("{}?fieldValidation=Strict", api.resource_url());
    let created = post(client, uri, object).await?;
    let change: Change<T> = answered(created, reduce);
    Ok(Written::with(change))
}

async fn delete(
    api: &Api<DynamicObject>,
    key: &ObjectKey,
    how: DeleteParams,
) -> kube::Result<Written> {
    api.delete(&key.name, &how).await?;
    Ok(Written::new(Outcome::Done))
}

/// Writes the generation of an Instance's Job. The uid makes the write fail if the Instance was replaced.
async fn remember(
    shared: &Shared,
    instance: &InstanceKey,
    uid: &str,
    generation: i64,
) -> kube::Result<Written> {
    let api: Api<Instance> = Api::namespaced(shared.client.clone(), &instance.namespace);
    let patch = json!({
        "metadata": { "uid": uid },
        "status": { "brokerGeneration": generation },
    });
    let (parameters, patch) = (PatchParams::default(), Patch::Merge(patch));
    let patched = api
        .patch_status(&instance.name, &parameters, &patch)
        .await?;
    Ok(Written::with(seen(patched)))
}
