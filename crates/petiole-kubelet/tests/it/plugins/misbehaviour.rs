//! Tests of plugins that misbehave at each step: the other plugins are not affected, and the reason is shown.
use super::*;

/// The error of a plugin that was dialled again and is gone.
const DEAD: &str = "RegisterPlugin error -- dial failed at socket";

/// Returns a message with one text field that is not UTF-8: a name in `PluginInfo`, or a device's id in a list.
fn no_utf8(field: u8) -> Vec<u8> {
    vec![field << 3 | 2, 2, 0xff, 0xfe]
}

/// Returns a failure of each method, and the error that is shown for it.
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
        // A plugin that fails before it gives its name is shown by its socket.
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
async fn a_registration_that_is_replaced_while_it_waits_is_reported_so() {
    // The first registration ends with its caller.
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
