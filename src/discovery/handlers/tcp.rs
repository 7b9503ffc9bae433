//! Opens a connection to a server that a Configuration or another server names. Each failure says what to look at.
use std::{io, net::SocketAddr, time::Duration};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, lookup_host},
};

/// A connection with TLS, or without.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// The step that comes before a connection is there.
#[derive(Clone, Copy)]
pub(super) enum Opening {
    LookUp,
    Connect,
}

impl Opening {
    /// Returns the failure of one that has taken too long.
    pub(super) fn late(self, limit: Duration) -> String {
        let seconds = limit.as_secs();
        match self {
            Self::LookUp => format!(
                "its name was not looked up within {seconds} s: look at the nodes' DNS, or name the address instead"
            ),
            Self::Connect => format!(
                "no connection within {seconds} s: is the host up, and does its network let this node through?"
            ),
        }
    }
}

/// Returns the addresses of a host.
pub(super) async fn look_up(host: &str, port: u16) -> Result<Vec<SocketAddr>, String> {
    let found = lookup_host((host, port)).await;
    Ok(found.map_err(|e| unknown(host, &e))?.collect())
}

fn unknown(host: &str, e: &io::Error) -> String {
    format!(
        "this node knows no address of {host} ({e}): name the address instead, or let the nodes' DNS resolve it"
    )
}

/// Connects to one of the addresses of a server, which is called `what`.
pub(super) async fn connect(addresses: &[SocketAddr], what: &str) -> Result<TcpStream, String> {
    let connected = TcpStream::connect(addresses).await;
    connected.map_err(|e| {
        let port = addresses.first().map_or(0, SocketAddr::port);
        format!("no connection ({e}): is the {what} running, and does its network let this node through to port {port}?")
    })
}
