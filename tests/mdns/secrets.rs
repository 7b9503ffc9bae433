//! What handlers get as secrets is in nothing that the program writes: not in its log at the level trace, its objects, its metrics and what
//! `discover` prints. The servers send it back where they can.
use crate::onvif_handler::{Camera, PASSWORD};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream, UdpSocket},
    task::JoinSet,
    time::{Instant, sleep},
};

const UUID: &str = "00000000-0000-4000-a000-000000000009";
/// CONNACK of MQTT 5.
const WELCOME: &[u8] = b"\x20\x03\x00\x00\x00";
const PATIENCE: Duration = Duration::from_secs(60);

/// The servers, and how they are reached.
struct Servers {
    _camera: Camera,
    broker: String,
    refuses: String,
    snmp: u16,
    _serve: JoinSet<()>,
}

impl Servers {
    async fn start() -> Self {
        let mut serve = JoinSet::new();
        let mut listen = async |answers: [Vec<u8>; 2]| {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let url = format!("mqtt://{}", listener.local_addr().unwrap());
            serve.spawn(async move {
                let mut open = vec![];
                loop {
                    let (mut socket, _) = listener.accept().await.unwrap();
                    let mut question = [0; 512];
                    for (n, answer) in answers.iter().enumerate() {
                        let length = socket.read(&mut question).await.unwrap();
                        let is_connect = n == 0;
                        assert_eq!(has(&question[..length], PASSWORD), is_connect);
                        socket.write_all(answer).await.unwrap();
                    }
                    open.push(socket);
                }
            });
            url
        };
        let broker = listen([WELCOME.into(), lamp()]).await;
        let refuses = listen([refusal(), vec![]]).await;
        let host = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let snmp = host.local_addr().unwrap().port();
        serve.spawn(async move {
            let mut request = [0; 512];
            loop {
                let (length, client) = host.recv_from(&mut request).await.unwrap();
                let answer = described(&request[..length]);
                host.send_to(&answer, client).await.unwrap();
            }
        });
        Self {
            _camera: Camera::start(UUID, [127, 0, 7, 9], "127.0.7.9").await,
            broker,
            refuses,
            snmp,
            _serve: serve,
        }
    }

