//! Tests of a resource name that another device plugin has, or takes: in the end one of the two has it, and the
//! Configuration reports that.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::support::node::{TestNode, instance_name};
use crate::support::raw_plugin::{Behaviour, RawPlugin};
use petiole::model::device;
use petiole_kubelet_api::{
    device_plugin::{
        Device, DevicePluginOptions, HEALTHY, ListAndWatchResponse, RegisterRequest, VERSION,
        registration_client::RegistrationClient,
    },
    uds,
};
use prost::Message as _;
use std::{fs, os::unix::fs::symlink, path::PathBuf, sync::Arc, time::Duration};

const RESOURCE: &str = "pflex.io/block";
const ENDPOINT: &str = "vendor.sock";

fn node() -> TestNode {
    let mut node = TestNode::new();
    node.agent_settings.resource_prefixes = "akri.sh,pflex.io".parse().unwrap();
    node.agent_settings.resource_name_hold = Duration::from_secs(5);
    let device = |id: &str| device::Device::new(id);
    node.devices.see("block", ["a", "b"].map(device));
    node.configure("block", &format!("resourceName: {RESOURCE}"));
    node
}

fn folder(node: &TestNode) -> PathBuf {
    node.kubelet_settings.root_dir.join("device-plugins")
}

/// Returns a vendor's plugin with three devices. It serves, and does not register yet.
fn vendor(node: &TestNode) -> Arc<RawPlugin> {
    let ids = ["pflex1", "pflex2", "pflex3"];
    let devices = ids.map(|id| Device {
        id: id.to_owned(),
        health: HEALTHY.to_owned(),
        topology: None,
    });
    let list = ListAndWatchResponse {
        devices: devices.into(),
    };
    let options = DevicePluginOptions::default().encode_to_vec();
    RawPlugin::serve(
        &folder(node).join(ENDPOINT),
        [
            ("GetDevicePluginOptions", Behaviour::Answer(options)),
            ("ListAndWatch", Behaviour::Stay(list.encode_to_vec())),
        ],
    )
}

async fn register(node: &TestNode) {
    let socket = folder(node).join("kubelet.sock");
    let mut client = RegistrationClient::new(uds::dial(&socket).await.unwrap());
    let request = RegisterRequest {
        version: VERSION.to_owned(),
        endpoint: ENDPOINT.to_owned(),
        resource_name: RESOURCE.to_owned(),
        options: None,
    };
    client.register(request).await.unwrap();
}

fn is_taken(node: &TestNode) -> bool {
    let entries = fs::read_dir(node.state().join("configurations"));
    let texts = entries
        .into_iter()
        .flatten()
        .filter_map(|entry| fs::read_to_string(entry.ok()?.path()).ok());
    texts.into_iter().any(|text| text.contains("ResourceTaken"))
}

async fn until_taken(node: &TestNode) {
    node.until(
        "the Configuration says that its name is taken",
        async || is_taken(node).then_some(()),
    )
    .await;
    node.until("the plugin of that name has stopped", async || {
        node.socket_of("block").is_none().then_some(())
    })
    .await;
}

fn registrations(node: &TestNode) -> usize {
    let log = node.agent_log();
    let is_one =
        |line: &&str| line.contains("registered with the kubelet") && line.contains(RESOURCE);
    log.lines().filter(is_one).count()
}

#[tokio::test]
async fn a_plugin_that_was_there_before_the_agent_knew_a_kubelet_keeps_its_name() {
    let mut node = node();
    // The agent finds the kubelet's folder once this is a link to it.
    node.agent_settings.plugin_folder = node.root().join("plugins");
    node.start_agent();
    node.until("the agent has seen its devices", async || {
        (node.instances().len() == 2).then_some(())
    })
    .await;
    node.start_kubelet();
    node.until("the kubelet answers", async || {
        node.kubelet().healthz().await.ok()
    })
    .await;
    let _vendor = vendor(&node);
    register(&node).await;
    node.until_counts(RESOURCE, 3, 3).await;

    symlink(folder(&node), &node.agent_settings.plugin_folder).unwrap();
    until_taken(&node).await;
    node.until_connected(3).await; // its Instances have names of their own
    assert_eq!(registrations(&node), 0, "{}", node.agent_log());
    assert_eq!(node.counts(RESOURCE).await, Some((3, 3)));
}

#[tokio::test]
async fn a_plugin_that_registers_later_has_the_name_until_it_stops() {
    let mut node = node();
    node.start_kubelet();
    node.start_agent();
    node.until_counts(RESOURCE, 2, 2).await;
    let mut vendors = vendor(&node);
    register(&node).await;
    node.until_counts(RESOURCE, 3, 3).await;
    node.until(
        "the Configuration says that its name is taken",
        async || is_taken(&node).then_some(()),
    )
    .await;
    // Up to Kubernetes 1.36 the end of ours would end the vendor's.
    assert!(node.socket_of("block").is_some(), "ours stays beside it");
    assert_eq!(registrations(&node), 1, "it fought: {}", node.agent_log());

    // The Instances have names of their own and stay, also with an agent that never had the name.
    node.stop_agent().await;
    node.start_agent();
    node.until_connected(3).await;
    let instance = instance_name("block", "a");
    let slot = format!("{instance}-0");
    node.allocate(&instance, &[&slot]).await.unwrap();
    until_taken(&node).await;

    // A plugin that restarts lists nothing for a moment, and keeps the name.
    let before = registrations(&node);
    for _ in 0..3 {
        vendors.die();
        node.until_counts(RESOURCE, 3, 0).await;
        vendors = vendor(&node);
        register(&node).await;
        node.until_counts(RESOURCE, 3, 3).await;
    }
    assert!(
        is_taken(&node) && registrations(&node) == before,
        "{}",
        node.agent_log()
    );

    vendors.die();
    node.until_counts(RESOURCE, 2, 2).await;
    node.until("nothing is said of it any more", async || {
        (!is_taken(&node)).then_some(())
    })
    .await;
}
