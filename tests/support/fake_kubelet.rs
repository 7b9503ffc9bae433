//! Fakes the two services of a kubelet that plugins use. Tests control them.
use petiole_kubelet_api::{
    device_plugin::{
        Empty, RegisterRequest,
        registration_server::{Registration, RegistrationServer},
    },
    pod_resources::{
        AllocatableResourcesRequest, AllocatableResourcesResponse, ContainerDevices,
        ContainerResources, GetPodResourcesRequest, GetPodResourcesResponse,
        ListPodResourcesRequest, ListPodResourcesResponse, PodResources,
        pod_resources_lister_server::{PodResourcesLister, PodResourcesListerServer},
    },
    uds,
};
use std::{path::Path, time::Duration};
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
    time::timeout,
};
use tonic::{Request, Response, Status, transport::Server};

const PATIENCE: Duration = Duration::from_secs(30);

/// A `kubelet.sock` that accepts every registration and does nothing else.
pub struct FakeRegistration {
    requests: mpsc::UnboundedReceiver<RegisterRequest>,
    _server: JoinSet<()>,
}

impl FakeRegistration {
    pub fn start(socket: &Path) -> Self {
        let (tx, requests) = mpsc::unbounded_channel();
        let incoming = uds::bind(socket).unwrap();
        let mut server = JoinSet::new();
        server.spawn(async move {
            let registration = RegistrationServer::new(Registering(tx));
            let serving = Server::builder().add_service(registration);
            serving.serve_with_incoming(incoming).await.unwrap();
        });
        Self {
            requests,
            _server: server,
        }
    }

    /// Waits for the next registration of this resource.
    pub async fn registered(&mut self, resource: &str) -> RegisterRequest {
        loop {
            let request = timeout(PATIENCE, self.requests.recv()).await;
            let request = request.expect("a plugin registers").unwrap();
            if request.resource_name == resource {
                return request;
            }
        }
    }
}

struct Registering(mpsc::UnboundedSender<RegisterRequest>);

#[tonic::async_trait]
impl Registration for Registering {
    async fn register(&self, request: Request<RegisterRequest>) -> Result<Response<Empty>, Status> {
        self.0.send(request.into_inner()).ok();
        Ok(Response::new(Empty {}))
    }
}

/// The resource and device id of each device that a container holds; `None` if no server answers.
pub type Listed = Option<Vec<(String, String)>>;

/// A pod resources socket with the list that a test sets.
pub struct FakePodResources {
    listed: watch::Sender<Listed>,
    calls: watch::Sender<usize>,
    _server: JoinSet<()>,
}

impl FakePodResources {
    pub fn start(socket: &Path) -> Self {
        let (listed, calls) = (watch::Sender::new(None), watch::Sender::new(0));
        let lister = Listing(listed.clone(), calls.clone());
        let incoming = uds::bind(socket).unwrap();
        let mut server = JoinSet::new();
        server.spawn(async move {
            let serving = Server::builder().add_service(PodResourcesListerServer::new(lister));
            serving.serve_with_incoming(incoming).await.unwrap();
        });
        Self {
            listed,
            calls,
            _server: server,
        }
    }

    pub fn list(&self, devices: &[(&str, &str)]) {
        let devices = devices
            .iter()
            .map(|(resource, id)| ((*resource).to_owned(), (*id).to_owned()));
        self.listed.send_replace(Some(devices.collect()));
    }

    pub fn go_away(&self) {
        self.listed.send_replace(None);
    }

    /// Returns the number of requests for a list that were answered.
    pub fn answered(&self) -> usize {
        *self.calls.borrow()
    }

    pub async fn until_answered(&self, more: usize) {
        let wanted = self.answered() + more;
        let mut calls = self.calls.subscribe();
        let asked = timeout(PATIENCE, calls.wait_for(|calls| *calls >= wanted)).await;
        asked.expect("pod resources are looked at").unwrap();
    }
}

struct Listing(watch::Sender<Listed>, watch::Sender<usize>);

#[tonic::async_trait]
impl PodResourcesLister for Listing {
    async fn list(
        &self,
        _: Request<ListPodResourcesRequest>,
    ) -> Result<Response<ListPodResourcesResponse>, Status> {
        let listed = self.0.borrow().clone();
        let listed = listed.ok_or_else(|| Status::unavailable("the kubelet is away"))?;
        self.1.send_modify(|calls| *calls += 1);
        let devices = listed
            .into_iter()
            .map(|(resource_name, id)| ContainerDevices {
                resource_name,
                device_ids: vec![id],
                topology: None,
            });
        let container = ContainerResources {
            name: "main".to_owned(),
            devices: devices.collect(),
            ..Default::default()
        };
        let pod = PodResources {
            name: "pod".to_owned(),
            namespace: "default".to_owned(),
            containers: vec![container],
            ..Default::default()
        };
        Ok(Response::new(ListPodResourcesResponse {
            pod_resources: vec![pod],
        }))
    }

    async fn get_allocatable_resources(
        &self,
        _: Request<AllocatableResourcesRequest>,
    ) -> Result<Response<AllocatableResourcesResponse>, Status> {
        Err(Status::unimplemented("not here"))
    }

    async fn get(
        &self,
        _: Request<GetPodResourcesRequest>,
    ) -> Result<Response<GetPodResourcesResponse>, Status> {
        Err(Status::unimplemented("not here"))
    }
}
