//! Unix sockets for gRPC: bind one to serve on, dial one as a client.
mod authority;
mod frames;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod header_block;
mod rewriter;

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
use tonic::transport::{Channel, Endpoint, Uri};
use tower::Service;

/// The longest socket path the kernel takes: `sun_path` less its closing NUL.
pub const PATH_LIMIT: usize = 107;
const AFTER_A_FAILED_ACCEPT: Duration = Duration::from_millis(100);

/// A connection that [`bind`] accepted. Go clients may have dialled it by its bare path.
pub type Connection = LegalAuthority<UnixStream>;

/// Listens at `path`, readable and writable by the owner alone. A stale socket there is removed first.
pub fn bind(path: &Path) -> io::Result<impl Stream<Item = io::Result<Connection>> + Send + use<>> {
    let listener = listener(path)?;
    let connections = UnixListenerStream::new(listener).then(async |accepted| {
        if accepted.is_err() {
            // Too many open files, say: the next try would fail at once, and servers try on.
            sleep(AFTER_A_FAILED_ACCEPT).await;
        }
        accepted.map(LegalAuthority::new)
    });
    Ok(connections)
}

/// Listens at `path` as [`bind`] does, for protocols other than gRPC.
pub fn listener(path: &Path) -> io::Result<UnixListener> {
    if path.as_os_str().len() > PATH_LIMIT {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!(
                "{}: a socket's path has at most {PATH_LIMIT} bytes",
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

/// Connects a gRPC client to the server at `path`.
pub async fn dial(path: &Path) -> Result<Channel, tonic::transport::Error> {
    endpoint().connect_with_connector(connector(path)).await
}

/// The same, connected by the first request, and again by the next one after the connection was lost.
pub fn dial_when_used(path: &Path) -> Channel {
    endpoint().connect_with_connector_lazy(connector(path))
}

/// Its URI is never looked up: the connector knows the path. Its host becomes `:authority`.
fn endpoint() -> Endpoint {
    Endpoint::from_static("http://localhost")
}

fn connector(
    path: &Path,
) -> impl Service<Uri, Response = TokioIo<UnixStream>, Error = io::Error, Future: Send> + Send + use<>
{
    let path = PathBuf::from(path);
    tower::service_fn(move |_: Uri| {
        let path = path.clone();
        async move { UnixStream::connect(path).await.map(TokioIo::new) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::device_plugin::{
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

    /// `Register` on streams 1 and 3 as grpc-go calls it on a bare path: the second time by indexes.
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

    /// The kind of the frame by which each stream is answered first.
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

    /// Once this fails, h2 takes such requests (hyperium/h2#487), and `authority` may go.
    #[tokio::test]
    async fn without_the_adapter_it_is_reset() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.sock");
        let plain = UnixListenerStream::new(UnixListener::bind(&path).unwrap());
        let answers = answers_of_server(&path, plain).await;
        assert_eq!(answers, BTreeMap::from([(1, RST_STREAM), (3, RST_STREAM)]));
    }
}
