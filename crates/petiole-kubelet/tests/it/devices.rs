//! Tests device plugins with our kubelet, over real sockets: registration, lists, health, the end of plugins, and the
//! values that containers get.
#![allow(clippy::unwrap_used, reason = "a test")]
mod multiple;
mod pods;
mod registration;

use crate::support::{
    fake_plugin::{Answer, FakePlugin, Node, Options, devices, eventually},
    raw_plugin::{Behaviour, RawPlugin},
};
use petiole_kubelet::client::{PluginState, PluginView};
use petiole_kubelet_api::{
    pod_resources::{
        AllocatableResourcesRequest, GetPodResourcesRequest, ListPodResourcesRequest,
        pod_resources_lister_client::PodResourcesListerClient,
    },
    uds,
};
use serde_json::json;
use std::{
    io::{BufRead as _, BufReader},
    os::unix::process::CommandExt as _,
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};
use tonic::{Code, transport::Channel};

const CAM: &str = "akri.sh/cam";
const MIC: &str = "akri.sh/mic";

/// Returns a Pod whose one container requests `limits`, prints its environment and stays.
fn asking(limits: &str) -> String {
    format!(
        "  terminationGracePeriodSeconds: 1
  containers:
  - name: c
    image: none
    command: [sh, -c, 'echo cam=$CAM mic=$MIC shared=$SHARED own=$OWN; exec sleep 1000']
    env: [{{name: OWN, value: \"<$(CAM)>\"}}]
    resources: {{limits: {{{limits}}}}}
"
    )
}

async fn pod_resources(node: &Node) -> PodResourcesListerClient<Channel> {
    let socket = node.root().join("pod-resources/kubelet.sock");
    PodResourcesListerClient::new(uds::dial(&socket).await.unwrap())
}

/// Returns `(resource, id)` of all devices that containers hold.
async fn held(node: &Node) -> Vec<(String, String)> {
    let mut client = pod_resources(node).await;
    let pods = client
        .list(ListPodResourcesRequest {})
        .await
        .unwrap()
        .into_inner();
    let containers = pods
        .pod_resources
        .into_iter()
        .flat_map(|pod| pod.containers);
    let devices = containers.flat_map(|container| container.devices);
    devices
        .map(|mut d| {
            assert_eq!(d.device_ids.len(), 1);
            (d.resource_name, d.device_ids.remove(0))
        })
        .collect()
}

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    let pairs = pairs.iter();
    pairs
        .map(|(a, b)| ((*a).to_owned(), (*b).to_owned()))
        .collect()
}
