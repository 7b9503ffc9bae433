//! Plugins in `plugins_registry`, and plugins that misbehave at each step: what they are told, what others see of
//! them, and that nobody else is disturbed.
#![allow(clippy::unwrap_used, reason = "a test")]
#[path = "support/fake_plugin.rs"]
mod fake_plugin;
#[path = "support/raw_plugin.rs"]
mod raw_plugin;

use fake_plugin::{FakePlugin, Node, devices, eventually};
use futures::future::select;
use petiole::{
    kubelet::{
        CallLimits, Settings,
        client::{CsiView, PluginState, PluginView},
    },
    proto::{
        csi::NodeGetInfoResponse,
        device_plugin::{
            AllocateResponse, ContainerAllocateResponse, DevicePluginOptions, ListAndWatchResponse,
        },
        plugin_registration::{PluginInfo, RegistrationStatus},
    },
};
use prost::Message as _;
use raw_plugin::{
    Behaviour::{self, Answer, Die, End, Error, Hang, Stay},
    RawPlugin,
};
use serde_json::json;
use std::{fs, path::PathBuf, sync::Arc, time::Duration};
use tokio::time::timeout;

const CAM: &str = "akri.sh/cam";
/// Longer than plugins on this machine need; the kubelet's own limits are half a minute.
const SHORT: Duration = Duration::from_millis(700);
/// It only ends a test that fails.
const LONG: Duration = Duration::from_secs(30);

