//! Tests of several plugins of one resource: the cases of the kubelet's own `test/e2e_node/device_plugin_multiple_test.go`,
//! and a socket that registers twice.
use super::*;

const IDS: [&str; 3] = ["a", "b", "c"];

/// Serves the resource at another socket, and registers.
async fn another(node: &Node, socket: &str) -> FakePlugin {
    let plugin = FakePlugin::serve(node, CAM, socket, &IDS);
    plugin.register(node).await.unwrap();
    eventually("its list is asked for", async || {
        plugin.calls().list_and_watch == 1
    })
    .await;
    plugin
}

/// Returns a node with one plugin, which serves one Pod.
async fn with_a_plugin_and_a_pod() -> (Node, FakePlugin) {
    let node = Node::start().await;
    let first = another(&node, "first.sock").await;
    node.until_counts(CAM, Some("3/3")).await;
    runs(&node, "pod-1", "a").await;
    (node, first)
}

async fn runs(node: &Node, pod: &str, id: &str) {
    node.manifest(pod, &asking(&format!("{CAM}: 1")));
    node.until_log(pod, "c", &format!("cam={id}")).await;
}

async fn ends(node: &Node, pod: &str) {
    node.remove_manifest(pod);
    eventually("the Pod is gone", async || node.pod(pod).await.is_none()).await;
}

/// Waits until these plugins, and no others, are connected. The first one answers.
async fn until_connected(node: &Node, sockets: &[&str]) {
    eventually(&format!("{sockets:?} are connected"), async || {
        let plugins = node.client.plugins().await.unwrap();
        let connected = |(plugin, socket): (&PluginView, &&str)| {
            plugin.endpoint.ends_with(*socket) && plugin.state == PluginState::Connected
        };
        plugins.len() == sockets.len() && plugins.iter().zip(sockets).all(connected)
    })
    .await;
    assert_eq!(node.counts(CAM).await.as_deref(), Some("3/3"));
}

/// "Basic rollout of device plugins with zero downtime"
#[tokio::test]
async fn a_rollout_of_a_plugin_refuses_no_pod() {
    let (node, first) = with_a_plugin_and_a_pod().await;
    let second = another(&node, "second.sock").await;
    until_connected(&node, &["second.sock", "first.sock"]).await;
    runs(&node, "pod-2", "b").await;

    first.die().await;
    until_connected(&node, &["second.sock"]).await;
    ends(&node, "pod-1").await;
    runs(&node, "pod-3", "a").await;
    assert_eq!(second.calls().allocate, [["b"], ["a"]]);
}

/// "DP2 takes long time to start working"
#[tokio::test]
async fn a_second_plugin_that_fails_to_register_leaves_the_first_alone() {
    let (node, first) = with_a_plugin_and_a_pod().await;
    let options = ("GetDevicePluginOptions", Behaviour::Error("no"));
    let failing = RawPlugin::serve(&node.root().join("device-plugins/raw.sock"), [options]);
    let refused = node.register(CAM, "raw.sock", "v1beta1").await.unwrap_err();
    let why = "failed to get device plugin options: rpc error: code = Unknown desc = no";
    assert_eq!(refused.message(), why);
    runs(&node, "pod-2", "b").await;

    let third = another(&node, "third.sock").await;
    first.die().await;
    eventually("the third one alone is connected", async || {
        let plugins = node.client.plugins().await.unwrap();
        let mut connected = plugins.iter().filter(|p| p.state == PluginState::Connected);
        connected.all(|p| p.endpoint.ends_with("third.sock"))
    })
    .await;
    assert_eq!(node.counts(CAM).await.as_deref(), Some("3/3"));
    ends(&node, "pod-1").await;
    runs(&node, "pod-3", "a").await;
    assert_eq!(third.calls().allocate, [["a"]]);
    failing.die();
}

/// "DP2 changed its mind"
#[tokio::test]
async fn a_second_plugin_that_goes_leaves_its_work_to_the_first() {
    let (node, first) = with_a_plugin_and_a_pod().await;
    let second = another(&node, "second.sock").await;
    runs(&node, "pod-2", "b").await;
    assert_eq!(second.calls().allocate, [["b"]]);

    second.die().await;
    until_connected(&node, &["first.sock"]).await;
    ends(&node, "pod-1").await;
    runs(&node, "pod-3", "a").await;
    assert_eq!(first.calls().allocate, [["a"], ["a"]]);

    first.die().await;
    node.until_counts(CAM, Some("3/0")).await;
}

#[tokio::test]
async fn a_socket_that_is_connected_is_refused_and_its_plugin_goes_on() {
    let (node, first) = with_a_plugin_and_a_pod().await;
    let refused = first.register(&node).await.unwrap_err();
    let path = node.root().join("device-plugins/first.sock");
    let why = format!("device plugin already connected: {}", path.display());
    assert_eq!((refused.code(), refused.message()), (Code::Unknown, &*why));
    let shown = node.client.plugins().await.unwrap();
    let shown: Vec<_> = shown
        .iter()
        .map(|p| (p.state, p.reason.as_deref()))
        .collect();
    let states = [
        (PluginState::Connected, None),
        (PluginState::Refused, Some(&*why)),
    ];
    assert_eq!(shown, states);
    runs(&node, "pod-2", "b").await;

    first.die().await;
    node.until_counts(CAM, Some("3/0")).await;
    let _same = another(&node, "first.sock").await;
    until_connected(&node, &["first.sock"]).await;
}
