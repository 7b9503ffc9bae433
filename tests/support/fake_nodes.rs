//! Fakes an API server with one Node: it lists, watches and patches, and can be made unreachable.
use axum::{
    Json, Router,
    body::{Body, Bytes},
    extract::{RawQuery, State},
    http::StatusCode,
    response::{IntoResponse as _, Response},
    routing::{get, patch},
};
use futures::StreamExt as _;
use kube::{Client, Config};
use petiole::cluster::node::Nodes;
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};
use tokio::{net::TcpListener, sync::watch, task::JoinSet};
use tokio_stream::wrappers::WatchStream;

pub const NODE: &str = "node-a";

pub struct FakeNodes {
    address: SocketAddr,
    shared: Shared,
    server: JoinSet<()>,
}

#[derive(Clone)]
struct Shared {
    node: Arc<watch::Sender<Value>>,
    /// The number of requests.
    requests: Arc<AtomicUsize>,
    patches: Arc<AtomicUsize>,
    /// A change of the Node to make just before the next patch.
    meanwhile: Arc<watch::Sender<Option<(String, String)>>>,
}

impl FakeNodes {
    pub async fn start() -> Self {
        let node = json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": NODE, "resourceVersion": "1"},
            "status": {"capacity": {"cpu": "2"}, "allocatable": {"cpu": "2"}},
        });
        let mut fake = Self {
            address: ([127, 0, 0, 1], 0).into(),
            shared: Shared {
                node: Arc::new(watch::Sender::new(node)),
                requests: Arc::default(),
                patches: Arc::default(),
                meanwhile: Arc::default(),
            },
            server: JoinSet::new(),
        };
        fake.listen().await;
        fake
    }

    /// Starts to serve again, with the same objects.
    pub async fn listen(&mut self) {
        let listener = TcpListener::bind(self.address).await.unwrap();
        self.address = listener.local_addr().unwrap();
        let routes = Router::new()
            .route("/api/v1/nodes", get(list))
            .route("/api/v1/nodes/{name}", get(read))
            .route("/api/v1/nodes/{name}/status", patch(patch_status))
            .with_state(self.shared.clone());
        self.server
            .spawn(async move { axum::serve(listener, routes).await.unwrap() });
    }

    /// Stops serving, and ends every open watch.
    pub async fn go_away(&mut self) {
        self.server.shutdown().await;
        // Connections have tasks of their own; this ends their watches.
        self.shared.edit(|node| node["gone"] = json!(true));
        self.shared
            .edit(|node| drop(node.as_object_mut().unwrap().remove("gone")));
    }

    pub fn nodes(&self) -> Nodes {
        let config = Config::new(format!("http://{}", self.address).parse().unwrap());
        let client = Client::try_from(config).unwrap();
        Nodes::new(client, &"akri.sh".parse().unwrap())
    }

    /// Returns capacity and allocatable of a resource; `-` for a missing entry.
    pub fn entry(&self, resource: &str) -> String {
        let node = self.shared.node.borrow();
        let value = |part: &str| {
            let value = &node["status"][part][resource];
            value.as_str().unwrap_or("-").to_owned()
        };
        format!("{}/{}", value("capacity"), value("allocatable"))
    }

    /// Sets an entry, as the kubelet or a user would.
    pub fn set(&self, resource: &str, capacity: &str, allocatable: &str) {
        self.shared.set(resource, capacity, allocatable);
    }

    /// Makes another writer change the entry just before the next patch.
    pub fn set_before_next_patch(&self, resource: &str, value: &str) {
        (self.shared.meanwhile).send_replace(Some((resource.to_owned(), value.to_owned())));
    }

    pub fn patches(&self) -> usize {
        self.shared.patches.load(Ordering::SeqCst)
    }

    pub fn requests(&self) -> usize {
        self.shared.requests.load(Ordering::SeqCst)
    }
}

