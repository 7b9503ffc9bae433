//! Decides why a Pod was refused, and what its containers wait for, from the words of the kubelet. Pure.
use super::super::finding::{Cause, Finding, sentence};
use crate::inspect::{
    events::last,
    pods::{containers, node_of},
    snapshot::Snapshot,
    words::plural,
};
use k8s_openapi::{
    api::core::v1::{ContainerStatus, Event, Pod},
    apimachinery::pkg::apis::meta::v1::Time,
};
use petiole_model::model::{names::ObjectKey, waiting::WaitsFor};
use std::ops::RangeInclusive;

/// The kubelet's reason for a Pod that a device plugin refused.
const REFUSED: &str = "UnexpectedAdmissionError";
/// The kubelet's reason for a container that a device plugin refused to start.
const START_REFUSED: &str = "PreStartHookError";
/// The kubelet's words about a container that a device plugin refused to start, where the reason is a general one.
const NOT_STARTED: &str = "device plugin PreStartContainer rpc failed";
/// The kubelet's words before those of a device plugin that refused a Pod.
const BY_PLUGIN: &str = "rpc error: code = ";
/// The end of the kubelet's words about a device plugin that is gone for a moment.
const STOPPED: &str = "has been stopped";
/// The kubelet's reason for a Pod whose claims a DRA driver did not prepare.
const NOT_PREPARED: &str = "FailedPrepareDynamicResources";
/// How many seconds after a Pod's creation the agent began that replaced the one that the kubelet missed.
const REPLACED: RangeInclusive<i64> = -10..=60;

pub(super) fn failed(snapshot: &Snapshot, key: &ObjectKey, pod: &Pod) -> Finding {
    let status = pod.status.clone().unwrap_or_default();
    let message = status.message.unwrap_or_default();
    let ObjectKey { namespace, name } = key;
    if status.reason.as_deref() == Some(REFUSED) {
        let has_owner = pod
            .metadata
            .owner_references
            .iter()
            .flatten()
            .next()
            .is_some();
        let successor = match (has_owner, message.contains(BY_PLUGIN)) {
            (true, true) => {
                "Its owner creates another Pod; this one stays in the list until it is deleted."
            }
            (true, false) => {
                "Its owner creates another Pod, which waits until a slot is free; this one stays in the list until it is deleted."
            }
            (false, _) => "It is not started again: delete it, and create it once more.",
        };
        let (cause, why) = refusal(snapshot, pod, &message);
        let text = format!(
            "The kubelet refused it, {why}: {} {successor}",
            sentence(&message)
        );
        let next = format!("kubectl -n {namespace} delete pod {name}");
        return Finding::new(cause, text).then(next);
    }
    let ended = containers(pod)
        .find_map(|container| exit(container.state.as_ref()?.terminated.as_ref()?.exit_code));
    let why = ended
        .or(status.reason)
        .unwrap_or_else(|| "it failed".to_owned());
    let text = format!("It has ended: {why}. {}", message.trim());
    let next = format!("kubectl -n {namespace} logs {name} --all-containers");
    Finding::new(Cause::Crash, text.trim_end()).then(next)
}

/// Returns why the kubelet refused a Pod. While the agent of its node is replaced, the kubelet has no healthy device.
fn refusal(snapshot: &Snapshot, pod: &Pod, message: &str) -> (Cause, String) {
    let node = node_of(pod).unwrap_or_default();
    if !message.contains("no healthy devices") && !message.contains(STOPPED) {
        let why = if message.contains(BY_PLUGIN) {
            "because the agent of its node did"
        } else {
            "because the device was taken or lost after the Pod was scheduled"
        };
        return (Cause::AdmissionRefused, why.to_owned());
    }
    let agent = snapshot.agent_on(node);
    let began = agent.and_then(|(_, agent)| {
        let states = containers(agent).filter_map(|container| container.state.as_ref());
        let began = states.filter_map(|state| state.running.as_ref()?.started_at.as_ref());
        began.map(|Time(at)| *at).max()
    });
    let created = pod.metadata.creation_timestamp.as_ref();
    let after = began
        .zip(created)
        .map(|(began, Time(at))| began.duration_since(*at).as_secs());
    if after.is_some_and(|after| REPLACED.contains(&after)) {
        (
            Cause::AgentReplaced,
            format!("because the agent of node {node} was being replaced just then"),
        )
    } else {
        (
        Cause::AdmissionRefused,
        "because no device was healthy on its node then: they were lost, or the agent was being replaced".to_owned(),
    )
    }
}

