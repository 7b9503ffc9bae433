//! The kubelet's pod resources API, as far as it is about our resources.
use super::{
    settings::Settings,
    values::{IdsByResource, PodList},
};
use crate::model::{names::ObjectKey, resource_name::ResourcePrefixes};
use petiole_kubelet_api::{
    pod_resources::{
        AllocatableResourcesRequest, ContainerDevices, ListPodResourcesRequest, PodResources,
        pod_resources_lister_client::PodResourcesListerClient,
    },
    uds,
};
use std::time::Duration;
use tokio::time::timeout;
use tonic::transport::Channel;

const CALL_TIMEOUT: Duration = Duration::from_secs(2);
/// The most bytes of an answer of the kubelet's pod resources API, which has a message for each id of each resource, those of other
/// plugins too. Beyond it: the answer is not read, and nothing is released or published meanwhile.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// Returns the kubelet's list of Pods.
pub(super) async fn pod_list(settings: &Settings) -> anyhow::Result<PodList> {
    timeout(CALL_TIMEOUT, async {
        let mut client = client(settings).await?;
        let answer = client.list(ListPodResourcesRequest {}).await?.into_inner();
        Ok(listed(answer.pod_resources, &settings.resource_prefixes))
    })
    .await?
}

pub(crate) fn listed(pods: Vec<PodResources>, prefixes: &ResourcePrefixes) -> PodList {
    let mut list = PodList::default();
    for pod in pods {
        let key = ObjectKey::new(&pod.namespace, &pod.name);
        let devices = pod
            .containers
            .into_iter()
            .flat_map(|container| container.devices);
        for (resource, ids) in of_prefixes(devices, prefixes) {
            let holders = list.holders.entry(resource.clone()).or_default();
            holders.insert(key.clone());
            list.by_resource.entry(resource).or_default().extend(ids);
        }
        list.pods.insert(key);
    }
    list
}

/// The healthy ids that the kubelet would give to containers now, of the resources with our prefixes.
pub(super) async fn healthy(settings: &Settings) -> anyhow::Result<IdsByResource> {
    timeout(CALL_TIMEOUT, async {
        let mut client = client(settings).await?;
        let request = AllocatableResourcesRequest {};
        let answer = client.get_allocatable_resources(request).await?;
        let devices = answer.into_inner().devices;
        Ok(of_prefixes(devices, &settings.resource_prefixes))
    })
    .await?
}

async fn client(settings: &Settings) -> anyhow::Result<PodResourcesListerClient<Channel>> {
    let channel = uds::dial(&settings.pod_resources_socket).await?;
    Ok(PodResourcesListerClient::new(channel).max_decoding_message_size(ANSWER_BYTES_MAX))
}

/// Merges the devices by resource: the kubelet sends one entry for each device id.
fn of_prefixes(
    devices: impl IntoIterator<Item = ContainerDevices>,
    prefixes: &ResourcePrefixes,
) -> IdsByResource {
    let mut ids = IdsByResource::new();
    let devices = devices.into_iter();
    for devices in devices.filter(|devices| !devices.device_ids.is_empty()) {
        if let Some(resource) = prefixes.own_name(devices.resource_name) {
            ids.entry(resource).or_default().extend(devices.device_ids);
        }
    }
    ids
}
