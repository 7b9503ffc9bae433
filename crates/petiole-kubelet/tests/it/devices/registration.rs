//! Tests of plugins that register, stop, and return after the kubelet has restarted.
use super::*;

#[tokio::test]
async fn refusals_of_registrations_have_the_kubelets_texts() {
    let node = Node::start().await;
    let refusals = [
        (
            node.register(CAM, "x.sock", "v1alpha").await,
            r#"requested API version "v1alpha" is not supported by kubelet. Supported version is ["v1beta1"]"#,
        ),
        (
            node.register("cam", "x.sock", "v1beta1").await,
            r#"the ResourceName "cam" is invalid"#,
        ),
    ];
    for (refusal, want) in &refusals {
        let status = refusal.as_ref().unwrap_err();
        assert_eq!((status.code(), status.message()), (Code::Unknown, *want));
    }
    let shown = node.client.plugins().await.unwrap();
    let reasons: Vec<_> = shown
        .iter()
        .map(|p| (p.state, p.reason.as_deref()))
        .collect();
    let want = refusals.map(|(_, want)| (PluginState::Refused, Some(want)));
    assert_eq!(reasons, want);
    assert!(node.counts(CAM).await.is_none());
}

#[tokio::test]
async fn capacity_follows_lists_health_and_the_end_of_a_plugin() {
    let node =
        Node::start_with(|settings| settings.endpoint_grace = Duration::from_millis(700)).await;
    let plugin = FakePlugin::start(&node, CAM, &["a", "b"]).await;
    node.until_counts(CAM, Some("2/2")).await;
    plugin.list(devices(&["a"], &["b", "c"]));
    node.until_counts(CAM, Some("3/1")).await;
    plugin.list(vec![]);
    node.until_counts(CAM, Some("0/0")).await;
    plugin.list(devices(&["a"], &[]));
    node.until_counts(CAM, Some("1/1")).await;

    plugin.die().await;
    node.until_counts(CAM, Some("1/0")).await;
    node.until_counts(CAM, None).await;
    assert!(node.client.plugins().await.unwrap().is_empty());
}

#[tokio::test]
async fn a_plugin_that_hangs_does_not_disturb_the_others() {
    let node = Node::start().await;
    let cam = FakePlugin::start(&node, CAM, &["a"]).await;
    let _mic = FakePlugin::start(&node, MIC, &["m"]).await;
    node.until_counts(CAM, Some("1/1")).await;
    node.until_counts(MIC, Some("1/1")).await;
    cam.answer(Answer::Hang);
    node.manifest("hangs", &asking(&format!("{CAM}: 1")));
    eventually("Allocate", async || cam.calls().allocate.len() == 1).await;
    node.manifest("runs", &asking(&format!("{MIC}: 1")));
    node.until_log("runs", "c", "mic=m").await;
    node.remove_manifest("hangs");
    eventually("the hanging pod is gone", async || {
        node.pod("hangs").await.is_none()
    })
    .await;
    assert_eq!(held(&node).await, pairs(&[(MIC, "m")]));
}

#[tokio::test]
async fn a_restarted_kubelet_keeps_allocations_and_waits_for_its_plugins() {
    let mut node = Node::start().await;
    let pre_start = || Options {
        pre_start_required: true,
        ..Options::default()
    };
    let plugin = FakePlugin::serve_with(&node, CAM, "cam.sock", &["a", "b"], pre_start());
    plugin.register(&node).await.unwrap();
    node.until_counts(CAM, Some("2/2")).await;
    node.manifest("p", &asking(&format!("{CAM}: 1")));
    node.until_log("p", "c", "cam=a").await;
    assert_eq!(plugin.calls().pre_start, [["a"]]);
    std::fs::remove_dir_all(node.root().join("logs")).unwrap();

    node.restart().await;
    assert_eq!(node.counts(CAM).await.unwrap(), "0/0");
    let reason = "/containerStatuses/0/state/waiting/reason";
    node.until_pod("p", reason, json!("DevicePluginNotReady"))
        .await;
    assert!(!node.root().join("device-plugins/cam.sock").exists());
    let plugin = FakePlugin::serve_with(&node, CAM, "cam.sock", &["a", "b"], pre_start());
    plugin.register(&node).await.unwrap();
    node.until_log("p", "c", "cam=a").await;
    let calls = plugin.calls();
    assert_eq!(calls.pre_start, [["a"]]);
    assert!(calls.allocate.is_empty(), "the first answer is replayed");
    assert_eq!(held(&node).await, pairs(&[(CAM, "a")]));
}

#[tokio::test]
async fn a_pod_that_goes_while_the_kubelet_is_down_holds_nothing() {
    let mut node = Node::start().await;
    let plugin = FakePlugin::start(&node, CAM, &["a"]).await;
    node.until_counts(CAM, Some("1/1")).await;
    node.manifest("p", &asking(&format!("{CAM}: 1")));
    node.until_log("p", "c", "cam=a").await;
    node.stop().await;
    plugin.die().await;
    node.remove_manifest("p");

    node.restart_stopped().await;
    let _plugin = FakePlugin::start(&node, CAM, &["a"]).await;
    node.manifest("q", &asking(&format!("{CAM}: 1")));
    node.until_log("q", "c", "cam=a").await;
    assert_eq!(held(&node).await, pairs(&[(CAM, "a")]));
}

#[tokio::test]
async fn hundreds_of_plugins_register_side_by_side() {
    let node = Node::start().await;
    let plugins: Vec<FakePlugin> = (0..200)
        .map(|n| {
            FakePlugin::serve(
                &node,
                &format!("akri.sh/p{n}"),
                &format!("p{n}.sock"),
                &["a"],
            )
        })
        .collect();
    let registered = plugins.iter().map(|plugin| plugin.register(&node));
    let registered = futures::future::join_all(registered).await;
    assert!(registered.iter().all(Result::is_ok));
    eventually("all are listed", async || {
        let plugins = node.client.plugins().await.unwrap();
        plugins.iter().filter(|plugin| plugin.healthy == 1).count() == 200
    })
    .await;
}

#[tokio::test]
async fn only_sockets_at_the_top_of_the_folder_are_swept() {
    let mut node = Node::start().await;
    let folder = node.root().join("device-plugins");
    let bind = |path: &Path| drop(std::os::unix::net::UnixListener::bind(path).unwrap());
    std::fs::create_dir(folder.join("sub")).unwrap();
    std::fs::write(folder.join("file"), "").unwrap();
    bind(&folder.join("a.sock"));
    bind(&folder.join("sub/b.sock"));
    std::fs::write(folder.join("kubelet_internal_checkpoint"), "{").unwrap();
    node.restart().await;
    assert!(!folder.join("a.sock").exists());
    assert!(folder.join("sub/b.sock").exists() && folder.join("file").exists());
}
