//! Tests of the visible state of plugins: the health of devices in a Pod's status, and metrics.
use super::*;

#[tokio::test]
async fn a_dead_plugins_device_keeps_its_last_health_and_a_dropped_one_is_healthy() {
    let grace = Duration::from_secs(2);
    let (node, works) = node_with(|settings| settings.endpoint_grace = grace).await;
    node.manifest("p", &asking(CAM));
    let health = "/containerStatuses/0/allocatedResourcesStatus";
    let is =
        |health: &str| json!([{"name": CAM, "resources": [{"resourceID": "a", "health": health}]}]);
    node.until_pod("p", health, is("Healthy")).await;
    works.list(devices(&[], &["a"]));
    node.until_pod("p", health, is("Unhealthy")).await;
    works.list(vec![]);
    node.until_pod("p", health, is("Healthy")).await;
    works.list(devices(&[], &["a"]));
    node.until_pod("p", health, is("Unhealthy")).await;
    works.die().await;
    node.until_counts(CAM, Some("1/0")).await;
    node.until_pod("p", health, is("Unhealthy")).await;
    node.until_counts(CAM, None).await;
    node.until_pod("p", health, is("Unhealthy")).await;
}

#[tokio::test]
async fn plugins_are_counted_and_measured_under_the_names_of_go() {
    let (node, _works) = node().await;
    node.register("no name", "x.sock", "v1beta1")
        .await
        .unwrap_err();
    is_undisturbed(&node).await;
    let plugin = RawPlugin::serve(
        &in_registry(&node, "r.sock"),
        device_plugin("x.io/r", vec![]),
    );
    node.until_counts("x.io/r", Some("1/1")).await;
    let refused = RawPlugin::serve(
        &in_registry(&node, "refused.sock"),
        [("GetInfo", Error("no"))],
    );
    until_shown(&node, "refused.sock", PluginState::Refused, "no").await;
    let socket = |state: &str, socket: &str| {
        let path = in_registry(&node, socket);
        let path = path.display();
        format!(
            r#"plugin_manager_total_plugins{{socket_path="{path}",state="{state}_state_of_world"}} 1"#
        )
    };
    let registered = socket("actual", "r.sock");
    eventually("the folder's plugin is counted", async || {
        let text = node.client.metrics().await.unwrap();
        text.contains(&registered)
    })
    .await;
    let text = node.client.metrics().await.unwrap();
    let lines: Vec<&str> = text.lines().collect();
    for want in [
        r#"kubelet_device_plugin_registration_total{resource_name="akri.sh/cam"} 1"#.to_owned(),
        r#"kubelet_device_plugin_registration_total{resource_name="invalid"} 1"#.to_owned(),
        r#"kubelet_device_plugin_alloc_duration_seconds_count{resource_name="akri.sh/cam"} 1"#
            .to_owned(),
        socket("desired", "r.sock"),
        registered,
        socket("desired", "refused.sock"),
    ] {
        assert!(lines.contains(&&*want), "{want} in {text}");
    }
    assert!(!lines.contains(&&*socket("actual", "refused.sock")));
    // A plugin that registers through the folder has not called the Registration service.
    assert!(!text.contains("x.io/r"), "{text}");
    [plugin, refused].iter().for_each(|plugin| plugin.die());
}
