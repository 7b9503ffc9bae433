//! Brokers: a Pod for each Instance on each node that sees its device, or a Job for each Instance.
pub(crate) mod memory;
pub(crate) mod plan;

use super::{Pass, Shared, Turns, pace::SteadyClock, world::World};
use crate::{
    api::reason::Reason,
    cluster::{
        SIDE_BY_SIDE,
        events::about,
        parts::{JobPart, PodPart},
    },
    model::names::ObjectKey,
};
use futures::StreamExt as _;
use k8s_openapi::jiff::Timestamp;
use kube::{
    Api,
    api::{
        ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams, Preconditions,
        PropagationPolicy,
    },
};
use memory::{Memory, Notice, Outcome};
use plan::{Action, Input, Plan, plan};
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

pub(super) async fn run(shared: Arc<Shared>, shutdown: CancellationToken) -> anyhow::Result<()> {
    let (mut state, mut turns) = (State::new(), Turns::new(&shared));
    while let Some(world) = turns.next(&shutdown).await? {
        turns.done(pass(&shared, &mut state, &world, &shutdown).await);
    }
    Ok(())
}

struct State {
    memory: Memory,
    clock: SteadyClock,
}

impl State {
    fn new() -> Self {
        Self {
            memory: Memory::default(),
            clock: SteadyClock::new(),
        }
    }
}

async fn pass(
    shared: &Shared,
    State { memory, clock }: &mut State,
    world: &World,
    shutdown: &CancellationToken,
) -> Pass {
    let now = clock.now();
    let mut notices = memory.observe(world, now);
    let first = planned(shared, memory, world, now);
    for (configuration, (digest, error)) in &first.broken {
        notices.extend(memory.invalid(configuration, (digest, &error.to_string()), now));
    }
    let results = carry_out(shared, first.actions, shutdown).await;
    let mut is_done = true;
    for (action, outcome) in results {
        log(&action, &outcome);
        let (is_settled, notice) = memory.settle(&action, &outcome, clock.now());
        is_done &= is_settled;
        notices.extend(notice);
    }
    for notice in &notices {
        announce(shared, world, notice);
    }
    // What is left to wait for after all this.
    let now = clock.now();
    let wake = planned(shared, memory, world, now).wake;
    Pass {
        is_done,
        wake_in: wake.map(|at| {
            let wait = at.duration_since(now);
            Duration::try_from(wait).unwrap_or_default()
        }),
    }
}

fn planned(shared: &Shared, memory: &Memory, world: &World, now: Timestamp) -> Plan {
    plan(&Input {
        world,
        memory,
        resource_prefix: &shared.settings.resource_prefix,
        now,
    })
}

/// Nothing new is begun once the process is to stop or another replica leads. What was begun is ended: half a Job
/// would be none.
async fn carry_out(
    shared: &Shared,
    actions: Vec<Action>,
    shutdown: &CancellationToken,
) -> Vec<(Action, Outcome)> {
    let may_begin = || !shutdown.is_cancelled() && *shared.is_leader.borrow();
    let begun = futures::stream::iter(actions).map(|action| async {
        match may_begin() {
            false => None,
            true => {
                let outcome = perform(shared, &action).await;
                Some((action, outcome))
            }
        }
    });
    let begun = begun.buffer_unordered(SIDE_BY_SIDE);
    begun.filter_map(std::future::ready).collect().await
}

