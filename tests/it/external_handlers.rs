//! Handlers in other processes, by Akri's protocol: they register, are asked, break, lie and flood.
use crate::support::{
    foreign_handler::{Answer, ForeignHandler, device, list, register},
    node::{TestNode, instance_name},
};
use petiole::{
    discovery::external::{Isolated, SOCKET, Settings},
    proto::discovery::{DeviceSpec, Mount},
};
use std::{fs, path::PathBuf, time::Duration};
use tokio::{
    io::AsyncWriteExt as _,
    net::{UnixListener, UnixStream},
    task::JoinSet,
};
use tonic::Code;

fn node() -> TestNode {
    let mut node = TestNode::new();
    node.external = Some(Settings {
        folder: Some(node.root().join("akri")),
        file: node.state().join("handlers.json"),
        host_paths: ["/dev".parse().unwrap()].into_iter().collect(),
        isolated: Isolated::default(),
    });
    fs::create_dir(node.root().join("akri")).unwrap();
    node.start_kubelet();
    node.start_agent();
    node
}

fn socket(node: &TestNode, name: &str) -> PathBuf {
    node.root().join("akri").join(name)
}

/// Registers as soon as the agent serves its socket.
async fn registered(node: &TestNode, name: &str, endpoint: impl Into<PathBuf>) {
    let (agent, endpoint) = (socket(node, SOCKET), endpoint.into());
    node.until("the handler registers", async || {
        register(&agent, name, endpoint.clone()).await.ok()
    })
    .await;
}

fn configure(node: &TestNode, name: &str, handler: &str, details: &str) {
    let text = format!(
        "{{apiVersion: akri.sh/v0, kind: Configuration, metadata: {{name: {name}}}, spec: {{\
         discoveryHandler: {{name: {handler}, discoveryDetails: {details:?}, \
         discoveryProperties: [{{name: user, value: admin}}]}}, gracePeriodSeconds: 1, maxInstances: 3}}}}"
    );
    node.write_manifest(&format!("{name}.yaml"), &text);
}

/// The status of a Configuration, when it says all of these.
async fn until_status(node: &TestNode, name: &str, parts: &[&str]) -> String {
    node.until(
        &format!("the status of {name} says {parts:?}"),
        async || {
            let entries = fs::read_dir(node.state().join("configurations")).ok()?;
            let mut texts = entries.filter_map(|entry| {
                let path = entry.ok()?.path();
                path.to_string_lossy()
                    .contains(name)
                    .then(|| fs::read_to_string(path).ok())?
            });
            texts.find(|text| parts.iter().all(|part| text.contains(part)))
        },
    )
    .await
}

/// Waits until it is known that nothing more happens.
async fn for_a_while() {
    tokio::time::sleep(Duration::from_secs(2)).await;
}

#[tokio::test]
async fn a_configuration_begins_when_its_handler_registers() {
    let node = node();
    configure(&node, "cam", "cameras", "{place: hall}");
    until_status(
        &node,
        "cam",
        &["UnknownHandler", "none has registered by this name"],
    )
    .await;

    let mut door = device("door");
    door.device_specs = vec![DeviceSpec {
        container_path: "/dev/video0".to_owned(),
        host_path: "/dev/null".to_owned(),
        permissions: "rw".to_owned(),
        links: vec![],
    }];
    let handler = ForeignHandler::new(Answer::List(vec![door]));
    let _serving = handler.serve(&socket(&node, "cameras.sock"));
    registered(&node, "cameras", socket(&node, "cameras.sock")).await;

    let door = instance_name("cam", "door");
    node.until_counts(&door, 1, 1).await;
    let answer = node.allocate(&door, &[&format!("{door}-0")]).await.unwrap();
    assert_eq!(answer.envs["CAMERA_URL"], "rtsp://door");
    assert_eq!(answer.devices[0].host_path, "/dev/null");
    let asked = handler.asked();
    assert_eq!(asked[0].discovery_details, "{place: hall}");
    let user = asked[0].discovery_properties["user"].vec.clone();
    assert_eq!(user.as_deref(), Some(b"admin".as_slice()));
    let status = until_status(&node, "cam", &["Working"]).await;
    assert!(!status.contains("UnusedDiscoveryProperties"), "{status}");
}

#[tokio::test]
async fn a_handler_that_registered_once_is_found_again_by_the_next_agent_and_nothing_is_lost() {
    let mut node = node();
    let handler = ForeignHandler::with(&["door", "hall"]);
    let _serving = handler.serve(&socket(&node, "cameras.sock"));
    registered(&node, "cameras", socket(&node, "cameras.sock")).await;
    configure(&node, "cam", "cameras", "");
    let door = instance_name("cam", "door");
    node.until_counts(&door, 1, 1).await;
    node.stop_agent().await;
    assert!(!socket(&node, SOCKET).exists());
    node.start_agent();
    node.until("it is asked again", async || {
        (handler.asked().len() == 2).then_some(())
    })
    .await;
    node.until_counts(&door, 1, 1).await;

    node.kill_agent();
    node.start_agent();
    node.until("it is asked again", async || {
        (handler.asked().len() == 3).then_some(())
    })
    .await;

    node.stop_kubelet().await;
    node.start_kubelet();
    node.until_counts(&door, 1, 1).await;
    handler.answer.send_replace(list(&["hall"]));
    node.until_no_instance(&door).await;
    assert_eq!(node.instances().len(), 1);
}

