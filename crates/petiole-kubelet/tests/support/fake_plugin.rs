//! Fakes a device plugin that tests control, and starts a kubelet in a temporary folder for it.
#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "a test support file: each test uses a part of it"
)]
use futures::{Stream, StreamExt as _};
use petiole_kubelet::{Settings, client::Client};
use petiole_kubelet_api::{
    device_plugin::{
        AllocateRequest, AllocateResponse, ContainerAllocateResponse,
        ContainerPreferredAllocationResponse, Device, DevicePluginOptions, Empty, HEALTHY,
        ListAndWatchResponse, PreStartContainerRequest, PreStartContainerResponse,
        PreferredAllocationRequest, PreferredAllocationResponse, RegisterRequest, UNHEALTHY,
        VERSION,
        device_plugin_server::{DevicePlugin, DevicePluginServer},
        registration_client::RegistrationClient,
    },
    uds,
};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    pin::Pin,
    sync::Arc,
    time::Duration,
};
use tempfile::TempDir;
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_stream::wrappers::WatchStream;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, transport::Server};

/// A time limit that no operation here needs, even on a busy machine.
const LIMIT: Duration = Duration::from_secs(20);

/// The plugin's answer to Allocate.
#[derive(Debug, Clone, Default)]
pub(crate) enum Answer {
    /// The variables `<RESOURCE NAME>=<ids>` and `SHARED=<resource>`.
    #[default]
    Env,
    Error(&'static str),
    Empty,
    Hang,
}

#[derive(Debug, Default, Clone)]
pub(crate) struct Calls {
    pub(crate) list_and_watch: usize,
    pub(crate) allocate: Vec<Vec<String>>,
    pub(crate) pre_start: Vec<Vec<String>>,
    pub(crate) preferred: usize,
}

struct State {
    resource: String,
    devices: watch::Sender<Vec<Device>>,
    answer: watch::Sender<Answer>,
    pre_start_error: watch::Sender<Option<&'static str>>,
    calls: watch::Sender<Calls>,
    options: DevicePluginOptions,
    prefers: Vec<String>,
    stop: CancellationToken,
}

pub(crate) struct FakePlugin {
    state: Arc<State>,
    socket: PathBuf,
    server: JoinSet<()>,
}

#[derive(Default)]
pub(crate) struct Options {
    pub(crate) pre_start_required: bool,
    /// The preferred ids; if any, the plugin has GetPreferredAllocation.
    pub(crate) prefers: Vec<String>,
}

pub(crate) fn devices(healthy: &[&str], unhealthy: &[&str]) -> Vec<Device> {
    let device = |id: &&str, health: &str| Device {
        id: (*id).to_owned(),
        health: health.to_owned(),
        topology: None,
    };
    let healthy = healthy.iter().map(|id| device(id, HEALTHY));
    healthy
        .chain(unhealthy.iter().map(|id| device(id, UNHEALTHY)))
        .collect()
}

impl FakePlugin {
    /// Serves without registering.
    pub(crate) fn serve(node: &Node, resource: &str, socket: &str, ids: &[&str]) -> Self {
        Self::serve_with(node, resource, socket, ids, Options::default())
    }

    pub(crate) fn serve_with(
        node: &Node,
        resource: &str,
        socket: &str,
        ids: &[&str],
        options: Options,
    ) -> Self {
        let socket = node.root().join("device-plugins").join(socket);
        let state = Arc::new(State {
            resource: resource.to_owned(),
            devices: watch::Sender::new(devices(ids, &[])),
            answer: watch::Sender::new(Answer::Env),
            pre_start_error: watch::Sender::new(None),
            calls: watch::Sender::new(Calls::default()),
            options: DevicePluginOptions {
                pre_start_required: options.pre_start_required,
                get_preferred_allocation_available: !options.prefers.is_empty(),
            },
            prefers: options.prefers,
            stop: CancellationToken::new(),
        });
        let incoming = uds::bind(&socket).unwrap();
        let stop = state.stop.clone().cancelled_owned();
        let service = DevicePluginServer::new(Service(state.clone()));
        let mut server = JoinSet::new();
        server.spawn(async move {
            let server = Server::builder().add_service(service);
            server
                .serve_with_incoming_shutdown(incoming, stop)
                .await
                .unwrap();
        });
        Self {
            state,
            socket,
            server,
        }
    }

    pub(crate) async fn start(node: &Node, resource: &str, ids: &[&str]) -> Self {
        let socket = format!("{}.sock", resource.rsplit('/').next().unwrap());
        let plugin = Self::serve(node, resource, &socket, ids);
        plugin.register(node).await.unwrap();
        plugin
    }

