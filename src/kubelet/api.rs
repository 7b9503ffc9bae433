//! What the kubelet says of itself, over HTTP on a Unix socket: `/node`, `/pods`, `/plugins`, `/logs/NAMESPACE/POD/CONTAINER`
//! and `/healthz`. Objects are Kubernetes' own.
use super::{
    client::Plugin,
    device_manager::{DeviceManager, Holder},
    pods::{self, Now, PodState},
};
use axum::{
    Json, Router,
    extract::{Path, State},
    http::StatusCode,
    routing::get,
};
use k8s_openapi::{
    api::core::v1::{
        ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting,
        ContainerStatus, Node, NodeStatus, Pod, PodStatus, ResourceHealth, ResourceStatus,
    },
    apimachinery::pkg::{
        api::resource::Quantity,
        apis::meta::v1::{ObjectMeta, Time},
    },
};
use std::{
    collections::BTreeMap,
    fs::{self, Permissions},
    io::{Read as _, Seek as _, SeekFrom},
    os::unix::fs::PermissionsExt as _,
    path::PathBuf,
    sync::Arc,
};
use tokio::net::UnixListener;
use tokio_util::sync::CancellationToken;

/// The end of a log that is shown.
const LOG_TAIL: u64 = 64 * 1024;

#[derive(Clone)]
pub(super) struct Api {
    node_name: String,
    context: Arc<pods::Context>,
}

impl Api {
    pub(super) fn new(node_name: String, context: Arc<pods::Context>) -> Self {
        Self { node_name, context }
    }

    /// Listens at `socket` until `shutdown`.
    pub(super) async fn serve(
        self,
        socket: PathBuf,
        shutdown: CancellationToken,
    ) -> anyhow::Result<()> {
        crate::files::remove(&socket)?;
        let listener = UnixListener::bind(&socket).map_err(|e| crate::files::at(&socket, &e))?;
        fs::set_permissions(&socket, Permissions::from_mode(0o600))?;
        let routes = Router::new()
            .route("/healthz", get(|| async { "ok" }))
            .route("/node", get(node))
            .route("/pods", get(pods))
            .route("/plugins", get(plugins))
            .route("/logs/{namespace}/{pod}/{container}", get(log))
            .with_state(self);
        match shutdown
            .run_until_cancelled(axum::serve(listener, routes).into_future())
            .await
        {
            Some(ended) => Ok(ended?),
            None => Ok(()),
        }
    }

    fn devices(&self) -> &DeviceManager {
        &self.context.devices
    }

    fn pod(&self, state: &PodState) -> Pod {
        let mut pod = state.pod.pod.clone();
        pod.metadata.namespace = Some(state.pod.namespace.clone());
        pod.metadata.uid = Some(state.pod.uid.clone());
        pod.metadata.creation_timestamp = Some(Time(state.started));
        if let Some(spec) = &mut pod.spec {
            spec.node_name = Some(self.node_name.clone());
        }
        let statuses = |containers: &[k8s_openapi::api::core::v1::Container]| {
            let statuses: Vec<_> = containers
                .iter()
                .map(|c| self.container(state, &c.name))
                .collect();
            (!statuses.is_empty()).then_some(statuses)
        };
        let (reason, message) = state.failure.clone().unzip();
        pod.status = Some(PodStatus {
            phase: Some(state.phase.as_str().to_owned()),
            reason,
            message,
            start_time: Some(Time(state.started)),
            init_container_statuses: statuses(state.pod.init_containers()),
            container_statuses: statuses(state.pod.containers()),
            ..PodStatus::default()
        });
        pod
    }