    /// Returns each Configuration with its name.
    fn configurations(&self) -> [(&'static str, String); 6] {
        let Self {
            broker,
            refuses,
            snmp,
            ..
        } = self;
        let user = "{name: user, value: petiole}";
        let topics = "devices: {topics: {pattern: 'z/{name}/lwt'}}";
        let mqtt = |broker: &str| format!("broker: {broker}\n      {topics}");
        let login = format!("{user}, {{name: password, value: {PASSWORD}}}");
        [
            (
                "camera",
                configuration(
                    "camera",
                    "onvif",
                    &format!("interfaces: {{allow: [lo]}}\n      uuids: {{items: [{UUID}]}}"),
                    &format!(
                        "{{name: username_default, value: admin}}, {{name: password_default, value: {PASSWORD}}}"
                    ),
                ),
            ),
            (
                "lamps",
                configuration("lamps", "mqtt", &mqtt(broker), &login),
            ),
            (
                "refused",
                configuration("refused", "mqtt", &mqtt(refuses), &login),
            ),
            (
                "broken",
                configuration(
                    "broken",
                    "mqtt",
                    &mqtt(broker),
                    &format!("{{name: password, value: {PASSWORD}}}"),
                ),
            ),
            (
                "host",
                configuration(
                    "host",
                    "probe",
                    &format!("hosts: 127.0.0.1\n      port: {snmp}\n      ask: snmp"),
                    &format!("{{name: community, value: {PASSWORD}}}"),
                ),
            ),
            (
                "press",
                configuration(
                    "press",
                    "opcua",
                    "opcuaDiscoveryMethod: {standard: {discoveryUrls: ['opc.tcp://127.0.0.1:1/']}}",
                    &format!("{{name: password, value: {PASSWORD}}}"),
                ),
            ),
        ]
    }
}

fn configuration(name: &str, handler: &str, details: &str, properties: &str) -> String {
    format!(
        "apiVersion: akri.sh/v0\nkind: Configuration\nmetadata: {{name: {name}}}\nspec:\n  discoveryHandler:\n    name: {handler}\n    \
         discoveryProperties: [{properties}]\n    discoveryDetails: |-\n      {details}\n"
    )
}

fn has(bytes: &[u8], text: &str) -> bool {
    bytes
        .windows(text.len())
        .any(|part| part == text.as_bytes())
}

/// Returns the answer of MQTT 5 to the first SUBSCRIBE, and a message of a lamp.
fn lamp() -> Vec<u8> {
    let answer = b"\x90\x04\x00\x01\x00\x00";
    [&answer[..], b"\x31\x13\x00\x0a\x7a/lamp/lwt\x00online"].concat()
}

/// Returns CONNACK of MQTT 5 that says the password.
fn refusal() -> Vec<u8> {
    let length = PASSWORD.len() as u8;
    let head = [0x20, 6 + length, 0, 0x86, 3 + length, 0x1f, 0, length];
    [&head, PASSWORD.as_bytes()].concat()
}

fn item(tag: u8, content: &[u8]) -> Vec<u8> {
    [&[tag, content.len() as u8], content].concat()
}

/// Returns an answer to a question of SNMP whose description and name are the community.
fn described(request: &[u8]) -> Vec<u8> {
    let community = PASSWORD.as_bytes();
    let at = request
        .windows(community.len())
        .position(|part| part == community);
    let get = &request[at.expect("it is sent to the host") + community.len()..];
    let id = &get[2..4 + usize::from(get[3])];
    let object = |id: u8, text: &str| {
        let oid = item(0x06, &[0x2B, 6, 1, 2, 1, 1, id, 0]);
        item(0x30, &[oid, item(0x04, text.as_bytes())].concat())
    };
    let objects = [object(1, "a switch"), object(5, PASSWORD)].concat();
    let zero = item(0x02, &[0]);
    let response = [id, &zero, &zero, &item(0x30, &objects)].concat();
    let message = [
        item(0x02, &[1]),
        item(0x04, community),
        item(0xA2, &response),
    ];
    item(0x30, &message.concat())
}

struct Agent(Child);

impl Agent {
    fn start(root: &Path) -> Self {
        let log = fs::File::create(root.join("written/log")).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_petiole"))
            .args(["agent", "--standalone", "--node-name", "node-a"])
            .args(["--log", "trace", "--http-address", "127.0.0.1:0"])
            .args([
                "--configurations".as_ref(),
                root.join("configurations").as_os_str(),
            ])
            .args(["--state".as_ref(), root.join("written/state").as_os_str()])
            .args(["--kubelet-dir".as_ref(), root.join("kubelet").as_os_str()])
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn();
        Self(child.unwrap())
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

async fn metrics(log: &str) -> String {
    let (_, rest) = log.split_once("address=127.0.0.1:").unwrap();
    let port: String = rest.chars().take_while(char::is_ascii_digit).collect();
    let mut stream = TcpStream::connect(format!("127.0.0.1:{port}"))
        .await
        .unwrap();
    stream
        .write_all(b"GET /metrics HTTP/1.0\r\n\r\n")
        .await
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let all = entries.flat_map(|path| {
        if path.is_dir() {
            files(&path)
        } else {
            vec![path]
        }
    });
    all.collect()
}

/// Returns all that is written, with the name of each file.
fn written(root: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let files = files(&root.join("written")).into_iter();
    // A file that is being written has another name.
    files
        .filter_map(|path| Some((path.clone(), fs::read(path).ok()?)))
        .collect()
}

/// Waits until each of them has happened: what works, what is refused, what cannot be used, and what nobody reads.
async fn until_all_happened(root: &Path) {
    let expected = [
        "z/lamp/lwt",
        UUID,
        "a switch",
        "bad user name or password",
        "user is missing",
        "no connection (",
        "TRACE",
    ];
    let end = Instant::now() + PATIENCE;
    loop {
        let all = written(root);
        let is_there = |text: &&&str| all.iter().any(|(_, bytes)| has(bytes, text));
        let missing: Vec<_> = expected.iter().filter(|text| !is_there(text)).collect();
        if missing.is_empty() {
            return;
        }
        assert!(Instant::now() < end, "not there: {missing:?}");
        sleep(Duration::from_millis(50)).await;
    }
}

/// Writes what `discover` prints for a Configuration.
async fn look(root: &Path, name: &str) {
    let handler = match name {
        "camera" => "onvif",
        "host" => "probe",
        "press" => "opcua",
        _ => "mqtt",
    };
    let said = tokio::process::Command::new(env!("CARGO_BIN_EXE_petiole"))
        .args(["discover", handler, "--for", "2s", "-o", "wide"])
        .args(["--log", "trace", "--details"])
        .arg(root.join(format!("configurations/{name}.yaml")))
        .stdin(Stdio::null())
        .output()
        .await
        .unwrap();
    let text = [said.stdout, said.stderr].concat();
    fs::write(root.join(format!("written/{name}")), text).unwrap();
}

#[tokio::test]
async fn a_secret_of_a_handler_is_in_nothing_that_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    for name in ["configurations", "written/state", "kubelet"] {
        fs::create_dir_all(root.join(name)).unwrap();
    }
    let servers = Servers::start().await;
    for (name, text) in servers.configurations() {
        fs::write(root.join(format!("configurations/{name}.yaml")), text).unwrap();
    }
    let agent = Agent::start(root);
    until_all_happened(root).await;
    let log = fs::read_to_string(root.join("written/log")).unwrap();
    fs::write(root.join("written/metrics"), metrics(&log).await).unwrap();
    drop(agent);
    for (name, _) in servers.configurations() {
        look(root, name).await;
    }
    let mut all = written(root);
    // A standalone agent keeps a copy of each Configuration, in which the values of this test stand.
    let copies = root.join("written/state/configurations");
    all.retain(|(path, _)| !path.starts_with(&copies));
    assert!(
        all.len() > 9,
        "the log, Instances, metrics and what discover prints: {}",
        all.len()
    );
    let encoded = STANDARD.encode(PASSWORD);
    for (path, bytes) in all {
        for secret in [PASSWORD, &encoded] {
            let text = String::from_utf8_lossy(&bytes);
            let line = text.lines().find(|line| line.contains(secret));
            assert_eq!(line, None, "{}", path.display());
        }
    }
}