impl Shared {
    fn edit(&self, edit: impl FnOnce(&mut Value)) {
        self.node.send_modify(|node| {
            let version = &mut node["metadata"]["resourceVersion"];
            let next = version.as_str().unwrap().parse::<u64>().unwrap() + 1;
            *version = json!(next.to_string());
            edit(node);
        });
    }

    fn set(&self, resource: &str, capacity: &str, allocatable: &str) {
        self.edit(|node| {
            node["status"]["capacity"][resource] = json!(capacity);
            node["status"]["allocatable"][resource] = json!(allocatable);
        });
    }

    fn count(&self) {
        self.requests.fetch_add(1, Ordering::SeqCst);
    }
}

async fn list(State(shared): State<Shared>, RawQuery(query): RawQuery) -> Response {
    shared.count();
    let query = query.unwrap_or_default();
    let query: BTreeMap<_, _> = (query.split('&'))
        .filter_map(|pair| pair.split_once('='))
        .collect();
    let selector = query.get("fieldSelector").copied();
    assert_eq!(
        selector,
        Some("metadata.name%3Dnode-a"),
        "only its own Node"
    );
    // The server behaves like one before 1.34, which sends no list over a watch.
    if query.get("sendInitialEvents") == Some(&"true") {
        let message = "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled";
        return invalid(message);
    }
    if query.get("watch") != Some(&"true") {
        let node = shared.node.borrow().clone();
        let version = node["metadata"]["resourceVersion"].clone();
        return Json(json!({
            "apiVersion": "v1",
            "kind": "NodeList",
            "metadata": {"resourceVersion": version},
            "items": [node],
        }))
        .into_response();
    }
    let from: u64 = query["resourceVersion"].parse().unwrap();
    let changes = WatchStream::new(shared.node.subscribe())
        .filter(move |node| {
            let version = node["metadata"]["resourceVersion"].as_str().unwrap();
            std::future::ready(version.parse::<u64>().unwrap() > from)
        })
        .map(|node| {
            if node.get("gone").is_some() {
                return Err(std::io::Error::other("the server goes away"));
            }
            // Kubernetes writes the type first, and `Read` needs that.
            let node = json!(node);
            Ok(Bytes::from(format!(
                "{{\"type\":\"MODIFIED\",\"object\":{node}}}\n"
            )))
        });
    Body::from_stream(changes).into_response()
}

fn invalid(message: &str) -> Response {
    let status = json!({
        "apiVersion": "v1", "kind": "Status", "status": "Failure", "metadata": {},
        "code": 422, "reason": "Invalid", "message": message,
    });
    (StatusCode::UNPROCESSABLE_ENTITY, Json(status)).into_response()
}

async fn read(State(shared): State<Shared>) -> Json<Value> {
    shared.count();
    Json(shared.node.borrow().clone())
}

async fn patch_status(State(shared): State<Shared>, body: Bytes) -> Response {
    shared.count();
    shared.patches.fetch_add(1, Ordering::SeqCst);
    if let Some((resource, value)) = shared.meanwhile.send_replace(None) {
        shared.set(&resource, &value, &value);
    }
    let mut node = shared.node.borrow().clone();
    let operations: Vec<Value> = serde_json::from_slice(&body).unwrap();
    // A test for null succeeds if the key does not exist, as in the API server's library.
    let holds_trivially = |operation: &Value| {
        operation["op"] == "test"
            && operation["value"].is_null()
            && node.pointer(operation["path"].as_str().unwrap()).is_none()
    };
    let left = operations.into_iter().filter(|o| !holds_trivially(o));
    let left: json_patch::Patch = serde_json::from_value(Value::Array(left.collect())).unwrap();
    if let Err(e) = json_patch::patch(&mut node, &left) {
        return invalid(&e.to_string());
    }
    shared.edit(|now| now["status"] = node["status"].clone());
    Json(shared.node.borrow().clone()).into_response()
}
