//! Finds what a driver that is gone leaves behind: devices that the scheduler would still give out, and Pods that cannot start or end
//! without it. Objects are read as they are: the types of Kubernetes would make the image larger.
use super::{
    capacity::{Action, Settings},
    failure::Failure,
    objects::configurations,
};
use crate::{
    api::configuration::{Allocation, Configuration},
    cluster::{self, watch::Read},
    model::{
        dra::{self, CLASS_LABEL, CLASS_MANAGER, CLASS_PREFIX},
        typed_names::ConfigurationKey,
    },
};
use k8s_openapi::api::{
    core::v1::Pod,
    resource::v1::{DeviceClass, ResourceClaim, ResourceSlice},
};
use kube::{
    Api, Client, Resource, ResourceExt as _,
    api::{ApiResource, DeleteParams, DynamicObject, ListParams},
};
use std::collections::BTreeSet;

const AGENTS: &str = "app.kubernetes.io/part-of=petiole,app.kubernetes.io/component=agent";

fn api<K: Resource<DynamicType = ()>>(client: &Client) -> Api<DynamicObject> {
    Api::all_with(client.clone(), &ApiResource::erase::<K>(&()))
}

/// Lists all objects of a kind. There are none where the cluster does not know it, or where the chart gave no right to them.
async fn all<K: Resource<DynamicType = ()>>(
    client: &Client,
) -> Result<Vec<DynamicObject>, Failure> {
    match cluster::list_all(&api::<K>(client)).await {
        Err(e) if cluster::is_not_found(&e) || cluster::code(&e) == Some(403) => Ok(vec![]),
        listed => listed.map_err(|e| Failure::new(e, "list", &K::plural(&()))),
    }
}

/// A slice or a class that no Configuration has any more.
struct Stale {
    kind: ApiResource,
    name: String,
}

impl Stale {
    fn new<K: Resource<DynamicType = ()>>(object: &DynamicObject) -> Self {
        Self {
            kind: ApiResource::erase::<K>(&()),
            name: object.name_any(),
        }
    }

    async fn delete(&self, client: &Client) -> Result<(), Failure> {
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &self.kind);
        match api.delete(&self.name, &DeleteParams::default()).await {
            Err(e) if !cluster::is_not_found(&e) => {
                Err(Failure::new(e, "delete", &self.kind.plural))
            }
            Ok(_) | Err(_) => Ok(()),
        }
    }
}

/// A message for the user.
#[derive(Debug)]
pub enum Offer<'a> {
    /// The kind and the name of what the scheduler read, and what became of it.
    Stale(&'a str, &'a str, Action),
    /// What to run, because a Pod with a claim is on a node without an agent.
    Stuck(&'a str),
}

