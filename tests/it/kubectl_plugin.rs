//! `petiole devices`, `why`, `doctor`, `check` and `tidy` as processes, with a kubeconfig and an API server of canned
//! answers.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
use axum::{Json, Router, extract::Request, http::StatusCode};
use serde_json::{Value, json};
use std::{
    fs,
    path::PathBuf,
    process::Stdio,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};
use tempfile::TempDir;
use tokio::{
    io::{
        AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, copy_bidirectional,
    },
    net::{TcpListener, TcpStream},
    process::Command,
    task::JoinSet,
    time::timeout,
};

const PATIENCE: Duration = Duration::from_secs(20);

/// A cluster with one node, whose Configuration `cam` in the namespace `line-2` has one device that `web` uses.
struct Workstation {
    folder: TempDir,
    _server: JoinSet<()>,
}

struct Said {
    out: String,
    errors: String,
    code: i32,
}

fn configuration() -> Value {
    json!({
        "metadata": {"namespace": "line-2", "name": "cam"},
        "spec": {"discoveryHandler": {"name": "zeroconf"}},
        "status": {"conditions": [{
            "type": "Ready", "status": "True", "reason": "Working", "lastTransitionTime": "",
        }]},
    })
}

fn instance() -> Value {
    json!({
        "metadata": {"namespace": "line-2", "name": "cam-0a1b2c"},
        "spec": {
            "configurationName": "cam", "cdiName": "", "capacity": 1, "shared": true, "nodes": ["node-1"],
            "brokerProperties": {
                "AKRI_ZEROCONF_DEVICE_NAME": "Gate", "AKRI_ZEROCONF_DEVICE_ADDR": "192.0.2.9",
                "AKRI_ZEROCONF_DEVICE_PORT": "554",
            },
            "deviceUsage": {"cam-0a1b2c-0": "node-1"},
        },
    })
}

fn pod(name: &str, node: Option<&str>) -> Value {
    let phase = node.map_or("Pending", |_| "Running");
    json!({
        "metadata": {"namespace": "line-2", "name": name},
        "spec": {
            "nodeName": node,
            "containers": [{"name": "c", "resources": {"limits": {"akri.sh/cam-0a1b2c": "1"}}}],
        },
        "status": {"phase": phase, "conditions": [{"type": "Ready", "status": "True"}]},
    })
}

fn node() -> Value {
    json!({
        "metadata": {"name": "node-1"},
        "status": {
            "conditions": [{"type": "Ready", "status": "True"}],
            "capacity": {"akri.sh/old": "0"}, "allocatable": {"akri.sh/old": "0"},
        },
    })
}

async fn answer(request: Request) -> (StatusCode, Json<Value>) {
    let path = request.uri().path().to_owned();
    let (items, one) = match path.rsplit('/').next().unwrap() {
        "configurations" => (vec![configuration()], None),
        "instances" => (vec![instance()], None),
        "nodes" => (vec![node()], None),
        "pods" => (vec![pod("web", Some("node-1")), pod("late", None)], None),
        "late" => (vec![], Some(pod("late", None))),
        "node-1" | "status" => (vec![], Some(node())),
        "nodedevices" | "events" => (vec![], None),
        _ => {
            let status = json!({
                "kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound", "message": "none",
            });
            return (StatusCode::NOT_FOUND, Json(status));
        }
    };
    let list = json!({"metadata": {"resourceVersion": "1"}, "items": items});
    (StatusCode::OK, Json(one.unwrap_or(list)))
}

impl Workstation {
    async fn new() -> Self {
        Self::with(Router::new().fallback(answer)).await
    }

