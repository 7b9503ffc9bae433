//! Tests of the mqtt handler with a broker on `lo` that says what a test tells it. tests/e2e/mqtt_brokers has real ones.
use crate::support::running_discovery::RunningDiscovery;
use std::{collections::BTreeMap, time::Duration};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

const TOPIC: &str = "z/lamp/lwt";
const DETAILS: &str = "devices: {topics: {pattern: \"z/{name}/lwt\"}}";
const WELCOME_3: &[u8] = b"\x20\x02\x00\x00";
const WELCOME_5: &[u8] = b"\x20\x03\x00\x00\x00";

struct Broker {
    listener: TcpListener,
    url: String,
}

impl Broker {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("mqtt://{}", listener.local_addr().unwrap());
        Self { listener, url }
    }

    fn discovery(&self, properties: &BTreeMap<String, String>) -> RunningDiscovery {
        let details = format!("broker: \"{}\"\n{DETAILS}", self.url);
        RunningDiscovery::start_with("mqtt", &details, properties)
    }

    /// Answers the CONNECT of the next client. Returns it, and what it sent.
    async fn accept(&self, answer: &[u8]) -> (TcpStream, Vec<u8>) {
        let (mut socket, _) = self.listener.accept().await.unwrap();
        let connect = packet(&mut socket).await;
        socket.write_all(answer).await.unwrap();
        (socket, connect)
    }
}

/// Reads a packet of less than 128 bytes.
async fn packet(socket: &mut TcpStream) -> Vec<u8> {
    let mut packet = vec![0; 2];
    socket.read_exact(&mut packet).await.unwrap();
    packet.resize(2 + usize::from(packet[1]), 0);
    socket.read_exact(&mut packet[2..]).await.unwrap();
    packet
}

/// A message in MQTT 3.1.1.
fn message(payload: &str) -> Vec<u8> {
    let length = 2 + TOPIC.len() + payload.len();
    let head = [0x31, length as u8, 0, TOPIC.len() as u8];
    [&head, TOPIC.as_bytes(), payload.as_bytes()].concat()
}

#[tokio::test]
async fn a_broker_of_3_1_1_is_listened_to_and_its_end_is_that_of_its_devices_until_it_is_back() {
    let broker = Broker::start().await;
    let mut running = broker.discovery(&BTreeMap::new());
    let (refused, connect) = broker.accept(b"\x20\x02\x00\x01").await;
    assert_eq!(&connect[4..9], b"MQTT\x05");
    drop(refused);
    let (mut socket, connect) = broker.accept(WELCOME_3).await;
    assert_eq!(&connect[4..9], b"MQTT\x04");
    assert_eq!(
        packet(&mut socket).await,
        b"\x82\x0c\x00\x01\x00\x07z/+/lwt\x00"
    );
    socket.write_all(b"\x90\x03\x00\x01\x00").await.unwrap();
    socket.write_all(&message("online")).await.unwrap();
    let device = running.device(TOPIC).await;
    assert_eq!(device.properties["MQTT_BROKER"], broker.url);
    assert_eq!(device.properties["MQTT_TOPIC"], TOPIC);
    assert_eq!(device.properties["MQTT_NAME"], "lamp");
    running.until("complete", |set| set.complete).await;
    socket.write_all(&message("offline")).await.unwrap();
    running.gone(TOPIC).await;
    socket.write_all(&message("online")).await.unwrap();
    running.device(TOPIC).await;
    drop(socket);
    let set = running.until("down", |set| set.devices.is_empty()).await;
    let problem = &set.problems[0];
    assert!(
        set.complete && problem.starts_with(&broker.url),
        "{problem}"
    );
    assert!(
        problem.contains("closed the connection at waiting for messages: look at"),
        "{problem}"
    );
    let (mut socket, connect) = broker.accept(WELCOME_3).await;
    assert_eq!(&connect[4..9], b"MQTT\x04", "what it speaks is known now");
    socket.write_all(&message("online")).await.unwrap();
    let set = running.until("back", |set| !set.devices.is_empty()).await;
    assert!(set.problems.is_empty(), "{:?}", set.problems);
    running.stop().await;
}

#[tokio::test]
async fn a_problem_that_is_over_goes_also_if_nothing_is_heard() {
    let broker = Broker::start().await;
    let mut running = broker.discovery(&BTreeMap::new());
    drop(broker.accept(WELCOME_5).await);
    running.until("down", |set| !set.problems.is_empty()).await;
    let (mut socket, _) = broker.accept(WELCOME_5).await;
    packet(&mut socket).await;
    socket.write_all(b"\x90\x04\x00\x01\x00\x00").await.unwrap();
    running.until("over", |set| set.problems.is_empty()).await;
}

