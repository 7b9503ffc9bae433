//! Tests of the slots that a container gets, and of those that it is refused.
use super::*;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

#[tokio::test]
async fn a_container_may_have_an_instance_and_a_configuration_resource() {
    let node = TestNode::started();
    node.configure("cam", "capacity: 1");
    node.configure("mic", "capacity: 1");
    node.devices.see("cam", [device("door")]);
    let ear = with(device("ear"), &[("ADDRESS", "10.0.0.2"), ("GAIN", "3")]);
    node.devices.see("mic", [ear]);
    let (door, ear) = (instance_name("cam", "door"), instance_name("mic", "ear"));
    node.until_counts(&door, 1, 1).await;
    node.until_counts("mic", 1, 1).await;

    node.run_pod(
        "broker",
        &[(&format!("akri.sh/{door}"), 1), ("akri.sh/mic", 1)],
    );
    let env = node.env("broker").await;
    let suffix = |name: &str| name.rsplit('-').next().unwrap().to_uppercase();
    assert_eq!(env[&format!("ADDRESS_{}", suffix(&door))], "10.0.0.1");
    assert_eq!(env[&format!("ADDRESS_{}", suffix(&ear))], "10.0.0.2");
    assert_eq!(env["GAIN"], "3");
    node.until_usage(&door, &[(&format!("{door}-0"), "node-a")])
        .await;
    node.until_usage(&ear, &[(&format!("{ear}-0"), "C:mic-0:node-a")])
        .await;
}

#[tokio::test]
async fn a_discovery_that_blocks_its_thread_holds_up_no_container_and_no_probe() {
    let mut node = TestNode::new();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    node.agent_settings.http_address = Some(address);
    node.start_kubelet();
    node.start_agent();
    node.configure("cam", "capacity: 2");
    node.devices.see("cam", [device("door")]);
    let door = instance_name("cam", "door");
    node.until_counts(&door, 2, 2).await;

    let blocked = node.devices.block();
    node.configure_with("hostile", "block", "capacity: 1");
    node.until("the thread is blocked", async || {
        (node.devices.runs("block") > 0).then_some(())
    })
    .await;
    let slot = format!("{door}-0");
    node.allocate(&door, &[&slot]).await.unwrap();
    node.until_usage(&door, &[(&slot, "node-a")]).await;
    node.run_pod("user", &[(&format!("akri.sh/{door}"), 1)]);
    assert_eq!(node.env("user").await["ADDRESS"], "10.0.0.1");
    assert_eq!(get(address, "/healthz").await, "200 OK");
    assert_eq!(get(address, "/readyz").await, "200 OK");
    drop(blocked);
    node.stop_agent().await;
}

/// Returns the status of an answer.
async fn get(address: std::net::SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.0\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    let read = stream.read_to_string(&mut answer);
    timeout(PATIENCE, read).await.unwrap().unwrap();
    let status = answer.lines().next().unwrap();
    status.split_once(' ').unwrap().1.to_owned()
}

#[tokio::test]
async fn two_of_a_configuration_in_one_container_are_two_devices() {
    let node = TestNode::started();
    node.configure("cam", "capacity: 3");
    let yard = with(device("yard"), &[("ADDRESS", "10.0.0.2")]);
    node.devices.see("cam", [device("door"), yard]);
    node.until_counts("cam", 2, 2).await;

    node.run_pod("broker", &[("akri.sh/cam", 2)]);
    let env = node.env("broker").await;
    let mut addresses: Vec<_> = (env.iter())
        .filter(|(key, _)| key.starts_with("ADDRESS_"))
        .map(|(_, value)| value.as_str())
        .collect();
    addresses.sort_unstable();
    assert_eq!(addresses, ["10.0.0.1", "10.0.0.2"]);
    for name in ["door", "yard"].map(|id| instance_name("cam", id)) {
        assert_eq!(node.usage(&name).len(), 1, "{name}");
    }
}

