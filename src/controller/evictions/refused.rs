//! Deletes Pods that a kubelet has refused for a resource of ours, on wish: they never run again, their owner has made others,
//! and nobody else removes them (`--delete-refused-pods`).
//!
//! They are deleted by an eviction, which of a Pod that has ended is a deletion that no disruption budget holds up.
use super::{holders::asked, request};
use crate::{
    api::{names, reason::Reason},
    cluster::{
        is_conflict, is_not_found,
        parts::PodPart,
        reason,
        watch::{Read, apis},
    },
    controller::{clock::elapsed, shared::Shared},
    model::resource_name::ResourcePrefixes,
    store::key_of,
};
use k8s_openapi::{
    api::core::v1::ObjectReference, apimachinery::pkg::apis::meta::v1::OwnerReference,
    jiff::Timestamp,
};
use kube::{Api, api::ListParams};
use std::{sync::Arc, time::Duration};
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

/// How long a refused Pod stays, for those who want to look at it.
const KEPT: Duration = Duration::from_mins(1);
/// The time between two looks: a list of the Pods that have failed.
const EVERY: Duration = Duration::from_secs(30);
/// The number of Pods in a page of that list.
const PAGE: u32 = 500;

/// Looks for such Pods again and again, while this replica leads.
pub(in crate::controller) async fn run(
    shared: Arc<Shared>,
    prefixes: ResourcePrefixes,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let mut looks = interval(EVERY);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let again = async {
        loop {
            looks.tick().await;
            if *shared.is_leader.borrow() {
                look(&shared, &prefixes).await;
            }
        }
    };
    shutdown.run_until_cancelled(again).await;

    Ok(())
}

async fn look(shared: &Shared, prefixes: &ResourcePrefixes) {
    for api in apis(&shared.client, &shared.settings.watch_namespaces) {
        if let Err(e) = look_at(shared, prefixes, &api).await {
            let says = reason(&e);
            warn!("cannot list failed Pods, tried again in {EVERY:?}: {says}");
        }
    }
}

async fn look_at(
    shared: &Shared,
    prefixes: &ResourcePrefixes,
    api: &Api<Read<PodPart>>,
) -> kube::Result<()> {
    let mut failed = ListParams::default()
        .fields("status.phase=Failed")
        .limit(PAGE);
    loop {
        let page = api.list(&failed).await?;
        let now = shared.clock.now();
        for pod in page.items.into_iter().filter_map(|read| read.0.ok()) {
            if let Some(owner) = is_due(&pod, prefixes, now) {
                delete(shared, &pod, owner).await;
            }
        }
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => failed = failed.continue_token(&token),
            None => return Ok(()),
        }
    }
}

async fn delete(shared: &Shared, pod: &PodPart, owner: &OwnerReference) {
    let key = key_of(&pod.metadata);
    match request::evict(&shared.client, pod).await {
        Ok(_) => {
            let why = &pod.status.message;
            info!(pod = %key, "refused by the kubelet, and deleted: {why}");
            let text = format!(
                "Pod {} is deleted, because the kubelet refused it: {why}",
                key.name
            );
            let about = reference(owner, &key.namespace);
            shared
                .events
                .normal(about, Reason::RefusedPodDeleted.as_str(), text);
        }
        Err(e) if is_not_found(&e) || is_conflict(&e) => {}
        Err(e) => warn!(pod = %key, "cannot delete it, tried again in {EVERY:?}: {}", reason(&e)),
    }
}

/// Returns the owner of a Pod that is to be deleted. A Pod that nobody would make again stays, and so does a broker, which is
/// replaced as its Configuration has it.
fn is_due<'a>(
    pod: &'a PodPart,
    prefixes: &ResourcePrefixes,
    now: Timestamp,
) -> Option<&'a OwnerReference> {
    let PodPart {
        metadata, status, ..
    } = pod;
    let is_broker =
        (metadata.labels.iter()).any(|all| all.contains_key(names::CONFIGURATION_LABEL));
    let since = status.start_time.as_ref()?;
    let is_old = elapsed(since.0, now) >= KEPT;
    if is_broker || !is_old || metadata.deletion_timestamp.is_some() || !is_ours(pod, prefixes) {
        return None;
    }
    let mut owners = metadata.owner_references.iter().flatten();
    owners.find(|owner| owner.controller == Some(true))
}

/// Returns whether a kubelet has refused a Pod for a resource of ours. Its message names the resource, but for what the device
/// plugin itself says: then it is ours if the Pod asks for no other plugin's. A Pod that a kubelet refuses after a reboot has
/// containers from before, which have ended.
fn is_ours(pod: &PodPart, prefixes: &ResourcePrefixes) -> bool {
    let status = &pod.status;
    let is_refused = status.phase == "Failed" && status.reason == "UnexpectedAdmissionError";
    let states = [&status.init_container_statuses, &status.container_statuses];
    let mut states = states
        .into_iter()
        .flatten()
        .filter_map(|of| of.state.as_ref());
    if !is_refused || states.any(|state| state.running.is_some()) {
        return false;
    }
    let asked = asked(pod);
    let (ours, others): (Vec<_>, Vec<_>) = asked.keys().partition(|name| prefixes.owns(name));
    let is_named = |name: &&_| status.message.contains(&format!("{name}"));
    !ours.is_empty() && (others.is_empty() || ours.iter().any(is_named))
}

