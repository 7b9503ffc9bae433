//! Tests of the agent's changes to the status of its own Node, with our kubelet and an API server of one Node.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::support::{
    fake_nodes::FakeNodes,
    node::{TestNode, instance_name},
    test_handler::device,
};
use std::time::Duration;
use tokio::time::sleep;

/// Starts a kubelet, and an agent that updates the Node's status, with a Configuration of two slots for each device.
async fn started() -> (TestNode, FakeNodes) {
    let nodes = FakeNodes::start().await;
    let mut node = TestNode::new();
    node.agent_settings.nodes = Some(nodes.nodes());
    node.start_kubelet();
    node.start_agent();
    node.configure("cam", "capacity: 2, gracePeriodSeconds: 1");
    (node, nodes)
}

async fn until_entry(node: &TestNode, nodes: &FakeNodes, name: &str, expected: &str) {
    let resource = format!("akri.sh/{name}");
    let what = format!("{resource} {expected}");
    node.until(&what, async || {
        (nodes.entry(&resource) == expected).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_device_is_in_the_nodes_status_at_once_and_its_loss_too() {
    let (node, nodes) = started().await;
    node.devices.see("cam", [device("door"), device("yard")]);
    let (door, yard) = (instance_name("cam", "door"), instance_name("cam", "yard"));
    until_entry(&node, &nodes, &door, "2/2").await;
    until_entry(&node, &nodes, &yard, "2/2").await;
    until_entry(&node, &nodes, "cam", "2/2").await;

    node.devices.see("cam", [device("yard")]);
    until_entry(&node, &nodes, &door, "2/0").await;
    node.until_no_instance(&door).await;
    sleep(Duration::from_millis(200)).await;
    // The kubelet would restore it, so it stays for now.
    assert_eq!(nodes.entry(&format!("akri.sh/{door}")), "2/0");
    assert_eq!(nodes.entry(&format!("akri.sh/{yard}")), "2/2");
    assert_eq!(nodes.entry("cpu"), "2/2");
}

#[tokio::test]
async fn nothing_is_asked_or_written_at_rest() {
    let (node, nodes) = started().await;
    node.devices.see("cam", [device("door")]);
    until_entry(&node, &nodes, &instance_name("cam", "door"), "2/2").await;
    until_entry(&node, &nodes, "cam", "1/1").await;
    assert!(nodes.patches() <= 2, "{} patches", nodes.patches());
    let before = nodes.requests();
    sleep(Duration::from_secs(2)).await;
    assert_eq!(nodes.requests(), before);
}

#[tokio::test]
async fn a_late_view_of_the_kubelets_is_put_right() {
    let (node, nodes) = started().await;
    node.devices.see("cam", [device("door")]);
    let door = instance_name("cam", "door");
    until_entry(&node, &nodes, &door, "2/2").await;
    nodes.set(&format!("akri.sh/{door}"), "2", "0");
    until_entry(&node, &nodes, &door, "2/2").await;
}

#[tokio::test]
async fn a_patch_that_came_too_late_is_planned_anew() {
    let (node, nodes) = started().await;
    let door = instance_name("cam", "door");
    nodes.set_before_next_patch(&format!("akri.sh/{door}"), "7");
    node.devices.see("cam", [device("door")]);
    until_entry(&node, &nodes, &door, "2/2").await;
    assert!(nodes.patches() >= 2, "the first one is refused");
}

#[tokio::test]
async fn what_happens_while_the_api_server_is_away_is_written_when_it_is_back() {
    let (node, mut nodes) = started().await;
    node.devices.see("cam", [device("door")]);
    let (door, yard) = (instance_name("cam", "door"), instance_name("cam", "yard"));
    until_entry(&node, &nodes, &door, "2/2").await;
    nodes.go_away().await;
    node.devices.see("cam", [device("yard")]);
    node.until_counts(&yard, 2, 2).await;
    node.until_no_instance(&door).await;
    nodes.listen().await;
    until_entry(&node, &nodes, &yard, "2/2").await;
    until_entry(&node, &nodes, &door, "2/0").await;
}

#[tokio::test]
async fn stopping_the_agent_takes_nothing_from_the_node() {
    let (mut node, nodes) = started().await;
    node.devices.see("cam", [device("door")]);
    let door = instance_name("cam", "door");
    until_entry(&node, &nodes, &door, "2/2").await;
    until_entry(&node, &nodes, "cam", "1/1").await;
    let before = nodes.patches();
    node.stop_agent().await;
    assert_eq!(nodes.entry(&format!("akri.sh/{door}")), "2/2");
    node.start_agent();
    node.until_counts(&door, 2, 2).await;
    sleep(Duration::from_millis(300)).await;
    assert_eq!(nodes.entry(&format!("akri.sh/{door}")), "2/2");
    assert_eq!(nodes.patches(), before);
}
