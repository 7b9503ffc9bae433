//! Serves the Registration service on `device-plugins/kubelet.sock`, and prepares its folder.
use super::plugin::Request;
use crate::waits::serve_until;
use petiole_base::files;
use petiole_kubelet_api::{
    device_plugin::{
        Empty, RegisterRequest,
        registration_server::{Registration, RegistrationServer},
    },
    uds,
};
use std::{
    fs, io,
    os::unix::fs::FileTypeExt as _,
    path::{Path, PathBuf},
    time::Duration,
};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tonic::{Response, Status, transport::Server};

const SOCKET: &str = "kubelet.sock";
/// The time that open calls get to end when the kubelet stops.
const LAST_CALLS: Duration = Duration::from_millis(200);

struct Service {
    folder: PathBuf,
    requests: mpsc::Sender<Request>,
}

/// Creates the folder and removes the sockets directly in it, as the kubelet does. Other files stay.
pub(crate) fn prepare(folder: &Path) -> io::Result<()> {
    let at = |e: io::Error| files::at(folder, &e);
    fs::create_dir_all(folder).map_err(at)?;
    for entry in fs::read_dir(folder).map_err(at)? {
        let path = entry.map_err(at)?.path();
        // A link to a socket counts as a socket; a dangling link does not.
        if fs::metadata(&path).is_ok_and(|metadata| metadata.file_type().is_socket()) {
            files::remove(&path)?;
        }
    }
    Ok(())
}

/// Serves until `shutdown`; each call is sent to `requests`. The socket file stays, as the kubelet's does.
pub(crate) fn serve(
    folder: &Path,
    requests: mpsc::Sender<Request>,
    shutdown: CancellationToken,
) -> io::Result<impl Future<Output = anyhow::Result<()>> + Send + use<>> {
    let incoming = uds::bind(&folder.join(SOCKET))?;
    let service = Service {
        folder: folder.to_owned(),
        requests,
    };
    Ok(async move {
        let server = Server::builder()
            .add_service(RegistrationServer::new(service))
            .serve_with_incoming_shutdown(incoming, shutdown.clone().cancelled_owned());
        serve_until(server, shutdown, LAST_CALLS).await
    })
}

#[tonic::async_trait]
impl Registration for Service {
    async fn register(
        &self,
        request: tonic::Request<RegisterRequest>,
    ) -> Result<Response<Empty>, Status> {
        let RegisterRequest {
            version,
            endpoint,
            resource_name,
            options: _,
        } = request.into_inner();
        let (reply, answer) = oneshot::channel();
        let request = Request {
            name: resource_name,
            // A leading slash does not make the path absolute, as with Go's filepath.Join.
            endpoint: self.folder.join(endpoint.trim_start_matches('/')),
            version,
            reply,
        };
        let stopping = || Status::unavailable("the kubelet is stopping");
        self.requests.send(request).await.map_err(|_| stopping())?;
        match answer.await.map_err(|_| stopping())? {
            Ok(()) => Ok(Response::new(Empty {})),
            Err(error) => Err(Status::unknown(error)),
        }
    }
}