#[tokio::test]
async fn details_that_the_handler_refuses_are_shown_with_its_words_and_not_asked_again() {
    let node = node();
    let handler = ForeignHandler::new(Answer::Refuse("`url` is missing\nin line 1".to_owned()));
    let _serving = handler.serve(&socket(&node, "cameras.sock"));
    registered(&node, "cameras", socket(&node, "cameras.sock")).await;
    configure(&node, "cam", "cameras", "{}");
    until_status(&node, "cam", &["BadDiscoveryDetails", "`url` is missing"]).await;
    for_a_while().await;
    assert_eq!(handler.asked().len(), 1);

    handler.answer.send_replace(list(&["door"]));
    configure(&node, "cam", "cameras", "{url: a}");
    node.until_counts(&instance_name("cam", "door"), 1, 1).await;
    assert_eq!(handler.asked().len(), 2);
}

#[tokio::test]
async fn a_handler_that_registers_again_is_asked_again_at_once() {
    let node = node();
    let handler = ForeignHandler::new(Answer::Refuse("this version reads no details".to_owned()));
    let _serving = handler.serve(&socket(&node, "cameras.sock"));
    registered(&node, "cameras", socket(&node, "cameras.sock")).await;
    configure(&node, "cam", "cameras", "{}");
    until_status(&node, "cam", &["this version reads no details"]).await;
    handler.answer.send_replace(list(&["door"]));
    registered(&node, "cameras", socket(&node, "cameras.sock")).await;
    node.until_counts(&instance_name("cam", "door"), 1, 1).await;
}

#[tokio::test]
async fn devices_of_a_broken_stream_stay_and_its_handler_is_dialled_again() {
    let node = node();
    let handler = ForeignHandler::with(&["door"]);
    let serving = handler.serve(&socket(&node, "cameras.sock"));
    registered(&node, "cameras", socket(&node, "cameras.sock")).await;
    configure(&node, "cam", "cameras", "");
    let door = instance_name("cam", "door");
    node.until_counts(&door, 1, 1).await;

    drop(serving);
    fs::remove_file(socket(&node, "cameras.sock")).unwrap();
    // Connections live on in tasks of their own.
    handler.answer.send_replace(Answer::End);
    until_status(
        &node,
        "cam",
        &["DiscoveryFailed", "its devices stay as they were"],
    )
    .await;
    for_a_while().await; // longer than gracePeriodSeconds
    assert_eq!(node.counts(&door).await, Some((1, 1)));

    handler.answer.send_replace(list(&["door", "hall"]));
    let _serving = handler.serve(&socket(&node, "cameras.sock"));
    node.until_counts(&instance_name("cam", "hall"), 1, 1).await;
    until_status(&node, "cam", &["Working"]).await;

    // A stream that only ends is dialled again too, and an error is no refusal.
    for answer in [Answer::End, Answer::Fail] {
        let before = handler.asked().len();
        handler.answer.send_replace(answer);
        node.until("it is asked again", async || {
            (handler.asked().len() > before).then_some(())
        })
        .await;
        handler.answer.send_replace(list(&["door", "hall"]));
        until_status(&node, "cam", &["Working"]).await;
        assert_eq!(node.counts(&door).await, Some((1, 1)));
    }
}

#[tokio::test]
async fn endpoints_of_one_name_are_one_handler_by_socket_and_by_network() {
    let node = node();
    let (one, other) = (
        ForeignHandler::with(&["door"]),
        ForeignHandler::with(&["door", "hall"]),
    );
    let _one = one.serve(&socket(&node, "cameras.sock"));
    let (_other, url) = other.serve_network().await;
    registered(&node, "cameras", socket(&node, "cameras.sock")).await;
    configure(&node, "cam", "cameras", "");
    let (door, hall) = (instance_name("cam", "door"), instance_name("cam", "hall"));
    node.until_counts(&door, 1, 1).await;
    let mut thief = device("thief");
    thief.device_specs = vec![DeviceSpec {
        container_path: "/dev/video0".to_owned(),
        host_path: "/dev/null".to_owned(),
        permissions: "rw".to_owned(),
        links: vec![],
    }];
    let devices = vec![device("door"), device("hall"), thief];
    other.answer.send_replace(Answer::List(devices));
    registered(&node, "cameras", url).await;
    node.until_counts(&hall, 1, 1).await;
    until_status(&node, "cam", &["thief", "use a Unix socket"]).await;
    assert_eq!(node.instances().len(), 2);
    one.answer.send_replace(list(&[]));
    other.answer.send_replace(list(&["door"]));
    node.until_no_instance(&hall).await;
    assert_eq!(node.counts(&door).await, Some((1, 1)));
}

