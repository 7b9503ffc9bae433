//! Tests of the devices that containers get, and of Pods that cannot have them.
use super::*;

#[tokio::test]
async fn two_resources_in_one_container_are_merged_and_shown() {
    let node = Node::start().await;
    let cam = FakePlugin::start(&node, CAM, &["c0", "c1"]).await;
    let mic = FakePlugin::start(&node, MIC, &["m0"]).await;
    node.until_counts(CAM, Some("2/2")).await;
    node.until_counts(MIC, Some("1/1")).await;
    node.manifest(
        "both",
        &asking(&format!("{CAM}: 2, {MIC}: 1, akri.sh/unknown: 1")),
    );
    node.until_log(
        "both",
        "c",
        "cam=c0,c1 mic=m0 shared=akri.sh/cam own=<$(CAM)>",
    )
    .await;
    assert_eq!(cam.calls().allocate, [["c0", "c1"]]);
    assert_eq!(mic.calls().allocate, [["m0"]]);
    assert_eq!(
        held(&node).await,
        pairs(&[(CAM, "c0"), (CAM, "c1"), (MIC, "m0")])
    );

    cam.list(devices(&["c0"], &["c1"]));
    let health = "/containerStatuses/0/allocatedResourcesStatus/0";
    let want = json!({"name": CAM, "resources": [
        {"resourceID": "c0", "health": "Healthy"}, {"resourceID": "c1", "health": "Unhealthy"}]});
    node.until_pod("both", health, want).await;

    node.remove_manifest("both");
    eventually("the pod is gone", async || node.pod("both").await.is_none()).await;
    assert!(held(&node).await.is_empty());
}

#[tokio::test]
async fn pods_that_cannot_have_their_devices_fail_with_the_reason_and_hold_nothing() {
    let node = Node::start().await;
    let cam = FakePlugin::start(&node, CAM, &["a", "b"]).await;
    let mic = FakePlugin::start(&node, MIC, &["m"]).await;
    node.until_counts(CAM, Some("2/2")).await;
    node.until_counts(MIC, Some("1/1")).await;
    let failed = async |name: &str, why: &str| {
        let message =
            format!("Pod was rejected: Allocate failed due to {why}, which is unexpected");
        node.until_pod(name, "/message", json!(message)).await;
        node.until_pod(name, "/phase", json!("Failed")).await;
        node.until_pod(name, "/reason", json!("UnexpectedAdmissionError"))
            .await;
        let plugins = node.client.plugins().await.unwrap();
        assert!(plugins.iter().all(|plugin| plugin.allocated == 0));
    };
    node.manifest("many", &asking(&format!("{CAM}: 3")));
    let text =
        "requested number of devices unavailable for akri.sh/cam. Requested: 3, Available: 2";
    failed("many", text).await;
    mic.answer(Answer::Error("no such thing"));
    node.manifest("error", &asking(&format!("{CAM}: 1, {MIC}: 1")));
    failed("error", "rpc error: code = Unknown desc = no such thing").await;
    cam.answer(Answer::Empty);
    node.manifest("empty", &asking(&format!("{CAM}: 1")));
    failed("empty", "no containers return in allocation response").await;
    mic.list(devices(&[], &["m"]));
    node.until_counts(MIC, Some("1/0")).await;
    node.manifest("sick", &asking(&format!("{MIC}: 1")));
    failed(
        "sick",
        "no healthy devices present; cannot allocate unhealthy devices akri.sh/mic",
    )
    .await;
}

#[tokio::test]
async fn preferences_of_a_plugin_are_followed_where_they_can_be() {
    let node = Node::start().await;
    let options = Options {
        prefers: ["c", "unheard-of"].map(str::to_owned).into(),
        ..Options::default()
    };
    let plugin = FakePlugin::serve_with(&node, CAM, "cam.sock", &["a", "b", "c"], options);
    plugin.register(&node).await.unwrap();
    node.until_counts(CAM, Some("3/3")).await;
    node.manifest("p", &asking(&format!("{CAM}: 2")));
    node.until_log("p", "c", "cam=a,c").await;
    assert_eq!(plugin.calls().preferred, 1);
}

/// Starts a container as a killed kubelet leaves it behind. It ignores SIGTERM.
fn leave_behind(node: &Node) -> Child {
    let mut left = Command::new("sh");
    left.args([
        "-c",
        "trap '' TERM; echo up; for i in $(seq 600); do sleep 0.1; done",
    ]);
    let mut left = left
        .process_group(0)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut up = String::new();
    let mut output = BufReader::new(left.stdout.take().unwrap());
    output.read_line(&mut up).unwrap();
    let read = |path: &str| std::fs::read_to_string(path).unwrap().trim().to_owned();
    let stat = read(&format!("/proc/{}/stat", left.id()));
    let started: u64 = stat.split(' ').nth(21).unwrap().parse().unwrap();
    let boot = read("/proc/sys/kernel/random/boot_id");
    let record = json!({"pid": left.id(), "started": started, "boot": boot, "graceSeconds": 20});
    let folder = node.root().join("containers");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("left.json"), record.to_string()).unwrap();
    left
}

