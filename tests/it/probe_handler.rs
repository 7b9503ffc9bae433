//! Tests of the probe handler with hosts on `lo` that say what a test tells them. tests/e2e/probe_servers has real ones.
use crate::support::running_discovery::RunningDiscovery;
use std::collections::BTreeMap;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, UdpSocket},
    task::JoinSet,
};

/// A host that answers each connection, or each question on it, by a function of the question.
struct Host {
    port: u16,
    _serves: JoinSet<()>,
}

impl Host {
    async fn start(answer: fn(&[u8]) -> Vec<u8>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut serves = JoinSet::new();
        serves.spawn(async move {
            loop {
                let (mut socket, _) = listener.accept().await.unwrap();
                let mut question = [0; 1024];
                while let Ok(count @ 1..) = socket.read(&mut question).await {
                    let answer = answer(&question[..count]);
                    if socket.write_all(&answer).await.is_err() {
                        break;
                    }
                }
            }
        });
        Self {
            port,
            _serves: serves,
        }
    }

    fn discovery(&self, ask: &str) -> RunningDiscovery {
        let details = format!("{{hosts: 127.0.0.1, port: {}, ask: {ask}}}", self.port);
        RunningDiscovery::start("probe", &details)
    }
}

#[tokio::test]
async fn a_host_is_a_device_with_what_it_says_and_its_identity() {
    let host = Host::start(|question| {
        assert!(question.starts_with(b"GET /status HTTP/1.1\r\nHost: 127.0.0.1:"));
        let body = r#"{"serial": "P4-0007"}"#;
        let length = body.len();
        format!("HTTP/1.1 200 OK\r\nServer: acme\r\nContent-Length: {length}\r\n\r\n{body}").into()
    })
    .await;
    let ask = "{http: {path: /status, json: /serial}}, identity: json";
    let mut running = host.discovery(ask);
    let device = running.device("P4-0007").await;
    assert_eq!(device.properties["PROBE_ADDRESS"], "127.0.0.1");
    assert_eq!(device.properties["PROBE_PORT"], host.port.to_string());
    assert_eq!(device.properties["PROBE_SERVER"], "acme");
    let set = running.until("complete", |set| set.complete).await;
    assert!(
        set.is_whole() && set.problems.is_empty(),
        "{:?}",
        set.problems
    );
    running.stop().await;
}

#[tokio::test]
async fn a_host_that_sends_everything_back_is_one_device_of_tcp_and_none_of_a_protocol() {
    let host = Host::start(<[u8]>::to_vec).await;
    let mut running = host.discovery("tcp");
    let set = running.until("complete", |set| set.complete).await;
    assert_eq!(set.devices.len(), 1);
    for ask in [
        "modbus",
        "http",
        "{redfish: {tls: false}}",
        "rtsp",
        "tls",
        "https",
    ] {
        let mut running = host.discovery(ask);
        let set = running.until("complete", |set| set.complete).await;
        assert!(set.devices.is_empty(), "{ask}: {:?}", set.devices);
        let problem = &set.problems[0];
        let begin = format!("127.0.0.1:{}: ", host.port);
        assert!(
            problem.starts_with(&begin) && problem.contains("is it the port for"),
            "{problem}"
        );
    }
}

#[tokio::test]
async fn a_redirect_leads_nowhere() {
    let host = Host::start(|_| {
        b"HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/\r\nContent-Length: 0\r\n\r\n"
            .to_vec()
    })
    .await;
    let mut running = host.discovery("http");
    let set = running.until("complete", |set| set.complete).await;
    assert!(set.devices.is_empty());
    assert!(
        set.problems[0].contains("the status of the answer is 302"),
        "{:?}",
        set.problems
    );
}

#[tokio::test]
async fn addresses_of_the_machine_are_asked_only_if_they_are_named() {
    let host = Host::start(<[u8]>::to_vec).await;
    let port = host.port;
    for (hosts, said) in [
        ("126.255.255.254-127.0.0.1", "2 addresses are not asked"),
        ("localhost", "may not be probed from this node"),
    ] {
        let details = format!("{{hosts: [{hosts}], port: {port}, ask: tcp}}");
        let mut running = RunningDiscovery::start("probe", &details);
        let set = running.until("complete", |set| set.complete).await;
        assert!(set.devices.is_empty(), "{hosts}: {:?}", set.devices);
        assert!(set.problems[0].contains(said), "{:?}", set.problems);
    }
    let details = format!("{{hosts: [localhost, 127.0.0.1], port: {port}, ask: tcp}}");
    let mut running = RunningDiscovery::start("probe", &details);
    running.device(&format!("127.0.0.1:{port}")).await;
}

#[tokio::test]
async fn a_community_is_sent_to_the_host_and_is_in_no_problem() {
    let host = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let port = host.local_addr().unwrap().port();
    let details = format!("{{hosts: 127.0.0.1, port: {port}, ask: snmp}}");
    let properties = BTreeMap::from([("community".to_owned(), "hunter2".to_owned())]);
    let mut running = RunningDiscovery::start_with("probe", &details, &properties);
    let mut request = [0; 512];
    let count = host.recv(&mut request).await.unwrap();
    assert!(request[..count].windows(7).any(|part| part == b"hunter2"));
    let set = running.until("complete", |set| set.complete).await;
    assert!(
        set.problems[0].contains("discoveryProperty community"),
        "{:?}",
        set.problems
    );
    assert!(!format!("{set:?}").contains("hunter2"));
}
