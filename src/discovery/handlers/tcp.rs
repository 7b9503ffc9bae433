//! Opens a connection to a server that a Configuration or another server names. Each failure says what to look at.
use std::{io, net::SocketAddr, time::Duration};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, lookup_host},
    time::{Instant, timeout, timeout_at},
};

/// A connection with TLS, or without.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// The time that a server has for several steps together.
#[derive(Clone, Copy)]
pub(super) struct Within {
    limit: Duration,
    end: Instant,
}

impl Within {
    pub(super) fn new(limit: Duration) -> Self {
        let end = Instant::now() + limit;
        Self { limit, end }
    }

    /// Waits for the end of `work`. The error is the number of seconds that it had.
    pub(super) async fn all<T>(self, work: impl Future<Output = T>) -> Result<T, u64> {
        let done = timeout_at(self.end, work).await;
        done.map_err(|_late| self.limit.as_secs())
    }

    /// Does a step. `late` says what to look at if there is no time left.
    pub(super) async fn step<T>(
        self,
        step: impl Future<Output = Result<T, String>>,
        late: impl FnOnce(u64) -> String,
    ) -> Result<T, String> {
        let done = self.all(step).await;
        done.unwrap_or_else(|seconds| Err(late(seconds)))
    }
}

/// Returns the addresses of a host.
pub(super) async fn look_up(
    host: &str,
    port: u16,
    within: Within,
) -> Result<Vec<SocketAddr>, String> {
    let found = async {
        let found = lookup_host((host, port)).await;
        Ok(found.map_err(|e| unknown(host, &e))?.collect())
    };
    let late = |seconds| {
        format!(
            "its name was not looked up within {seconds} s: look at the nodes' DNS, or name the address instead"
        )
    };
    within.step(found, late).await
}

fn unknown(host: &str, e: &io::Error) -> String {
    format!(
        "this node knows no address of {host} ({e}): name the address instead, or let the nodes' DNS resolve it"
    )
}

/// Connects to one of the addresses of a server, which is called `what`.
pub(super) async fn connect(
    addresses: &[SocketAddr],
    what: &str,
    within: Within,
) -> Result<TcpStream, String> {
    let connected = async {
        first_that_connects(addresses, within).await.map_err(|e| {
            let port = addresses.first().map_or(0, SocketAddr::port);
            format!("no connection ({e}): is the {what} running, and does its network let this node through to port {port}?")
        })
    };
    let late = |seconds| {
        format!(
            "no connection within {seconds} s: is the host up, and does its network let this node through?"
        )
    };
    within.step(connected, late).await
}

/// Tries one address after the other. One that is silent leaves the others their part of the time.
async fn first_that_connects(addresses: &[SocketAddr], within: Within) -> io::Result<TcpStream> {
    let mut failure = io::Error::from(io::ErrorKind::AddrNotAvailable);
    let mut following = addresses.len();
    for address in addresses {
        following -= 1;
        let left = within.end.saturating_duration_since(Instant::now());
        let others = u32::try_from(following).unwrap_or(u32::MAX);
        let part = if others == 0 {
            Duration::MAX
        } else {
            left / (others + 1)
        };
        match timeout(part, TcpStream::connect(address)).await {
            Ok(Ok(connection)) => return Ok(connection),
            Ok(Err(e)) => failure = e,
            Err(late) => failure = late.into(),
        }
    }
    Err(failure)
}
