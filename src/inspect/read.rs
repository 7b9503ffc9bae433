//! Reads the objects of a cluster. What the caller may not read is noted, and the rest is used.
use super::{
    pods::{extended_requests, label},
    snapshot::{COMPONENT, Snapshot},
};
use crate::{
    api::{instance::Instance, names::INSTANCE_LABEL, node_devices::NodeDevices},
    cluster::{self, instance_key, key_of, watch::Read},
    model::{
        instance_name::InstanceKey,
        names::{Key, ObjectKey},
    },
};
use anyhow::bail;
use k8s_openapi::{
    NamespaceResourceScope,
    api::core::v1::{Event, Node, Pod},
};
use kube::{Api, Client, Resource, api::ListParams};
use serde::de::DeserializeOwned;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Debug,
};

/// Returns everything that explains the objects of a namespace. Devices and their users can be in any namespace.
pub async fn everything(client: &Client, namespace: &str) -> anyhow::Result<Snapshot> {
    let mut snapshot = match devices(client, None).await {
        Ok(snapshot) => snapshot,
        // The namespace itself can be readable where the others are not.
        Err(e) => {
            let mut snapshot = devices(client, Some(namespace)).await?;
            snapshot.unread.push(format!("{e:#}"));
            snapshot
        }
    };
    let nodes = cluster::list_all::<Node>(&Api::all(client.clone())).await;
    let nodes = noted(nodes, "nodes", &mut snapshot.unread);
    snapshot.hidden.nodes = nodes.is_none();
    snapshot.nodes = (nodes.into_iter().flatten())
        .map(|node| (node.metadata.name.clone().unwrap_or_default(), node))
        .collect();
    let node_devices = cluster::list_all::<NodeDevices>(&Api::all(client.clone())).await;
    let node_devices = noted(node_devices, "nodedevices.akri.sh", &mut snapshot.unread);
    snapshot.hidden.node_devices = node_devices.is_none();
    snapshot.node_devices = (node_devices.into_iter().flatten())
        .map(|devices| (devices.metadata.name.unwrap_or_default(), devices.spec))
        .collect();
    if !snapshot.pods.keys().any(|key| key.namespace == namespace) {
        let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
        let pods = cluster::list_all(&pods).await.unwrap_or_default();
        snapshot.pods.extend(by_key(pods));
    }
    let events: Api<Event> = Api::namespaced(client.clone(), namespace);
    let warnings = ListParams::default().fields("type=Warning");
    let events = events.list(&warnings).await.map(|list| list.items);
    snapshot.events = noted(events, "events", &mut snapshot.unread).unwrap_or_default();
    snapshot
        .events
        .sort_by_key(|event| event.metadata.creation_timestamp.clone());
    Ok(snapshot)
}

/// Returns the devices of a namespace, or of all, and who may use them.
pub async fn devices(client: &Client, namespace: Option<&str>) -> anyhow::Result<Snapshot> {
    let mut snapshot = Snapshot::default();
    snapshot.configurations = readable(client, namespace, &mut snapshot.unread).await?;
    snapshot.instances = readable(client, namespace, &mut snapshot.unread).await?;
    let pods = cluster::list_all::<Pod>(&Api::all(client.clone())).await;
    let pods = noted(pods, "pods of all namespaces", &mut snapshot.unread);
    snapshot.hidden.pods = pods.is_none();
    snapshot.pods = by_key(pods.into_iter().flatten().filter(is_of_interest));
    Ok(snapshot)
}

/// Returns the same, with the Instances that have these labels only.
pub async fn devices_with(
    client: &Client,
    namespace: Option<&str>,
    selector: Option<&str>,
) -> anyhow::Result<Snapshot> {
    let mut snapshot = devices(client, namespace).await?;
    if let Some(selector) = selector {
        let api: Api<Instance> = match namespace {
            Some(namespace) => Api::namespaced(client.clone(), namespace),
            None => Api::all(client.clone()),
        };
        let params = ListParams::default().labels(selector);
        let chosen = match api.list_metadata(&params).await {
            Ok(list) => list.items,
            Err(e) => bail!(
                "cannot list instances.akri.sh with -l {selector}: {}",
                cluster::reason(&e)
            ),
        };
        let chosen: BTreeSet<InstanceKey> = chosen
            .iter()
            .map(|object| instance_key(&object.metadata))
            .collect();
        snapshot.instances.retain(|key, _| chosen.contains(key));
    }
    Ok(snapshot)
}

/// Returns one Pod, which may ask for no device.
pub async fn pod(client: &Client, key: &ObjectKey) -> anyhow::Result<Option<Pod>> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), &key.namespace);
    match pods.get_opt(&key.name).await {
        Ok(pod) => Ok(pod),
        Err(e) => bail!("cannot read Pod {key}: {}", cluster::reason(&e)),
    }
}

fn is_of_interest(pod: &Pod) -> bool {
    !extended_requests(pod).is_empty()
        || label(pod, INSTANCE_LABEL).is_some()
        || label(pod, COMPONENT).is_some()
}

fn by_key(pods: impl IntoIterator<Item = Pod>) -> BTreeMap<ObjectKey, Pod> {
    let pods = pods.into_iter();
    pods.map(|pod| (key_of(&pod.metadata), pod)).collect()
}

/// Returns the objects of one of our kinds. Without the kind there is no Petiole.
async fn readable<Name, K>(
    client: &Client,
    namespace: Option<&str>,
    unread: &mut Vec<String>,
) -> anyhow::Result<BTreeMap<Key<Name>, K>>
where
    Name: From<String> + Ord,
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned,
{
    let api: Api<Read<K>> = match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    };
    let kind = K::plural(&());
    let objects = match cluster::list_all(&api).await {
        Ok(objects) => objects,
        Err(e) if cluster::is_not_found(&e) => bail!(
            "this cluster does not know {kind}.akri.sh: is Petiole installed on it? `petiole doctor` says more"
        ),
        Err(e) => bail!("cannot list {kind}.akri.sh: {}", cluster::reason(&e)),
    };
    let mut found = BTreeMap::new();
    for object in objects {
        let key = key_of(object.meta());
        match object.0 {
            Ok(object) => drop(found.insert(key.typed(), object)),
            Err(e) => unread.push(format!(
                "{} {key} is not readable: {}",
                K::kind(&()),
                e.error
            )),
        }
    }
    Ok(found)
}

/// Returns the list. Notes why there is none.
fn noted<T>(list: kube::Result<Vec<T>>, what: &str, unread: &mut Vec<String>) -> Option<Vec<T>> {
    let note = |e: &kube::Error| {
        unread.push(format!("cannot list {what}: {}", cluster::reason(e)));
    };
    list.inspect_err(note).ok()
}