    pub(crate) async fn register(&self, node: &Node) -> Result<(), Status> {
        let endpoint = self.socket.file_name().unwrap().to_str().unwrap();
        node.register(&self.state.resource, endpoint, VERSION).await
    }

    pub(crate) fn list(&self, devices: Vec<Device>) {
        self.state.devices.send_replace(devices);
    }

    pub(crate) fn answer(&self, answer: Answer) {
        self.state.answer.send_replace(answer);
    }

    pub(crate) fn refuse_start(&self, error: Option<&'static str>) {
        self.state.pre_start_error.send_replace(error);
    }

    pub(crate) fn calls(&self) -> Calls {
        self.state.calls.borrow().clone()
    }

    /// Ends the plugin's streams and its server.
    pub(crate) async fn die(mut self) {
        self.state.stop.cancel();
        timeout(LIMIT, self.server.join_next()).await.unwrap();
    }
}

struct Service(Arc<State>);

#[tonic::async_trait]
impl DevicePlugin for Service {
    async fn get_device_plugin_options(
        &self,
        _: Request<Empty>,
    ) -> Result<Response<DevicePluginOptions>, Status> {
        Ok(Response::new(self.0.options))
    }

    type ListAndWatchStream =
        Pin<Box<dyn Stream<Item = Result<ListAndWatchResponse, Status>> + Send>>;

    async fn list_and_watch(
        &self,
        _: Request<Empty>,
    ) -> Result<Response<Self::ListAndWatchStream>, Status> {
        self.0.calls.send_modify(|calls| calls.list_and_watch += 1);
        let lists = WatchStream::new(self.0.devices.subscribe())
            .map(|devices| Ok(ListAndWatchResponse { devices }));
        let stop = self.0.stop.clone().cancelled_owned();
        Ok(Response::new(Box::pin(lists.take_until(stop))))
    }

    async fn get_preferred_allocation(
        &self,
        _: Request<PreferredAllocationRequest>,
    ) -> Result<Response<PreferredAllocationResponse>, Status> {
        self.0.calls.send_modify(|calls| calls.preferred += 1);
        Ok(Response::new(PreferredAllocationResponse {
            container_responses: vec![ContainerPreferredAllocationResponse {
                device_i_ds: self.0.prefers.clone(),
            }],
        }))
    }

    async fn allocate(
        &self,
        request: Request<AllocateRequest>,
    ) -> Result<Response<AllocateResponse>, Status> {
        let ids = request
            .into_inner()
            .container_requests
            .remove(0)
            .devices_ids;
        self.0
            .calls
            .send_modify(|calls| calls.allocate.push(ids.clone()));
        let answer = self.0.answer.borrow().clone();
        let container_responses = match answer {
            Answer::Error(error) => return Err(Status::unknown(error)),
            Answer::Empty => vec![],
            Answer::Hang => std::future::pending().await,
            Answer::Env => {
                let name = self.0.resource.rsplit('/').next().unwrap();
                let name = name.to_uppercase().replace('-', "_");
                let envs = BTreeMap::from([
                    (name, ids.join(",")),
                    ("SHARED".to_owned(), self.0.resource.clone()),
                ]);
                vec![ContainerAllocateResponse {
                    envs,
                    ..ContainerAllocateResponse::default()
                }]
            }
        };
        Ok(Response::new(AllocateResponse {
            container_responses,
        }))
    }

    async fn pre_start_container(
        &self,
        request: Request<PreStartContainerRequest>,
    ) -> Result<Response<PreStartContainerResponse>, Status> {
        let ids = request.into_inner().devices_ids;
        self.0.calls.send_modify(|calls| calls.pre_start.push(ids));
        match *self.0.pre_start_error.borrow() {
            Some(error) => Err(Status::unknown(error)),
            None => Ok(Response::new(PreStartContainerResponse {})),
        }
    }
}

/// A kubelet in a folder of its own.
pub(crate) struct Node {
    settings: Settings,
    folder: TempDir,
    running: JoinSet<anyhow::Result<()>>,
    stop: CancellationToken,
    pub(crate) client: Client,
}

impl Node {
    pub(crate) async fn start() -> Self {
        Self::start_with(|_| {}).await
    }