    /// Starts an API server with these answers.
    async fn with(answers: Router) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut server = JoinSet::new();
        server.spawn(async move {
            axum::serve(listener, answers).await.unwrap();
        });
        let folder = TempDir::new().unwrap();
        let kubeconfig = format!(
            "{{apiVersion: v1, kind: Config, current-context: factory,
              clusters: [{{name: edge, cluster: {{server: 'http://{address}'}}}}],
              users: [{{name: me, user: {{}}}}],
              contexts: [{{name: factory, context: {{cluster: edge, user: me, namespace: line-2}}}}]}}"
        );
        fs::write(folder.path().join("config"), kubeconfig).unwrap();
        Self {
            folder,
            _server: server,
        }
    }

    fn kubeconfig(&self) -> PathBuf {
        self.folder.path().join("config")
    }

    /// Runs a program with the kubeconfig.
    async fn run(&self, program: PathBuf, arguments: &[&str]) -> Said {
        self.run_with(&[], program, arguments).await
    }

    /// The same with variables of the environment.
    async fn run_with(
        &self,
        variables: &[(&str, &str)],
        program: PathBuf,
        arguments: &[&str],
    ) -> Said {
        let output = Command::new(program)
            .args(arguments)
            .env("KUBECONFIG", self.kubeconfig())
            .envs(variables.iter().copied())
            .output()
            .await
            .unwrap();
        Said {
            out: String::from_utf8(output.stdout).unwrap(),
            errors: String::from_utf8(output.stderr).unwrap(),
            code: output.status.code().unwrap(),
        }
    }

    async fn petiole(&self, arguments: &[&str]) -> Said {
        self.run(env!("CARGO_BIN_EXE_petiole").into(), arguments)
            .await
    }
}

#[tokio::test]
async fn devices_are_listed_with_their_users_in_the_namespace_of_the_context() {
    let workstation = Workstation::new().await;
    let said = workstation.petiole(&["devices"]).await;
    let expected = "\
NAME         DEVICE   WHERE    USED BY                HEALTH    CONFIGURATION
cam-0a1b2c   Gate     node-1   line-2/web on node-1   Healthy   cam
";
    assert_eq!(said.out, expected, "{}", said.errors);
    let wide = workstation
        .petiole(&["devices", "-A", "-o", "wide"])
        .await
        .out;
    assert!(wide.starts_with("NAMESPACE   NAME "), "{wide}");
    assert!(
        wide.contains("1/1     192.0.2.9:554   <none>   akri.sh/cam-0a1b2c"),
        "{wide}"
    );
    let names = workstation.petiole(&["devices", "-o", "name"]).await.out;
    assert_eq!(names, "instance.akri.sh/cam-0a1b2c\n");
    let json = workstation.petiole(&["devices", "-o", "json"]).await.out;
    let list: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(list["items"][0]["used"][0]["pods"], json!(["line-2/web"]));
}

/// Answers as the others do, with a device whose name is another one in each list.
async fn restless(request: Request) -> (StatusCode, Json<Value>) {
    static LISTS: AtomicUsize = AtomicUsize::new(0);
    let (code, Json(mut list)) = answer(request).await;
    let properties = &mut list["items"][0]["spec"]["brokerProperties"];
    if properties.is_object() {
        let name = format!("Gate {}", LISTS.fetch_add(1, Ordering::Relaxed));
        properties["AKRI_ZEROCONF_DEVICE_NAME"] = json!(name);
    }
    (code, Json(list))
}

#[tokio::test]
async fn a_watch_of_devices_whose_reader_has_gone_ends_without_an_error() {
    let workstation = Workstation::with(Router::new().fallback(restless)).await;
    let mut process = Command::new(env!("CARGO_BIN_EXE_petiole"))
        .args(["devices", "--watch"])
        .env("KUBECONFIG", workstation.kubeconfig())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut head = String::new();
    let mut stdout = BufReader::new(process.stdout.take().unwrap());
    stdout.read_line(&mut head).await.unwrap();
    assert!(head.starts_with("NAME "), "{head}");
    drop(stdout);
    let ended = timeout(PATIENCE, process.wait_with_output()).await;
    let ended = ended.expect("it ends with its reader").unwrap();
    assert!(ended.status.success(), "{ended:?}");
    assert!(!String::from_utf8_lossy(&ended.stderr).contains("stdout"));
}

#[tokio::test]
async fn why_finds_an_object_by_its_name_and_names_the_holder() {
    let workstation = Workstation::new().await;
    for object in ["late", "pod/late", "po/late"] {
        let said = workstation.petiole(&["why", object]).await;
        assert!(
            said.out.starts_with("Pod line-2/late is Pending")
                && said.out.contains("is in use, by node-1 (Pod line-2/web)"),
            "{object}: {}{}",
            said.out,
            said.errors
        );
    }
    let configuration = workstation
        .petiole(&["why", "akric/cam", "-o", "json"])
        .await;
    let explanation: Value = serde_json::from_str(&configuration.out).unwrap();
    assert_eq!(explanation["findings"][0]["cause"], "AgentMissing");
    let nothing = workstation.petiole(&["why", "nothing"]).await;
    assert_eq!(nothing.code, 1);
    assert_eq!(nothing.errors.lines().count(), 1, "{}", nothing.errors);
    assert!(
        nothing.errors.contains("line-2/nothing"),
        "{}",
        nothing.errors
    );
}

