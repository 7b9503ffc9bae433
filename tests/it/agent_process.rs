//! `petiole agent` as a process, with real signals.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::support::node::TestNode;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;
use std::{
    collections::VecDeque,
    fs,
    process::{Child, Command, Stdio},
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::Instant,
};

pub(crate) struct Agent(Child);

impl Agent {
    fn start(node: &TestNode) -> Self {
        Self::start_with(node, &[])
    }

    pub(crate) fn start_with(node: &TestNode, flags: &[&str]) -> Self {
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(node.root().join("agent.log"))
            .unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_petiole"))
            .args(["agent", "--standalone", "--node-name", "node-a"])
            .args([
                "--configurations".as_ref(),
                node.configurations().as_os_str(),
            ])
            .args(["--state".as_ref(), node.state().as_os_str()])
            .args([
                "--kubelet-dir".as_ref(),
                node.kubelet_settings.root_dir.as_os_str(),
            ])
            .args(flags)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        Self(child)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.0.id()).unwrap();
        kill(Pid::from_raw(pid), signal).unwrap();
    }

    pub(crate) fn has_ended(&mut self) -> Option<std::process::ExitStatus> {
        self.0.try_wait().unwrap()
    }

    pub(crate) async fn ended(&mut self, node: &TestNode) -> std::process::ExitStatus {
        node.until("the agent ends", async || self.0.try_wait().unwrap())
            .await
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

fn configure(node: &TestNode) {
    let text = "apiVersion: akri.sh/v0\nkind: Configuration\nmetadata: {name: echo}\n\
                spec: {discoveryHandler: {name: debugEcho, discoveryDetails: 'descriptions: [foo0]'}, capacity: 2}\n";
    node.write_manifest("echo.yaml", text);
}

async fn the_instance(node: &TestNode) -> String {
    node.until("one Instance", async || node.instances().into_keys().next())
        .await
}

#[tokio::test]
async fn an_agent_that_is_killed_leaves_sockets_and_the_next_one_clears_them_and_goes_on() {
    let mut node = TestNode::new();
    node.start_kubelet();
    let mut agent = Agent::start(&node);
    configure(&node);
    let name = the_instance(&node).await;
    node.until_counts(&name, 2, 2).await;
    node.run_pod("broker", &[(&format!("akri.sh/{name}"), 1)]);
    assert_eq!(node.env("broker").await["DEBUG_ECHO_DESCRIPTION"], "foo0");
    let (before, pid) = (node.instances(), node.pid("broker").await);

    agent.signal(Signal::SIGKILL);
    agent.ended(&node).await;
    let left = node.sockets();
    assert_eq!(left.len(), 2, "{left:?}");
    node.until_connected(0).await;
    agent = Agent::start(&node);
    node.until_connected(2).await;
    assert_eq!(node.sockets().len(), 2);
    assert_eq!(node.instances(), before);
    assert_eq!(node.pid("broker").await, pid);
    agent.signal(Signal::SIGTERM);
    assert!(agent.ended(&node).await.success(), "a clean stop is exit 0");
    assert_eq!(node.sockets().len(), 0);
    assert_eq!(node.instances(), before);
}

/// Returns the lines of the agent's log, each of which must be JSON.
fn log(node: &TestNode) -> Vec<Value> {
    let text = fs::read_to_string(node.root().join("agent.log")).unwrap();
    // The last line may be incomplete.
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    let lines = whole.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

async fn logged(node: &TestNode, message: &str) -> Value {
    let find = || {
        log(node)
            .into_iter()
            .find(|line| line["message"] == message)
    };
    node.until(message, async || find()).await
}

/// Returns the status and the body of an answer.
async fn get(address: &str, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.0\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, body.to_owned())
}

async fn until_ready(node: &TestNode, address: &str, expected: (u16, &str)) {
    let (status, body) = expected;
    node.until(body, async || {
        (get(address, "/readyz").await == (status, body.to_owned())).then_some(())
    })
    .await;
}

#[tokio::test]
async fn an_agent_counts_what_happened_and_is_ready_while_the_kubelet_listens_to_every_plugin() {
    let mut node = TestNode::new();
    let flags = ["--http-address", "127.0.0.1:0", "--log-format", "json"];
    let mut agent = Agent::start_with(&node, &flags);
    let served = logged(&node, "serving metrics, health and readiness").await;
    let address = served["address"].as_str().unwrap();
    assert_eq!(get(address, "/healthz").await, (200, "ok\n".to_owned()));
    let plugins = node.kubelet_settings.root_dir.join("device-plugins");
    let no_kubelet = format!("no kubelet.sock in {}\n", plugins.display());
    until_ready(&node, address, (503, &no_kubelet)).await;

    configure(&node);
    let name = the_instance(&node).await;
    let unregistered = |name: &str| format!("akri.sh/{name} is not registered with the kubelet\n");
    let lacking = format!(
        "{no_kubelet}{}{}",
        unregistered("echo"),
        unregistered(&name)
    );
    until_ready(&node, address, (503, &lacking)).await;
    node.start_kubelet();
    until_ready(&node, address, (200, "ok\n")).await;
    node.until_counts(&name, 2, 2).await;
    node.run_pod("broker", &[(&format!("akri.sh/{name}"), 1)]);
    node.pid("broker").await;

    let (status, text) = get(address, "/metrics").await;
    assert_eq!(status, 200);
    for line in [
        r#"akri_instance_count{configuration="echo",is_shared="true"} 1"#,
        r#"akri_discovery_response_result{discovery_handler_name="debugEcho",result="Success"} 1"#,
        r#"akri_discovery_response_time_count{configuration="echo"} 1"#,
        r#"petiole_slots{configuration="echo",state="used"} 1"#,
        r#"petiole_slots{configuration="echo",state="free"} 1"#,
        r#"petiole_slots{configuration="echo",state="unhealthy"} 0"#,
        "petiole_plugins 2",
        "petiole_plugins_registered 2",
        r#"petiole_plugin_registrations_total{result="registered"} 2"#,
        r#"petiole_claims_total{result="granted",reason=""} 1"#,
        "petiole_allocate_duration_seconds_count 1",
    ] {
        assert!(text.lines().any(|l| l == line), "no line {line} in\n{text}");
    }
    assert!(
        !text.contains(&name),
        "an Instance's name is a label in\n{text}"
    );

    let registered = logged(&node, "registered with the kubelet").await;
    assert!(registered["socket"].is_string(), "{registered}");
    assert_eq!(registered["span"]["name"], "plugin", "{registered}");
    assert!(registered["span"]["resource"].is_string(), "{registered}");
    assert_eq!(registered.get("spans"), None, "{registered}");

    // A kubelet that stops leaves its socket, but nothing receives the slots any more.
    node.stop_kubelet().await;
    let lacking = format!("{}{}", unregistered("echo"), unregistered(&name));
    until_ready(&node, address, (503, &lacking)).await;
    agent.signal(Signal::SIGTERM);
    assert!(agent.ended(&node).await.success());
}

fn resident_kb(agent: &Agent) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", agent.0.id())).unwrap();
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:"));
    line.unwrap()
        .trim()
        .trim_end_matches(" kB")
        .parse()
        .unwrap()
}

