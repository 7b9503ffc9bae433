//! Reads what Pods ask for and how they are. Pure.
use k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod, PodCondition};
use petiole_model::model::{
    names::ObjectKey,
    requests::{self, Asking},
    resource_name::ResourceName,
};
use std::collections::BTreeMap;

/// Returns the extended resources that a Pod asks for.
pub(crate) fn extended_requests(pod: &Pod) -> BTreeMap<ResourceName, u64> {
    let init_containers = pod.spec.iter().flat_map(|spec| &spec.init_containers);
    requests::extended(
        pod.spec
            .iter()
            .flat_map(|spec| &spec.containers)
            .map(asking),
        init_containers.flatten().map(asking),
    )
}

/// Returns whether a Pod asks for an extended resource, or for a device by a claim.
pub(crate) fn asks_for_devices(pod: &Pod) -> bool {
    let mut claims = pod.spec.iter().flat_map(|spec| &spec.resource_claims);
    claims.any(|claims| !claims.is_empty()) || !extended_requests(pod).is_empty()
}

fn asking(container: &Container) -> Asking<'_> {
    Asking {
        limits: container.resources.as_ref().and_then(|r| r.limits.as_ref()),
        restart_policy: container.restart_policy.as_deref(),
    }
}

pub(crate) fn node_of(pod: &Pod) -> Option<&str> {
    let node = pod.spec.as_ref()?.node_name.as_deref();
    node.filter(|node| !node.is_empty())
}

pub fn phase(pod: &Pod) -> &str {
    let phase = pod.status.as_ref().and_then(|s| s.phase.as_deref());
    phase.unwrap_or("Unknown")
}

/// Returns how a Pod is in a word: why a container of it waits, or else its phase.
pub(crate) fn state_of(pod: &Pod) -> &str {
    let mut waiting = containers(pod).filter_map(|c| c.state.as_ref()?.waiting.as_ref());
    let reason = waiting.find_map(|waiting| waiting.reason.as_deref());
    reason.unwrap_or_else(|| phase(pod))
}

pub(crate) fn is_finished(pod: &Pod) -> bool {
    matches!(phase(pod), "Failed" | "Succeeded")
}

pub(crate) fn condition<'a>(pod: &'a Pod, type_: &str) -> Option<&'a PodCondition> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| condition.type_ == type_)
}

pub(crate) fn is_ready(pod: &Pod) -> bool {
    condition(pod, "Ready").is_some_and(|ready| ready.status == "True")
}

/// Returns the states of all containers, of init containers first.
pub fn containers(pod: &Pod) -> impl Iterator<Item = &ContainerStatus> {
    let status = pod.status.as_ref();
    let init = status.and_then(|s| s.init_container_statuses.as_ref());
    let main = status.and_then(|s| s.container_statuses.as_ref());
    init.into_iter().chain(main).flatten()
}

/// Returns the ids of a resource that the containers of a Pod were given, each with its health, as the kubelet says it.
pub(crate) fn given<'a>(
    pod: &'a Pod,
    resource: &'a ResourceName,
) -> impl Iterator<Item = (&'a str, Option<&'a str>)> {
    let all = containers(pod).flat_map(|c| c.allocated_resources_status.iter().flatten());
    let its = all.filter(move |status| status.name == resource.as_str());
    let ids = its.flat_map(|status| status.resources.iter().flatten());
    ids.map(|id| (id.resource_id.as_str(), id.health.as_deref()))
}

/// The command whose output has the node selector of the agents, and the Events of Pods that could not be created.
pub(crate) const DAEMON_SETS: &str =
    "kubectl describe daemonsets -A -l app.kubernetes.io/component=agent";

/// Returns the command that shows why a Pod is not ready. A Pod has no log before a container of it was started.
pub(crate) fn inspection(ObjectKey { namespace, name }: &ObjectKey, pod: &Pod) -> String {
    match phase(pod) {
        "Pending" => format!("kubectl -n {namespace} describe pod {name}"),
        _ => format!("kubectl -n {namespace} logs {name}"),
    }
}

pub fn label<'a>(pod: &'a Pod, key: &str) -> Option<&'a String> {
    pod.metadata.labels.as_ref()?.get(key)
}

/// Returns the value of a variable that the Pod's spec gives to a container.
pub(crate) fn environment<'a>(pod: &'a Pod, name: &str) -> Option<&'a str> {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let mut variables = containers.flat_map(|container| container.env.iter().flatten());
    let variable = variables.find(|variable| variable.name == name)?;
    variable.value.as_deref()
}

/// Returns the image of the first container.
pub(crate) fn image_of(pod: &Pod) -> &str {
    let container = pod.spec.as_ref().and_then(|spec| spec.containers.first());
    let image = container.and_then(|container| container.image.as_deref());
    image.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn asked(init: &Value) -> u64 {
        let limits = |n: u8| json!({"limits": {"akri.sh/cam": n.to_string()}});
        let init = init.as_array().unwrap().iter().map(|container| {
            let n = u8::try_from(container[1].as_u64().unwrap()).unwrap();
            json!({"name": "init", "restartPolicy": container[0], "resources": limits(n)})
        });
        let pod = json!({"spec": {
            "initContainers": init.collect::<Vec<_>>(),
            "containers": [{"name": "main", "resources": limits(2)}],
        }});
        let pod: Pod = serde_json::from_value(pod).unwrap();
        extended_requests(&pod)["akri.sh/cam"]
    }

    #[test]
    fn a_sidecar_adds_to_the_containers_and_to_the_init_containers_after_it() {
        for (init, expected) in [
            (json!([]), 2),
            (json!([[null, 1]]), 2),
            (json!([[null, 3], [null, 1]]), 3),
            (json!([["Always", 1]]), 3),
            (json!([["Always", 2], [null, 3]]), 5),
            (json!([[null, 3], ["Always", 2]]), 4),
        ] {
            assert_eq!(asked(&init), expected, "{init}");
        }
    }
}