#[tokio::test]
async fn pods_and_their_devices_are_known_while_containers_of_a_killed_kubelet_end() {
    let mut node = Node::start().await;
    let _plugin = FakePlugin::start(&node, CAM, &["a", "b"]).await;
    node.until_counts(CAM, Some("2/2")).await;
    node.manifest("p", &asking(&format!("{CAM}: 1")));
    node.until_log("p", "c", "cam=a").await;
    node.stop().await;
    let mut left = leave_behind(&node);

    node.restart_stopped().await;
    assert_eq!(held(&node).await, pairs(&[(CAM, "a")]));
    assert_eq!(node.pod("p").await.unwrap()["status"]["phase"], "Pending");
    assert_eq!(left.try_wait().unwrap(), None, "it still ends");

    left.kill().unwrap();
    left.wait().unwrap();
    let reason = "/containerStatuses/0/state/waiting/reason";
    node.until_pod("p", reason, json!("DevicePluginNotReady"))
        .await;
    assert_eq!(held(&node).await, pairs(&[(CAM, "a")]));
}

#[tokio::test]
async fn a_plugin_can_refuse_the_start_of_a_container() {
    let node = Node::start().await;
    let options = Options {
        pre_start_required: true,
        ..Options::default()
    };
    let plugin = FakePlugin::serve_with(&node, CAM, "cam.sock", &["a"], options);
    plugin.register(&node).await.unwrap();
    plugin.refuse_start(Some("it has moved"));
    node.until_counts(CAM, Some("1/1")).await;
    node.manifest("p", &asking(&format!("{CAM}: 1")));
    let waiting = json!({
        "reason": "CreateContainerConfigError",
        "message": "device plugin PreStartContainer rpc failed with err: rpc error: code = Unknown desc = it has moved",
    });
    node.until_pod("p", "/containerStatuses/0/state/waiting", waiting)
        .await;
    let health = "/containerStatuses/0/allocatedResourcesStatus/0/resources/0/health";
    node.until_pod("p", health, json!("Healthy")).await;
    plugin.list(devices(&[], &["a"]));
    node.until_pod("p", health, json!("Unhealthy")).await;
    plugin.list(devices(&["a"], &[]));
    plugin.refuse_start(None);
    node.until_log("p", "c", "cam=a").await;
}

#[tokio::test]
async fn init_containers_pass_their_devices_on() {
    let node = Node::start().await;
    let plugin = FakePlugin::start(&node, CAM, &["a", "b"]).await;
    node.until_counts(CAM, Some("2/2")).await;
    let container = |name: &str, extra: &str| {
        format!(
            "  - name: {name}\n    image: x\n    command: [sh, -c, 'echo cam=$CAM']\n    resources: {{limits: {{{CAM}: 1}}}}\n{extra}"
        )
    };
    let spec = format!(
        "  restartPolicy: Never\n  initContainers:\n{}{}  containers:\n{}",
        container("init", ""),
        container("side", "    restartPolicy: Always\n"),
        container("main", ""),
    );
    node.manifest("p", &spec);
    node.until_pod("p", "/phase", json!("Succeeded")).await;
    // The sidecar got the init container's device and kept it, so the main container needs another one.
    assert_eq!(plugin.calls().allocate, [["a"], ["a"], ["b"]]);
    node.until_log("p", "main", "cam=b").await;
    assert!(held(&node).await.is_empty());
}

#[tokio::test]
async fn pod_resources_answer_get_and_allocatable_within_a_rate() {
    let node = Node::start().await;
    let _plugin = FakePlugin::start(&node, CAM, &["a", "b"]).await;
    node.until_counts(CAM, Some("2/2")).await;
    let mut client = pod_resources(&node).await;
    let allocatable = client.get_allocatable_resources(AllocatableResourcesRequest {});
    assert_eq!(allocatable.await.unwrap().into_inner().devices.len(), 2);
    let unknown = client.get(GetPodResourcesRequest {
        pod_name: "p".to_owned(),
        pod_namespace: "default".to_owned(),
    });
    let message = unknown.await.unwrap_err().message().to_owned();
    assert_eq!(message, "pod p in namespace default not found");

    let calls = (0..100).map(|_| {
        let mut client = client.clone();
        async move { client.list(ListPodResourcesRequest {}).await }
    });
    let refused = futures::future::join_all(calls).await;
    let refused = refused
        .into_iter()
        .filter_map(Result::err)
        .collect::<Vec<_>>();
    assert!(!refused.is_empty());
    assert!(
        refused
            .iter()
            .all(|status| status.code() == Code::ResourceExhausted)
    );
    let messages = refused.iter().map(|status| status.message());
    assert!(
        messages
            .into_iter()
            .all(|text| text == "rejected by rate limit")
    );
}
