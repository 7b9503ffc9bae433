//! Unix sockets for gRPC: bind one to serve on, dial one as a client.
mod authority;

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

/// A connection that [`bind`] accepted. What peers written in Go send as `:authority` is made good on the way in.
pub type Connection = authority::Connection<UnixStream>;

/// Listens at `path`, readable and writable by the owner alone. A stale socket there is removed first.
pub fn bind(path: &Path) -> io::Result<impl Stream<Item = io::Result<Connection>> + Send + use<>> {
    let listener = listener(path)?;
    Ok(UnixListenerStream::new(listener).map(|accepted| accepted.map(authority::Connection::new)))
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
    let path = PathBuf::from(path);
    // The URI is never looked up: the connector knows the path. Its host becomes `:authority`.
    Endpoint::from_static("http://localhost")
        .connect_with_connector(tower::service_fn(move |_: Uri| {
            let path = path.clone();
            async move { UnixStream::connect(path).await.map(TokioIo::new) }
        }))
        .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn binding_replaces_a_stale_socket_and_keeps_others_out() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.sock");
        drop(listener(&path).unwrap());
        let _incoming = bind(&path).unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[tokio::test]
    async fn a_path_that_is_too_long_is_named_with_the_limit() {
        let path = PathBuf::from("/tmp").join("x".repeat(120));
        let error = listener(&path).unwrap_err().to_string();
        assert!(error.contains(&"x".repeat(120)) && error.contains("at most 107 bytes"));
    }
}
