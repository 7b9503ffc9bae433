//! Binds and dials Unix sockets for gRPC, and dials TCP for the servers that have no socket here.
mod authority;
mod frames;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod header_block;
mod own_socket;
mod rewriter;

pub use own_socket::OwnSocket;

use authority::LegalAuthority;
use futures::{Stream, StreamExt as _};
use hyper_util::rt::TokioIo;
use std::{
    fs, io,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    time::Duration,
};
use tokio::{
    net::{UnixListener, UnixStream},
    time::sleep,
};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::{Channel, Endpoint, Uri, server::UdsConnectInfo};
use tower::Service;

/// The longest path of a socket that the kernel accepts, in bytes: `sun_path` without its final NUL. Beyond it: the
/// program does not start with it.
pub const PATH_LIMIT: usize = 107;
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);
/// The time for which a TCP connection may be silent before the other machine is asked whether it is there.
const KEEPALIVE: Duration = Duration::from_secs(30);
/// The time for which a server may be silent before it gets a ping, and the time that it has to answer.
const PING_AFTER: Duration = Duration::from_secs(20);
const PING_TIMEOUT: Duration = Duration::from_secs(10);

/// A connection that [`bind`] accepted. The client may be a Go program that dialled the bare path.
pub type Connection<I = UdsConnectInfo> = LegalAuthority<UnixStream, I>;

/// Listens at `path` for gRPC, with access for the owner only (mode 0600). A stale socket is removed first. The stream is for
/// `serve_with_incoming` of tonic's server; after an error of one connection it goes on.
///
/// Fails if the path is longer than [`PATH_LIMIT`], or the socket cannot be made; the error names the path.
pub fn bind(path: &Path) -> io::Result<impl Stream<Item = io::Result<Connection>> + Send + use<>> {
    let listener = listener(path)?;
    let connections = UnixListenerStream::new(listener).then(async |accepted| {
        if accepted.is_err() {
            // The process may have too many open files. The next attempt would fail at once, and servers retry without
            // a pause.
            sleep(ACCEPT_RETRY_DELAY).await;
        }
        accepted.map(LegalAuthority::new)
    });
    Ok(connections)
}

/// Listens at `path` as [`bind`] does, with the same errors, for protocols other than gRPC.
pub fn listener(path: &Path) -> io::Result<UnixListener> {
    if path.as_os_str().len() > PATH_LIMIT {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!(
                "{}: the path of a socket must have at most {PATH_LIMIT} bytes; choose a shorter folder",
                path.display()
            ),
        ));
    }
    let at = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", path.display()));
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(at(e)),
        Ok(()) | Err(_) => {}
    }
    let listener = UnixListener::bind(path).map_err(at)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).map_err(at)?;
    Ok(listener)
}

/// Connects a gRPC client to the server at `path`. Fails if nothing listens there now.
pub async fn dial(path: &Path) -> Result<Channel, tonic::transport::Error> {
    endpoint().connect_with_connector(connector(path)).await
}

/// Connects as [`dial`] does. Calls fail when the server is there and does not answer pings for 30 s: its process hangs.
pub async fn dial_with_pings(path: &Path) -> Result<Channel, tonic::transport::Error> {
    let endpoint = endpoint()
        .http2_keep_alive_interval(PING_AFTER)
        .keep_alive_timeout(PING_TIMEOUT);
    endpoint.connect_with_connector(connector(path)).await
}

/// Returns a client that connects with its first request, and connects again after the connection was lost. What is wrong with
/// the socket is an error of the calls.
pub fn dial_when_used(path: &Path) -> Channel {
    endpoint().connect_with_connector_lazy(connector(path))
}

/// Returns an endpoint whose host becomes `:authority`. The URI is never resolved: the connector knows the path.
fn endpoint() -> Endpoint {
    Endpoint::from_static("http://localhost")
}

/// Connects a gRPC client to the server at a host and a port, in plain text. The host of `uri` becomes `:authority`. Fails if
/// `uri` is no URI, the host has no address, or nothing listens there.
pub async fn dial_tcp(
    uri: &str,
    host: String,
    port: u16,
) -> Result<Channel, tonic::transport::Error> {
    let endpoint = Endpoint::from_shared(uri.to_owned())?;
    endpoint
        .connect_with_connector(connector_to(Peer::Tcp(host, port)))
        .await
}

/// The server at the other end.
#[derive(Debug, Clone)]
enum Peer {
    Unix(PathBuf),
    Tcp(String, u16),
}

type PeerStream = tokio_util::either::Either<UnixStream, tokio::net::TcpStream>;