/// Removes what the scheduler was offered and is not any more, and says which Pods are stuck.
pub async fn tidy_offers(
    settings: &Settings,
    client: &Client,
    mut report: impl FnMut(Offer<'_>) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let configurations = configurations(client, &settings.namespaces).await?;
    let given_out = given_out(&configurations);
    // Pools of other namespaces may be another installation's.
    let stale = if settings.namespaces.is_empty() {
        stale(client, &given_out).await?
    } else {
        vec![]
    };
    for offer in &stale {
        let action = if settings.is_dry_run {
            Action::WouldBeRemoved
        } else {
            offer.delete(client).await?;
            Action::Removed
        };
        report(Offer::Stale(&offer.kind.plural, &offer.name, action))?;
    }
    for command in stuck(client).await? {
        report(Offer::Stuck(&command))?;
    }
    Ok(())
}

/// Returns the Configurations whose devices the scheduler gives out, with those of which nobody can tell.
fn given_out(configurations: &[Read<Configuration>]) -> BTreeSet<ConfigurationKey> {
    let may_be_given_out = |read: &&Read<Configuration>| {
        let configuration = read.0.as_ref().ok();
        configuration.is_none_or(|read| read.spec.allocation == Allocation::Dra)
    };
    let given_out = configurations.iter().filter(may_be_given_out);
    given_out
        .map(|read| cluster::configuration_key(read.meta()))
        .collect()
}

/// Returns the slices and the classes of Configurations whose devices the scheduler does not give out.
async fn stale(
    client: &Client,
    given_out: &BTreeSet<ConfigurationKey>,
) -> Result<Vec<Stale>, Failure> {
    let slices = all::<ResourceSlice>(client).await?;
    let slices = (slices.iter()).filter(|slice| is_stale_slice(slice, given_out));
    let classes = all::<DeviceClass>(client).await?;
    let classes = (classes.iter()).filter(|class| is_stale_class(class, given_out));
    let slices = slices.map(Stale::new::<ResourceSlice>);
    Ok(slices
        .chain(classes.map(Stale::new::<DeviceClass>))
        .collect())
}

fn is_stale_class(class: &DynamicObject, given_out: &BTreeSet<ConfigurationKey>) -> bool {
    let by = class.labels().get(CLASS_LABEL);
    let name = class.name_any();
    by.is_some_and(|by| by == CLASS_MANAGER)
        && name.starts_with(CLASS_PREFIX)
        && !given_out.iter().any(|of| dra::class_name(of) == name)
}

fn is_stale_slice(slice: &DynamicObject, given_out: &BTreeSet<ConfigurationKey>) -> bool {
    let spec = &slice.data["spec"];
    let of = spec["pool"]["name"]
        .as_str()
        .and_then(dra::configuration_of);
    spec["driver"] == dra::DRIVER && of.is_none_or(|of| !given_out.contains(&of))
}

/// Returns the namespaces and the names of the Pods that have devices by claims.
pub(super) async fn pods(client: &Client) -> Result<BTreeSet<(String, String)>, Failure> {
    let mut users = BTreeSet::new();
    for claim in all::<ResourceClaim>(client).await? {
        let status = &claim.data["status"];
        let results = status["allocation"]["devices"]["results"].as_array();
        let mut results = results.into_iter().flatten();
        if results.any(|result| result["driver"] == dra::DRIVER) {
            let pods = status["reservedFor"].as_array().into_iter().flatten();
            let names = pods.filter_map(|pod| pod["name"].as_str().map(str::to_owned));
            users.extend(names.map(|name| (claim.namespace().unwrap_or_default(), name)));
        }
    }
    Ok(users)
}

/// Returns what to run for each Pod with a claim on a node without an agent.
async fn stuck(client: &Client) -> Result<Vec<String>, Failure> {
    let users = pods(client).await?;
    if users.is_empty() {
        return Ok(vec![]);
    }
    let agents = ListParams::default().labels(AGENTS);
    let agents = match api::<Pod>(client).list(&agents).await {
        // The account of the chart, which waits for those Pods, has no right to others.
        Err(e) if cluster::code(&e) == Some(403) => return Ok(vec![]),
        agents => agents.map_err(|e| Failure::new(e, "list", "pods"))?,
    };
    let nodes: BTreeSet<&str> = agents.iter().filter_map(node_of).collect();
    let mut stuck = vec![];
    for (namespace, name) in users {
        let api: Api<DynamicObject> =
            Api::namespaced_with(client.clone(), &namespace, &ApiResource::erase::<Pod>(&()));
        let pod = api.get_opt(&name).await;
        let pod = pod.map_err(|e| Failure::new(e, "get", "pods"))?;
        let pod = pod.filter(|pod| node_of(pod).is_some_and(|node| !nodes.contains(node)));
        stuck.extend(pod.as_ref().and_then(command));
    }
    Ok(stuck)
}

fn node_of(pod: &DynamicObject) -> Option<&str> {
    pod.data["spec"]["nodeName"].as_str()
}

/// Returns the command that ends a Pod which cannot go on without an agent; `None` for one that runs. If it is being deleted and its
/// containers have ended, only its claim waits for the agent.
fn command(pod: &DynamicObject) -> Option<String> {
    let status = &pod.data["status"];
    let phase = status["phase"].as_str();
    let kinds = ["initContainerStatuses", "containerStatuses"].into_iter();
    let mut containers = kinds.flat_map(|kind| status[kind].as_array()).flatten();
    let runs = containers.any(|container| container["state"]["running"].is_object());
    let force = match (pod.metadata.deletion_timestamp.is_some(), phase) {
        _ if runs => return None,
        (true, _) => " --force --grace-period=0",
        (false, Some("Pending")) => "",
        (false, _) => return None,
    };
    let (namespace, name) = (pod.namespace().unwrap_or_default(), pod.name_any());
    Some(format!("kubectl -n {namespace} delete pod {name}{force}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_pod_that_cannot_start_is_deleted_and_one_that_cannot_end_by_force() {
        let pod = |deleted: Option<&str>, phase: &str| -> DynamicObject {
            serde_json::from_value(json!({
                "metadata": {"namespace": "lab", "name": "viewer", "deletionTimestamp": deleted},
                "status": {"phase": phase},
            }))
            .unwrap()
        };
        let deletion = "kubectl -n lab delete pod viewer";
        let since = Some("2026-01-01T00:00:00Z");
        assert_eq!(command(&pod(None, "Pending")).as_deref(), Some(deletion));
        assert_eq!(
            command(&pod(since, "Running")).unwrap(),
            format!("{deletion} --force --grace-period=0")
        );
        assert_eq!(command(&pod(None, "Running")), None);
        let mut ending = pod(since, "Running");
        ending.data["status"]["containerStatuses"] = json!([{"state": {"running": {}}}]);
        assert_eq!(command(&ending), None, "its containers have their time");
    }

    #[test]
    fn a_configuration_that_cannot_be_read_keeps_its_slices() {
        let read = |name: &str, spec: serde_json::Value| -> Read<Configuration> {
            let metadata = json!({"namespace": "lab", "name": name});
            let object = json!({
                "apiVersion": "akri.sh/v0", "kind": "Configuration", "metadata": metadata, "spec": spec,
            });
            serde_json::from_value(object).unwrap()
        };
        let handler = json!({"name": "debugEcho"});
        let all = [
            read(
                "dra",
                json!({"discoveryHandler": handler, "allocation": "DRA"}),
            ),
            read("plugin", json!({"discoveryHandler": handler})),
            read("unreadable", json!({"discoveryHandler": 1})),
        ];
        let names = given_out(&all).into_iter().map(|key| key.name.to_string());
        assert!(names.eq(["dra".to_owned(), "unreadable".to_owned()]));
    }

    #[test]
    fn a_slice_is_stale_without_its_configuration_and_never_if_it_is_another_drivers() {
        let slice = |driver: &str, pool: &str| -> DynamicObject {
            let spec = json!({"driver": driver, "pool": {"name": pool}});
            serde_json::from_value(json!({"metadata": {"name": "s"}, "spec": spec})).unwrap()
        };
        let known = BTreeSet::from([ConfigurationKey::new("lab", "cam")]);
        assert!(!is_stale_slice(&slice(dra::DRIVER, "lab/cam"), &known));
        assert!(is_stale_slice(&slice(dra::DRIVER, "lab/tv"), &known));
        assert!(!is_stale_slice(&slice("gpu.example.org", "lab/tv"), &known));
    }
}