type Methods = Vec<(&'static str, Behaviour)>;

/// A node whose plugins have little time to answer, with one that works.
async fn node() -> (Node, FakePlugin) {
    node_with(|_| {}).await
}

async fn node_with(change: impl FnOnce(&mut Settings)) -> (Node, FakePlugin) {
    let node = Node::start_with(|settings| {
        change(settings);
        settings.call_limits = CallLimits {
            options: SHORT,
            allocate: SHORT,
            pre_start: SHORT,
            node_info: SHORT,
        };
    })
    .await;
    let works = FakePlugin::start(&node, CAM, &["a"]).await;
    node.until_counts(CAM, Some("1/1")).await;
    (node, works)
}

/// The plugin that works still does, and a new Pod gets its device.
async fn is_undisturbed(node: &Node) {
    node.manifest("works", &asking(CAM));
    node.until_log("works", "c", "started").await;
    node.remove_manifest("works");
    eventually("its pod is gone", async || {
        node.pod("works").await.is_none()
    })
    .await;
    assert_eq!(node.counts(CAM).await.as_deref(), Some("1/1"));
}

fn asking(resource: &str) -> String {
    format!(
        "  terminationGracePeriodSeconds: 1
  containers:
  - name: c
    image: none
    command: [sh, -c, 'echo started; exec sleep 1000']
    resources: {{limits: {{{resource}: 1}}}}
"
    )
}

fn info(kind: &str, name: &str, versions: &[&str]) -> Behaviour {
    let info = PluginInfo {
        r#type: kind.to_owned(),
        name: name.to_owned(),
        endpoint: String::new(),
        supported_versions: versions.iter().map(|v| (*v).to_owned()).collect(),
    };
    Answer(info.encode_to_vec())
}

fn list(ids: &[&str]) -> Behaviour {
    let list = ListAndWatchResponse {
        devices: devices(ids, &[]),
    };
    Stay(list.encode_to_vec())
}

/// All that a device plugin answers, where `except` says nothing else.
fn device_plugin(resource: &str, except: Methods) -> Methods {
    let options = DevicePluginOptions {
        pre_start_required: true,
        get_preferred_allocation_available: true,
    };
    let allocated = AllocateResponse {
        container_responses: vec![ContainerAllocateResponse::default()],
    };
    let mut methods = vec![
        ("GetInfo", info("DevicePlugin", resource, &["v1beta1"])),
        ("NotifyRegistrationStatus", Answer(vec![])),
        ("GetDevicePluginOptions", Answer(options.encode_to_vec())),
        ("ListAndWatch", list(&["a"])),
        ("GetPreferredAllocation", Answer(vec![])),
        ("Allocate", Answer(allocated.encode_to_vec())),
        ("PreStartContainer", Answer(vec![])),
    ];
    methods.extend(except);
    methods
}

fn in_registry(node: &Node, socket: &str) -> PathBuf {
    node.root().join("plugins_registry").join(socket)
}

async fn shown(node: &Node, name: &str) -> Vec<PluginView> {
    let plugins = node.client.plugins().await.unwrap().into_iter();
    plugins.filter(|plugin| plugin.name == name).collect()
}

async fn until_shown(node: &Node, name: &str, state: PluginState, reason: &str) {
    let what = format!("{name} is {state:?}: {reason}");
    eventually(&what, async || {
        let shown = shown(node, name).await;
        shown.iter().any(|plugin| {
            plugin.state == state && plugin.reason.clone().unwrap_or_default().contains(reason)
        })
    })
    .await;
}

fn told(plugin: &RawPlugin) -> Option<(bool, String)> {
    let status: RegistrationStatus = plugin.last("NotifyRegistrationStatus")?;
    Some((status.plugin_registered, status.error))
}

/// One field that says it is text and is none: a name of `PluginInfo`, or a device's id where it is in a list.
fn no_utf8(field: u8) -> Vec<u8> {
    vec![field << 3 | 2, 2, 0xff, 0xfe]
}

/// It is tried again, and then is not there.
const DEAD: &str = "RegisterPlugin error -- dial failed at socket";

/// How each method may go wrong, and what is shown then.
fn misbehaviours() -> Vec<(&'static str, Behaviour, String)> {
    let options = "failed to get device plugin options: rpc error: code = ";
    vec![
        ("GetInfo", Hang, "using RPC GetInfo at socket".into()),
        ("GetInfo", Error("no"), "code = Unknown desc = no".into()),
        ("GetInfo", Die, DEAD.into()),
        ("GetInfo", End, "using RPC GetInfo at socket".into()),
        ("GetInfo", Answer(no_utf8(2)), "invalid string value".into()),
        (
            "GetInfo",
            Answer(vec![]),
            "no handler registered for plugin type:  at socket".into(),
        ),
        (
            "NotifyRegistrationStatus",
            Error("no"),
            "failed to send registration status at socket".into(),
        ),
        (
            "NotifyRegistrationStatus",
            Hang,
            "no answer within 5s".into(),
        ),
        ("NotifyRegistrationStatus", Die, DEAD.into()),
        (
            "GetDevicePluginOptions",
            Hang,
            format!("{options}DeadlineExceeded"),
        ),
        (
            "GetDevicePluginOptions",
            Error("no"),
            format!("{options}Unknown desc = no"),
        ),
        ("GetDevicePluginOptions", Die, DEAD.into()),
        ("GetDevicePluginOptions", End, options.into()),
        (
            "GetDevicePluginOptions",
            Answer(vec![0xff]),
            format!("{options}Internal"),
        ),
    ]
}

#[tokio::test]
async fn a_plugin_that_misbehaves_while_it_registers_is_refused_with_the_reason() {
    let (node, _works) = node().await;
    let mut plugins = vec![];
    for (n, (method, behaviour, reason)) in misbehaviours().into_iter().enumerate() {
        let resource = format!("x.io/r{n}");
        let socket = format!("r{n}.sock");
        let methods = device_plugin(&resource, vec![(method, behaviour)]);
        let plugin = RawPlugin::serve(&in_registry(&node, &socket), methods);
        // One that does not get to its name is shown by its socket.
        let has_no_name = method == "GetInfo" || reason == DEAD;
        let name = if has_no_name { socket } else { resource };
        let name = if reason.contains("type:  at") {
            String::new()
        } else {
            name
        };
        plugins.push((plugin, name, reason));
    }
    is_undisturbed(&node).await;
    for (_, name, reason) in &plugins {
        until_shown(&node, name, PluginState::Refused, reason).await;
    }
    is_undisturbed(&node).await;
    plugins.iter().for_each(|(plugin, ..)| plugin.die());
}

#[tokio::test]
async fn a_registration_that_is_replaced_while_it_waits_is_told_so() {
    // The first one ends with its caller.
    let node = Node::start_with(|settings| settings.call_limits.options = LONG).await;
    let methods = device_plugin("x.io/r", vec![("GetDevicePluginOptions", Hang)]);
    let plugin = RawPlugin::serve(&node.root().join("device-plugins/r.sock"), methods);
    let register = || node.register("x.io/r", "r.sock", "v1beta1");
    let mut first = Box::pin(register());
    tokio::select! {
        _ = &mut first => panic!("the plugin has not answered"),
        () = eventually("it is asked", async || plugin.was_called("GetDevicePluginOptions")) => {}
    }

    let answered = timeout(LONG, select(Box::pin(register()), Box::pin(register())));
    let (answer, last) = answered.await.unwrap().factor_first();
    let error = answer.unwrap_err().message().to_owned();
    assert!(
        error.contains("replaced by a newer registration"),
        "{error}"
    );

    let options = DevicePluginOptions::default().encode_to_vec();
    plugin.set("GetDevicePluginOptions", Answer(options));
    drop(first);
    timeout(LONG, last).await.unwrap().unwrap();
    node.until_counts("x.io/r", Some("1/1")).await;
    plugin.die();
}

#[tokio::test]
async fn a_list_that_cannot_be_used_ends_the_plugin_with_the_reason() {
    let (node, _works) = node().await;
    let large = vec![b'x'; 5 * 1024 * 1024];
    let large = [vec![10, 0x80, 0x80, 0xc0, 0x02], large].concat();
    let device = no_utf8(1);
    let no_text = [vec![10, 4], device].concat();
    let cases: [(Behaviour, PluginState, &str); 8] = [
        (
            Hang,
            PluginState::Connected,
            "it has not listed its devices yet",
        ),
        (
            Error("no"),
            PluginState::Stopped,
            "rpc error: code = Unknown desc = no",
        ),
        (Die, PluginState::Stopped, "rpc error: code = "),
        (End, PluginState::Stopped, "ListAndWatch ended: EOF"),
        (
            Answer(vec![]),
            PluginState::Stopped,
            "ListAndWatch ended: EOF",
        ),
        (
            Stay(large),
            PluginState::Stopped,
            "message length too large: found 5242885 bytes, the limit is: 4194304 bytes",
        ),
        (Stay(no_text), PluginState::Stopped, "invalid string value"),
        (
            Stay(vec![0xff]),
            PluginState::Stopped,
            "rpc error: code = Internal",
        ),
    ];
    let mut plugins = vec![];
    for (n, (behaviour, state, reason)) in cases.into_iter().enumerate() {
        let (resource, socket) = (format!("x.io/r{n}"), format!("r{n}.sock"));
        let methods = device_plugin(&resource, vec![("ListAndWatch", behaviour)]);
        let path = node.root().join("device-plugins").join(&socket);
        let plugin = RawPlugin::serve(&path, methods);
        node.register(&resource, &socket, "v1beta1").await.unwrap();
        plugins.push((plugin, resource, state, reason));
    }
    for (_, name, state, reason) in &plugins {
        until_shown(&node, name, *state, reason).await;
    }
    is_undisturbed(&node).await;
    plugins.iter().for_each(|(plugin, ..)| plugin.die());
}

#[tokio::test]
async fn a_plugin_that_misbehaves_for_a_pod_fails_that_pod_with_the_reason() {
    let (node, _works) = node().await;
    let (failed, waits) = ("/message", "/containerStatuses/0/state/waiting/message");
    let preferred = "device plugin GetPreferredAllocation rpc failed with err: rpc error: code = ";
    let pre_start = "device plugin PreStartContainer rpc failed with err: rpc error: code = ";
    let cases: [(&'static str, Behaviour, &str, String); 12] = [
        ("Allocate", Hang, failed, "code = DeadlineExceeded desc = no answer to Allocate".into()),
        ("Allocate", Error("no"), failed, "Pod was rejected: Allocate failed due to rpc error: code = Unknown desc = no, which is unexpected".into()),
        ("Allocate", Die, failed, "Allocate failed due to rpc error: code = ".into()),
        ("Allocate", End, failed, "Allocate failed due to rpc error: code = ".into()),
        ("Allocate", Answer(vec![]), failed, "no containers return in allocation response".into()),
        ("Allocate", Answer(vec![0xff]), failed, "code = Internal".into()),
        ("GetPreferredAllocation", Hang, failed, format!("{preferred}DeadlineExceeded")),
        ("GetPreferredAllocation", Error("no"), failed, format!("{preferred}Unknown desc = no")),
        ("GetPreferredAllocation", Die, failed, preferred.into()),
        ("PreStartContainer", Hang, waits, format!("{pre_start}DeadlineExceeded")),
        ("PreStartContainer", Error("no"), waits, format!("{pre_start}Unknown desc = no")),
        ("PreStartContainer", Die, waits, "has been stopped".into()),
    ];
    let mut plugins = vec![];
    for (n, (method, behaviour, pointer, reason)) in cases.into_iter().enumerate() {
        let (resource, socket) = (format!("x.io/r{n}"), format!("r{n}.sock"));
        let methods = device_plugin(&resource, vec![(method, behaviour)]);
        let plugin = RawPlugin::serve(&node.root().join("device-plugins").join(&socket), methods);
        node.register(&resource, &socket, "v1beta1").await.unwrap();
        node.until_counts(&resource, Some("1/1")).await;
        node.manifest(&format!("p{n}"), &asking(&resource));
        plugins.push((plugin, n, pointer, reason));
    }
    is_undisturbed(&node).await;
    for (_, n, pointer, reason) in &plugins {
        eventually(&format!("p{n} says {reason}"), async || {
            let pod = node.pod(&format!("p{n}")).await.unwrap_or_default();
            let message = pod["status"].pointer(pointer).cloned().unwrap_or_default();
            message.as_str().unwrap_or_default().contains(reason)
        })
        .await;
    }
    is_undisturbed(&node).await;
    plugins.iter().for_each(|(plugin, ..)| plugin.die());
}

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
    assert_eq!(told(&deep), Some((true, String::new())));

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
async fn a_socket_that_goes_is_deregistered_and_one_that_is_created_anew_is_another_plugin() {
    let (node, _works) = node().await;
    let path = in_registry(&node, "r.sock");
    let first = RawPlugin::serve(&path, device_plugin("x.io/r", vec![]));
    node.until_counts("x.io/r", Some("1/1")).await;
    // The first one goes on serving; its socket is no longer there.
    let second = device_plugin("x.io/r", vec![("ListAndWatch", list(&["a", "b"]))]);
    let second = RawPlugin::serve(&path, second);
    node.until_counts("x.io/r", Some("2/2")).await;
    assert_eq!(told(&second), Some((true, String::new())));

    fs::remove_file(&path).unwrap();
    until_shown(&node, "x.io/r", PluginState::Stopped, "deregistered").await;
    node.until_counts("x.io/r", Some("2/0")).await;
    [first, second].iter().for_each(|plugin| plugin.die());
}

#[tokio::test]
async fn a_refused_plugin_is_told_why_and_asked_again_until_it_can_be_registered() {
    let (node, _works) = node().await;
    let mut methods = device_plugin("x.io/r", vec![]);
    methods.push(("GetInfo", info("DevicePlugin", "x.io/r", &["v2", "v3"])));
    let plugin = RawPlugin::serve(&in_registry(&node, "r.sock"), methods);
    let why = "RegisterPlugin error -- plugin validation failed with err: manager version, v1beta1, is not among plugin supported versions [v2 v3]";
    until_shown(&node, "x.io/r", PluginState::Refused, why).await;
    assert_eq!(told(&plugin), Some((false, why.to_owned())));
    plugin.set("GetInfo", info("DevicePlugin", "no name", &["v1beta1"]));
    let why = r#"invalid name of device plugin socket: the ResourceName "no name" is invalid"#;
    until_shown(&node, "no name", PluginState::Refused, why).await;

    plugin.set(
        "GetInfo",
        info("DevicePlugin", "x.io/r", &["v2", "v1beta1"]),
    );
    node.until_counts("x.io/r", Some("1/1")).await;
    eventually("it is told", async || {
        told(&plugin) == Some((true, String::new()))
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
        told(&full) == Some((true, String::new()))
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
        let told = told(&driver);
        assert!(name == "dies.io" || !told.unwrap().0, "{name}");
        driver.die();
    }
    is_undisturbed(&node).await;
}

#[tokio::test]
async fn dra_drivers_are_told_that_they_are_not_supported() {
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
    let (registered, error) = told(&driver).unwrap();
    assert!(!registered && error.contains(why), "{error}");
    driver.die();
}

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
    // One that registers itself in the folder has not called the Registration service.
    assert!(!text.contains("x.io/r"), "{text}");
    [plugin, refused].iter().for_each(|plugin| plugin.die());
}
