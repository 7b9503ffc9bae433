//! Tests that values of Secrets reach discovery handlers, and nothing else: an agent against an API server that has
//! two Configurations and a Secret.
use crate::chart_renders::{helm, render};
use axum::{
    body::{Body, Bytes},
    http::{Method, Request, Response},
};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use futures::{StreamExt as _, stream};
use http_body_util::BodyExt as _;
use kube::Client;
use petiole::{
    agent,
    cluster::{node::Nodes, property_sources::PropertySources},
    discovery::{
        DetailsError, Discovery, DiscoveryHandler, Properties, Reads, Task, session::Handlers,
    },
    model::{
        device::{DeviceSet, Scope},
        resource_name::ResourcePrefixes,
    },
    store::kubernetes::{self, KubernetesStore},
};
use serde_json::{Value, json};
use std::{
    convert::Infallible,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tempfile::TempDir;
use tokio::{sync::watch, task::JoinSet, time::timeout};
use tokio_stream::wrappers::WatchStream;
use tokio_util::sync::CancellationToken;

const SOON: Duration = Duration::from_secs(20);

/// The discoveries that were started: their details and their properties.
type Runs = watch::Sender<Vec<(String, Properties)>>;

/// A handler that reads the property `word`, and records its discoveries.
struct Recorder(Runs);

impl DiscoveryHandler for Recorder {
    fn name(&self) -> &'static str {
        "recorder"
    }

    fn reads(&self) -> Reads {
        Reads::Only(&["word"])
    }

    fn prepare(&self, details: &str, properties: &Properties) -> Result<Discovery, DetailsError> {
        let entry = (details.to_owned(), properties.clone());
        let runs = self.0.clone();
        Ok(Discovery::new(Scope::Shared, async move |task: Task| {
            runs.send_modify(|runs| runs.push(entry));
            task.found.send_replace(DeviceSet::complete([]));
            std::future::pending().await
        }))
    }
}

/// The API server: what it has, and what was written to it.
#[derive(Clone)]
struct Server {
    /// The value of the Secret's key; `None` while agents may not read it.
    password: Arc<watch::Sender<Option<&'static str>>>,
    written: Arc<watch::Sender<Vec<String>>>,
}

fn configuration(name: &str, property: Value) -> Value {
    let handler =
        json!({"name": "recorder", "discoveryDetails": name, "discoveryProperties": [property]});
    json!({
        "apiVersion": "akri.sh/v0", "kind": "Configuration",
        "metadata": {"name": name, "namespace": "cameras", "uid": name, "resourceVersion": "1"},
        "spec": {"discoveryHandler": handler},
    })
}

fn secret(password: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": "onvif", "namespace": "cameras", "resourceVersion": "1"},
        "data": {"password": BASE64_STANDARD.encode(password), "other": "AAAA"},
    })
}

fn list(items: Vec<Value>) -> Response<Body> {
    let list = json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items});
    respond(200, &list)
}

fn refused(code: u16, message: &str) -> Response<Body> {
    let status = json!({"kind": "Status", "status": "Failure", "code": code, "reason": "", "message": message});
    respond(code, &status)
}

fn respond(code: u16, body: &Value) -> Response<Body> {
    let body = Body::from(body.to_string());
    Response::builder().status(code).body(body).unwrap()
}

impl Server {
    fn client(&self) -> Client {
        let this = self.clone();
        let server = tower::service_fn(move |request: Request<kube::client::Body>| {
            let this = this.clone();
            async move { Ok::<_, Infallible>(this.answer(request).await) }
        });
        Client::new(server, "petiole")
    }

    async fn answer(&self, request: Request<kube::client::Body>) -> Response<Body> {
        let (uri, method) = (request.uri().to_string(), request.method().clone());
        if method != Method::GET {
            let body = request.into_body().collect().await.unwrap().to_bytes();
            let text = String::from_utf8(body.to_vec()).unwrap();
            self.written
                .send_modify(|written| written.push(text.clone()));
            let mut object: Value = serde_json::from_str(&text).unwrap();
            object["metadata"] = json!({"name": "node-a", "resourceVersion": "2"});
            object["apiVersion"] = json!("akri.sh/v0");
            return respond(200, &object);
        }
        if uri.contains("/secrets") {
            return self.secrets(&uri);
        }
        if uri.contains("sendInitialEvents=true") {
            return refused(422, "sendInitialEvents: Forbidden");
        }
        if uri.contains("watch=true") {
            let nothing = stream::pending::<Result<Bytes, Infallible>>();
            return Response::new(Body::from_stream(nothing));
        }
        if uri.contains("/configurations") {
            let reference = json!({"name": "onvif", "key": "password"});
            let from = json!({"name": "word", "valueFrom": {"secretKeyRef": reference}});
            let other = json!({"name": "word", "value": "plain"});
            return list(vec![
                configuration("cam", from),
                configuration("other", other),
            ]);
        }
        list(vec![])
    }

    fn secrets(&self, uri: &str) -> Response<Body> {
        assert!(
            uri.starts_with("/api/v1/namespaces/cameras/secrets?"),
            "{uri}"
        );
        assert!(uri.contains("fieldSelector=metadata.name%3Donvif"), "{uri}");
        let Some(password) = *self.password.borrow() else {
            return refused(403, "secrets is forbidden");
        };
        if !uri.contains("watch=true") {
            return list(vec![secret(password)]);
        }
        let changes = WatchStream::from_changes(self.password.subscribe());
        let events = changes.map(|password| {
            let object = secret(password.unwrap());
            // Kubernetes writes the type first.
            let event = format!("{{\"type\":\"MODIFIED\",\"object\":{object}}}\n");
            Ok::<_, Infallible>(Bytes::from(event))
        });
        Response::new(Body::from_stream(events))
    }
}

