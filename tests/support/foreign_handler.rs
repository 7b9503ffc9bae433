//! A discovery handler as it would be another process: it serves Akri's protocol on a socket, or on a port, and registers.
use futures::StreamExt as _;
use petiole::proto::discovery::{
    Device, DeviceList, DiscoverRequest, RegisterDiscoveryHandlerRequest,
    discovery_handler_server::{DiscoveryHandler, DiscoveryHandlerServer},
    register_discovery_handler_request::EndpointType,
    registration_client::RegistrationClient,
};
use petiole_kubelet_api::uds;
use std::{
    collections::BTreeMap,
    future::{pending, ready},
    path::{Path, PathBuf},
    pin::Pin,
    sync::{Arc, Mutex},
};
use tokio::{sync::watch, task::JoinSet};
use tokio_stream::wrappers::{TcpListenerStream, WatchStream};
use tonic::{Request, Response, Status, transport::Server};

/// A handler's answer to every client.
#[derive(Clone)]
pub enum Answer {
    List(Vec<Device>),
    Refuse(String),
    Fail,
    /// It takes the call and says nothing.
    Hang,
    /// It ends its streams.
    End,
}

#[derive(Clone)]
pub struct ForeignHandler {
    pub answer: watch::Sender<Answer>,
    asked: Arc<Mutex<Vec<DiscoverRequest>>>,
}

/// A server that ends when this is dropped.
pub struct Serving {
    _server: JoinSet<()>,
}

impl Serving {
    fn begin(server: impl Future<Output = ()> + Send + 'static) -> Self {
        let mut tasks = JoinSet::new();
        tasks.spawn(server);
        Self { _server: tasks }
    }
}

impl ForeignHandler {
    pub fn new(answer: Answer) -> Self {
        Self {
            answer: watch::Sender::new(answer),
            asked: Arc::default(),
        }
    }

    /// One that finds devices with these ids.
    pub fn with(ids: &[&str]) -> Self {
        Self::new(list(ids))
    }

    pub fn asked(&self) -> Vec<DiscoverRequest> {
        self.asked.lock().unwrap().clone()
    }

    pub fn serve(&self, socket: &Path) -> Serving {
        let incoming = uds::bind(socket).unwrap();
        let server = Server::builder().add_service(DiscoveryHandlerServer::new(self.clone()));
        Serving::begin(async move {
            server.serve_with_incoming(incoming).await.unwrap();
        })
    }

    /// Serves on a port of its own, and returns the URL.
    pub async fn serve_network(&self) -> (Serving, String) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let server = Server::builder().add_service(DiscoveryHandlerServer::new(self.clone()));
        let incoming = TcpListenerStream::new(listener);
        let serving = Serving::begin(async move {
            server.serve_with_incoming(incoming).await.unwrap();
        });
        (serving, url)
    }
}

#[tonic::async_trait]
impl DiscoveryHandler for ForeignHandler {
    type DiscoverStream = Pin<Box<dyn futures::Stream<Item = Result<DeviceList, Status>> + Send>>;

    async fn discover(
        &self,
        request: Request<DiscoverRequest>,
    ) -> Result<Response<Self::DiscoverStream>, Status> {
        self.asked.lock().unwrap().push(request.into_inner());
        let answer = self.answer.borrow().clone();
        match answer {
            Answer::Refuse(why) => return Err(Status::invalid_argument(why)),
            Answer::Fail => return Err(Status::unknown("Exception calling application")),
            Answer::Hang => pending().await,
            Answer::List(_) | Answer::End => {}
        }
        let lists = WatchStream::new(self.answer.subscribe())
            .map(|answer| match answer {
                Answer::List(devices) => Some(DeviceList {
                    devices,
                    ..DeviceList::default()
                }),
                Answer::Refuse(_) | Answer::Fail | Answer::Hang | Answer::End => None,
            })
            .take_while(|list| ready(list.is_some()))
            .filter_map(|list| ready(list.map(Ok)));
        Ok(Response::new(Box::pin(lists)))
    }
}

pub fn device(id: &str) -> Device {
    Device {
        id: id.to_owned(),
        properties: BTreeMap::from([("CAMERA_URL".to_owned(), format!("rtsp://{id}"))]),
        ..Device::default()
    }
}

pub fn list(ids: &[&str]) -> Answer {
    Answer::List(ids.iter().map(|id| device(id)).collect())
}

/// Registers as Akri's handlers do.
pub async fn register(
    agent: &Path,
    name: &str,
    endpoint: impl Into<PathBuf>,
) -> Result<(), Status> {
    let endpoint = endpoint.into().to_string_lossy().into_owned();
    let kind = if endpoint.starts_with("http") {
        EndpointType::Network
    } else {
        EndpointType::Uds
    };
    let channel = uds::dial(agent)
        .await
        .map_err(|e| Status::unavailable(format!("{e:?}")))?;
    let request = RegisterDiscoveryHandlerRequest {
        name: name.to_owned(),
        endpoint,
        endpoint_type: kind.into(),
        shared: true,
    };
    let mut client = RegistrationClient::new(channel);
    client.register_discovery_handler(request).await.map(drop)
}
