//! Reads the objects of a cluster. What the caller may not read is noted, and the rest is used.
use super::{
    object::{Kind, Object},
    pods::{asks_for_devices, label},
    snapshot::{COMPONENT, Snapshot},
};
use anyhow::bail;
use k8s_openapi::{
    NamespaceResourceScope,
    api::{
        apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet},
        batch::v1::Job,
        core::v1::{Event, Node, Pod},
        resource::v1::ResourceClaim,
    },
    apimachinery::pkg::apis::meta::v1::Time,
};
use kube::{
    Api, Client, Resource,
    api::{ApiResource, DynamicObject, ListParams},
};
use petiole_cluster::{instance_key, key_of, watch::Read};
use petiole_model::{
    api::{instance::Instance, names::INSTANCE_LABEL, node_devices::NodeDevices, reason::Reason},
    model::{
        instance_name::InstanceKey,
        names::{Key, ObjectKey},
    },
};
use serde::de::DeserializeOwned;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Debug,
};

/// The number of Events that are asked for, of one Instance.
const EVENTS_ASKED: u32 = 500;

/// Returns everything that explains the objects of a namespace. Devices and their users can be in any namespace.
pub async fn everything(client: &Client, namespace: &str) -> anyhow::Result<Snapshot> {
    let mut snapshot = match objects(client, None).await {
        Ok(snapshot) => snapshot,
        // The namespace itself can be readable where the others are not.
        Err(e) => {
            let mut snapshot = objects(client, Some(namespace)).await?;
            let unread = format!("{e:#}, so objects of other namespaces are not known");
            snapshot.unread.push(unread);
            snapshot.hidden.objects = true;
            snapshot
        }
    };
    let what =
        "so not all Pods that hold a slot are known, and whether Petiole's own Pods run is not";
    pods(client, Some(namespace), what, &mut snapshot).await;
    claims(client, Some(namespace), &mut snapshot).await;
    Box::pin(surroundings(client, namespace, &mut snapshot)).await;
    Ok(snapshot)
}

/// Adds what else explains the objects of a namespace: the Nodes, what they report, and the warnings.
pub async fn surroundings(client: &Client, namespace: &str, snapshot: &mut Snapshot) {
    let unknown = "so which of them are ready, cordoned or tainted is not known";
    nodes(client, unknown, snapshot).await;
    let unread = &mut snapshot.unread;
    let node_devices = petiole_cluster::list_all::<NodeDevices>(&Api::all(client.clone())).await;
    let node_devices = noted(
        node_devices,
        "list nodedevices.akri.sh",
        "so which nodes have looked for devices is not known",
        unread,
    );
    snapshot.hidden.node_devices = node_devices.is_none();
    snapshot.node_devices = (node_devices.into_iter().flatten())
        .map(|devices| (devices.metadata.name.unwrap_or_default(), devices.spec))
        .collect();
    warnings(client, namespace, snapshot).await;
}

/// Adds the warnings about the objects of a namespace.
pub async fn warnings(client: &Client, namespace: &str, snapshot: &mut Snapshot) {
    let events: Api<Event> = Api::namespaced(client.clone(), namespace);
    let events = warnings_and_evictions(&events).await;
    let list = format!("list events {}", place(Some(namespace)));
    let what = "so refused brokers and Services may not be known";
    let events = noted(events, &list, what, &mut snapshot.unread);
    snapshot.events.extend(events.unwrap_or_default());
}

/// An eviction is no warning.
async fn warnings_and_evictions(events: &Api<Event>) -> kube::Result<Vec<Event>> {
    let evicted = format!("reason={}", Reason::PodEvicted.as_str());
    let mut found = vec![];
    for fields in ["type=Warning", &evicted] {
        let some = ListParams::default().fields(fields);
        found.extend(events.list(&some).await?.items);
    }
    Ok(found)
}

/// Adds the Nodes. `unknown` says what is not known without them.
async fn nodes(client: &Client, unknown: &str, snapshot: &mut Snapshot) {
    let nodes = petiole_cluster::list_all::<Node>(&Api::all(client.clone())).await;
    let nodes = noted(nodes, "list nodes", unknown, &mut snapshot.unread);
    snapshot.hidden.nodes = nodes.is_none();
    snapshot.nodes = (nodes.into_iter().flatten())
        .map(|node| (node.metadata.name.clone().unwrap_or_default(), node))
        .collect();
}

/// Returns the Events of an Instance, or why they cannot be read.
pub async fn events_of(client: &Client, instance: &InstanceKey) -> Result<Vec<Event>, String> {
    let InstanceKey { namespace, name } = instance;
    let events: Api<Event> = Api::namespaced(client.clone(), namespace);
    let its = format!("involvedObject.kind=Instance,involvedObject.name={name}");
    let its = ListParams::default().fields(&its).limit(EVENTS_ASKED);
    let events = events.list(&its).await.map(|list| list.items);
    events.map_err(|e| {
        let list = format!("list events {}", place(Some(namespace)));
        petiole_cluster::cannot(&list, &e)
    })
}

/// Returns the devices of a namespace, or of all, and who may use them.
pub async fn devices(client: &Client, namespace: Option<&str>) -> anyhow::Result<Snapshot> {
    let mut snapshot = objects(client, namespace).await?;
    let what = "so not all Pods that hold a slot are known";
    pods(client, namespace, what, &mut snapshot).await;
    claims(client, namespace, &mut snapshot).await;
    let mut configurations = snapshot.configurations.values();
    if configurations.any(|configuration| !configuration.spec.instances) {
        let unknown = "so what they have of Configurations without Instances is not known";
        nodes(client, unknown, &mut snapshot).await;
    }
    Ok(snapshot)
}

