//! Brokers: a Pod for each Instance on each node that sees its device, or a Job for each Instance.
mod action;
mod failures;
pub(crate) mod memory;
mod moves;
mod outcome;
mod placement;
pub(crate) mod plan;
pub(crate) mod report;
mod specs;

use super::{Shared, Turns, agenda::Pass, pace::SteadyClock, pod_state::one_line, world::World};
use crate::{
    api::reason::Reason,
    cluster::{
        SIDE_BY_SIDE,
        events::about,
        parts::{JobPart, PodPart},
    },
    model::{instance_name::InstanceKey, names::ObjectKey},
    publish,
};
use futures::StreamExt as _;
use hyper::{Request, header::CONTENT_TYPE};
use k8s_openapi::jiff::Timestamp;
use kube::{
    Api, Client,
    api::{
        ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, Preconditions,
        PropagationPolicy,
    },
};
use memory::{Memory, Notice, Outcome};
use outcome::first_error;
use plan::{Action, Broker, Input, Plan, plan};
use report::Reports;
use serde_json::{Value, json};
use std::{collections::BTreeSet, fmt::Display, sync::Arc};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

/// Runs the task. The status of Configurations reads from `reports` what became of their brokers.
pub(super) async fn run(
    shared: Arc<Shared>,
    reports: watch::Sender<Option<Arc<Reports>>>,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let (mut state, mut turns) = (State::new(), Turns::new(&shared));
    let mut all = Reports::new();
    while let Some(turn) = turns.next(&shutdown).await? {
        let (pass, now) = pass(&shared, &mut state, &turn.world, &shutdown).await;
        turns.done(&turn, pass);
        // The reports of the other parts stay as they are.
        all.retain(|key, _| !turn.world.includes(&key.name));
        all.extend(now);
        publish::if_changed(&reports, Some(Arc::new(all.clone())));
    }
    Ok(())
}

struct State {
    memory: Memory,
    clock: SteadyClock,
}

/// An action, and the part of the world that it belongs to.
struct Step {
    action: Action,
    part: String,
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
) -> (Pass, Reports) {
    let now = clock.now();
    let mut notices = memory.observe(world, now);
    let first = planned(shared, memory, world, now);
    for (configuration, (digest, error)) in &first.broken {
        notices.extend(
            memory
                .specs
                .refuse(configuration, digest, &error.to_string(), now),
        );
    }
    let steps = first.actions.into_iter().zip(first.parts);
    let steps = steps.map(|(action, part)| Step { action, part }).collect();
    let results = carry_out(shared, steps, shutdown).await;
    let mut failed = BTreeSet::new();
    for (Step { action, part }, outcome) in results {
        log(&action, &outcome);
        let settled = memory.settle(&action, &outcome, clock.now());
        failed.extend((!settled.is_done).then_some(part));
        notices.extend(settled.notice);
    }
    for notice in &notices {
        announce(shared, world, notice);
    }
    // The second plan says what to wait for, and what to report. It may also have actions that became possible just now.
    let left = planned(shared, memory, world, clock.now());
    failed.extend(left.parts);
    let pass = Pass {
        failed,
        waits: left.waits,
    };
    (pass, left.reports)
}

fn planned(shared: &Shared, memory: &Memory, world: &World, now: Timestamp) -> Plan {
    plan(&Input {
        world,
        memory,
        resource_prefix: &shared.settings.resource_prefix,
        now,
    })
}

/// Performs the actions. It begins none after `shutdown`, or while another replica leads; it completes those that it has
/// begun.
async fn carry_out(
    shared: &Shared,
    steps: Vec<Step>,
    shutdown: &CancellationToken,
) -> Vec<(Step, Outcome)> {
    let may_begin = || !shutdown.is_cancelled() && *shared.is_leader.borrow();
    let begun = futures::stream::iter(steps).map(|step| async {
        match may_begin() {
            false => None,
            true => {
                let outcome = perform(shared, &step.action).await;
                Some((step, outcome))
            }
        }
    });
    let begun = begun.buffer_unordered(SIDE_BY_SIDE);
    begun.filter_map(std::future::ready).collect().await
}

