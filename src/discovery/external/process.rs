//! Runs a built-in handler as a process of its own, by Akri's protocol: it serves `v0.DiscoveryHandler` on a socket. It does not
//! register: the agent knows the place of the socket, and takes the name of a built-in handler from no other place.
use super::{isolated::socket_in, message};
use crate::{
    backoff::Attempts,
    discovery::interface::{DiscoveryError, DiscoveryHandler, Task},
    model::{
        device::{DeviceId, DeviceSet},
        typed_names::ConfigurationKey,
    },
    proto::discovery::{
        DeviceList, DiscoverRequest,
        discovery_handler_server::{self, DiscoveryHandlerServer},
    },
};
use futures::{Stream, future::BoxFuture, stream::unfold};
use petiole_base::collect::CollectMap as _;
use petiole_kubelet_api::uds::{self, OwnSocket};
use std::{
    fs, io,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    pin::Pin,
    sync::Arc,
    time::Duration,
};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    time::sleep,
};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};
use tracing::{info, warn};

const FIRST_RETRY: Duration = Duration::from_millis(250);
const LAST_RETRY: Duration = Duration::from_secs(2);
/// The interval of the checks that the socket is there.
const CHECK: Duration = Duration::from_secs(10);
/// The most discoveries of one `petiole handler` at one time. Beyond it: a further one is refused
/// (`DiscoveryFailed`).
const DISCOVERIES_MAX: usize = 1024;
/// The mode of the socket: the agent may be another user, of the same group.
const SOCKET_MODE: u32 = 0o660;

/// Serves a handler in the folder until `shutdown`. A folder that cannot be used is logged, and tried again.
pub async fn run(
    handler: Box<dyn DiscoveryHandler>,
    folder: PathBuf,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let name = handler.name();
    let socket = socket_in(&folder, name);
    let handler: Arc<dyn DiscoveryHandler> = handler.into();
    let serve = async {
        let mut attempts = Attempts::new(FIRST_RETRY, LAST_RETRY);
        loop {
            let ended = serve(&handler, &socket).await;
            let wait = attempts.ended(ended, |why| {
                warn!("no agent can reach this handler: {why}; this is tried again");
            });
            sleep(wait).await;
        }
    };
    shutdown.run_until_cancelled(serve).await;
    Ok(())
}

/// Serves until the socket is not there any more, or is another one.
async fn serve(handler: &Arc<dyn DiscoveryHandler>, socket: &Path) -> io::Result<()> {
    let incoming = uds::bind(socket)?;
    let own = OwnSocket::new(socket);
    fs::set_permissions(socket, fs::Permissions::from_mode(SOCKET_MODE))?;
    info!(handler = handler.name(), socket = %socket.display(), "serving");
    let service = Service {
        handler: handler.clone(),
        free: Arc::new(Semaphore::new(DISCOVERIES_MAX)),
    };
    let server = tonic::transport::Server::builder()
        .add_service(DiscoveryHandlerServer::new(service))
        .serve_with_incoming(incoming);
    tokio::select! {
        ended = server => ended.map_err(io::Error::other),
        () = own.lost(CHECK) => Ok(()),
    }
}

struct Service {
    handler: Arc<dyn DiscoveryHandler>,
    free: Arc<Semaphore>,
}

#[tonic::async_trait]
impl discovery_handler_server::DiscoveryHandler for Service {
    type DiscoverStream = Pin<Box<dyn Stream<Item = Result<DeviceList, Status>> + Send>>;

    async fn discover(
        &self,
        request: Request<DiscoverRequest>,
    ) -> Result<Response<Self::DiscoverStream>, Status> {
        let full = |_| {
            let message = format!("{DISCOVERIES_MAX} discoveries run here, which are the most");
            Status::resource_exhausted(message)
        };
        let permit = self.free.clone().try_acquire_owned().map_err(full)?;
        let request = request.into_inner();
        if !request.known_devices.is_empty() {
            let known = request.known_devices.iter();
            self.handler.prefer(&known.map(DeviceId::new).collect());
        }
        let text = |(name, value): (String, crate::proto::discovery::ByteData)| {
            Some((name, String::from_utf8(value.vec?).ok()?))
        };
        let properties = request.discovery_properties.into_iter();
        let properties = properties.filter_map(text).collect_map();
        let prepared = (self.handler).prepare(&request.discovery_details, &properties);
        let discovery = prepared.map_err(|e| Status::invalid_argument(e.0))?;
        let (namespace, name) = request.configuration.split_once('/').unwrap_or_default();
        let (found, seen) = watch::channel(DeviceSet::default());
        let running = Running {
            run: discovery.run(Task {
                configuration: ConfigurationKey::new(namespace, name),
                found,
            }),
            seen,
            _permit: permit,
        };
        Ok(Response::new(Box::pin(unfold(Some(running), next))))
    }
}

/// A discovery that runs as long as the agent reads its stream.
struct Running {
    run: BoxFuture<'static, Result<(), DiscoveryError>>,
    seen: watch::Receiver<DeviceSet>,
    _permit: OwnedSemaphorePermit,
}

type Next = Option<(Result<DeviceList, Status>, Option<Running>)>;

/// Returns the list after the next change. The agent calls again when a discovery has ended.
async fn next(running: Option<Running>) -> Next {
    let mut running = running?;
    tokio::select! {
        biased;
        ended = &mut running.run => {
            let why = ended.err().map_or_else(|| "it ended by itself".to_owned(), |e| e.to_string());
            warn!("discovery failed: {why}");
            Some((Err(Status::unavailable(why)), None))
        }
        Ok(()) = running.seen.changed() => {
            let list = message::list(&running.seen.borrow_and_update());
            Some((Ok(list), Some(running)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::discovery::handlers::{Allowed, builtin_with};
    use std::os::unix::fs::MetadataExt as _;
    use tokio::time::timeout;

    /// Serves a handler until `replace`, which gets its socket, has ended.
    async fn serve_while(replace: impl AsyncFnOnce(&Path)) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let handler = builtin_with(Allowed::all()).remove(0);
        let socket = socket_in(dir.path(), handler.name());
        let shutdown = CancellationToken::new();
        let replace = async {
            while !socket.exists() {
                tokio::task::yield_now().await;
            }
            replace(&socket).await;
            shutdown.cancel();
        };
        let run = run(handler, dir.path().to_owned(), shutdown.clone());
        let (ended, ()) = tokio::join!(run, replace);
        ended.unwrap();
        (dir, socket)
    }

    /// Binds a socket as another process does that takes this place.
    fn put_another(socket: &Path) -> tokio::net::UnixListener {
        let other = socket.with_file_name("other");
        let listener = uds::listener(&other).unwrap();
        fs::rename(&other, socket).unwrap();
        listener
    }

    #[tokio::test]
    async fn a_handler_that_ends_removes_its_own_socket_and_no_other() {
        let (_dir, socket) = serve_while(async |_: &Path| {}).await;
        assert!(!socket.exists());
        let (_dir, socket) = serve_while(async |socket: &Path| drop(put_another(socket))).await;
        assert!(socket.exists());
    }

    #[tokio::test(start_paused = true)]
    async fn a_handler_whose_socket_was_replaced_serves_again() {
        serve_while(async |socket: &Path| {
            let _other = put_another(socket);
            let number = || fs::metadata(socket).map_or(0, |metadata| metadata.ino());
            let others = number();
            let is_back = async {
                while [0, others].contains(&number()) {
                    sleep(Duration::from_millis(100)).await;
                }
            };
            timeout(3 * CHECK, is_back).await.expect("it serves again");
        })
        .await;
    }
}
