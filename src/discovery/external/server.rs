//! Serves `v0.Registration` on `agent-registration.sock`, and keeps the registrations in a file.
use super::{
    isolated::{BY_OTHERS, CHECK, check},
    kept_file::KeptFile,
    registrations::{Forgotten, Refused, Registration, Registrations, Rules},
};
use crate::{
    backoff::Attempts,
    files,
    proto::discovery::{
        Empty, RegisterDiscoveryHandlerRequest,
        registration_server::{self, RegistrationServer},
    },
};
use nix::unistd::geteuid;
use petiole_kubelet_api::uds::{self, OwnSocket};
use std::{
    fs, io,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, transport::server::UdsConnectInfo};
use tracing::{info, warn};

/// The name of the socket, as Akri's handlers know it.
pub const SOCKET: &str = "agent-registration.sock";
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LAST_RETRY: Duration = Duration::from_secs(30);
/// The most bytes of a registration. Beyond it: it is refused.
const REQUEST_MAX: usize = 16 * 1024;
/// The most registrations that wait at one time. Beyond it: a further one waits for its turn.
const WAITING_MAX: usize = 16;

type Answer = Result<(), Status>;

type Asked = (Registration, oneshot::Sender<Answer>);

/// Serves the socket of one folder.
pub(super) struct Server {
    pub(super) folder: PathBuf,
    pub(super) file: PathBuf,
    pub(super) rules: Arc<Rules>,
    pub(super) registrations: watch::Sender<Arc<Registrations>>,
    /// When the agent started.
    pub(super) began: Instant,
}

impl Server {
    /// Runs until `shutdown`. A folder that cannot be used is said, and tried again: everything else of the agent goes on.
    pub(super) async fn run(&self, shutdown: CancellationToken) -> anyhow::Result<()> {
        let mut file = KeptFile::new(self.file.clone());
        let mut attempts = Attempts::new(FIRST_RETRY, LAST_RETRY);
        while !shutdown.is_cancelled() {
            let ended = self.serve(&mut file, &shutdown).await;
            let wait = attempts.ended(ended, |why| {
                warn!("no discovery handler can register: {why}");
            });
            shutdown.run_until_cancelled(sleep(wait)).await;
        }
        Ok(())
    }

    /// Serves until the shutdown, or until the socket is not there any more.
    async fn serve(&self, file: &mut KeptFile, shutdown: &CancellationToken) -> io::Result<()> {
        let socket = self.folder.join(SOCKET);
        check_folder(&self.folder)?;
        let _lock = self.lock()?;
        let incoming = uds::bind(&socket)?;
        // At the shutdown the agent that replaces this one may have its own there already.
        let own = OwnSocket::new(&socket);
        info!(socket = %socket.display(), "discovery handlers can register");
        let (requests, mut requested) = mpsc::channel(WAITING_MAX);
        let service = Service {
            rules: self.rules.clone(),
            began: self.began,
            requests,
        };
        let service = RegistrationServer::new(service).max_decoding_message_size(REQUEST_MAX);
        let server = tonic::transport::Server::builder()
            .add_service(service)
            .serve_with_incoming(incoming);
        let keep = async {
            loop {
                tokio::select! {
                    asked = requested.recv() => {
                        let Some((registration, answer)) = asked else { break };
                        // A handler that does not wait any more registers again.
                        answer.send(self.keep(registration, file).await).ok();
                    }
                    () = file.retry() => self.write(file).await,
                }
            }
        };
        tokio::select! {
            () = shutdown.cancelled() => Ok(()),
            ended = server => ended.map_err(io::Error::other),
            () = keep => Ok(()),
            () = own.lost(CHECK) => Ok(()),
        }
    }

    /// Locks the folder against other agents, which would replace the socket. If it has the file too, it is locked already.
    fn lock(&self) -> io::Result<Option<fs::File>> {
        let place = |path: &Path| fs::canonicalize(path).ok();
        if self.file.parent().and_then(place) == place(&self.folder) {
            Ok(None)
        } else {
            files::lock(&self.folder)
        }
    }

    /// Adds a registration, and writes the file before it answers. A disk that is full does not keep a handler out.
    async fn keep(&self, new: Registration, file: &mut KeptFile) -> Answer {
        let (name, endpoint, shared) = (new.name.clone(), new.endpoint.clone(), new.shared);
        let before = self.registrations.borrow().text();
        let mut outcome = Ok(None);
        self.registrations
            .send_modify(|all| outcome = Arc::make_mut(all).register(new));
        let removed = outcome.map_err(|refused| {
            warn!(handler = name, %endpoint, "a discovery handler is refused: {refused}");
            match refused {
                Refused::TooMany(why) => Status::resource_exhausted(why),
                Refused::Contradicts(why) => Status::failed_precondition(why),
            }
        })?;
        match removed {
            Some(Forgotten::Endpoint(old)) => {
                info!(
                    handler = name,
                    "its endpoint {old} is forgotten for {endpoint}"
                );
            }
            Some(Forgotten::Name(old)) => {
                warn!(
                    handler = old,
                    "no Configuration uses this handler: it is forgotten for {name}"
                );
            }
            None => {}
        }
        if self.registrations.borrow().text() != before {
            info!(handler = name, %endpoint, shared, "a discovery handler registered");
        }
        self.write(file).await;
        Ok(())
    }

