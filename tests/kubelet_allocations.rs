//! What becomes of containers' devices when something comes late, dies or is in the way: plugins, the checkpoint's file.
#![allow(clippy::unwrap_used, reason = "a test")]
#[path = "support/fake_plugin.rs"]
mod fake_plugin;

use fake_plugin::{FakePlugin, Node, Options};
use petiole::{
    proto::pod_resources::{
        ContainerDevices, ListPodResourcesRequest,
        pod_resources_lister_client::PodResourcesListerClient,
    },
    uds,
};
use serde_json::json;

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

/// All that containers hold, as the pod resources API has it.
async fn held(node: &Node) -> Vec<ContainerDevices> {
    let socket = node.root().join("pod-resources/kubelet.sock");
    let mut client = PodResourcesListerClient::new(uds::dial(&socket).await.unwrap());
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