async fn perform(shared: &Shared, action: &Action) -> Outcome {
    match action {
        Action::CreatePod { broker, pod, .. } => {
            create(&pods(shared, &broker.key.namespace), pod).await
        }
        Action::DeletePod { key, uid, .. } | Action::ReplacePod { key, uid } => {
            delete(&pods(shared, &key.namespace), key, (uid, None)).await
        }
        Action::CreateJob {
            broker,
            owner,
            job,
            generation,
        } => {
            let outcome = create(&jobs(shared, &broker.key.namespace), job).await;
            // Afterwards, so that no end of this process and no outage leaves a device without its Job. As long as
            // the Job is there a note that could not be written is made up for; a Job that is collected within that
            // time runs twice.
            if matches!(outcome, Outcome::Done(_) | Outcome::Conflict) {
                remember(shared, &broker.instance, (owner, *generation)).await;
            }
            outcome
        }
        Action::DeleteJob { key, uid, .. } => {
            let propagation = Some(PropagationPolicy::Background);
            delete(&jobs(shared, &key.namespace), key, (uid, propagation)).await
        }
        Action::Remember {
            instance,
            owner,
            generation,
        } => remember(shared, instance, (owner, *generation)).await,
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

async fn create(api: &Api<DynamicObject>, object: &Value) -> Outcome {
    match serde_json::from_value(object.clone()) {
        Ok(object) => {
            let parameters = PostParams::default();
            let created = api.create(&parameters, &object);
            request(async { Ok(created.await?.metadata.uid) }).await
        }
        Err(e) => Outcome::Refused {
            code: 400,
            message: e.to_string(),
        },
    }
}

async fn delete(
    api: &Api<DynamicObject>,
    key: &ObjectKey,
    (uid, propagation_policy): (&str, Option<PropagationPolicy>),
) -> Outcome {
    let parameters = DeleteParams {
        preconditions: Some(Preconditions {
            uid: Some(uid.to_owned()),
            resource_version: None,
        }),
        propagation_policy,
        ..DeleteParams::default()
    };
    let deleted = api.delete(&key.name, &parameters);
    request(async { deleted.await.map(|_| None) }).await
}

/// Writes which generation the Job of an Instance is for. The uid makes it fail on an Instance that is another.
async fn remember(
    shared: &Shared,
    instance: &ObjectKey,
    (uid, generation): (&str, i64),
) -> Outcome {
    let kind = ApiResource::erase::<crate::api::instance::Instance>(&());
    let api: Api<DynamicObject> =
        Api::namespaced_with(shared.client.clone(), &instance.namespace, &kind);
    let patch = json!({
        "metadata": { "uid": uid },
        "status": { "brokerGeneration": generation },
    });
    let (parameters, patch) = (PatchParams::default(), Patch::Merge(patch));
    let patched = api.patch_status(&instance.name, &parameters, &patch);
    request(async { patched.await.map(|_| None) }).await
}

async fn request(request: impl Future<Output = Result<Option<String>, kube::Error>>) -> Outcome {
    match request.await {
        Ok(uid) => Outcome::Done(uid),
        Err(kube::Error::Api(status)) => Outcome::from_status(status.code, &status.message),
        Err(e) => Outcome::Failed(e.to_string()),
    }
}

fn log(action: &Action, outcome: &Outcome) {
    let (what, object, why) = match action {
        Action::CreatePod { broker, .. } => ("broker Pod created", &broker.key, "wanted"),
        Action::DeletePod { key, why, .. } => ("broker Pod deleted", key, *why),
        Action::ReplacePod { key, .. } => (
            "broker Pod deleted",
            key,
            "the device is reached differently",
        ),
        Action::CreateJob { broker, .. } => ("broker Job created", &broker.key, "wanted"),
        Action::DeleteJob { key, why, .. } => ("broker Job deleted", key, *why),
        Action::Remember { instance, .. } => ("generation of the broker Job noted", instance, ""),
    };
    match outcome {
        Outcome::Done(_) => info!(%object, why, "{what}"),
        Outcome::Gone => debug!(%object, why, "not {what}: it is gone"),
        Outcome::Conflict => debug!(%object, why, "not {what}: it is another one now"),
        Outcome::Refused { code, message } => {
            warn!(%object, why, code, "not {what}, refused: {message}");
        }
        Outcome::Failed(e) => warn!(%object, why, "not {what}, tried again: {e}"),
    }
}

/// Writes an Event on the Instance, or on the Configuration that the user must change.
fn announce(shared: &Shared, world: &World, notice: &Notice) {
    let object = match notice {
        Notice::Created(broker) | Notice::Ended { broker, .. } | Notice::Refused { broker, .. } => {
            let instance = world.instances.get(&broker.instance);
            instance.map(|instance| about(&**instance))
        }
        Notice::SpecInvalid { configuration, .. } => {
            let configuration = world.configurations.get(configuration);
            configuration.map(|configuration| about(&**configuration))
        }
    };
    let Some(object) = object else {
        return;
    };
    let events = &shared.events;
    match notice {
        Notice::Created(broker) => {
            events.normal(
                object,
                Reason::BrokerCreated.as_str(),
                format!("created {}", broker.key.name),
            );
        }
        Notice::Ended {
            broker,
            why,
            retry_in,
        } => {
            let pod = &broker.key;
            warn!(%pod, why, ?retry_in, "broker: it ended");
            let note = format!("{} ended: {why}. Another follows in {retry_in:#}", pod.name);
            events.warning(object, Reason::BrokerFailed.as_str(), note);
        }
        Notice::Refused {
            broker,
            message,
            retry_in,
        } => {
            let name = &broker.key.name;
            let note = format!("cannot create {name}: {message}. Next try in {retry_in:#}");
            events.warning(object, Reason::BrokerRefused.as_str(), note);
        }
        Notice::SpecInvalid {
            configuration,
            message,
        } => {
            warn!(%configuration, "broker: the spec is not valid: {message}");
            events.warning(object, Reason::BrokerSpecInvalid.as_str(), message.as_str());
        }
    }
}

#[cfg(test)]
mod tests;
