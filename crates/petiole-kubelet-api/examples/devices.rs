//! Prints the devices of each container of a node: `devices SOCKET`, of the kubelet's API of pod resources.
#![allow(clippy::print_stdout, reason = "the list is what it is for")]
use petiole_kubelet_api::{
    pod_resources::{
        ListPodResourcesRequest, pod_resources_lister_client::PodResourcesListerClient,
    },
    uds,
};
use std::{env, error::Error, path::PathBuf};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let socket = env::args_os().nth(1).map(PathBuf::from);
    let socket = socket.unwrap_or("/var/lib/kubelet/pod-resources/kubelet.sock".into());
    let mut client = PodResourcesListerClient::new(uds::dial(&socket).await?);
    let answer = client.list(ListPodResourcesRequest {}).await?;
    for pod in answer.into_inner().pod_resources {
        for container in pod.containers {
            for devices in container.devices {
                println!(
                    "{}/{} {}: {} {}",
                    pod.namespace,
                    pod.name,
                    container.name,
                    devices.resource_name,
                    devices.device_ids.join(", ")
                );
            }
        }
    }
    Ok(())
}