#[tokio::test]
async fn doctor_fails_where_the_definitions_are_missing() {
    let said = Workstation::new().await.petiole(&["doctor"]).await;
    assert_eq!(said.code, 1);
    let first = said.out.lines().next().unwrap();
    assert!(
        first.starts_with("FAIL  CustomResourceDefinition"),
        "{first}"
    );
}

#[tokio::test]
async fn tidy_says_that_entries_can_come_back() {
    let workstation = Workstation::new().await;
    let dry = workstation.petiole(&["tidy", "--dry-run"]).await;
    assert!(dry.out.contains("akri.sh/old"), "{}{}", dry.out, dry.errors);
    assert_eq!(dry.errors, "");
    let removed = workstation.petiole(&["tidy"]).await;
    assert!(
        removed.errors.contains("for 5 minutes"),
        "{}",
        removed.errors
    );
    assert!(
        removed.errors.contains("petiole tidy --wait"),
        "{}",
        removed.errors
    );
}

#[tokio::test]
async fn a_kubeconfig_and_a_context_are_named_as_kubectl_has_them_and_are_missed_in_one_line() {
    let workstation = Workstation::new().await;
    for (arguments, says) in [
        (vec!["devices", "--context", "home"], "no context home"),
        (
            vec!["why", "cam", "--kubeconfig", "/nowhere"],
            "/nowhere does not exist",
        ),
        (
            vec!["check", "--kubeconfig", "/nowhere"],
            "/nowhere does not exist",
        ),
        (vec!["tidy", "--context", "home"], "no context home"),
        (vec!["uninstall", "--context", "home"], "no context home"),
    ] {
        let said = workstation.petiole(&arguments).await;
        assert_eq!(
            said.errors.lines().count(),
            1,
            "{arguments:?}: {}",
            said.errors
        );
        assert!(said.errors.contains(says), "{arguments:?}: {}", said.errors);
        assert_eq!(said.code, 1);
    }
}

#[tokio::test]
async fn a_plugin_of_kubectl_calls_itself_so_and_works_under_its_link() {
    let workstation = Workstation::new().await;
    let link = workstation.folder.path().join("kubectl-petiole");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_petiole"), &link).unwrap();
    let devices = workstation.run(link.clone(), &["devices"]).await;
    assert!(devices.out.contains("cam-0a1b2c"), "{}", devices.errors);
    let help = workstation.run(link, &["why", "--help"]).await.out;
    assert!(help.contains("Usage: kubectl petiole why"), "{help}");
}

/// Passes one connection on to where a CONNECT wants it (RFC 9110 9.3.6).
async fn pass_on(listener: TcpListener) {
    let (mut client, _) = listener.accept().await.unwrap();
    let mut request = vec![];
    while !request.ends_with(b"\r\n\r\n") {
        request.push(client.read_u8().await.unwrap());
    }
    let request = String::from_utf8(request).unwrap();
    let target = request.strip_prefix("CONNECT ").expect("a tunnel");
    let target = target.split(' ').next().unwrap();
    let mut server = TcpStream::connect(target).await.unwrap();
    let established = b"HTTP/1.1 200 Connection established\r\n\r\n";
    client.write_all(established).await.unwrap();
    copy_bidirectional(&mut client, &mut server).await.ok();
}

#[tokio::test]
async fn the_api_server_is_reached_by_the_proxy_of_the_environment_unless_it_is_left_out_there() {
    let workstation = Workstation::new().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = format!("http://{}", listener.local_addr().unwrap());
    let program = || env!("CARGO_BIN_EXE_petiole").into();
    let names = ["devices", "-o", "name"];
    let by_proxy = [("HTTPS_PROXY", proxy.as_str()), ("NO_PROXY", "")];
    let run = workstation.run_with(&by_proxy, program(), &names);
    let both = timeout(PATIENCE, async { tokio::join!(pass_on(listener), run) });
    let ((), said) = both.await.expect("a connection by the proxy");
    assert_eq!(said.out, "instance.akri.sh/cam-0a1b2c\n", "{}", said.errors);

    // The proxy has ended.
    let left_out = [("HTTPS_PROXY", proxy.as_str()), ("NO_PROXY", "127.0.0.1")];
    let said = workstation.run_with(&left_out, program(), &names).await;
    assert_eq!(said.out, "instance.akri.sh/cam-0a1b2c\n", "{}", said.errors);
}