/// Returns the Configurations and the Instances of a namespace, or of all.
async fn objects(client: &Client, namespace: Option<&str>) -> anyhow::Result<Snapshot> {
    let mut unread = vec![];
    Ok(Snapshot {
        configurations: readable(client, namespace, &mut unread).await?,
        instances: readable(client, namespace, &mut unread).await?,
        unread,
        ..Snapshot::default()
    })
}

/// Adds the Pods of all namespaces or, if they cannot be read, those of one. `unknown` says what is not known without them.
async fn pods(client: &Client, namespace: Option<&str>, unknown: &str, snapshot: &mut Snapshot) {
    let mut pods = petiole_cluster::list_all::<Pod>(&Api::all(client.clone())).await;
    let mut list = format!("list pods {}", place(None));
    snapshot.hidden.pods = pods.is_err();
    snapshot.hidden.own_pods = pods.is_err();
    if let (Err(e), Some(namespace)) = (&pods, namespace) {
        let own = petiole_cluster::list_all(&Api::namespaced(client.clone(), namespace)).await;
        snapshot.hidden.own_pods = own.is_err();
        match own {
            Ok(_) => {
                (snapshot.unread).push(format!("{}, {unknown}", petiole_cluster::cannot(&list, e)))
            }
            Err(_) => list = format!("list pods {}", place(Some(namespace))),
        }
        pods = own;
    }
    let pods = noted(pods, &list, unknown, &mut snapshot.unread);
    let pods = pods.into_iter().flatten().filter(is_of_interest);
    snapshot.pods = pods.map(|pod| (key_of(&pod.metadata), pod)).collect();
    snapshot.note_prefixes();
    if snapshot.has_assumed_prefixes() {
        let prefix = snapshot.prefixes().first().to_string();
        let unread = format!(
            "no Pod of an agent can be read, so resources are assumed to have the prefix {prefix}"
        );
        snapshot.unread.push(unread);
    }
}

/// Adds the claims of all namespaces or, if they cannot be read, those of one. Without a Configuration whose devices the scheduler
/// gives out there is nothing to know.
async fn claims(client: &Client, namespace: Option<&str>, snapshot: &mut Snapshot) {
    if !snapshot.has_claims() {
        return;
    }
    let claims = petiole_cluster::list_all::<ResourceClaim>(&Api::all(client.clone())).await;
    let what = "so not all Pods that hold a slot by a claim are known";
    let list = format!("list resourceclaims {}", place(None));
    let mut claims = noted(claims, &list, what, &mut snapshot.unread);
    if let (None, Some(namespace)) = (&claims, namespace) {
        let own = Api::namespaced(client.clone(), namespace);
        claims = petiole_cluster::list_all(&own).await.ok();
    }
    snapshot.claims = claims.unwrap_or_default();
}

/// Returns the words for a namespace, or for all.
fn place(namespace: Option<&str>) -> String {
    namespace.map_or_else(
        || "in all namespaces".to_owned(),
        |namespace| format!("in the namespace {namespace}"),
    )
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
            Err(e) => {
                let list = format!("list instances.akri.sh with -l {selector}");
                bail!(petiole_cluster::cannot(&list, &e))
            }
        };
        let chosen: BTreeSet<InstanceKey> = chosen
            .iter()
            .map(|object| instance_key(&object.metadata))
            .collect();
        snapshot.instances.retain(|key, _| chosen.contains(key));
    }
    Ok(snapshot)
}

/// Adds when a workload was created. Who may not get it is told of evictions of a former one of its name, too.
pub async fn creation(client: &Client, workload: &Object, snapshot: &mut Snapshot) {
    let resource = match workload.kind {
        Kind::Deployment => ApiResource::erase::<Deployment>(&()),
        Kind::ReplicaSet => ApiResource::erase::<ReplicaSet>(&()),
        Kind::StatefulSet => ApiResource::erase::<StatefulSet>(&()),
        Kind::DaemonSet => ApiResource::erase::<DaemonSet>(&()),
        Kind::Job => ApiResource::erase::<Job>(&()),
        Kind::Pod | Kind::Instance | Kind::Configuration => return,
    };
    let ObjectKey { namespace, name } = &workload.key;
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
    let metadata = api.get_metadata(name).await.map(|object| object.metadata);
    let created = metadata.ok().and_then(|its| its.creation_timestamp);
    snapshot.created = created.map(|Time(at)| at);
}

/// Returns one Pod, which may ask for no device, or why it cannot be read.
pub async fn pod(client: &Client, key: &ObjectKey) -> Result<Option<Pod>, String> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), &key.namespace);
    let pod = pods.get_opt(&key.name).await;
    pod.map_err(|e| {
        let get = format!("get pods {}", place(Some(&key.namespace)));
        petiole_cluster::cannot(&get, &e)
    })
}

fn is_of_interest(pod: &Pod) -> bool {
    asks_for_devices(pod) || label(pod, INSTANCE_LABEL).is_some() || label(pod, COMPONENT).is_some()
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
    let objects = match petiole_cluster::list_all(&api).await {
        Ok(objects) => objects,
        Err(e) if petiole_cluster::is_not_found(&e) => bail!(
            "this cluster does not know {kind}.akri.sh: is Petiole installed on it? `petiole doctor` says more"
        ),
        Err(e) => {
            let list = format!("list {kind}.akri.sh {}", place(namespace));
            bail!(petiole_cluster::cannot(&list, &e))
        }
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

/// Returns the list. Notes why there is none, and what is not known without it.
fn noted<T>(
    list: kube::Result<Vec<T>>,
    action: &str,
    unknown: &str,
    unread: &mut Vec<String>,
) -> Option<Vec<T>> {
    let note =
        |e: &kube::Error| unread.push(format!("{}, {unknown}", petiole_cluster::cannot(action, e)));
    list.inspect_err(note).ok()
}
