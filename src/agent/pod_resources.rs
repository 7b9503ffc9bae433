//! The kubelet's pod resources API, as far as it is about our resources.
use super::Node;
use crate::{
    model::{names::ObjectKey, node_resources::has_prefix},
    proto::pod_resources::{
        AllocatableResourcesRequest, ContainerDevices, ListPodResourcesRequest,
        pod_resources_lister_client::PodResourcesListerClient,
    },
    uds,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};
use tokio::time::timeout;
use tonic::transport::Channel;

const CALL_TIMEOUT: Duration = Duration::from_secs(2);

/// Ids of slots as the kubelet knows them, by the resource's name after its prefix where nothing else is said.
pub(super) type Ids = BTreeMap<String, BTreeSet<String>>;

/// What the kubelet lists.
#[derive(Debug, Default)]
pub(super) struct Held {
    /// All Pods, also those without a device.
    pub(super) pods: BTreeSet<ObjectKey>,
    /// The ids that containers hold.
    pub(super) ids: Ids,
}

pub(super) async fn held(node: &Node) -> anyhow::Result<Held> {
    timeout(CALL_TIMEOUT, async {
        let mut client = client(node).await?;
        let answer = client.list(ListPodResourcesRequest {}).await?.into_inner();
        let pods = answer.pod_resources.iter();
        let pods = pods
            .map(|pod| ObjectKey::new(&pod.namespace, &pod.name))
            .collect();
        let containers = answer
            .pod_resources
            .into_iter()
            .flat_map(|pod| pod.containers);
        let devices = containers.flat_map(|container| container.devices);
        Ok(Held {
            pods,
            ids: ids(devices, &node.resource_prefix),
        })
    })
    .await?
}

/// The healthy ids that the kubelet would give to containers now.
pub(super) async fn allocatable(node: &Node) -> anyhow::Result<Ids> {
    Ok(ids(all_allocatable(node).await?, &node.resource_prefix))
}

/// The same for the resources with one of these prefixes, by their whole names.
pub(super) async fn healthy(node: &Node, prefixes: &[String]) -> anyhow::Result<Ids> {
    let mut ids = Ids::new();
    for devices in all_allocatable(node).await? {
        if has_prefix(&devices.resource_name, prefixes) && !devices.device_ids.is_empty() {
            ids.entry(devices.resource_name)
                .or_default()
                .extend(devices.device_ids);
        }
    }
    Ok(ids)
}

async fn all_allocatable(node: &Node) -> anyhow::Result<Vec<ContainerDevices>> {
    timeout(CALL_TIMEOUT, async {
        let mut client = client(node).await?;
        let request = AllocatableResourcesRequest {};
        let answer = client.get_allocatable_resources(request).await?;
        Ok(answer.into_inner().devices)
    })
    .await?
}

async fn client(node: &Node) -> anyhow::Result<PodResourcesListerClient<Channel>> {
    let channel = uds::dial(&node.pod_resources_socket).await?;
    Ok(PodResourcesListerClient::new(channel))
}

/// One entry a device id is what the kubelet sends; they are merged by resource.
fn ids(devices: impl IntoIterator<Item = ContainerDevices>, prefix: &str) -> Ids {
    let mut ids = Ids::new();
    for devices in devices {
        let name = devices
            .resource_name
            .strip_prefix(prefix)
            .and_then(|rest| rest.strip_prefix('/'));
        if let Some(name) = name {
            ids.entry(name.to_owned())
                .or_default()
                .extend(devices.device_ids);
        }
    }
    ids
}