impl Peer {
    async fn connect(self) -> io::Result<PeerStream> {
        match self {
            Self::Unix(path) => UnixStream::connect(path).await.map(PeerStream::Left),
            Self::Tcp(host, port) => {
                let stream = tokio::net::TcpStream::connect((host, port)).await?;
                stream.set_nodelay(true)?;
                // A machine that is gone says nothing. gRPC's own pings are too many for servers that count them.
                let keepalive = socket2::TcpKeepalive::new()
                    .with_time(KEEPALIVE)
                    .with_interval(KEEPALIVE / 3)
                    .with_retries(3);
                socket2::SockRef::from(&stream).set_tcp_keepalive(&keepalive)?;
                Ok(PeerStream::Right(stream))
            }
        }
    }
}

fn connector(
    path: &Path,
) -> impl Service<Uri, Response = TokioIo<PeerStream>, Error = io::Error, Future: Send> + Send + use<>
{
    connector_to(Peer::Unix(path.to_owned()))
}

/// Returns the connector. All peers have one type, because each further type would be another client in the binary.
fn connector_to(
    peer: Peer,
) -> impl Service<Uri, Response = TokioIo<PeerStream>, Error = io::Error, Future: Send> + Send + use<>
{
    tower::service_fn(move |_: Uri| {
        let peer = peer.clone();
        async move { peer.connect().await.map(TokioIo::new) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device_plugin::{
        Empty, RegisterRequest,
        registration_server::{Registration, RegistrationServer},
    };
    use std::collections::BTreeMap;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tonic::{Request, Response, Status, transport::Server};

    const HEADERS: u8 = 1;
    const RST_STREAM: u8 = 3;

    struct Answering;

    #[tonic::async_trait]
    impl Registration for Answering {
        async fn register(&self, _: Request<RegisterRequest>) -> Result<Response<Empty>, Status> {
            Ok(Response::new(Empty {}))
        }
    }

    /// Returns two calls of `Register` as grpc-go sends them to a bare path, on streams 1 and 3; the second one uses
    /// indexes.
    fn requests() -> Vec<u8> {
        let literal = |name: &[u8], value: &[u8]| {
            [name, &[u8::try_from(value.len()).unwrap()], value].concat()
        };
        let frame = |kind: u8, flags: u8, stream: u8, payload: &[u8]| {
            let len = u8::try_from(payload.len()).unwrap();
            [&[0, 0, len, kind, flags, 0, 0, 0, stream], payload].concat()
        };
        let first = [
            b"\x83\x86".to_vec(),
            literal(b"\x44", b"/v1beta1.Registration/Register"),
            literal(b"\x41", b"%2Fvar%2Flib%2Fkubelet%2Fkubelet.sock"),
            literal(b"\x5f", b"application/grpc"),
            literal(b"\x40\x02te", b"trailers"),
        ];
        [
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
            frame(4, 0, 0, &[]),
            frame(HEADERS, 4, 1, &first.concat()),
            frame(0, 1, 1, &[0; 5]),
            frame(HEADERS, 4, 3, b"\x83\x86\xc1\xc0\xbf\xbe"),
            frame(0, 1, 3, &[0; 5]),
        ]
        .concat()
    }

    /// Returns the type of the first frame that answers each stream.
    async fn answers(path: &Path) -> io::Result<BTreeMap<u8, u8>> {
        let mut client = UnixStream::connect(path).await?;
        client.write_all(&requests()).await?;
        let mut answers = BTreeMap::new();
        while answers.len() < 2 {
            let mut header = [0; 9];
            client.read_exact(&mut header).await?;
            let [a, b, c, kind, .., stream] = header;
            let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
            client.read_exact(&mut payload).await?;
            if [HEADERS, RST_STREAM].contains(&kind) {
                answers.entry(stream).or_insert(kind);
            }
        }
        Ok(answers)
    }

    async fn answers_of_server<C>(
        path: &Path,
        incoming: impl Stream<Item = io::Result<C>>,
    ) -> BTreeMap<u8, u8>
    where
        C: tonic::transport::server::Connected
            + tokio::io::AsyncRead
            + tokio::io::AsyncWrite
            + Unpin
            + Send
            + 'static,
    {
        let server = Server::builder()
            .add_service(RegistrationServer::new(Answering))
            .serve_with_incoming(incoming);
        tokio::select! {
            ended = server => panic!("the server ended: {ended:?}"),
            answers = tokio::time::timeout(Duration::from_secs(10), answers(path)) => answers.unwrap().unwrap(),
        }
    }

    #[tokio::test]
    async fn a_go_client_that_dials_a_bare_path_is_answered() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.sock");
        let answers = answers_of_server(&path, bind(&path).unwrap()).await;
        assert_eq!(answers, BTreeMap::from([(1, HEADERS), (3, HEADERS)]));
    }

    /// This test fails once h2 accepts such requests (hyperium/h2#487). Then the module `authority` can be removed.
    #[tokio::test]
    async fn without_the_adapter_it_is_reset() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.sock");
        let plain = UnixListenerStream::new(UnixListener::bind(&path).unwrap());
        let answers = answers_of_server(&path, plain).await;
        assert_eq!(answers, BTreeMap::from([(1, RST_STREAM), (3, RST_STREAM)]));
    }
}
