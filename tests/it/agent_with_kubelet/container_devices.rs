//! Tests of `containerDevices`: the paths and the rights of device nodes in containers.
use super::*;
use petiole::model::container_devices::ContainerRules;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

const WISH: &str = "containerDevices: {path: /dev/zigbee, links: true, mode: '0660', uid: 1000}";

fn stick(id: &str, node: &str) -> Device {
    let mut device = device(id);
    device.device_nodes.push(DeviceNode {
        container_path: node.to_owned(),
        host_path: node.to_owned(),
        permissions: "rw".to_owned(),
        links: vec![format!("/dev/serial/by-id/{id}")],
    });
    device
}

/// A node with two sticks of the Configuration `stick`, and its folder for CDI files.
async fn with_two_sticks(spec: &str) -> (TestNode, PathBuf) {
    let mut node = TestNode::new();
    let folder = node.root().join("run/cdi");
    node.agent_settings.containers = ContainerRules {
        paths: vec![],
        cdi_folder: Some(folder.clone()),
    };
    node.start_kubelet();
    node.start_agent();
    node.configure("stick", spec);
    let sticks = [stick("hall", "/dev/ttyUSB0"), stick("yard", "/dev/ttyUSB1")];
    node.devices.see("stick", sticks);
    node.until_counts("stick", 2, 2).await;
    (node, folder)
}

fn file_of(folder: &Path, instance: &str) -> PathBuf {
    folder.join(format!("petiole-{instance}.json"))
}

#[tokio::test]
async fn without_rights_the_kubelet_gets_device_nodes_and_no_file_is_written() {
    let spec = "containerDevices: {path: /dev/zigbee, links: true}";
    let (node, folder) = with_two_sticks(spec).await;
    let hall = instance_name("stick", "hall");
    let response = node.allocate(&hall, &[&format!("{hall}-0")]).await.unwrap();
    let nodes = response.devices.iter();
    let nodes: Vec<_> = nodes.map(|n| (&*n.container_path, &*n.host_path)).collect();
    assert_eq!(
        nodes,
        [
            ("/dev/ttyUSB0", "/dev/ttyUSB0"),
            ("/dev/zigbee", "/dev/ttyUSB0"),
            ("/dev/serial/by-id/hall", "/dev/ttyUSB0"),
        ]
    );
    assert_eq!(response.cdi_devices, []);
    assert!(!folder.exists());
}

#[tokio::test]
async fn two_devices_at_one_path_are_refused_and_nothing_is_held() {
    for spec in ["containerDevices: {path: /dev/zigbee}", WISH] {
        let (node, folder) = with_two_sticks(spec).await;
        let refused = node
            .allocate("stick", &["stick-0", "stick-1"])
            .await
            .unwrap_err();
        for part in [
            "/dev/zigbee",
            "/dev/ttyUSB0",
            "/dev/ttyUSB1",
            "with a slash",
        ] {
            assert!(refused.message().contains(part), "{refused}");
        }
        for id in ["hall", "yard"] {
            assert!(node.usage(&instance_name("stick", id)).is_empty(), "{id}");
        }
        assert!(!folder.exists());
        node.configure("stick", "containerDevices: {path: /dev/zigbee/}");
        node.until("each has a name in the folder", async || {
            node.allocate("stick", &["stick-0", "stick-1"]).await.ok()
        })
        .await;
    }
}

#[tokio::test]
async fn with_rights_the_file_is_there_before_the_answer_and_before_each_start() {
    let (node, folder) = with_two_sticks(WISH).await;
    let hall = instance_name("stick", "hall");
    let (slot, file) = (format!("{hall}-0"), file_of(&folder, &hall));
    let response = node.allocate(&hall, &[&slot]).await.unwrap();
    let names = response.cdi_devices.iter();
    let names: Vec<_> = names.map(|device| device.name.clone()).collect();
    assert_eq!(names, [format!("akri.sh/petiole={hall}")]);
    assert_eq!(response.devices, []);
    let text: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!(text["devices"][0]["name"], hall);
    assert_eq!(
        text["devices"][0]["containerEdits"]["deviceNodes"][1],
        json!({"path": "/dev/zigbee", "hostPath": "/dev/ttyUSB0", "permissions": "rw", "fileMode": 0o660, "uid": 1000})
    );
    // As after a start of the machine.
    fs::remove_dir_all(&folder).unwrap();
    let mut plugin = node.plugin(&hall).await;
    let start = petiole_kubelet_api::device_plugin::PreStartContainerRequest {
        devices_ids: vec![slot],
    };
    plugin.pre_start_container(start).await.unwrap();
    assert!(file.exists());
}

#[tokio::test]
async fn an_agent_that_starts_writes_the_files_of_running_containers_again() {
    let (mut node, folder) = with_two_sticks(WISH).await;
    let hall = instance_name("stick", "hall");
    node.run_pod("broker", &[(&format!("akri.sh/{hall}"), 1)]);
    node.env("broker").await;
    node.kill_agent();
    fs::remove_dir_all(&folder).unwrap();
    node.start_agent();
    let file = file_of(&folder, &hall);
    node.until("the file is back", async || file.exists().then_some(()))
        .await;
    assert!(!file_of(&folder, &instance_name("stick", "yard")).exists());
}

#[tokio::test]
async fn a_container_is_not_started_again_with_other_wishes_than_its_own() {
    let (node, _) = with_two_sticks(WISH).await;
    let hall = instance_name("stick", "hall");
    node.run_pod("broker", &[(&format!("akri.sh/{hall}"), 1)]);
    node.env("broker").await;
    node.configure("stick", "containerDevices: {path: /dev/zigbee2}");
    let yard = instance_name("stick", "yard");
    node.until("the agent goes by it", async || {
        let slot = format!("{yard}-0");
        let response = node.allocate(&yard, &[&slot]).await.unwrap();
        (response.devices.iter())
            .any(|node| node.container_path == "/dev/zigbee2")
            .then_some(())
    })
    .await;
    node.crash("broker").await;
    node.until_waiting("broker", "containerDevices of its Configuration")
        .await;
}