#[tokio::test]
async fn five_thousand_connections_that_say_nothing_cost_little_and_a_probe_is_answered_beside_them()
 {
    let node = TestNode::new();
    let flags = ["--http-address", "127.0.0.1:0", "--metrics-address"];
    let flags = [&flags[..], &["127.0.0.1:0", "--log-format", "json"]].concat();
    let agent = Agent::start_with(&node, &flags);
    let served = logged(&node, "serving metrics, health and readiness").await;
    let address = served["address"].as_str().unwrap();
    assert_eq!(get(address, "/healthz").await.0, 200);
    let before = resident_kb(&agent);
    let mut held = VecDeque::new();
    for n in 0..5000 {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"G").await.unwrap();
        held.push_back(stream);
        if held.len() > 500 {
            held.pop_front(); // the descriptors of this process are few
        }
        if n % 500 == 499 {
            let asked = Instant::now();
            assert_eq!(get(address, "/healthz").await, (200, "ok\n".to_owned()));
            // It does not wait until the others are closed, which is after 5 s.
            assert!(asked.elapsed() < Duration::from_secs(4));
        }
    }
    let grown = resident_kb(&agent).saturating_sub(before);
    assert!(grown < 4096, "it has grown by {grown} kB");

    let metrics = logged(&node, "serving metrics").await;
    let address = metrics["address"].as_str().unwrap();
    assert_eq!(get(address, "/metrics").await.0, 200);
    assert_eq!(get(address, "/readyz").await.0, 404);
}

/// Looks once into the folders of this node, with a temporary folder of its own.
fn look_once(node: &TestNode, output: &str) -> (std::process::Output, usize) {
    let temporary = tempfile::tempdir().unwrap();
    let looked = Command::new(env!("CARGO_BIN_EXE_petiole"))
        .args(["agent", "--standalone", "--once", "--node-name", "node-a"])
        .args(["--output", output, "--configurations"])
        .arg(node.configurations())
        .env("TMPDIR", temporary.path())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    (looked, fs::read_dir(temporary.path()).unwrap().count())
}

#[test]
fn one_look_prints_the_devices_leaves_nothing_and_fails_if_a_configuration_is_wrong() {
    let node = TestNode::new();
    configure(&node);
    let (looked, left) = look_once(&node, "json");
    let stderr = String::from_utf8_lossy(&looked.stderr).into_owned();
    assert!(looked.status.success(), "{stderr}");
    assert_eq!((stderr.as_str(), left), ("", 0));
    let list: Value = serde_json::from_slice(&looked.stdout).unwrap();
    assert_eq!(list["kind"], "InstanceList");
    let name = |list: &Value| {
        list["items"][0]["metadata"]["name"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    assert!(name(&list).starts_with("echo-"), "{list}");
    let wrong = "apiVersion: akri.sh/v0\nkind: Configuration\nmetadata: {name: wrong}\n\
                 spec: {discoveryHandler: {name: zeroConf}}\n";
    node.write_manifest("wrong.yaml", wrong);
    node.write_manifest("unreadable.yaml", "a: [");
    let (looked, left) = look_once(&node, "name");
    assert_eq!((looked.status.code(), left), (Some(1), 0));
    let stdout = String::from_utf8(looked.stdout).unwrap();
    assert_eq!(stdout, format!("instance.akri.sh/{}\n", name(&list)));
    let stderr = String::from_utf8(looked.stderr).unwrap();
    assert!(stderr.contains("wrong.yaml: UnknownHandler: "), "{stderr}");
    assert!(stderr.contains("unreadable.yaml: Unreadable: "), "{stderr}");
    assert!(
        node.instances().is_empty(),
        "the state folder is another one"
    );
}
