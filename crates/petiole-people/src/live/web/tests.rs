use super::*;
use crate::{inspect::snapshot::Snapshot, live::Looking};
use futures::future::ready;
use petiole_cluster::instance_key;
use petiole_model::api::{instance::Instance, names};
use serde_json::json;
use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

/// A page for a folder with one Instance.
struct Page {
    folder: tempfile::TempDir,
    address: SocketAddr,
    source: Source,
    listener: TcpListener,
}

impl Page {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let page = Self {
            address: listener.local_addr().unwrap(),
            source: source(folder.path().join("state")),
            folder,
            listener,
        };
        fs::create_dir_all(page.folder.path().join("state/configurations")).unwrap();
        fs::create_dir_all(page.folder.path().join("state/instances")).unwrap();
        write_instance(page.folder.path(), "door");
        page
    }
}

/// Shows the Instances that the agent writes to a folder.
fn source(state: PathBuf) -> Source {
    let folder = state.clone();
    let look = move || -> Looking { Box::pin(ready(read(&folder))) };
    let look = Arc::new(look);
    Source::Node { state, look }
}

fn read(state: &Path) -> anyhow::Result<Snapshot> {
    let mut snapshot = Snapshot::default();
    for file in fs::read_dir(state.join("instances"))? {
        let instance: Instance = serde_json::from_str(&fs::read_to_string(file?.path())?)?;
        (snapshot.instances).insert(instance_key(&instance.metadata), instance);
    }
    Ok(snapshot)
}

fn write_instance(folder: &Path, name: &str) {
    let instance = json!({
        "apiVersion": names::API_VERSION, "kind": "Instance",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"cdiName": "", "configurationName": "cams", "capacity": 1, "nodes": ["box"]},
    });
    let file = folder.join(format!("state/instances/default_{name}.yaml"));
    fs::write(file, instance.to_string()).unwrap();
}

/// Sends a request and reads until the answer contains the text.
async fn until(stream: &mut TcpStream, text: &str) -> String {
    let (mut answer, mut bytes) = (vec![], [0; 4096]);
    while !String::from_utf8_lossy(&answer).contains(text) {
        let read = stream.read(&mut bytes).await.unwrap();
        let so_far = String::from_utf8_lossy(&answer);
        assert_ne!(read, 0, "{text:?} is not in {so_far}");
        answer.extend_from_slice(&bytes[..read]);
    }
    String::from_utf8(answer).unwrap()
}

async fn request(address: SocketAddr, line: &str, host: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("{line} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

#[tokio::test]
async fn a_browser_gets_the_page_and_each_change() {
    let Page {
        folder,
        address,
        source,
        listener,
    } = Page::new().await;
    let stop = CancellationToken::new();
    let browser = async {
        let mut page = request(address, "GET /", "localhost").await;
        let answer = until(&mut page, "</html>").await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        assert!(
            answer.contains("content-security-policy: default-src 'none'"),
            "{answer}"
        );
        let mut events = request(address, "GET /events", "127.0.0.1").await;
        let first = until(&mut events, "\"instance\":\"door\"").await;
        assert!(first.contains("content-type: text/event-stream"), "{first}");
        write_instance(folder.path(), "window");
        until(&mut events, "window was found").await;
        let mut devices = request(address, "GET /devices", "localhost").await;
        until(&mut devices, "\"instance\":\"window\"").await;
        let mut device = request(address, "GET /devices/default/window", "localhost").await;
        until(&mut device, "\"why\":null").await;
        stop.cancel();
    };
    let (served, ()) = tokio::join!(run(source, listener, vec![], stop.clone()), browser);
    served.unwrap();
}

#[tokio::test]
async fn another_site_reads_nothing_and_nobody_writes() {
    let Page {
        folder: _folder,
        address,
        source,
        listener,
    } = Page::new().await;
    let stop = CancellationToken::new();
    let browser = async {
        for (line, host, status) in [
            ("GET /devices", "evil.example", "421"),
            ("GET /events", "evil.example", "421"),
            ("GET /devices/default/door", "evil.example", "421"),
            ("GET /devices/default/window", "localhost", "404"),
            ("POST /devices", "localhost", "405"),
            ("GET /../Cargo.toml", "localhost", "404"),
        ] {
            let mut stream = request(address, line, host).await;
            let answer = until(&mut stream, "\r\n\r\n").await;
            assert!(
                answer.starts_with(&format!("HTTP/1.1 {status}")),
                "{line}: {answer}"
            );
        }
        stop.cancel();
    };
    let (served, ()) = tokio::join!(run(source, listener, vec![], stop.clone()), browser);
    served.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_browser_hears_that_the_server_is_there_while_nothing_changes() {
    let (_sender, latest) = watch::channel(Arc::from("{}"));
    let stream = events(Shared(latest)).await.into_response();
    let mut stream = stream.into_body().into_data_stream();
    for expected in [
        "data: {}",
        "event: alive\ndata: yes",
        "event: alive\ndata: yes",
    ] {
        let part = stream.next().await.unwrap().unwrap();
        assert_eq!(String::from_utf8_lossy(&part).trim(), expected);
    }
}
