//! Converts the record of a Pod into the Pod that kubectl would show. Pure.
use super::{
    manifest::is_sidecar,
    record::{ContainerRecord, Ended, Phase, PodRecord, State},
};
use crate::device_manager::inventory::Inventory;
use k8s_openapi::{
    api::core::v1::{
        Container, ContainerState, ContainerStateRunning, ContainerStateTerminated,
        ContainerStateWaiting, ContainerStatus, Pod, PodStatus, ResourceHealth, ResourceStatus,
    },
    apimachinery::pkg::apis::meta::v1::Time,
};
use petiole_kubelet_api::device_plugin::{HEALTHY, UNHEALTHY};

/// The annotation with the plugins' answers for a container, as JSON: mounts, device nodes, CDI names and annotations.
/// This kubelet only records them.
const EDITS_ANNOTATION: &str = "edits.petiole.dev";

pub(crate) fn pod<C>(record: &PodRecord, inventory: &Inventory<C>) -> Pod {
    let mut pod = record.pod.pod.clone();
    pod.metadata.creation_timestamp = Some(Time(record.started));
    let annotations = pod.metadata.annotations.get_or_insert_default();
    for (name, container) in &record.containers {
        if let Some(edits) = &container.edits
            && let Ok(json) = serde_json::to_string(edits)
        {
            annotations.insert(format!("{name}.{EDITS_ANNOTATION}"), json);
        }
    }
    if record.is_terminating {
        pod.metadata.deletion_timestamp = Some(Time(record.started));
    }
    let spec = &record.pod.spec;
    let init = spec.init_containers.as_deref().unwrap_or_default();
    let init = init.iter().map(|init| container_status(record, init));
    let main = spec.containers.iter().map(|main| ContainerStatus {
        allocated_resources_status: resources(record, main, inventory),
        ..container_status(record, main)
    });
    pod.status = Some(PodStatus {
        phase: Some(phase(record.phase).to_owned()),
        reason: record.reason.clone(),
        message: record.message.clone(),
        start_time: Some(Time(record.started)),
        container_statuses: none_if_empty(main),
        init_container_statuses: none_if_empty(init),
        ..PodStatus::default()
    });
    pod
}

fn phase(phase: Phase) -> &'static str {
    match phase {
        Phase::Pending => "Pending",
        Phase::Running => "Running",
        Phase::Succeeded => "Succeeded",
        Phase::Failed => "Failed",
    }
}

fn container_status(record: &PodRecord, container: &Container) -> ContainerStatus {
    let unknown = ContainerRecord::default();
    let known = record.containers.get(&container.name).unwrap_or(&unknown);
    let is_running = matches!(known.state, State::Running { .. });
    let is_init = record.pod.spec.init_containers.iter().flatten();
    let is_plain_init = is_init
        .filter(|init| !is_sidecar(init))
        .any(|init| init.name == container.name);
    let ended_well = matches!(&known.state, State::Ended(ended) if ended.exit_code == 0);
    ContainerStatus {
        name: container.name.clone(),
        image: container.image.clone().unwrap_or_default(),
        ready: if is_plain_init {
            ended_well
        } else {
            is_running
        },
        started: Some(is_running),
        restart_count: known.restarts,
        state: Some(state(&known.state)),
        last_state: known.last.as_ref().map(|ended| ContainerState {
            terminated: Some(terminated(ended)),
            ..ContainerState::default()
        }),
        ..ContainerStatus::default()
    }
}

fn state(state: &State) -> ContainerState {
    let mut shown = ContainerState::default();
    match state {
        State::Waiting { reason, message } => {
            shown.waiting = Some(ContainerStateWaiting {
                reason: Some(reason.clone()),
                message: Some(message.clone()).filter(|message| !message.is_empty()),
            });
        }
        State::Running { started } => {
            shown.running = Some(ContainerStateRunning {
                started_at: Some(Time(*started)),
            });
        }
        State::Ended(ended) => shown.terminated = Some(terminated(ended)),
    }
    shown
}

fn terminated(ended: &Ended) -> ContainerStateTerminated {
    let reason = match (&ended.start_error, ended.exit_code) {
        (Some(_), _) => "StartError",
        (None, 0) => "Completed",
        (None, _) => "Error",
    };
    ContainerStateTerminated {
        exit_code: ended.exit_code,
        signal: ended.signal,
        reason: Some(reason.to_owned()),
        message: ended.start_error.clone(),
        started_at: Some(Time(ended.started)),
        finished_at: Some(Time(ended.finished)),
        ..ContainerStateTerminated::default()
    }
}

fn resources<C>(
    record: &PodRecord,
    container: &Container,
    inventory: &Inventory<C>,
) -> Option<Vec<ResourceStatus>> {
    let holder = record.pod.holder(container);
    let statuses = inventory.claims(&holder).into_iter().map(|(name, claim)| {
        let health = claim.device_ids().into_iter().map(|id| {
            let health = if inventory.is_reported_healthy(name, &id) {
                HEALTHY
            } else {
                UNHEALTHY
            };
            ResourceHealth {
                health: Some(health.to_owned()),
                resource_id: id,
            }
        });
        ResourceStatus {
            name: name.to_owned(),
            resources: Some(health.collect()),
        }
    });
    none_if_empty(statuses)
}

/// Collects the items; the API has no empty lists.
fn none_if_empty<T>(items: impl Iterator<Item = T>) -> Option<Vec<T>> {
    Some(items.collect::<Vec<_>>()).filter(|items| !items.is_empty())
}
