//! Tests of plugins in `plugins_registry` other than device plugins: CSI drivers, and DRA drivers, which are rejected.
use super::*;

fn csi_driver(
    node: &Node,
    socket: &str,
    name: &str,
    versions: &[&str],
    node_get_info: Option<Behaviour>,
) -> Arc<RawPlugin> {
    let mut methods = vec![
        ("GetInfo", info("CSIPlugin", name, versions)),
        ("NotifyRegistrationStatus", Answer(vec![])),
    ];
    methods.extend(node_get_info.map(|behaviour| ("NodeGetInfo", behaviour)));
    RawPlugin::serve(&in_registry(node, socket), methods)
}

fn csi_view(version: &str, node_id: Option<&str>, max_volumes: i64) -> CsiView {
    CsiView {
        version: version.to_owned(),
        node_id: node_id.map(str::to_owned),
        max_volumes,
    }
}

#[tokio::test]
async fn csi_drivers_are_registered_with_what_they_say_of_the_node() {
    let (node, _works) = node().await;
    let said = NodeGetInfoResponse {
        node_id: "here".to_owned(),
        max_volumes_per_node: 3,
        accessible_topology: None,
    };
    let said = Answer(said.encode_to_vec());
    let full = csi_driver(
        &node,
        "full.sock",
        "full.io",
        &["0.3.0", "v1.5.0"],
        Some(said),
    );
    let plain = csi_driver(&node, "plain.sock", "plain.io", &["1.0.0"], None);
    until_shown(&node, "full.io", PluginState::Registered, "").await;
    until_shown(&node, "plain.io", PluginState::Registered, "").await;
    let csi = shown(&node, "full.io").await.remove(0).csi;
    assert_eq!(csi, Some(csi_view("1.5.0", Some("here"), 3)));
    let csi = shown(&node, "plain.io").await.remove(0).csi;
    assert_eq!(csi, Some(csi_view("1.0.0", None, 0)));
    eventually("it is told", async || {
        notified(&full) == Some((true, String::new()))
    })
    .await;

    let twin = csi_driver(&node, "twin.sock", "full.io", &["1.5.0"], None);
    let why = r#"already registered with a higher supported version: "1.5.0""#;
    until_shown(&node, "full.io", PluginState::Refused, why).await;
    until_shown(&node, "full.io", PluginState::Registered, "").await;
    fs::remove_file(in_registry(&node, "twin.sock")).unwrap();
    fs::remove_file(in_registry(&node, "full.sock")).unwrap();
    eventually("they are gone", async || {
        shown(&node, "full.io").await.is_empty()
    })
    .await;
    [full, plain, twin].iter().for_each(|driver| driver.die());
}

#[tokio::test]
async fn csi_drivers_that_cannot_be_registered_are_refused_with_the_reason() {
    let (node, _works) = node().await;
    let none: &[&str] = &[];
    let one: &[&str] = &["1.0.0"];
    let cases = [
        (
            "none.io",
            none,
            None,
            "Plugin returned an empty list for supported versions",
        ),
        ("two.io", &["2.0.0"], None, "None of the versions specified"),
        (
            "fails.io",
            one,
            Some(Error("no disk")),
            "code = Unknown desc = no disk",
        ),
        ("hangs.io", one, Some(Hang), "no answer within 700ms"),
        ("dies.io", one, Some(Die), "dial failed at socket"),
    ];
    let mut drivers = vec![];
    for (name, versions, node_get_info, reason) in cases {
        let driver = csi_driver(&node, name, name, versions, node_get_info);
        drivers.push((driver, name, reason));
    }
    for (driver, name, reason) in drivers {
        until_shown(&node, name, PluginState::Refused, reason).await;
        let notified = notified(&driver);
        assert!(name == "dies.io" || !notified.unwrap().0, "{name}");
        driver.die();
    }
    is_undisturbed(&node).await;
}

#[tokio::test]
async fn dra_drivers_are_reported_that_they_are_not_supported() {
    let (node, _works) = node().await;
    let driver = RawPlugin::serve(
        &in_registry(&node, "dra.sock"),
        [
            ("GetInfo", info("DRAPlugin", "dra.io", &["v1.DRAPlugin"])),
            ("NotifyRegistrationStatus", Answer(vec![])),
        ],
    );
    let why = "dynamic resource allocation is not supported by this kubelet";
    until_shown(&node, "dra.io", PluginState::Refused, why).await;
    let (registered, error) = notified(&driver).unwrap();
    assert!(!registered && error.contains(why), "{error}");
    driver.die();
}