    pub(crate) async fn start_with(change: impl FnOnce(&mut Settings)) -> Self {
        let folder = TempDir::with_prefix("pk").unwrap();
        let root = folder.path();
        let mut settings = Settings::new(root, root.join("manifests"), "n");
        settings.restart_backoff = Duration::from_millis(50);
        change(&mut settings);
        let mut node = Self {
            client: Client::new(root),
            settings,
            folder,
            running: JoinSet::new(),
            stop: CancellationToken::new(),
        };
        node.run().await;
        node
    }

    async fn run(&mut self) {
        self.stop = CancellationToken::new();
        let run = petiole_kubelet::run(self.settings.clone(), self.stop.clone());
        self.running.spawn(run);
        let answers = eventually("the kubelet answers", async || {
            self.client.healthz().await.is_ok()
        });
        tokio::select! {
            () = answers => {}
            ended = self.running.join_next() => panic!("the kubelet has ended: {ended:?}"),
        }
    }

    pub(crate) async fn stop(&mut self) {
        self.stop.cancel();
        let ended = timeout(LIMIT, self.running.join_next()).await.unwrap();
        ended.unwrap().unwrap().unwrap();
    }

    pub(crate) async fn restart(&mut self) {
        self.stop().await;
        self.run().await;
    }

    pub(crate) async fn restart_stopped(&mut self) {
        self.run().await;
    }

    pub(crate) fn root(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) async fn register(
        &self,
        resource: &str,
        endpoint: &str,
        version: &str,
    ) -> Result<(), Status> {
        let socket = self.root().join("device-plugins/kubelet.sock");
        let mut client = RegistrationClient::new(uds::dial(&socket).await.unwrap());
        let request = RegisterRequest {
            version: version.to_owned(),
            endpoint: endpoint.to_owned(),
            resource_name: resource.to_owned(),
            options: None,
        };
        client.register(request).await.map(|_| ())
    }

    /// Writes a complete manifest, as an editor does.
    pub(crate) fn manifest(&self, name: &str, spec: &str) {
        let text = format!("apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n{spec}");
        let path = self.settings.manifests.join(format!("{name}.yaml"));
        let temporary = self.folder.path().join("manifest.tmp");
        std::fs::write(&temporary, text).unwrap();
        std::fs::rename(temporary, path).unwrap();
    }

    pub(crate) fn remove_manifest(&self, name: &str) {
        std::fs::remove_file(self.settings.manifests.join(format!("{name}.yaml"))).unwrap();
    }

    /// Returns `capacity/allocatable`; `None` if the node does not have the resource.
    pub(crate) async fn counts(&self, resource: &str) -> Option<String> {
        let status = self.client.node().await.unwrap().status.unwrap();
        let capacity = status.capacity.unwrap().get(resource)?.0.clone();
        let allocatable = status.allocatable.unwrap()[resource].0.clone();
        Some(format!("{capacity}/{allocatable}"))
    }

    pub(crate) async fn until_counts(&self, resource: &str, want: Option<&str>) {
        let what = format!("{resource} is {want:?}");
        eventually(&what, async || {
            self.counts(resource).await.as_deref() == want
        })
        .await;
    }

    pub(crate) async fn pod(&self, name: &str) -> Option<serde_json::Value> {
        let pods = self.client.pods().await.unwrap();
        let name = format!("{name}-n");
        let pod = pods
            .items
            .into_iter()
            .find(|pod| pod.metadata.name.as_ref() == Some(&name));
        pod.map(|pod| serde_json::to_value(pod).unwrap())
    }

    /// Waits until the value at a JSON pointer in the Pod's status is `want`.
    pub(crate) async fn until_pod(&self, name: &str, pointer: &str, want: serde_json::Value) {
        let what = format!("{name}{pointer} is {want}");
        let holds = async || {
            let pod = self.pod(name).await;
            let found = pod.as_ref().and_then(|pod| pod["status"].pointer(pointer));
            found == Some(&want)
        };
        eventually(&what, holds).await;
    }

    pub(crate) async fn until_log(&self, pod: &str, container: &str, want: &str) {
        let name = format!("{pod}-n");
        let what = format!("{pod}/{container} prints {want:?}");
        let printed = async || {
            let log = self.client.logs("default", &name, container).await;
            log.is_ok_and(|log| log.contains(want))
        };
        eventually(&what, printed).await;
    }
}

/// Waits for `holds`; panics with `what` if that takes too long.
pub(crate) async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let waited = timeout(LIMIT, async {
        while !holds().await {
            sleep(Duration::from_millis(10)).await;
        }
    });
    assert!(waited.await.is_ok(), "not within {LIMIT:?}: {what}");
}
