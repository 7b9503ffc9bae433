//! Built-in handlers that run as processes of their own, without rights.
use crate::support::{
    node::{TestNode, instance_name},
    process::Process,
    test_handler::{TestHandler, device, with},
};
use petiole::{
    discovery::external::{Isolated, Settings, process},
    model::device::DeviceNode,
};
use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::PathBuf,
    process::{Child, Command, Stdio},
};

/// Returns a node whose agent leaves the handler with this name to another process.
fn node(name: &str) -> TestNode {
    let mut node = TestNode::new();
    node.external = Some(Settings {
        folder: Some(node.root().join("akri")),
        file: node.state().join("handlers.json"),
        host_paths: ["/dev".parse().unwrap()].into_iter().collect(),
        isolated: Isolated {
            folder: isolated(&node),
            names: [name.to_owned()].into(),
        },
    });
    node.start_kubelet();
    node
}

fn isolated(node: &TestNode) -> PathBuf {
    node.root().join("isolated")
}

fn start_handler(node: &TestNode) -> Process {
    let (devices, folder) = (node.devices.clone(), isolated(node).join("test"));
    let log = node.root().join("handler.log");
    Process::start(&log, |shutdown| {
        process::run(Box::new(TestHandler(devices)), folder, shutdown)
    })
}

/// Waits until the status of a Configuration has this text.
async fn until_status(node: &TestNode, name: &str, part: &str) {
    node.until(&format!("the status of {name} says {part}"), async || {
        let entries = fs::read_dir(node.state().join("configurations")).ok()?;
        let texts = entries.filter_map(|entry| fs::read_to_string(entry.ok()?.path()).ok());
        let mut of_it = texts.filter(|text| text.contains(&format!("name: {name}")));
        of_it.any(|text| text.contains(part)).then_some(())
    })
    .await;
}

#[tokio::test]
async fn an_isolated_handler_finds_changes_and_loses_devices_as_the_built_in_one() {
    let mut node = node("test");
    node.configure("cam", "gracePeriodSeconds: 1");
    node.devices.see("cam", [device("door"), device("hall")]);
    node.start_agent();
    let _handler = start_handler(&node);
    let (door, hall) = (instance_name("cam", "door"), instance_name("cam", "hall"));
    node.until_counts(&door, 1, 1).await;
    node.until_counts(&hall, 1, 1).await;

    // The variables by which a device is reached come with their meaning: the container's answer has its digest.
    let slot = format!("{door}-0");
    let first = node.allocate(&door, &[&slot]).await.unwrap();
    assert_eq!(first.envs["ADDRESS"], "10.0.0.1");
    let moved = with(device("door"), &[("ADDRESS", "10.0.0.9"), ("PAGES", "2")]);
    node.devices.see("cam", [moved]);
    node.until_no_instance(&hall).await;
    node.until("the other address", async || {
        let answer = node.allocate(&door, &[&slot]).await.ok()?;
        (answer.envs["ADDRESS"] == "10.0.0.9" && answer.envs["PAGES"] == "2").then_some(())
    })
    .await;
    assert_eq!(node.instances().len(), 1);
}

#[tokio::test]
async fn nothing_is_lost_when_handler_and_agent_restart_in_any_order() {
    let mut node = node("test");
    node.configure("cam", "gracePeriodSeconds: 1");
    node.devices.see("cam", [device("door")]);
    node.start_agent();
    let handler = start_handler(&node);
    let door = instance_name("cam", "door");
    node.until_counts(&door, 1, 1).await;
    let before = node.instances();

    handler.kill();
    until_status(&node, "cam", "its devices stay as they were").await;
    let handler = start_handler(&node);
    until_status(&node, "cam", "Working").await;
    node.stop_agent().await;
    node.start_agent();
    node.until_counts(&door, 1, 1).await;
    handler.stop().await.unwrap();
    assert!(!isolated(&node).join("test/test.sock").exists());
    node.kill_agent();
    let _handler = start_handler(&node);
    node.start_agent();
    node.until("it is asked by the next agent", async || {
        (node.devices.runs("cam") == 4).then_some(())
    })
    .await;
    node.until_counts(&door, 1, 1).await;
    assert_eq!(node.instances(), before);
}