#[tokio::test]
async fn one_call_for_one_container_has_one_response_with_everything_of_both_devices() {
    let node = TestNode::started();
    node.configure("cam", "capacity: 1");
    let mounted = |id: &str, path: &str| {
        let mut device = Device::new(id);
        device.mounts.push(Mount {
            container_path: path.to_owned(),
            host_path: path.to_owned(),
            read_only: true,
        });
        device.device_nodes.push(DeviceNode {
            container_path: path.to_owned(),
            host_path: path.to_owned(),
            permissions: "rw".to_owned(),
            links: vec![],
        });
        device.cdi_devices.push(format!("example.com/cam={id}"));
        device
    };
    node.devices
        .see("cam", [mounted("door", "/a"), mounted("yard", "/b")]);
    node.until_counts("cam", 2, 2).await;
    // `allocate` asserts that there is one response.
    let response = node.allocate("cam", &["cam-0", "cam-1"]).await.unwrap();
    let mut paths: Vec<_> = response.mounts.iter().map(|m| &*m.host_path).collect();
    paths.sort_unstable();
    assert_eq!(paths, ["/a", "/b"]);
    assert_eq!(response.devices.len(), 2);
    let mut names: Vec<_> = response.cdi_devices.iter().map(|c| &*c.name).collect();
    names.sort_unstable();
    assert_eq!(names, ["example.com/cam=door", "example.com/cam=yard"]);
}

#[tokio::test]
async fn slots_that_the_other_resource_holds_are_unhealthy() {
    let (node, door) = TestNode::with_a_camera("capacity: 2", 2).await;
    node.until_counts("cam", 1, 1).await;

    node.run_pod("by-configuration", &[("akri.sh/cam", 1)]);
    node.pid("by-configuration").await;
    node.until_counts(&door, 2, 1).await;
    // A free id is listed beside the one in use, because the device has a free slot.
    node.until_counts("cam", 2, 2).await;

    let resource = format!("akri.sh/{door}");
    node.run_pod("by-instance", &[(&resource, 1)]);
    node.pid("by-instance").await;
    node.until_usage(
        &door,
        &[
            (&format!("{door}-0"), "node-a"),
            (&format!("{door}-1"), "C:cam-0:node-a"),
        ],
    )
    .await;
    node.until_counts("cam", 1, 1).await;
    node.run_pod("third", &[(&resource, 1)]);
    node.until_refused("third", &resource).await;

    let refusal = node
        .allocate(&door, &[&format!("{door}-1")])
        .await
        .unwrap_err();
    assert!(
        refusal.message().contains("by the other resource"),
        "{refusal}"
    );
}

#[tokio::test]
async fn a_call_that_its_client_gives_up_undoes_its_claim() {
    let node = TestNode::started();
    node.configure("cam", "capacity: 1");
    node.devices.see("cam", [device("door")]);
    let door = instance_name("cam", "door");
    let slot = format!("{door}-0");
    node.give_up_a_claim(&door, &slot).await;
    node.store.is_held_up.send_replace(false);
    node.until_usage(&door, &[]).await;
    node.allocate(&door, &[&slot]).await.unwrap();
}

#[tokio::test]
async fn a_slot_is_released_when_its_pod_is_gone() {
    let mut node = TestNode::new();
    node.agent_settings.look_interval = Duration::from_millis(300);
    node.start_kubelet();
    node.start_agent();
    node.configure("cam", "capacity: 2");
    node.devices.see("cam", [device("door")]);
    let door = instance_name("cam", "door");
    node.until_counts(&door, 2, 2).await;
    for pod in ["stays", "goes"] {
        node.run_pod(pod, &[(&format!("akri.sh/{door}"), 1)]);
        node.pid(pod).await;
    }
    node.remove_pod("goes");
    node.until("one slot is released", async || {
        (node.usage(&door).len() == 1).then_some(())
    })
    .await;
    let restarts = node.restarts("stays").await;
    assert_eq!(restarts, Some(0));
}
