//! The status socket, `kubelet-api.sock`: what the kubelet knows, as JSON over HTTP, and its metrics.
use super::{
    Settings,
    csi::Drivers,
    device_manager::DeviceManager,
    metrics::Metrics,
    plugin_manager::report::Report,
    pods::{
        Pods,
        logs::{log_path, tail},
        manifest::PodKey,
        status,
    },
    view::{self, PluginView},
};
use crate::{telemetry::metrics::CONTENT_TYPE, uds};
use axum::{
    Json, Router,
    extract::{Path, State},
    http::{StatusCode, header},
    response::{IntoResponse as _, Response},
    routing::get,
};
use k8s_openapi::{
    List,
    api::core::v1::{Node, Pod},
};
use std::{io, sync::Arc, time::Duration};
use tokio::{sync::watch, time::sleep};
use tokio_util::sync::CancellationToken;

pub(crate) const SOCKET: &str = "kubelet-api.sock";
/// How much of a log is shown.
const LOG_TAIL: u64 = 64 * 1024;
/// How long requests that are under way get when the kubelet stops.
const LAST_REQUESTS: Duration = Duration::from_millis(500);

#[derive(Clone)]
struct Context {
    settings: Arc<Settings>,
    plugins: Plugins,
    pods: Pods,
}

/// All that is known of plugins.
#[derive(Clone)]
pub(crate) struct Plugins {
    pub(crate) devices: DeviceManager,
    pub(crate) drivers: Drivers,
    pub(crate) report: watch::Receiver<Report>,
    pub(crate) metrics: Metrics,
}

/// Serves in the root folder until `shutdown`.
pub(crate) fn serve(
    settings: Arc<Settings>,
    plugins: Plugins,
    pods: Pods,
    shutdown: CancellationToken,
) -> io::Result<impl Future<Output = anyhow::Result<()>> + Send + use<>> {
    let listener = uds::listener(&settings.root_dir.join(SOCKET))?;
    let routes = Router::new()
        .route("/healthz", get(async || "ok"))
        .route("/node", get(node))
        .route("/pods", get(list_pods))
        .route("/plugins", get(list_plugins))
        .route("/metrics", get(metrics))
        .route("/logs/{namespace}/{pod}/{container}", get(logs))
        .with_state(Context {
            settings,
            plugins,
            pods,
        });
    Ok(async move {
        let served = axum::serve(listener, routes)
            .with_graceful_shutdown(shutdown.clone().cancelled_owned());
        tokio::select! {
            served = served => Ok(served?),
            () = async { shutdown.cancelled().await; sleep(LAST_REQUESTS).await } => Ok(()),
        }
    })
}

async fn node(State(context): State<Context>) -> Json<Node> {
    let name = &context.settings.node_name;
    Json(view::node(name, &context.plugins.devices.inventory()))
}

async fn list_pods(State(context): State<Context>) -> Json<List<Pod>> {
    let table = context.pods.table();
    let inventory = context.plugins.devices.inventory();
    let items = table.values().map(|record| status::pod(record, &inventory));
    Json(List {
        items: items.collect(),
        ..List::default()
    })
}

async fn list_plugins(State(context): State<Context>) -> Json<Vec<PluginView>> {
    let Plugins {
        devices,
        drivers,
        report,
        metrics: _,
    } = &context.plugins;
    let shown = view::plugins(&devices.inventory(), &report.borrow(), &drivers.table());
    Json(shown)
}

async fn metrics(State(context): State<Context>) -> Response {
    match context.plugins.metrics.text() {
        Ok(text) => ([(header::CONTENT_TYPE, CONTENT_TYPE)], text).into_response(),
        Err(e) => (StatusCode::INTERNAL_SERVER_ERROR, e.to_string()).into_response(),
    }
}

/// The name is the Pod's, which ends with the node's.
async fn logs(
    State(context): State<Context>,
    Path((namespace, pod, container)): Path<(String, String, String)>,
) -> Result<String, (StatusCode, String)> {
    let key = PodKey {
        namespace,
        name: pod,
    };
    let unknown = || {
        (
            StatusCode::NOT_FOUND,
            format!("no container {container} in pod {key}"),
        )
    };
    {
        // Only what is in the table is a path: a request cannot name a file of its own.
        let table = context.pods.table();
        let record = table.get(&key).ok_or_else(unknown)?;
        if !record.containers.contains_key(&container) {
            return Err(unknown());
        }
    }
    let root = &context.settings.root_dir;
    let path = log_path(root, &key, &container);
    match tail(&path, LOG_TAIL) {
        Ok(text) => Ok(text),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        Err(e) => Err((StatusCode::INTERNAL_SERVER_ERROR, e.to_string())),
    }
}