#[tokio::test]
async fn an_installation_that_switches_keeps_its_instances_also_before_the_process_runs() {
    let mut node = node("test");
    let settings = node.external.take();
    node.configure("cam", "gracePeriodSeconds: 1");
    node.configure_with("own", "own-local", "gracePeriodSeconds: 1");
    node.devices.see("cam", [device("door")]);
    node.devices.see("own-local", [device("port")]);
    node.start_agent();
    node.until("two Instances", async || {
        (node.instances().len() == 2).then_some(())
    })
    .await;
    let before = node.instances();
    node.stop_agent().await;

    node.external = settings;
    node.start_agent();
    let door = instance_name("cam", "door");
    node.until_counts(&door, 1, 1).await;
    assert_eq!(node.devices.runs("cam"), 1, "the agent asks the process");
    let _handler = start_handler(&node);
    node.until("it is asked", async || {
        (node.devices.runs("cam") == 2 && node.devices.runs("own-local") == 2).then_some(())
    })
    .await;
    node.until("it allocates", async || {
        node.allocate(&door, &[&format!("{door}-0")]).await.ok()
    })
    .await;
    assert_eq!(
        node.instances().keys().collect::<Vec<_>>(),
        before.keys().collect::<Vec<_>>()
    );
}

#[tokio::test]
async fn details_are_checked_by_the_agent_and_paths_of_the_node_are_refused() {
    let mut node = node("test");
    node.configure("refused", "gracePeriodSeconds: 1");
    node.start_agent();
    // No process runs yet.
    until_status(&node, "refused", "is no test").await;
    let mut thief = device("thief");
    thief.device_nodes = vec![DeviceNode {
        container_path: "/dev/sda".to_owned(),
        host_path: "/dev/sda".to_owned(),
        permissions: "rwm".to_owned(),
        links: vec![],
    }];
    node.devices.see("cam", [thief, device("door")]);
    node.configure("cam", "gracePeriodSeconds: 1");
    let _handler = start_handler(&node);
    node.until_counts(&instance_name("cam", "door"), 1, 1).await;
    until_status(&node, "cam", "isolated").await;
    assert_eq!(node.instances().len(), 1);
    let mode = fs::metadata(isolated(&node).join("test"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o072, 0o070, "{mode:o}");
}

/// `petiole handler debugEcho` as a process.
struct Handler(Child);

impl Handler {
    fn start(node: &TestNode) -> Self {
        let mut log = fs::File::options();
        let log = log.create(true).append(true);
        let log = log.open(node.root().join("handler.log")).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_petiole"))
            .args(["handler", "debugEcho", "--handlers-dir"])
            .arg(isolated(node).join("debugEcho"))
            .stdin(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        Self(child)
    }
}

impl Drop for Handler {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

#[tokio::test]
async fn a_handler_process_is_asked_by_each_agent_that_comes() {
    let mut node = node("debugEcho");
    let text = "apiVersion: akri.sh/v0\nkind: Configuration\nmetadata: {name: echo}\n\
                spec: {discoveryHandler: {name: debugEcho, discoveryDetails: 'descriptions: [foo0]'}}\n";
    node.write_manifest("echo.yaml", text);
    // The handler is there before the folder is.
    let _handler = Handler::start(&node);
    node.start_agent();
    let foo = instance_name("echo", "foo0");
    node.until_counts(&foo, 1, 1).await;
    node.kill_agent();
    node.start_agent();
    let answer = node
        .until("it allocates", async || {
            node.allocate(&foo, &[&format!("{foo}-0")]).await.ok()
        })
        .await;
    assert_eq!(answer.envs["DEBUG_ECHO_DESCRIPTION"], "foo0");
}
