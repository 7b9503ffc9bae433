//! Serves the status socket, `kubelet-api.sock`: the state of the kubelet as JSON over HTTP, logs, and metrics.
use super::{
    device_manager::manager::DeviceManager,
    drivers::csi::Drivers,
    metrics::Metrics,
    plugin_manager::report::Report,
    pods::{
        logs::{log_path, tail},
        manifest::PodKey,
        status,
        table::Pods,
    },
    settings::Settings,
    view::{self, PluginView},
    waits::serve_until,
};
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
use petiole_base::metrics::CONTENT_TYPE;
use petiole_kubelet_api::uds;
use std::{io, sync::Arc, time::Duration};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub(crate) const SOCKET: &str = "kubelet-api.sock";
/// The part of a log that is served, in bytes from its end.
const LOG_TAIL: u64 = 64 * 1024;
/// The time that open requests get to end when the kubelet stops.
const LAST_REQUESTS: Duration = Duration::from_millis(500);

#[derive(Clone)]
struct Context {
    settings: Arc<Settings>,
    plugins: Plugins,
    pods: Pods,
}

/// The sources of everything that is served about plugins.
#[derive(Clone)]
pub(crate) struct Plugins {
    pub(crate) devices: DeviceManager,
    pub(crate) drivers: Drivers,
    pub(crate) report: watch::Receiver<Report>,
    pub(crate) metrics: Metrics,
}

/// Serves in the root folder until `shutdown`. It only reads: the table of Pods, the inventory, the drivers and the
/// report.
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
        serve_until(served.into_future(), shutdown, LAST_REQUESTS).await
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

/// Returns the end of a log. The Pod's name is the full one, which ends with the node's name.
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
        // A path is built only for a container in the table, so a request cannot name other files.
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