async fn perform(shared: &Shared, action: &Action) -> Outcome {
    match action {
        Action::CreatePod { broker, pod, .. } => {
            create(&pods(shared, &broker.key.namespace), &shared.client, pod).await
        }
        Action::TryPod { broker, pod } => {
            let api = pods(shared, &broker.key.namespace);
            post(
                &api,
                &shared.client,
                "dryRun=All&fieldValidation=Strict",
                pod,
            )
            .await
        }
        Action::DeletePod { key, uid, .. } | Action::ReplacePod { key, uid } => {
            let preconditions = only(uid, None);
            delete(&pods(shared, &key.namespace), key, preconditions, None).await
        }
        Action::MovePod {
            broker: Broker { key, .. },
            uid,
            version,
            ..
        } => {
            let preconditions = only(uid, Some(version));
            delete(&pods(shared, &key.namespace), key, preconditions, None).await
        }
        Action::CreateJob {
            broker,
            owner,
            job,
            generation,
        } => {
            let outcome = create(&jobs(shared, &broker.key.namespace), &shared.client, job).await;
            // The generation is written after the Job, so that a device always gets its Job, also if this process ends
            // between the two writes. If the second write fails it is repeated as long as the Job exists. A Job that is
            // garbage-collected within that time runs twice.
            if matches!(outcome, Outcome::Done(_) | Outcome::Conflict) {
                remember(shared, &broker.instance, owner, *generation).await;
            }
            outcome
        }
        Action::DeleteJob { key, uid, .. } => {
            let propagation = Some(PropagationPolicy::Background);
            let preconditions = only(uid, None);
            delete(
                &jobs(shared, &key.namespace),
                key,
                preconditions,
                propagation,
            )
            .await
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

/// Creates an object, or has the API server name the fields that it does not know: without being asked it drops them.
async fn create(api: &Api<DynamicObject>, client: &Client, object: &Value) -> Outcome {
    post(api, client, "fieldValidation=Strict", object).await
}

async fn post(api: &Api<DynamicObject>, client: &Client, query: &str, object: &Value) -> Outcome {
    let uri = format!("{}?{query}", api.resource_url());
    let sent = Request::post(uri).header(CONTENT_TYPE, "application/json");
    let created = async {
        let sent = sent.body(object.to_string().into_bytes());
        let sent = sent.map_err(kube::Error::HttpError)?;
        let created: DynamicObject = client.request(sent).await?;
        Ok(created.metadata.uid)
    };
    request(created).await
}

fn only(uid: &str, version: Option<&str>) -> Preconditions {
    Preconditions {
        uid: Some(uid.to_owned()),
        resource_version: version.map(str::to_owned),
    }
}

async fn delete(
    api: &Api<DynamicObject>,
    key: &ObjectKey,
    preconditions: Preconditions,
    propagation_policy: Option<PropagationPolicy>,
) -> Outcome {
    let parameters = DeleteParams {
        preconditions: Some(preconditions),
        propagation_policy,
        ..DeleteParams::default()
    };
    let deleted = api.delete(&key.name, &parameters);
    request(async { deleted.await.map(|_| None) }).await
}

/// Writes the generation of an Instance's Job. The uid makes the write fail if the Instance was replaced.
async fn remember(shared: &Shared, instance: &InstanceKey, uid: &str, generation: i64) -> Outcome {
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
        Err(kube::Error::Api(status)) => Outcome::from_status(status.code, &first_error(&status)),
        Err(e) => Outcome::Failed(e.to_string()),
    }
}

fn log(action: &Action, outcome: &Outcome) {
    let (what, object, why): (&str, &dyn Display, &str) = match action {
        Action::CreatePod { broker, .. } => ("broker Pod created", &broker.key, "wanted"),
        Action::DeletePod { key, why, .. } => ("broker Pod deleted", key, *why),
        Action::ReplacePod { key, .. } => (
            "broker Pod deleted",
            key,
            "the device is reached differently",
        ),
        Action::MovePod { broker, .. } => (
            "broker Pod deleted",
            &broker.key,
            "another node may take it",
        ),
        Action::TryPod { broker, .. } => ("broker Pod of a new spec tried", &broker.key, "wanted"),
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
        Notice::Created(broker)
        | Notice::Moved { broker, .. }
        | Notice::Ended { broker, .. }
        | Notice::Refused { broker, .. } => {
            let instance = world.instances.get(&broker.instance);
            instance.map(|instance| about(&**instance))
        }
        // The status has it, and its Event.
        Notice::SpecInvalid {
            configuration,
            message,
        } => {
            warn!(%configuration, "the broker spec is refused: {}", one_line(message));
            None
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
        Notice::Moved { broker, node, why } => {
            let name = &broker.key.name;
            let note = format!("{name} is moved: it cannot be scheduled on {node}: {why}");
            events.normal(object, Reason::BrokerMoved.as_str(), note);
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
            let message = one_line(message);
            let note = format!("cannot create {name}: {message}. Next try in {retry_in:#}");
            events.warning(object, Reason::BrokerRefused.as_str(), note);
        }
        Notice::SpecInvalid { .. } => {}
    }
}

#[cfg(test)]
mod tests;