fn settings(folder: &TempDir, client: Client) -> agent::Settings {
    let prefixes: ResourcePrefixes = "akri.sh".parse().unwrap();
    agent::Settings {
        node_name: "node-a".into(),
        nodes: Some(Nodes::new(client.clone(), &prefixes)),
        resource_prefixes: prefixes,
        node_labels: false,
        property_sources: Some(PropertySources::new(client)),
        plugin_folder: folder.path().join("device-plugins"),
        pod_resources_socket: folder.path().join("kubelet.sock"),
        own_pod: None,
        kubelet_startup_grace: agent::KUBELET_STARTUP_GRACE,
        look_interval: agent::LOOK_INTERVAL,
        resource_name_hold: agent::RESOURCE_NAME_HOLD,
        max_configurations: 100,
        max_instances: 10,
        containers: petiole::model::container_devices::ContainerRules::default(),
        claims: None,
        render_brokers: None,
        http_address: None,
        metrics_address: None,
    }
}

async fn until<T>(what: &str, sender: &watch::Sender<T>, is_so: impl FnMut(&T) -> bool) {
    let mut receiver = sender.subscribe();
    let waited = timeout(SOON, receiver.wait_for(is_so)).await;
    waited.unwrap_or_else(|_| panic!("not so: {what}")).unwrap();
}

/// Returns everything that is written below a folder.
fn texts(folder: &Path) -> String {
    let entries = folder.read_dir().unwrap();
    let text = |path: PathBuf| {
        if path.is_dir() {
            texts(&path)
        } else {
            String::from_utf8_lossy(&std::fs::read(&path).unwrap()).into_owned()
        }
    };
    entries.map(|entry| text(entry.unwrap().path())).collect()
}

fn ran(runs: &[(String, Properties)], details: &str) -> Vec<String> {
    let of_it = runs.iter().filter(|(of, _)| of == details);
    of_it
        .map(|(_, properties)| properties["word"].clone())
        .collect()
}

#[tokio::test]
async fn a_secret_reaches_its_handler_and_no_object_and_a_change_restarts_that_discovery_alone() {
    let folder = TempDir::new().unwrap();
    let (server, runs) = (
        Server {
            password: Arc::default(),
            written: Arc::default(),
        },
        Runs::default(),
    );
    let store = kubernetes::Settings {
        node_name: "node-a".into(),
        namespaces: vec![],
        state: folder.path().join("state"),
        max_configurations: 100,
    };
    let store = Arc::new(KubernetesStore::new(server.client(), store).unwrap());
    let handlers = Handlers::new(vec![Box::new(Recorder(runs.clone()))]);
    let stop = CancellationToken::new();
    let settings = settings(&folder, server.client());
    let mut agent = JoinSet::new();
    agent.spawn(agent::run(settings, store, handlers, stop.clone()));

    let last_says = |word: &'static str| {
        move |all: &Vec<String>| {
            (all.last()).is_some_and(|last| last.contains(word) && last.contains("cameras"))
        }
    };
    until(
        "the report names the missing right",
        &server.written,
        |all| {
            last_says("DiscoveryPropertyUnreadable")(all)
                && last_says("discoveryProperties.namespaces")(all)
        },
    )
    .await;
    assert_eq!(ran(&runs.borrow(), "cam"), [""; 0]);
    // The right is granted.
    server.password.send_replace(Some("hunter2"));
    until("the value is there", &runs, |runs| {
        ran(runs, "cam") == ["hunter2"]
    })
    .await;
    until("the problem is gone", &server.written, |all| {
        !last_says("DiscoveryPropertyUnreadable")(all)
    })
    .await;
    server.password.send_replace(Some("hunter3"));
    until("the new value is there", &runs, |runs| {
        ran(runs, "cam") == ["hunter2", "hunter3"]
    })
    .await;
    assert_eq!(ran(&runs.borrow(), "other"), ["plain"], "it runs on");
    stop.cancel();
    let ended = timeout(SOON, agent.join_next()).await.unwrap();
    ended.unwrap().unwrap().unwrap();
    for text in &*server.written.borrow() {
        assert!(!text.contains("hunter"), "{text}");
    }
    let kept = texts(folder.path());
    assert!(!kept.is_empty() && !kept.contains("hunter"), "{kept}");
}

#[test]
fn no_agent_may_read_secrets_unless_a_namespace_is_named() {
    let Some(helm) = helm() else { return };
    let of_agents = |values: &[&str]| {
        let text = String::from_utf8(render(&helm, values).stdout).unwrap();
        let documents = serde_saphyr::from_multiple::<serde_json::Value>(&text).unwrap();
        let has_it = |d: &&serde_json::Value| {
            let is_agent = d["metadata"]["labels"]["app.kubernetes.io/component"] == "agent";
            is_agent && d["rules"].to_string().contains("\"secrets\"")
        };
        let place = |d: &serde_json::Value| {
            let namespace = d["metadata"]["namespace"].as_str().unwrap().to_owned();
            (d["kind"].as_str().unwrap().to_owned(), namespace)
        };
        documents
            .iter()
            .filter(has_it)
            .map(place)
            .collect::<Vec<_>>()
    };
    let namespaces = "discoveryProperties.namespaces={cameras,doors}";
    for values in [&[][..], &[namespaces][..], &["watchNamespaces={cameras}"]] {
        assert_eq!(of_agents(values), []);
    }
    let expected = ["cameras", "doors"].map(|n| ("Role".to_owned(), n.to_owned()));
    let on = ["discoveryProperties.enabled=true", namespaces];
    assert_eq!(of_agents(&on), expected);
}
