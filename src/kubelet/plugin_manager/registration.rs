//! The kubelet's own service, on `kubelet.sock`: plugins ask to be registered.
use super::{Command, PluginInfo};
use crate::{
    proto::{
        DESCRIPTORS,
        device_plugin::{
            Empty, RegisterRequest,
            registration_server::{Registration, RegistrationServer},
        },
    },
    uds,
};
use std::{path::PathBuf, sync::Arc};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, transport::Server};

const SOCKET: &str = "kubelet.sock";

/// Listens in `folder` until `shutdown`. Calls that are under way then are given up.
pub(in crate::kubelet) async fn serve(
    folder: Arc<PathBuf>,
    commands: mpsc::Sender<Command>,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let incoming = uds::bind(&folder.join(SOCKET))?;
    let reflection = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(DESCRIPTORS)
        .build_v1()?;
    let server = Server::builder()
        .add_service(RegistrationServer::new(Service { folder, commands }))
        .add_service(reflection)
        .serve_with_incoming(incoming);
    match shutdown.run_until_cancelled(server).await {
        Some(ended) => Ok(ended?),
        None => Ok(()),
    }
}

struct Service {
    folder: Arc<PathBuf>,
    commands: mpsc::Sender<Command>,
}

#[tonic::async_trait]
impl Registration for Service {
    async fn register(&self, request: Request<RegisterRequest>) -> Result<Response<Empty>, Status> {
        // `options` are ignored, as by kubelets since 1.25: the plugin is asked for them.
        let request = request.into_inner();
        let plugin = PluginInfo {
            name: request.resource_name,
            endpoint: self.folder.join(request.endpoint.trim_start_matches('/')),
            versions: vec![request.version],
        };
        let (reply, registered) = oneshot::channel();
        let stopping = || Status::unavailable("the kubelet is stopping");
        self.commands
            .send(Command::Want { plugin, reply })
            .await
            .map_err(|_| stopping())?;
        // The kubelet's own errors have no gRPC code of their own.
        registered
            .await
            .map_err(|_| stopping())?
            .map_err(Status::unknown)?;
        Ok(Response::new(Empty {}))
    }
}
