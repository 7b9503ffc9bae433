//! Tests of containers' devices when something is late, dies or is an obstacle: plugins, the checkpoint's file.
#![allow(clippy::unwrap_used, reason = "a test")]

use crate::support::fake_plugin::{FakePlugin, Node, Options, devices, eventually};
use petiole_kubelet_api::{
    device_plugin::{NumaNode, TopologyInfo},
    pod_resources::{
        AllocatableResourcesRequest, ContainerDevices, ListPodResourcesRequest,
        pod_resources_lister_client::PodResourcesListerClient,
    },
    uds,
};
use serde_json::json;
use std::{fs, time::Duration};
use tonic::transport::Channel;

const CAM: &str = "akri.sh/cam";
const WAITING: &str = "/containerStatuses/0/state/waiting/message";

/// Returns a Pod whose container requests a device, prints it and stays. Without a device it ends, and is restarted.
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

/// Returns all devices that containers hold, from the pod resources API.
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
async fn a_container_whose_plugin_has_been_given_up_waits_for_it_to_start_again() {
    let grace = Duration::from_millis(100);
    let node = Node::start_with(|settings| settings.endpoint_grace = grace).await;
    let plugin = FakePlugin::start(&node, CAM, &["a"]).await;
    node.until_counts(CAM, Some("1/1")).await;
    let end = node.root().join("end");
    let command = format!(
        "echo cam=$CAM.; until [ -e {0} ]; do sleep 0.01; done; rm {0}",
        end.display()
    );
    let spec = format!(
        "  containers:\n  - {{name: c, image: none, command: [sh, -c, '{command}'], resources: {{limits: {{{CAM}: 1}}}}}}\n"
    );
    node.manifest("p", &spec);
    node.until_log("p", "c", "cam=a.").await;
    plugin.die().await;
    node.until_counts(CAM, None).await;
    fs::write(&end, "").unwrap();
    let message = format!("endpoint not found in cache for a registered resource: {CAM}");
    node.until_pod("p", WAITING, json!(message)).await;

    let plugin = FakePlugin::start(&node, CAM, &["a"]).await;
    node.until_log("p", "c", "cam=a.\ncam=a.").await;
    assert!(plugin.calls().allocate.is_empty());
    fs::write(&end, "").unwrap();
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
    // Everything else continues to work.
    plugin.list(devices(&["a"], &["b"]));
    node.until_counts(CAM, Some("2/1")).await;
    assert!(held_ids(&node).await.is_empty());

    let want = r#""RegisteredDevices":{"akri.sh/cam":["a"]}"#;
    fs::remove_dir(&checkpoint).unwrap();
    eventually("it is written, unasked", async || {
        let text = fs::read_to_string(&checkpoint).unwrap_or_default();
        text.contains(want)
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

fn on_nodes(devices: &[ContainerDevices]) -> Vec<(&str, Vec<i64>)> {
    let devices = devices.iter().map(|device| {
        let nodes = device.topology.iter().flat_map(|topology| &topology.nodes);
        (&*device.device_ids[0], nodes.map(|node| node.id).collect())
    });
    devices.collect()
}

#[tokio::test]
async fn numa_nodes_of_devices_are_kept_and_shown() {
    let mut node = Node::start().await;
    let plugin = FakePlugin::start(&node, CAM, &[]).await;
    let mut listed = devices(&["a", "b", "c"], &[]);
    for (device, nodes) in listed.iter_mut().zip([vec![0, 1], vec![1]]) {
        let nodes = nodes.into_iter().map(|id| NumaNode { id }).collect();
        device.topology = Some(TopologyInfo { nodes });
    }
    plugin.list(listed);
    node.until_counts(CAM, Some("3/3")).await;
    let mut client = pod_resources(&node).await;
    let allocatable = client.get_allocatable_resources(AllocatableResourcesRequest {});
    assert_eq!(
        on_nodes(&allocatable.await.unwrap().into_inner().devices),
        [
            ("a", vec![0]),
            ("a", vec![1]),
            ("b", vec![1]),
            ("c", vec![])
        ]
    );

    node.manifest("p", &asking());
    node.until_log("p", "c", "cam=a.").await;
    let both = [("a", vec![0]), ("a", vec![1])];
    assert_eq!(on_nodes(&held(&node).await), both);
    let checkpoint = node
        .root()
        .join("device-plugins/kubelet_internal_checkpoint");
    let text = fs::read_to_string(checkpoint).unwrap();
    assert!(
        text.contains(r#""DeviceIDs":{"0":["a"],"1":["a"]}"#),
        "{text}"
    );
    node.restart().await;
    eventually("the next kubelet has it too", async || {
        on_nodes(&held(&node).await) == both
    })
    .await;
}

#[tokio::test]
async fn a_manifest_that_cannot_be_read_at_the_start_keeps_its_devices_until_it_can() {
    let mut node = Node::start().await;
    let plugin = FakePlugin::start(&node, CAM, &["a"]).await;
    node.until_counts(CAM, Some("1/1")).await;
    node.manifest("p", &asking());
    node.until_log("p", "c", "cam=a.").await;
    node.stop().await;
    plugin.die().await;
    let manifest = node.root().join("manifests/p.yaml");
    let text = fs::read_to_string(&manifest).unwrap();
    fs::write(&manifest, "kind: [").unwrap();

    node.restart_stopped().await;
    node.manifest(
        "other",
        "  containers: [{name: c, image: none, command: [sleep, '1000']}]\n",
    );
    eventually("the folder was looked at", async || {
        node.pod("other").await.is_some()
    })
    .await;
    fs::write(&manifest, text).unwrap();
    eventually("it waits for its plugin", async || {
        let pod = node.pod("p").await;
        pod.is_some_and(|pod| pod["status"].pointer(WAITING).is_some())
    })
    .await;
    let plugin = FakePlugin::start(&node, CAM, &["a"]).await;
    eventually("it has its device", async || held_ids(&node).await == ["a"]).await;
    eventually("it runs", async || {
        let pod = node.pod("p").await.unwrap();
        let running = pod["status"].pointer("/containerStatuses/0/state/running");
        running.is_some()
    })
    .await;
    assert!(
        plugin.calls().allocate.is_empty(),
        "the cached answer is replayed"
    );
}
