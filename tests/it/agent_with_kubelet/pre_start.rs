//! Tests of the checks before a container starts.
use super::*;

/// Starts a node with a Pod that holds a device of `cam`. The tests change the device and crash the Pod.
async fn with_broker() -> TestNode {
    let (node, door) = TestNode::with_a_camera("gracePeriodSeconds: 600", 1).await;
    node.run_pod("broker", &[(&format!("akri.sh/{door}"), 1)]);
    node.env("broker").await;
    node
}

#[tokio::test]
async fn a_container_whose_device_is_gone_is_not_started_again() {
    let node = with_broker().await;
    node.devices.see("cam", []);
    node.until_counts(&instance_name("cam", "door"), 1, 0).await;
    node.crash("broker").await;
    node.until_waiting("broker", "is gone").await;
    // The container starts when the device is back.
    node.devices.see("cam", [device("door")]);
    node.until("it runs again", async || node.restarts("broker").await)
        .await;
}

#[tokio::test]
async fn a_container_whose_device_has_another_address_is_not_started_again() {
    let node = with_broker().await;
    node.devices
        .see("cam", [with(device("door"), &[("ADDRESS", "10.0.0.9")])]);
    let door = instance_name("cam", "door");
    node.until("the new address is known", async || {
        let instance = node.instances().remove(&door)?;
        (instance.spec.broker_properties["ADDRESS"] == "10.0.0.9").then_some(())
    })
    .await;
    node.crash("broker").await;
    node.until_waiting("broker", "is reached differently now")
        .await;
}

#[tokio::test]
async fn a_container_whose_device_says_something_else_is_started_again() {
    let node = with_broker().await;
    node.devices
        .see("cam", [with(device("door"), &[("PAGES", "2")])]);
    let door = instance_name("cam", "door");
    node.until("the new number is known", async || {
        let instance = node.instances().remove(&door)?;
        (instance.spec.broker_properties["PAGES"] == "2").then_some(())
    })
    .await;
    node.crash("broker").await;
    node.until("it runs again", async || {
        node.restarts("broker").await.filter(|n| *n == 1)
    })
    .await;
}
