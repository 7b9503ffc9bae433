//! Tests of devices that appear and disappear, and of the node's resources for them.
use super::*;

#[tokio::test]
async fn a_device_becomes_an_instance_a_socket_a_resource_and_the_environment_of_a_process() {
    let node = TestNode::started();
    node.configure("cam", "brokerProperties: {MODE: fast}");
    node.devices.see("cam", [device("door")]);
    let name = instance_name("cam", "door");
    let digest = name.rsplit('-').next().unwrap().to_uppercase();

    let instance = node.instance(&name).await;
    assert_eq!(instance.spec.nodes, ["node-a"]);
    assert_eq!(instance.spec.configuration_name, "cam");
    node.until_counts(&name, 1, 1).await;
    node.until_counts("cam", 1, 1).await;
    assert!(node.socket_of(&name).is_some(), "{:?}", node.sockets());

    node.run_pod("broker", &[(&format!("akri.sh/{name}"), 1)]);
    let env = node.env("broker").await;
    for key in ["ADDRESS", &format!("ADDRESS_{digest}")] {
        assert_eq!(env[key], "10.0.0.1");
    }
    for key in ["MODE", &format!("MODE_{digest}")] {
        assert_eq!(env[key], "fast");
    }
    node.until_usage(&name, &[(&format!("{name}-0"), "node-a")])
        .await;
}

#[tokio::test]
async fn a_device_that_goes_is_unhealthy_at_once_and_its_traces_go_in_order() {
    let node = TestNode::started();
    node.configure("cam", "gracePeriodSeconds: 2");
    node.devices.see("cam", [device("door"), device("yard")]);
    let (door, yard) = (instance_name("cam", "door"), instance_name("cam", "yard"));
    node.until_counts(&door, 1, 1).await;
    node.until_counts(&yard, 1, 1).await;

    node.devices.see("cam", [device("yard")]);
    node.until_counts(&door, 1, 0).await;
    assert!(
        node.instances().contains_key(&door),
        "an Instance has its grace"
    );
    assert!(
        node.socket_of(&door).is_some(),
        "a plugin goes with its Instance"
    );
    node.until_no_instance(&door).await;
    node.until("the socket is gone", async || {
        node.socket_of(&door).is_none().then_some(())
    })
    .await;
    node.until("the capacity entry is gone", async || {
        node.counts(&door).await.is_none().then_some(())
    })
    .await;
    assert_eq!(node.counts(&yard).await, Some((1, 1)));
}