#[tokio::test]
async fn a_flood_costs_a_log_line_and_a_condition() {
    let node = node();
    let flood = |from: usize| {
        let devices = (from..from + 100_000).map(|n| petiole::proto::discovery::Device {
            id: format!("cam-{n}"),
            ..Default::default()
        });
        Answer::List(devices.collect())
    };
    let handler = ForeignHandler::new(flood(0));
    let _serving = handler.serve(&socket(&node, "cameras.sock"));
    let calm = ForeignHandler::with(&["door"]);
    let _calm = calm.serve(&socket(&node, "calm.sock"));
    registered(&node, "cameras", socket(&node, "cameras.sock")).await;
    registered(&node, "calm", socket(&node, "calm.sock")).await;
    configure(&node, "flood", "cameras", "");
    until_status(
        &node,
        "flood",
        &["DiscoveryIncomplete", "95904 devices are left out"],
    )
    .await;
    configure(&node, "calm", "calm", "");
    node.until_counts(&instance_name("calm", "door"), 1, 1)
        .await;
    let lines = node.agent_log().matches("devices are left out").count();
    assert!(lines <= 3, "{lines} lines");
}

#[tokio::test]
async fn paths_that_are_not_allowed_are_refused_and_the_other_devices_stay() {
    let node = node();
    let mut thief = device("thief");
    thief.mounts = vec![Mount {
        container_path: "/host".to_owned(),
        host_path: "/etc".to_owned(),
        read_only: true,
    }];
    let handler = ForeignHandler::new(Answer::List(vec![thief, device("door")]));
    let _serving = handler.serve(&socket(&node, "cameras.sock"));
    registered(&node, "cameras", socket(&node, "cameras.sock")).await;
    configure(&node, "cam", "cameras", "");
    until_status(&node, "cam", &["/etc", "--handler-host-paths"]).await;
    node.until_counts(&instance_name("cam", "door"), 1, 1).await;
    assert_eq!(node.instances().len(), 1);
}

#[tokio::test]
async fn one_that_hangs_and_one_that_sends_garbage_disturb_nobody() {
    let mut node = node();
    let hanging = ForeignHandler::new(Answer::Hang);
    let _hanging = hanging.serve(&socket(&node, "hanging.sock"));
    registered(&node, "hanging", socket(&node, "hanging.sock")).await;
    let garbage = UnixListener::bind(socket(&node, "garbage.sock")).unwrap();
    let mut sending = JoinSet::new();
    sending.spawn(async move {
        while let Ok((mut peer, _)) = garbage.accept().await {
            peer.write_all(&[0xff; 100_000]).await.ok();
        }
    });
    registered(&node, "garbage", socket(&node, "garbage.sock")).await;
    let mut client = UnixStream::connect(socket(&node, SOCKET)).await.unwrap();
    client.write_all(&[0xff; 100_000]).await.ok();

    for name in ["hanging", "garbage"] {
        configure(&node, name, name, "");
    }
    let calm = ForeignHandler::with(&["door"]);
    let _calm = calm.serve(&socket(&node, "calm.sock"));
    registered(&node, "calm", socket(&node, "calm.sock")).await;
    configure(&node, "calm", "calm", "");
    node.until_counts(&instance_name("calm", "door"), 1, 1)
        .await;
    until_status(&node, "garbage", &["DiscoveryFailed"]).await;
    node.until("the one that hangs is asked", async || {
        (!hanging.asked().is_empty()).then_some(())
    })
    .await;
    node.stop_agent().await;
}

#[tokio::test]
async fn a_registration_that_cannot_be_is_refused_with_a_reason() {
    let node = node();
    let calm = ForeignHandler::with(&["door"]);
    let _calm = calm.serve(&socket(&node, "calm.sock"));
    registered(&node, "calm", socket(&node, "calm.sock")).await;
    let agent = socket(&node, SOCKET);
    for (name, endpoint, part) in [
        ("zeroconf", socket(&node, "zeroconf.sock"), "built in"),
        ("a b", socket(&node, "a.sock"), "name:"),
        ("a", "/run/containerd/containerd.sock".into(), "is not in"),
        ("a", "https://10.0.0.1:10000".into(), "plain text"),
    ] {
        let refused = register(&agent, name, endpoint).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{refused:?}");
        assert!(refused.message().contains(part), "{refused:?}");
    }
    let text = fs::read_to_string(node.state().join("handlers.json")).unwrap();
    assert_eq!(text.matches("\"name\"").count(), 1, "{text}");
}
