//! Tests each kind of bad input: everything else continues to work.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod configurations;
mod disks;
mod handlers;
mod peers_of_the_agent;
mod peers_of_the_kubelet;

use crate::support::{
    node::{PATIENCE, TestNode, instance_name},
    test_handler::device,
};
use petiole::model::device::Device;
use petiole_kubelet_api::{
    device_plugin::{RegisterRequest, VERSION, registration_client::RegistrationClient},
    uds,
};
use std::{fs, time::Duration};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{UnixListener, UnixStream},
    task::JoinSet,
    time::timeout,
};

/// Returns bytes that begin like HTTP/2 and continue with invalid ones.
fn garbage() -> Vec<u8> {
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    bytes.extend((0..4096_u32).map(|n| u8::try_from(n * 31 % 251).unwrap()));
    bytes
}

/// Starts a node with one good device in a Configuration of its own, and a Pod that holds it.
async fn at_work() -> (TestNode, String) {
    let node = TestNode::started();
    node.configure("good", "capacity: 2");
    node.devices.see("good", [device("door")]);
    let door = instance_name("good", "door");
    node.until_counts(&door, 2, 2).await;
    node.run_pod("broker", &[(&format!("akri.sh/{door}"), 1)]);
    node.env("broker").await;
    (node, door)
}

/// Asserts that the Pod of `at_work` still runs, that another Pod gets the device, and that another device is found.
async fn still_works(node: &TestNode, door: &str) {
    node.assert_all_run();
    assert_eq!(node.restarts("broker").await, Some(0));
    node.run_pod("another", &[(&format!("akri.sh/{door}"), 1)]);
    assert_eq!(node.env("another").await["ADDRESS"], "10.0.0.1");
    node.devices.see("good", [device("door"), device("yard")]);
    node.until_counts(&instance_name("good", "yard"), 2, 2)
        .await;
    assert_eq!(node.devices.runs("good"), 1);
}
