//! Tests of the sockets in `plugins_registry`: which of them are plugins, and the answers that they get.
use super::*;

#[tokio::test]
async fn sockets_in_the_registry_are_found_in_sub_folders_and_before_the_start_and_hidden_ones_are_not()
 {
    let (mut node, _works) = node().await;
    let sub = in_registry(&node, "sub");
    fs::create_dir(&sub).unwrap();
    let serve = |socket: &str, resource: &str| {
        RawPlugin::serve(&in_registry(&node, socket), device_plugin(resource, vec![]))
    };
    let deep = serve("sub/deep.sock", "x.io/deep");
    let hidden = serve(".hidden.sock", "x.io/hidden");
    fs::write(in_registry(&node, "file.sock"), "").unwrap();
    node.until_counts("x.io/deep", Some("1/1")).await;
    assert_eq!(notified(&deep), Some((true, String::new())));

    node.stop().await;
    let early = RawPlugin::serve(
        &in_registry(&node, "early.sock"),
        device_plugin("x.io/early", vec![]),
    );
    node.restart_stopped().await;
    for resource in ["x.io/deep", "x.io/early"] {
        node.until_counts(resource, Some("1/1")).await;
    }
    assert!(!hidden.was_called("GetInfo"));
    assert_eq!(node.counts("x.io/hidden").await, None);
    [deep, hidden, early].iter().for_each(|plugin| plugin.die());
}

#[tokio::test]
async fn a_link_to_a_socket_is_a_plugin() {
    let (node, _works) = node().await;
    let served = node.root().join("served.sock");
    let plugin = RawPlugin::serve(&served, device_plugin("x.io/linked", vec![]));
    std::os::unix::fs::symlink(&served, in_registry(&node, "linked.sock")).unwrap();
    node.until_counts("x.io/linked", Some("1/1")).await;
    assert_eq!(notified(&plugin), Some((true, String::new())));
    plugin.die();
}

#[tokio::test]
async fn a_socket_that_goes_is_deregistered_and_one_that_is_created_anew_is_another_plugin() {
    let (node, _works) = node().await;
    let path = in_registry(&node, "r.sock");
    let first = RawPlugin::serve(&path, device_plugin("x.io/r", vec![]));
    node.until_counts("x.io/r", Some("1/1")).await;
    // The first plugin still serves, but its socket was replaced.
    let second = device_plugin("x.io/r", vec![("ListAndWatch", list(&["a", "b"]))]);
    let second = RawPlugin::serve(&path, second);
    node.until_counts("x.io/r", Some("2/2")).await;
    assert_eq!(notified(&second), Some((true, String::new())));

    fs::remove_file(&path).unwrap();
    until_shown(&node, "x.io/r", PluginState::Stopped, "deregistered").await;
    node.until_counts("x.io/r", Some("2/0")).await;
    [first, second].iter().for_each(|plugin| plugin.die());
}

#[tokio::test]
async fn a_refused_plugin_is_reported_why_and_asked_again_until_it_can_be_registered() {
    let (node, _works) = node().await;
    let mut methods = device_plugin("x.io/r", vec![]);
    methods.push(("GetInfo", info("DevicePlugin", "x.io/r", &["v2", "v3"])));
    let plugin = RawPlugin::serve(&in_registry(&node, "r.sock"), methods);
    let why = "RegisterPlugin error -- plugin validation failed with err: manager version, v1beta1, is not among plugin supported versions [v2 v3]";
    until_shown(&node, "x.io/r", PluginState::Refused, why).await;
    assert_eq!(notified(&plugin), Some((false, why.to_owned())));
    plugin.set("GetInfo", info("DevicePlugin", "no name", &["v1beta1"]));
    let why = r#"invalid name of device plugin socket: the ResourceName "no name" is invalid"#;
    until_shown(&node, "no name", PluginState::Refused, why).await;

    plugin.set(
        "GetInfo",
        info("DevicePlugin", "x.io/r", &["v2", "v1beta1"]),
    );
    node.until_counts("x.io/r", Some("1/1")).await;
    eventually("it is told", async || {
        notified(&plugin) == Some((true, String::new()))
    })
    .await;
    let states: Vec<_> = shown(&node, "x.io/r")
        .await
        .iter()
        .map(|p| p.state)
        .collect();
    assert_eq!(states, [PluginState::Connected]);
    assert!(shown(&node, "no name").await.is_empty());
    plugin.die();
}
