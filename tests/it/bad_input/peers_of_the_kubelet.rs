//! Tests of bad input at our kubelet's sockets.
use super::*;

/// Asks our kubelet to register the server at `socket`, and does not wait for the answer.
fn register(node: &TestNode, socket: &str, name: &str) -> JoinSet<Option<tonic::Status>> {
    let path = node.agent_settings.plugin_folder.join("kubelet.sock");
    let request = RegisterRequest {
        version: VERSION.to_owned(),
        endpoint: socket.to_owned(),
        resource_name: name.to_owned(),
        options: None,
    };
    let mut call = JoinSet::new();
    call.spawn(async move {
        let channel = uds::dial(&path).await.unwrap();
        RegistrationClient::new(channel)
            .register(request)
            .await
            .err()
    });
    call
}

#[tokio::test]
async fn a_plugin_that_never_answers_holds_up_no_other() {
    let (node, door) = at_work().await;
    let listener = UnixListener::bind(node.agent_settings.plugin_folder.join("mute.sock")).unwrap();
    let _call = register(&node, "mute.sock", "example.com/mute");
    let (_connection, _) = timeout(PATIENCE, listener.accept()).await.unwrap().unwrap();
    still_works(&node, &door).await;
    assert_eq!(node.counts("mute").await, None);
}

#[tokio::test]
async fn a_plugin_that_sends_garbage_is_refused() {
    let (node, door) = at_work().await;
    let listener = UnixListener::bind(node.agent_settings.plugin_folder.join("junk.sock")).unwrap();
    let mut call = register(&node, "junk.sock", "example.com/junk");
    let (mut connection, _) = timeout(PATIENCE, listener.accept()).await.unwrap().unwrap();
    connection.write_all(&garbage()[24..]).await.ok();
    drop(connection);
    drop(listener);
    let refusal = timeout(PATIENCE, call.join_next())
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    assert!(refusal.is_some(), "it was registered");
    still_works(&node, &door).await;
}

/// Returns the reason of a rejected registration.
async fn refused(node: &TestNode, socket: &str, resource: &str) -> String {
    let mut call = register(node, socket, resource);
    let refusal = timeout(PATIENCE, call.join_next())
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    refusal.expect("refused").message().to_owned()
}

#[tokio::test]
async fn a_plugin_that_is_not_there_is_refused_by_name() {
    let (node, door) = at_work().await;
    for socket in ["gone.sock", "../gone.sock", ""] {
        let message = refused(&node, socket, "example.com/gone").await;
        assert!(
            message.contains(socket.trim_start_matches("../")),
            "{message}"
        );
    }
    still_works(&node, &door).await;
}

#[tokio::test]
async fn names_and_versions_that_are_none_are_refused() {
    let (node, door) = at_work().await;
    for name in ["", "none", "a b/c", "kubernetes.io/x", "x/"] {
        let message = refused(&node, "x.sock", name).await;
        assert!(message.contains("is invalid"), "{name:?}: {message}");
    }
    still_works(&node, &door).await;
}

#[tokio::test]
async fn garbage_at_its_own_sockets_is_not_heard() {
    let (node, door) = at_work().await;
    for socket in [
        node.agent_settings.plugin_folder.join("kubelet.sock"),
        node.agent_settings.pod_resources_socket.clone(),
        node.kubelet_settings.root_dir.join("kubelet-api.sock"),
    ] {
        let mut stream = UnixStream::connect(&socket).await.unwrap();
        stream.write_all(&garbage()).await.ok();
        let mut answer = vec![];
        // The kubelet may close the connection or wait for more; both are correct.
        timeout(Duration::from_millis(300), stream.read_to_end(&mut answer))
            .await
            .ok();
    }
    still_works(&node, &door).await;
}