#[tokio::test]
async fn after_a_fall_back_a_refused_connect_begins_with_version_5_again() {
    let broker = Broker::start().await;
    let _running = broker.discovery(&BTreeMap::new());
    for (version, answer) in [
        (5, b"\x20\x02\x00\x01"),
        (4, b"\x20\x02\x00\x05"),
        (5, b"\x20\x02\x00\x01"),
    ] {
        let (_refused, connect) = broker.accept(answer).await;
        assert_eq!(connect[8], version);
    }
}

#[tokio::test]
async fn a_user_and_a_password_are_sent_to_the_broker_and_are_in_no_problem() {
    let broker = Broker::start().await;
    let properties = [("user", "petiole"), ("password", "hunter2")];
    let properties = properties.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let mut running = broker.discovery(&properties.into());
    let (_socket, connect) = broker.accept(b"\x20\x03\x00\x86\x00").await;
    assert!(connect.ends_with(b"\x00\x07petiole\x00\x07hunter2"));
    let set = running
        .until("refused", |set| !set.problems.is_empty())
        .await;
    let problem = &set.problems[0];
    assert!(
        problem.contains("refused CONNECT: bad user name or password"),
        "{problem}"
    );
    assert!(
        problem.contains("discoveryProperties user and password"),
        "{problem}"
    );
    assert!(!format!("{set:?}").contains("hunter2"));
}

#[tokio::test]
async fn a_message_that_is_too_large_is_counted_and_the_next_one_is_heard() {
    let broker = Broker::start().await;
    let mut running = broker.discovery(&BTreeMap::new());
    let (mut socket, _) = broker.accept(WELCOME_5).await;
    let size = 200_000_usize;
    let head = [
        0x31,
        (size & 0x7F) as u8 | 0x80,
        (size >> 7 & 0x7F) as u8 | 0x80,
        (size >> 14) as u8,
    ];
    socket
        .write_all(&[&head[..], &vec![b'x'; size]].concat())
        .await
        .unwrap();
    let small = [&[0x31, 19, 0, 10][..], TOPIC.as_bytes(), b"\x00online"].concat();
    socket.write_all(&small).await.unwrap();
    running.device(TOPIC).await;
    let set = running.until("said", |set| !set.problems.is_empty()).await;
    let problem = &set.problems[0];
    assert!(
        problem.contains("1 or more messages were skipped"),
        "{problem}"
    );
}

#[tokio::test]
async fn a_broker_with_tls_needs_an_authority_and_a_foreign_program_is_named() {
    let broker = Broker::start().await;
    let url = broker.url.replace("mqtt", "mqtts");
    let mut running = RunningDiscovery::start("mqtt", &format!("broker: \"{url}\"\n{DETAILS}"));
    let set = running
        .until("refused", |set| !set.problems.is_empty())
        .await;
    assert!(
        set.problems[0].contains("discoveryProperty ca"),
        "{:?}",
        set.problems
    );
    let other = Broker::start().await;
    let mut running = other.discovery(&BTreeMap::new());
    let _socket = other.accept(b"SSH-2.0-OpenSSH_9.6\r\n").await;
    let set = running
        .until("refused", |set| !set.problems.is_empty())
        .await;
    let problem = &set.problems[0];
    assert!(
        problem.contains("what answered CONNECT does not speak MQTT"),
        "{problem}"
    );
}

#[tokio::test]
async fn a_subscription_that_was_refused_is_asked_for_again_and_the_problem_goes() {
    let broker = Broker::start().await;
    let mut running = broker.discovery(&BTreeMap::new());
    let (mut socket, _) = broker.accept(WELCOME_5).await;
    packet(&mut socket).await;
    socket.write_all(b"\x90\x04\x00\x01\x00\x87").await.unwrap();
    let set = running
        .until("refused", |set| !set.problems.is_empty())
        .await;
    assert!(
        set.problems[0].contains("is asked again every minute"),
        "{set:?}"
    );
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(61)).await;
    tokio::time::resume();
    let mut again = packet(&mut socket).await;
    while again == b"\xc0\x00" {
        socket.write_all(b"\xd0\x00").await.unwrap();
        again = packet(&mut socket).await;
    }
    assert!(again[0] == 0x82 && again[3] == 2, "{again:?}");
    socket.write_all(b"\x90\x04\x00\x02\x00\x00").await.unwrap();
    // A message of version 5 has properties: none.
    let online = message("\0online");
    socket.write_all(&online).await.unwrap();
    running.device(TOPIC).await;
    running
        .until("no problem", |set| set.problems.is_empty())
        .await;
    running.stop().await;
}
