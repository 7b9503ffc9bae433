//! What becomes of containers' devices when something comes late, dies or is in the way: plugins, the checkpoint's file.
#![allow(clippy::unwrap_used, reason = "a test")]
#[path = "support/fake_plugin.rs"]
mod fake_plugin;

use fake_plugin::{FakePlugin, Node, Options, devices, eventually};
use petiole::{
    proto::pod_resources::{
        ContainerDevices, ListPodResourcesRequest,
        pod_resources_lister_client::PodResourcesListerClient,
    },
    uds,
};
use serde_json::json;
use std::fs;
use tonic::transport::Channel;

const CAM: &str = "akri.sh/cam";
const WAITING: &str = "/containerStatuses/0/state/waiting/message";

/// A Pod whose container asks for a device, prints it and stays; without one it ends, and is restarted.
fn asking() -> String {
    format!(
        "  terminationGracePeriodSeconds: 1\n  containers:\n{}",
        container("c")
    )
}

fn container(name: &str) -> String {
    format!(
        "  - name: {name}
    image: none
    command: [sh, -c, 'echo cam=$CAM.; [ -n \"$CAM\" ] || exit 1; [ {name} = init ] || exec sleep 1000']
    resources: {{limits: {{{CAM}: 1}}}}
"
    )
}

async fn pod_resources(node: &Node) -> PodResourcesListerClient<Channel> {
    let socket = node.root().join("pod-resources/kubelet.sock");
    PodResourcesListerClient::new(uds::dial(&socket).await.unwrap())
}

/// All that containers hold, as the pod resources API has it.
async fn held(node: &Node) -> Vec<ContainerDevices> {
    let mut client = pod_resources(node).await;
    let pods = client.list(ListPodResourcesRequest {}).await.unwrap();
    let pods = pods.into_inner().pod_resources.into_iter();
    let containers = pods.flat_map(|pod| pod.containers);
    containers.flat_map(|container| container.devices).collect()
}

async fn held_ids(node: &Node) -> Vec<String> {
    let devices = held(node).await.into_iter();
    devices.flat_map(|devices| devices.device_ids).collect()
}

#[tokio::test]
async fn a_container_whose_plugin_came_after_its_pod_gets_its_device_when_it_restarts() {
    let node = Node::start().await;
    node.manifest("p", &asking());
    node.until_log("p", "c", "cam=.").await;
    assert!(held_ids(&node).await.is_empty());

    let plugin = FakePlugin::start(&node, CAM, &["a", "b"]).await;
    node.until_log("p", "c", "cam=a.").await;
    assert_eq!(held_ids(&node).await, ["a"]);
    assert_eq!(plugin.calls().allocate, [["a"]]);
}

#[tokio::test]
async fn a_late_device_of_an_init_container_is_passed_on_too() {
    let node = Node::start().await;
    let spec = format!(
        "  terminationGracePeriodSeconds: 1\n  initContainers:\n{}  containers:\n{}",
        container("init"),
        container("c")
    );
    node.manifest("p", &spec);
    node.until_log("p", "init", "cam=.").await;
    let plugin = FakePlugin::start(&node, CAM, &["only"]).await;
    node.until_log("p", "c", "cam=only.").await;
    assert_eq!(plugin.calls().allocate, [["only"], ["only"]]);
}

#[tokio::test]
async fn a_late_plugin_that_wants_to_prepare_devices_keeps_the_container_waiting_as_in_go() {
    let node = Node::start().await;
    node.manifest("p", &asking());
    node.until_log("p", "c", "cam=.").await;
    let options = Options {
        pre_start_required: true,
        ..Options::default()
    };
    let plugin = FakePlugin::serve_with(&node, CAM, "cam.sock", &["a"], options);
    plugin.register(&node).await.unwrap();
    let uid = node.pod("p").await.unwrap()["metadata"]["uid"].clone();
    let message = format!(
        "no devices found allocated in local cache for pod {}, container c, resource {CAM}",
        uid.as_str().unwrap()
    );
    node.until_pod("p", WAITING, json!(message)).await;
    assert!(plugin.calls().allocate.is_empty());
}

#[tokio::test]
async fn a_checkpoint_that_cannot_be_written_fails_the_pod_and_is_made_up_for_later() {
    let node = Node::start().await;
    let plugin = FakePlugin::start(&node, CAM, &["a", "b"]).await;
    node.until_counts(CAM, Some("2/2")).await;
    let checkpoint = node
        .root()
        .join("device-plugins/kubelet_internal_checkpoint");
    eventually("the first checkpoint", async || checkpoint.exists()).await;
    fs::remove_file(&checkpoint).unwrap();
    fs::create_dir(&checkpoint).unwrap();
    node.manifest("p", &asking());
    eventually("the pod is refused", async || {
        let pod = node.pod("p").await.unwrap_or_default();
        let message = pod["status"]["message"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        message.starts_with("Pod was rejected: Allocate failed due to cannot write checkpoint: ")
    })
    .await;
    // The rest goes on.
    plugin.list(devices(&["a"], &["b"]));
    node.until_counts(CAM, Some("2/1")).await;
    assert!(held_ids(&node).await.is_empty());

    fs::remove_dir(&checkpoint).unwrap();
    eventually("it is written, unasked", async || {
        let text = fs::read_to_string(&checkpoint).unwrap_or_default();
        text.contains(r#""RegisteredDevices":{"akri.sh/cam":["a"]}"#)
    })
    .await;
    node.manifest("q", &asking());
    node.until_log("q", "c", "cam=a.").await;
    assert!(
        fs::read_to_string(&checkpoint)
            .unwrap()
            .contains(r#"{"-1":["a"]}"#)
    );
}
