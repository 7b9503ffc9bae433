//! Tests of plugins whose socket is deleted, or whose registration the kubelet has dropped.
use super::*;
use std::collections::BTreeSet;

#[tokio::test]
async fn a_plugin_whose_socket_file_is_deleted_makes_another_and_registers_again() {
    let (node, door) = TestNode::with_a_camera("capacity: 1", 1).await;
    let folder = node.agent_settings.plugin_folder.clone();
    let path = || Some(folder.join(node.socket_of(&door)?));
    let before = fs::metadata(path().unwrap()).unwrap().modified().unwrap();
    fs::remove_file(path().unwrap()).unwrap();
    node.until("another socket is registered", async || {
        let made = fs::metadata(path()?).ok()?.modified().unwrap();
        let plugins = node.kubelet().plugins().await.ok()?;
        let plugin = (plugins.into_iter()).find(|p| p.name == format!("akri.sh/{door}"))?;
        let is_its = plugin.endpoint == path()?.display().to_string();
        (made != before && is_its && plugin.healthy == 1).then_some(())
    })
    .await;
    node.allocate(&door, &[&format!("{door}-0")]).await.unwrap();
}

#[tokio::test]
async fn a_plugin_that_the_kubelet_has_let_go_of_registers_again() {
    let mut node = TestNode::new();
    let folder = node.agent_settings.plugin_folder.clone();
    fs::create_dir_all(&folder).unwrap();
    let mut kubelet = FakeRegistration::start(&folder.join("kubelet.sock"));
    node.start_agent();
    node.configure("cam", "capacity: 1");
    node.devices.see("cam", [device("door")]);
    let door = instance_name("cam", "door");
    let resource = format!("akri.sh/{door}");
    let mut sockets = BTreeSet::new();
    let mut left = None;
    for round in 0..4 {
        let registered = kubelet.registered(&resource).await;
        assert!(
            sockets.insert(registered.endpoint.clone()),
            "from 1.37 on a kubelet refuses a socket that it has not let go of"
        );
        assert!(
            folder.join(&registered.endpoint).exists(),
            "serve, then register"
        );
        if round == 2 {
            // It opens no stream.
            let mut plugin = node.plugin(&door).await;
            plugin.get_device_plugin_options(Empty {}).await.unwrap();
            left = Some(plugin);
            continue;
        }
        let mut plugin = node.plugin(&door).await;
        let mut lists = plugin.list_and_watch(Empty {}).await.unwrap().into_inner();
        let list = timeout(PATIENCE, lists.message())
            .await
            .unwrap()
            .unwrap()
            .unwrap();
        assert_eq!(list.devices.len(), 1);
    }
    // A kubelet whose Register was not waited for leaves its connection open.
    let asked = left.unwrap().get_device_plugin_options(Empty {}).await;
    asked.expect_err("the connection ended with the socket");
}

/// A kubelet before 1.37 may have forgotten a plugin whose list it still follows. When the stream of such a one ends, it goes on
/// offering what was listed last.
#[tokio::test]
async fn the_last_list_of_a_resource_that_goes_has_no_healthy_slot() {
    let mut node = TestNode::new();
    let folder = node.agent_settings.plugin_folder.clone();
    fs::create_dir_all(&folder).unwrap();
    let mut kubelet = FakeRegistration::start(&folder.join("kubelet.sock"));
    node.start_agent();
    node.configure("cam", "capacity: 2");
    node.devices.see("cam", [device("door")]);
    let door = instance_name("cam", "door");
    kubelet.registered(&format!("akri.sh/{door}")).await;
    // Two connections, as of a kubelet that has registered twice: it closes neither.
    let mut lists = vec![];
    for _ in 0..2 {
        let mut plugin = node.plugin(&door).await;
        let mut list = plugin.list_and_watch(Empty {}).await.unwrap().into_inner();
        assert_eq!(healths(list.message().await), ["Healthy"; 2]);
        lists.push((plugin, list));
    }
    node.remove_manifest("cam.yaml");
    for (mut plugin, mut list) in lists {
        let last = timeout(PATIENCE, list.message()).await.unwrap();
        assert_eq!(healths(last), ["Unhealthy"; 2]);
        let end = timeout(PATIENCE, list.message()).await.unwrap();
        assert_eq!(end.unwrap(), None, "the list ends, and not the connection");
        node.until("the connection ends", async || {
            let asked = plugin.get_device_plugin_options(Empty {}).await;
            asked.is_err().then_some(())
        })
        .await;
    }
}

fn healths(message: Result<Option<ListAndWatchResponse>, Status>) -> Vec<String> {
    let devices = message.unwrap().unwrap().devices;
    devices.into_iter().map(|device| device.health).collect()
}