    async fn write(&self, file: &mut KeptFile) {
        let text = self.registrations.borrow().text();
        if let Err(e) = file.keep(text).await {
            warn!(
                "registrations of discovery handlers are lost when this agent ends: {e}; this is tried again"
            );
        }
    }
}

/// Whoever can put files into the folder can pretend to be the agent, or a handler: only root may, and the agent's own
/// user. A folder that is not there is created.
fn check_folder(folder: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    let created = builder.recursive(true).mode(0o700).create(folder);
    created.map_err(|e| files::at(folder, &e))?;
    check(folder, BY_OTHERS, "0700").map(drop)
}

struct Service {
    rules: Arc<Rules>,
    began: Instant,
    requests: mpsc::Sender<Asked>,
}

#[tonic::async_trait]
impl registration_server::Registration for Service {
    async fn register_discovery_handler(
        &self,
        request: Request<RegisterDiscoveryHandlerRequest>,
    ) -> Result<Response<Empty>, Status> {
        let peer = request.extensions().get::<UdsConnectInfo>();
        let user = peer.and_then(|peer| Some(peer.peer_cred?.uid()));
        let registration = may_register(user, geteuid().as_raw())
            .map_err(Status::permission_denied)
            .and_then(|()| {
                let read =
                    Registration::read(request.into_inner(), &self.rules, self.began.elapsed());
                read.map_err(Status::invalid_argument)
            })
            .inspect_err(|status| warn!("a discovery handler is refused: {}", status.message()))?;
        let (answer, answered) = oneshot::channel();
        let gone = |_| Status::unavailable("the agent is stopping");
        self.requests
            .send((registration, answer))
            .await
            .map_err(|_| gone(()))?;
        answered.await.map_err(|_| gone(()))??;
        Ok(Response::new(Empty {}))
    }
}

/// The kernel says who has connected: root, or the agent's own user. Linux, where alone an agent runs, says it of every
/// connection to a Unix socket: one of which it is not known is no exception.
fn may_register(user: Option<u32>, own: u32) -> Result<(), String> {
    match user {
        Some(user) if user == 0 || user == own => Ok(()),
        Some(user) => Err(format!(
            "user {user} may not register a discovery handler, only root: run the handler as root"
        )),
        None => {
            Err("the kernel does not say which user registers this discovery handler".to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn only_root_and_the_agents_own_user_may_register() {
        assert!(may_register(Some(0), 1000).is_ok() && may_register(Some(1000), 1000).is_ok());
        let refused = may_register(Some(1001), 1000).unwrap_err();
        assert!(refused.contains("user 1001"), "{refused}");
        assert!(may_register(None, 1000).is_err());
    }

    fn server(folder: &Path, state: &Path) -> Server {
        Server {
            folder: folder.to_owned(),
            file: state.join("handlers.json"),
            rules: Arc::new(Rules {
                folder: "/var/lib/akri".to_owned(),
                reserved: Default::default(),
            }),
            registrations: Default::default(),
            began: Instant::now(),
        }
    }

    #[tokio::test]
    async fn an_agent_that_ends_removes_its_own_socket_and_no_other() {
        for is_replaced in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o700)).unwrap();
            let (socket, other) = (dir.path().join(SOCKET), dir.path().join("other"));
            let server = server(dir.path(), dir.path());
            let shutdown = CancellationToken::new();
            let replace = async {
                while !socket.exists() {
                    tokio::task::yield_now().await;
                }
                if is_replaced {
                    let _other = uds::listener(&other).unwrap();
                    fs::rename(&other, &socket).unwrap();
                }
                shutdown.cancel();
            };
            let (ended, ()) = tokio::join!(server.run(shutdown.clone()), replace);
            ended.unwrap();
            assert_eq!(socket.exists(), is_replaced);
        }
    }

    #[tokio::test]
    async fn two_agents_do_not_serve_in_one_folder() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("akri");
        check_folder(&folder).unwrap();
        let server = |state: &Path| server(&folder, state);
        let other = files::lock(&folder).unwrap();
        let mut file = KeptFile::new(dir.path().join("handlers.json"));
        let ended = CancellationToken::new();
        ended.cancel();
        let refused = server(dir.path()).serve(&mut file, &ended).await;
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("another agent"), "{refused}");
        assert!(!folder.join(SOCKET).exists());
        // The folder of its own state is locked since it has started.
        server(&folder).serve(&mut file, &ended).await.unwrap();
        drop(other);
        server(dir.path()).serve(&mut file, &ended).await.unwrap();
    }

    #[test]
    fn a_folder_that_others_may_write_is_refused_with_what_to_do() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("akri");
        check_folder(&folder).unwrap();
        let mode = |mode| fs::set_permissions(&folder, fs::Permissions::from_mode(mode)).unwrap();
        // The kubelet creates such folders.
        mode(0o755);
        check_folder(&folder).unwrap();
        for bad in [0o777, 0o1777, 0o775] {
            mode(bad);
            let refused = check_folder(&folder).unwrap_err().to_string();
            assert!(refused.contains(&format!("mode is {bad:o}")), "{refused}");
            assert!(refused.contains("chmod 0700"), "{refused}");
        }
    }
}