/// Returns what the kubelet says of claims of a Pod that it cannot prepare, while its containers are being created. It tries again by
/// itself.
pub(super) fn not_prepared(snapshot: &Snapshot, key: &ObjectKey, pod: &Pod) -> Option<Finding> {
    let mut waiting =
        containers(pod).filter_map(|container| container.state.as_ref()?.waiting.as_ref());
    waiting.find(|waiting| {
        let reason = waiting.reason.as_deref().unwrap_or_default();
        matches!(WaitsFor::from_reason(reason), WaitsFor::Start)
    })?;
    // One of its name that was there before has other claims.
    let uid = pod.metadata.uid.as_deref();
    let is_it = |event: &Event| {
        let about = &event.involved_object;
        about.name.as_deref() == Some(&key.name)
            && about.uid.as_deref().is_none_or(|of| Some(of) == uid)
    };
    let last = last(snapshot, &key.namespace, &[NOT_PREPARED], is_it)?;
    let said = last.message.as_deref().unwrap_or_default();
    let text = format!(
        "The kubelet cannot prepare its claims, and tries again: {}",
        sentence(said)
    );
    let next = format!("kubectl -n {} describe pod {}", key.namespace, key.name);
    Some(Finding::new(Cause::StartRefused, text).then(next))
}

fn exit(code: i32) -> Option<String> {
    (code != 0).then(|| format!("a container ended with exit code {code}"))
}

fn crash(key: &ObjectKey, container: &ContainerStatus, exit: &str) -> Finding {
    let text = format!(
        "Container {} was started, and its program ends ({exit}, {}). Its log says why.",
        container.name,
        plural(
            usize::try_from(container.restart_count).unwrap_or_default(),
            "restart"
        )
    );
    let previous = match container.restart_count {
        0 => "",
        _ => " --previous",
    };
    let next = format!(
        "kubectl -n {} logs {} -c {}{previous}",
        key.namespace, key.name, container.name
    );
    Finding::new(Cause::Crash, text).then(next)
}

/// Returns what a container of a Pod with a node waits for.
pub(super) fn waiting(key: &ObjectKey, container: &ContainerStatus) -> Option<Finding> {
    let state = container.state.as_ref()?;
    if let Some(terminated) = &state.terminated {
        return exit(terminated.exit_code).map(|exit| crash(key, container, &exit));
    }
    let waiting = state.waiting.as_ref()?;
    let reason = waiting.reason.as_deref().unwrap_or_default();
    let whole = waiting.message.as_deref().unwrap_or_default();
    let message = match whole {
        "" => String::new(),
        whole => sentence(whole),
    };
    let ObjectKey { namespace, name } = key;
    let container_name = &container.name;
    let is_refused = reason == START_REFUSED || whole.contains(NOT_STARTED);
    let (cause, text, next) = match WaitsFor::from_reason(reason) {
        WaitsFor::Image => (
            Cause::Image,
            format!(
                "Container {container_name} has no image ({reason}): {message} Check that the name of the image is right and that the node may pull it. The device is not the reason."
            ),
            format!("describe pod {name}"),
        ),
        WaitsFor::Restart => {
            let last = container.last_state.as_ref();
            let last = last.and_then(|state| state.terminated.as_ref());
            let exit = last.and_then(|last| exit(last.exit_code));
            let exit = exit.unwrap_or_else(|| "it ended".to_owned());
            return Some(crash(key, container, &exit));
        }
        WaitsFor::Start | WaitsFor::Other if is_refused && whole.contains(STOPPED) => (
            Cause::AgentReplaced,
            format!(
                "Container {container_name} waits for the agent of its node, which was being replaced: the kubelet tries again within half a minute."
            ),
            format!("get pod {name} -w"),
        ),
        WaitsFor::Start | WaitsFor::Other if is_refused => (
            Cause::StartRefused,
            format!("Container {container_name} is not started again: {message}"),
            format!("delete pod {name}"),
        ),
        WaitsFor::Start => (
            Cause::OtherReason,
            format!(
                "Container {container_name} is being created. If that takes long, its Events say why; the device is not the reason."
            ),
            format!("describe pod {name}"),
        ),
        WaitsFor::Other => (
            Cause::OtherReason,
            format!("Container {container_name} waits ({reason}): {message}"),
            format!("describe pod {name}"),
        ),
    };
    let next = format!("kubectl -n {namespace} {next}");
    Some(Finding::new(cause, text.trim_end()).then(next))
}
