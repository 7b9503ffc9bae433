//! The kubelet's pod resources API, as far as it is about our resources.
use super::{
    settings::Settings,
    values::{IdsByPlugin, IdsByResource, PodList},
};
use crate::model::{names::ObjectKey, plugin_name::PluginName, resource_name::ResourcePrefixes};
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
    list.ids = by_plugin(&list.by_resource);
    list
}

/// The healthy ids that the kubelet would give to containers now, of the resources with our prefixes.
pub(super) async fn healthy(settings: &Settings) -> anyhow::Result<IdsByResource> {
    let devices = all_allocatable(settings).await?;
    Ok(of_prefixes(devices, &settings.resource_prefixes))
}

async fn all_allocatable(settings: &Settings) -> anyhow::Result<Vec<ContainerDevices>> {
    timeout(CALL_TIMEOUT, async {
        let mut client = client(settings).await?;
        let request = AllocatableResourcesRequest {};
        let answer = client.get_allocatable_resources(request).await?;
        Ok(answer.into_inner().devices)
    })
    .await?
}

async fn client(settings: &Settings) -> anyhow::Result<PodResourcesListerClient<Channel>> {
    let channel = uds::dial(&settings.pod_resources_socket).await?;
    Ok(PodResourcesListerClient::new(channel))
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

/// Returns the ids by the device plugin that they were made for. An id begins with that name, whatever the resource is
/// called.
pub(crate) fn by_plugin(by_resource: &IdsByResource) -> IdsByPlugin {
    let mut ids = IdsByPlugin::new();
    for id in by_resource.values().flatten() {
        if let Some(plugin) = PluginName::of_id(id) {
            ids.entry(plugin).or_default().insert(id.clone());
        }
    }
    ids
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_held_id_belongs_to_what_it_was_made_for_whatever_its_resource_is_called() {
        let prefixes = "akri.sh,pflex.io".parse().unwrap();
        let device = |(resource, id): (&str, &str)| ContainerDevices {
            resource_name: resource.to_owned(),
            device_ids: vec![id.to_owned()],
            ..ContainerDevices::default()
        };
        let devices = [
            ("akri.sh/block-8120fe", "block-8120fe-0"),
            ("akri.sh/block", "block-0"),
            ("pflex.io/block", "block-1"),
            ("example.com/block", "block-2"),
        ];
        let plugin = |id: &str| PluginName::of_id(id).unwrap();
        let ids = |of: &[&str]| of.iter().map(|&id| id.to_owned()).collect::<BTreeSet<_>>();
        assert_eq!(
            by_plugin(&of_prefixes(devices.map(device), &prefixes)),
            IdsByPlugin::from([
                (plugin("block-8120fe-0"), ids(&["block-8120fe-0"])),
                (plugin("block-0"), ids(&["block-0", "block-1"])),
            ])
        );
    }
}
