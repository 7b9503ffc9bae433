//! Tests of bad input at our agent's sockets.
use super::*;

#[tokio::test]
async fn garbage_and_silence_at_a_plugin_disturb_no_other_call() {
    let (node, door) = at_work().await;
    let socket = node
        .agent_settings
        .plugin_folder
        .join(node.socket_of(&door).unwrap());
    let mut silent = vec![];
    for _ in 0..20 {
        silent.push(UnixStream::connect(&socket).await.unwrap());
        let mut stream = UnixStream::connect(&socket).await.unwrap();
        stream.write_all(&garbage()).await.ok();
    }
    still_works(&node, &door).await;
}

#[tokio::test]
async fn a_call_for_what_is_no_slot_is_refused_with_the_reason() {
    let (node, door) = at_work().await;
    let beyond = format!("{door}-7");
    for (ids, reason) in [
        (vec!["nonsense"], "is no slot of"),
        (vec![""], "is no slot of"),
        (vec!["good-0"], "is no slot of"),
        (vec![beyond.as_str()], "beyond the capacity"),
    ] {
        let refusal = node.allocate(&door, &ids).await.unwrap_err();
        assert!(refusal.message().contains(reason), "{ids:?}: {refusal}");
    }
    let slot = format!("{door}-1");
    let refusal = node.allocate(&door, &[&slot, &slot]).await.unwrap_err();
    assert!(refusal.message().contains("twice"), "{refusal}");
    assert_eq!(node.usage(&door).len(), 1, "a refused call claims nothing");
    still_works(&node, &door).await;
}

#[tokio::test]
async fn a_kubelet_that_never_answers_is_given_up_for_the_next_one() {
    let mut node = TestNode::new();
    let folder = node.agent_settings.plugin_folder.clone();
    fs::create_dir_all(&folder).unwrap();
    let mute = UnixListener::bind(folder.join("kubelet.sock")).unwrap();
    node.start_agent();
    node.configure("cam", "capacity: 1");
    node.devices.see("cam", [device("door")]);
    let (_connection, _) = timeout(PATIENCE, mute.accept()).await.unwrap().unwrap();
    node.start_kubelet();
    node.until_counts(&instance_name("cam", "door"), 1, 1).await;
}

#[tokio::test]
async fn pod_resources_that_hang_or_lie_release_no_slot() {
    let mut node = TestNode::new();
    let socket = node.root().join("pods.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    node.agent_settings.pod_resources_socket = socket;
    node.agent_settings.kubelet_startup_grace = Duration::ZERO;
    node.agent_settings.look_interval = Duration::from_millis(100);
    node.start_kubelet();
    node.start_agent();
    node.configure("cam", "capacity: 1");
    node.devices.see("cam", [device("door")]);
    let door = instance_name("cam", "door");
    node.until_counts(&door, 1, 1).await;
    node.allocate(&door, &[&format!("{door}-0")]).await.unwrap();
    let mut held = vec![];
    for n in 0..6 {
        let (mut connection, _) = timeout(PATIENCE, listener.accept()).await.unwrap().unwrap();
        if n % 3 == 0 {
            held.push(connection); // and never a word; it is given up after a while
        } else {
            connection.write_all(&garbage()).await.ok();
        }
    }
    assert_eq!(node.usage(&door).len(), 1);
}