fn reference(owner: &OwnerReference, namespace: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some(owner.api_version.clone()),
        kind: Some(owner.kind.clone()),
        name: Some(owner.name.clone()),
        namespace: Some(namespace.to_owned()),
        uid: Some(owner.uid.clone()),
        ..ObjectReference::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::fixtures::Fake;
    use k8s_openapi::jiff::{SignedDuration, Timestamp};
    use serde_json::{Value, json};

    const AT: Timestamp = Timestamp::constant(1_700_000_000, 0);

    fn refused() -> Value {
        json!({
            "metadata": {"name": "a", "namespace": "n", "uid": "1", "ownerReferences": [
                {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "2", "controller": true},
            ]},
            "spec": {"containers": [{"resources": {"limits": {"akri.sh/cam": "1"}}}]},
            "status": {
                "phase": "Failed", "reason": "UnexpectedAdmissionError", "startTime": AT,
                "message": "Pod was rejected: Allocate failed due to no healthy devices present; cannot allocate unhealthy devices akri.sh/cam, which is unexpected",
            },
        })
    }

    fn due(pod: Value, after: i64) -> Option<String> {
        let pod: PodPart = serde_json::from_value(pod).unwrap();
        let prefixes = ResourcePrefixes::new("akri.sh".parse().unwrap(), []);
        let now = AT + SignedDuration::from_secs(after);
        is_due(&pod, &prefixes, now).map(|owner| owner.name.clone())
    }

    #[test]
    fn a_refused_pod_is_deleted_after_a_minute_if_its_owner_makes_another() {
        assert_eq!(due(refused(), 59), None);
        assert_eq!(due(refused(), 60), Some("rs".to_owned()));
    }

    #[tokio::test]
    async fn a_refused_pod_is_found_behind_any_number_of_others_that_have_failed() {
        let page = |token: &str, pod: Value| {
            let metadata = json!({"continue": token});
            (
                200,
                json!({"kind": "PodList", "apiVersion": "v1", "metadata": metadata, "items": [pod]}),
            )
        };
        let mut other = refused();
        other["status"]["reason"] = json!("Evicted");
        let fake = Fake::new(move |asked| match asked {
            post if post.starts_with("POST") => {
                (201, json!({"kind": "Status", "status": "Success"}))
            }
            list if list.contains("continue=next") => page("", refused()),
            _ => page("next", other.clone()),
        });
        let prefixes = ResourcePrefixes::new("akri.sh".parse().unwrap(), []);
        look(&fake.shared, &prefixes).await;
        let asked = fake.asked();
        assert_eq!(asked.len(), 3, "{asked:?}");
        assert_eq!(asked[2], "POST /api/v1/namespaces/n/pods/a/eviction");
    }

    #[test]
    fn other_pods_stay() {
        let stays = |pointer: &str, value: Value| {
            let mut pod = refused();
            *pod.pointer_mut(pointer).unwrap() = value.clone();
            assert_eq!(due(pod, 3600), None, "{pointer} {value}");
        };
        stays("/metadata/ownerReferences", json!([]));
        stays("/metadata/ownerReferences/0/controller", json!(false));
        stays(
            "/metadata",
            json!({"name": "a", "ownerReferences": refused()["metadata"]["ownerReferences"], "labels": {names::CONFIGURATION_LABEL: "c"}}),
        );
        stays("/status/phase", json!("Running"));
        stays("/status/reason", json!("Evicted"));
        stays(
            "/spec/containers/0/resources/limits",
            json!({"nvidia.com/gpu": "1"}),
        );
        stays("/spec/containers/0/resources/limits", json!({}));
        let mut runs = refused();
        let state = json!({"running": {"startedAt": AT}});
        runs["status"]["containerStatuses"] = json!([{"name": "main", "state": state}]);
        assert_eq!(due(runs, 3600), None);
    }

    #[test]
    fn a_pod_that_ran_before_its_node_was_rebooted_is_deleted() {
        let mut ran = refused();
        let state = json!({"terminated": {"exitCode": 255, "reason": "Unknown"}});
        ran["status"]["containerStatuses"] = json!([{"name": "main", "state": state}]);
        assert_eq!(due(ran, 60), Some("rs".to_owned()));
    }

    #[test]
    fn of_a_pod_that_asks_another_plugin_too_the_message_says_which_refused_it() {
        let mut pod = refused();
        pod["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = json!("1");
        assert_eq!(due(pod.clone(), 60), Some("rs".to_owned()));
        pod["status"]["message"] = json!(
            "Pod was rejected: Allocate failed due to no healthy devices present; cannot allocate unhealthy devices nvidia.com/gpu, which is unexpected"
        );
        assert_eq!(due(pod, 60), None);
    }
}