    fn container(&self, state: &PodState, name: &str) -> ContainerStatus {
        let holder = Holder {
            pod_uid: state.pod.uid.clone(),
            container: name.to_owned(),
        };
        let devices = self.devices().devices_of(&holder).into_iter();
        let health = |(id, health): (String, &str)| ResourceHealth {
            resource_id: id,
            health: Some(health.to_owned()),
        };
        let allocated: Vec<_> = devices
            .map(|(resource, ids)| ResourceStatus {
                name: resource,
                resources: Some(ids.into_iter().map(health).collect()),
            })
            .collect();
        let container = state.containers.get(name);
        let now = container.map(|container| &container.now);
        ContainerStatus {
            name: name.to_owned(),
            ready: matches!(now, Some(Now::Running { .. })),
            started: Some(matches!(now, Some(Now::Running { .. }))),
            restart_count: container.map_or(0, |container| container.restarts),
            container_id: match now {
                Some(Now::Running { pid, .. }) => Some(format!("process://{pid}")),
                Some(Now::Waiting { .. } | Now::Ended { .. }) | None => None,
            },
            state: now.map(container_state),
            allocated_resources_status: (!allocated.is_empty()).then_some(allocated),
            ..ContainerStatus::default()
        }
    }
}

fn container_state(now: &Now) -> ContainerState {
    let mut state = ContainerState::default();
    match now {
        Now::Waiting { reason, message } => {
            state.waiting = Some(ContainerStateWaiting {
                reason: Some(reason.clone()),
                message: (!message.is_empty()).then(|| message.clone()),
            });
        }
        Now::Running { since, .. } => {
            state.running = Some(ContainerStateRunning {
                started_at: Some(Time(*since)),
            });
        }
        Now::Ended { code, at } => {
            state.terminated = Some(ContainerStateTerminated {
                exit_code: *code,
                finished_at: Some(Time(*at)),
                reason: Some(if *code == 0 { "Completed" } else { "Error" }.to_owned()),
                ..ContainerStateTerminated::default()
            });
        }
    }
    state
}

async fn node(State(api): State<Api>) -> Json<Node> {
    let counts = api.devices().counts();
    let quantities =
        |count: fn(&super::device_manager::Count) -> usize| -> BTreeMap<String, Quantity> {
            counts
                .iter()
                .map(|(name, c)| (name.clone(), Quantity(count(c).to_string())))
                .collect()
        };
    Json(Node {
        metadata: ObjectMeta {
            name: Some(api.node_name.clone()),
            ..ObjectMeta::default()
        },
        status: Some(NodeStatus {
            capacity: Some(quantities(|count| count.capacity)),
            allocatable: Some(quantities(|count| count.allocatable)),
            ..NodeStatus::default()
        }),
        ..Node::default()
    })
}

async fn pods(State(api): State<Api>) -> Json<k8s_openapi::List<Pod>> {
    let pods = api.context.pods.borrow().clone();
    let items = pods.values().map(|state| api.pod(state)).collect();
    Json(k8s_openapi::List {
        items,
        ..k8s_openapi::List::default()
    })
}

async fn plugins(State(api): State<Api>) -> Json<Vec<Plugin>> {
    let sockets = api.devices().sockets();
    let plugins = api
        .devices()
        .counts()
        .into_iter()
        .map(|(resource, count)| Plugin {
            socket: sockets
                .get(&resource)
                .map(|socket| socket.display().to_string()),
            is_connected: count.is_connected,
            capacity: count.capacity,
            allocatable: count.allocatable,
            resource,
        });
    Json(plugins.collect())
}

/// The names are looked up, never joined to a path as they come.
async fn log(
    State(api): State<Api>,
    Path((namespace, pod, container)): Path<(String, String, String)>,
) -> Result<String, (StatusCode, String)> {
    let pods = api.context.pods.borrow().clone();
    let is_known = pods
        .get(&format!("{namespace}/{pod}"))
        .is_some_and(|state| {
            let mut containers = state
                .pod
                .init_containers()
                .iter()
                .chain(state.pod.containers());
            containers.any(|c| c.name == container)
        });
    if !is_known {
        return Err((
            StatusCode::NOT_FOUND,
            format!("no container {container} of a Pod {namespace}/{pod}"),
        ));
    }
    let path = api.context.log_of(&namespace, &pod, &container);
    tail(&path).map_err(|e| {
        (
            StatusCode::NOT_FOUND,
            crate::files::at(&path, &e).to_string(),
        )
    })
}

fn tail(path: &std::path::Path) -> std::io::Result<String> {
    let mut file = fs::File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(LOG_TAIL)))?;
    let mut bytes = vec![];
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
