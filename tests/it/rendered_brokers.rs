//! Tests of static Pods that the agent renders, and of a kubelet that reads their manifests too early.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::support::{
    node::{NODE, TestNode, instance_name},
    test_handler::device,
};
use std::fs;

const BROKER: &str = r#"brokerSpec: {brokerPodSpec: {
    terminationGracePeriodSeconds: 0,
    containers: [{
        name: main,
        image: none,
        command: ["/bin/sh", "-c", "echo PID=$$$$; env; echo END; exec sleep 1000"],
        resources: {limits: {"{{PLACEHOLDER}}": 1}}}]}}"#;

/// Starts a node with a broker that has its device. Returns the broker's name too.
async fn with_a_broker() -> (TestNode, String) {
    let mut node = TestNode::new();
    node.agent_settings.render_brokers = Some(node.kubelet_settings.manifests.clone());
    node.start_kubelet();
    node.start_agent();
    node.configure("cam", BROKER);
    node.devices.see("cam", [device("door")]);
    let broker = format!("{NODE}-{}-pod", instance_name("cam", "door"));
    assert_eq!(node.env(&broker).await["ADDRESS"], "10.0.0.1");
    (node, broker)
}

async fn until_it_has_its_device(node: &TestNode, broker: &str) {
    node.until("the broker has its device", async || {
        node.restarts(broker).await?;
        (node.env(broker).await.get("ADDRESS")? == "10.0.0.1").then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_broker_that_was_refused_is_tried_again_when_its_device_is_free() {
    let mut node = TestNode::started();
    node.configure("cam", BROKER);
    node.devices.see("cam", [device("door")]);
    let name = instance_name("cam", "door");
    node.until_counts(&name, 1, 1).await;
    node.run_pod("mine", &[(&format!("akri.sh/{name}"), 1)]);
    node.pid("mine").await;
    node.stop_agent().await;
    node.agent_settings.render_brokers = Some(node.kubelet_settings.manifests.clone());
    node.start_agent();
    let broker = format!("{NODE}-{name}-pod");
    node.until_refused(&broker, "unavailable").await;
    node.remove_pod("mine");
    until_it_has_its_device(&node, &broker).await;
}

#[tokio::test]
async fn a_broker_that_was_started_without_its_device_is_started_again_with_it() {
    let (mut node, broker) = with_a_broker().await;
    node.kill_agent();
    node.stop_kubelet().await;
    let checkpoint = node
        .agent_settings
        .plugin_folder
        .join("kubelet_internal_checkpoint");
    fs::remove_file(checkpoint).unwrap();
    // Later output is from the next run of the Pod.
    fs::remove_dir_all(node.kubelet_settings.root_dir.join("logs")).unwrap();
    node.start_kubelet();
    assert_eq!(node.env(&broker).await.get("ADDRESS"), None);
    node.start_agent();
    until_it_has_its_device(&node, &broker).await;
}

#[tokio::test]
async fn a_manifest_that_somebody_changed_or_took_away_is_written_again() {
    let (node, broker) = with_a_broker().await;
    let manifests = &node.kubelet_settings.manifests;
    let file = manifests.join(format!(
        "petiole-default_{}.yaml",
        instance_name("cam", "door")
    ));
    let text = fs::read_to_string(&file).unwrap();
    for edit in ["", "apiVersion: v1\nkind: Pod\n"] {
        match edit {
            "" => fs::remove_file(&file).unwrap(),
            edit => fs::write(&file, edit).unwrap(),
        }
        node.until("the manifest is as it was", async || {
            (fs::read_to_string(&file).ok()? == text).then_some(())
        })
        .await;
        until_it_has_its_device(&node, &broker).await;
    }
}
