//! Tests that a process which receives a stop signal ends without an error, in whichever order its tasks end. A task
//! that ends first closes the channels of the others.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
use axum::{
    body::{Body, Bytes},
    http::{Request, Response},
};
use futures::{Stream, StreamExt as _, stream};
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use petiole::{
    agent,
    cluster::{node::Nodes, property_sources::PropertySources},
    controller,
    discovery::{handlers, session::Handlers},
    model::resource_name::ResourcePrefixes,
    store::kubernetes::{self, KubernetesStore},
};
use serde_json::{Value, json};
use std::{convert::Infallible, sync::Arc, time::Duration};
use tempfile::TempDir;
use tokio::{sync::watch, time::timeout};
use tokio_util::sync::CancellationToken;

/// The number of rounds, which shows a race that occurs every second time, and most rarer ones.
const ROUNDS: usize = 60;
const SOON: Duration = Duration::from_secs(10);

/// Returns an API server that has only the controller's Lease, and whose watches stay open. `watches` counts them.
fn api_server(watches: Arc<watch::Sender<usize>>) -> Client {
    let server = tower::service_fn(move |request: Request<kube::client::Body>| {
        let uri = request.uri().to_string();
        if uri.contains("watch=true") {
            watches.send_modify(|n| *n += 1);
        }
        async move { Ok::<_, Infallible>(answer(&uri)) }
    });
    Client::new(server, "petiole")
}

fn answer(uri: &str) -> Response<Body> {
    if uri.contains("watch=true") {
        return Response::new(Body::from_stream(forever()));
    }
    let path = uri.split('?').next().unwrap();
    let is_lease = path.contains("/leases");
    let has_name = path.ends_with("/petiole-controller") || path.ends_with("/node-a");
    let (code, body) = match (is_lease, has_name) {
        (true, true) => (200, lease()),
        (true, false) => (200, list(json!([lease()]))),
        (false, true) => (
            404,
            json!({"status": "Failure", "code": 404, "reason": "NotFound", "message": ""}),
        ),
        (false, false) => (200, list(json!([]))),
    };
    Response::builder()
        .status(code)
        .body(Body::from(body.to_string()))
        .unwrap()
}

fn forever() -> impl Stream<Item = Result<Bytes, Infallible>> {
    stream::pending().boxed()
}

fn list(items: Value) -> Value {
    json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items})
}

/// Returns a Lease that the controller of these tests holds for some time.
fn lease() -> Value {
    let now = Timestamp::now()
        .strftime("%Y-%m-%dT%H:%M:%S%.6fZ")
        .to_string();
    json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "petiole-controller", "namespace": "petiole", "resourceVersion": "1"},
        "spec": {"holderIdentity": "me", "leaseDurationSeconds": 3600, "acquireTime": now, "renewTime": now},
    })
}

/// Cancels `stop` once this many watches are open. A larger `n` lets tasks progress further before that.
async fn tell_to_end(
    watches: &watch::Sender<usize>,
    open: usize,
    n: usize,
    stop: CancellationToken,
) {
    let mut watches = watches.subscribe();
    watches.wait_for(|now| *now >= open).await.unwrap();
    for _ in 0..n {
        tokio::task::yield_now().await;
    }
    stop.cancel();
}

#[tokio::test]
async fn a_controller_that_gets_sigterm_ends_without_an_error() {
    for n in 0..ROUNDS {
        let watches = Arc::new(watch::Sender::new(0));
        let stop = CancellationToken::new();
        let settings = controller::Settings {
            identity: "me".to_owned(),
            namespace: "petiole".to_owned(),
            watch_namespaces: vec![],
            resource_prefix: "akri.sh".parse().unwrap(),
            refused_pods: None,
            variables: petiole::model::variables::Variables::default(),
            http_address: None,
            device_lists: false,
            claims: None,
            device_networks: petiole::model::networks::DeviceNetworks::default(),
            instances_bytes: usize::MAX,
        };
        let controller = controller::run(settings, api_server(watches.clone()), stop.clone());
        // These watches are open: the Lease, Configurations, Instances, Nodes, Pods, Jobs, Services.
        let both = async { tokio::join!(controller, tell_to_end(&watches, 7, n, stop)) };
        let (outcome, ()) = timeout(SOON, Box::pin(both)).await.unwrap();
        assert!(outcome.is_ok(), "round {n}: {:#}", outcome.unwrap_err());
    }
}

#[tokio::test]
async fn an_agent_that_gets_sigterm_ends_without_an_error() {
    for n in 0..ROUNDS {
        let folder = TempDir::new().unwrap();
        let watches = Arc::new(watch::Sender::new(0));
        let stop = CancellationToken::new();
        let agent = run_agent(&folder, api_server(watches.clone()), stop.clone());
        // These watches are open: Instances, Configurations, the agent's own Node.
        let both = async { tokio::join!(agent, tell_to_end(&watches, 3, n, stop)) };
        let (outcome, ()) = timeout(SOON, Box::pin(both)).await.unwrap();
        assert!(outcome.is_ok(), "round {n}: {:#}", outcome.unwrap_err());
    }
}

async fn run_agent(
    folder: &TempDir,
    client: Client,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let prefixes: ResourcePrefixes = "akri.sh".parse().unwrap();
    let store = KubernetesStore::new(
        client.clone(),
        kubernetes::Settings {
            node_name: "node-a".into(),
            namespaces: vec![],
            state: folder.path().join("state"),
            max_configurations: 100,
        },
    )?;
    let settings = agent::Settings {
        node_name: "node-a".into(),
        resource_prefixes: prefixes.clone(),
        nodes: Some(Nodes::new(client.clone(), &prefixes)),
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
    };
    let handlers = Handlers::new(handlers::builtin());
    agent::run(settings, Arc::new(store), handlers, stop).await
}
