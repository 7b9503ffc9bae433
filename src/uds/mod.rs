//! Unix sockets for gRPC: bind one to serve on, dial one as a client.
mod authority;
mod header_block;

use authority::LegalAuthority;
use futures::{Stream, StreamExt as _};
use hyper_util::rt::TokioIo;
use std::{
    fs, io,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};
use tokio::net::{UnixListener, UnixStream};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::{Channel, Endpoint, Uri};

/// The longest socket path the kernel takes: `sun_path` less its closing NUL.
pub const PATH_LIMIT: usize = 107;

/// A connection that [`bind`] accepted. Go clients may have dialled it by its bare path.
pub type Connection = LegalAuthority<UnixStream>;

/// Listens at `path`, readable and writable by the owner alone. A stale socket there is removed first.
pub fn bind(path: &Path) -> io::Result<impl Stream<Item = io::Result<Connection>> + Send + use<>> {
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
    Ok(UnixListenerStream::new(listener).map(|accepted| accepted.map(LegalAuthority::new)))
}

/// Connects a gRPC client to the server at `path`.
pub async fn dial(path: &Path) -> Result<Channel, tonic::transport::Error> {
    let path = PathBuf::from(path);
    // The URI is never looked up: the connector knows the path. Its host becomes `:authority`.
    Endpoint::from_static("http://localhost")
        .connect_with_connector(tower::service_fn(move |_: Uri| {
            let path = path.clone();
            async move { UnixStream::connect(path).await.map(TokioIo::new) }
        }))
        .await
}
