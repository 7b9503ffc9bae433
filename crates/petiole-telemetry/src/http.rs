//! Serves `/metrics`, `/healthz` and `/readyz` of a process.
//!
//! `/healthz` answers 200. Most tasks of a process run on the same thread as this server, and a process exits when one of
//! its tasks ends. If this thread hangs, there is no answer; if another one does, the answer is 503: a liveness probe
//! detects both. `/readyz` answers 503 while something is missing; its body lists the missing things, one per line.
//!
//! Anyone who can reach the port may connect. Connections are therefore bounded in number, in time and in the size of a
//! request.
use super::{
    health::Health,
    metrics::metrics,
    plain::{self, plain},
};
use anyhow::Context as _;
use axum::{
    Router,
    body::Body,
    extract::State,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use petiole_base::metrics::CONTENT_TYPE;
use std::{io::ErrorKind, mem, net::SocketAddr, time::Duration};
use tokio::{
    net::{TcpListener, TcpStream},
    time::{sleep, timeout},
};
use tokio_util::{sync::CancellationToken, task::JoinMap};
use tower::ServiceExt as _;
use tracing::{debug, info, warn};

/// The time that open requests get to end when the process stops.
const LAST_REQUESTS: Duration = Duration::from_millis(500);
/// The number of missing things that are listed.
const NAMED_MAX: usize = 20;
/// The most connections of a listener. Beyond it: a further one ends the oldest, so that a probe is answered even if
/// others hold idle connections.
const CONNECTIONS_MAX: usize = 64;
/// The time limit for the head of a request. Beyond it: the connection ends.
const HEADER_TIMEOUT: Duration = Duration::from_secs(5);
/// The time limit of a connection, which has one request and its answer. Beyond it: it ends.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(15);
/// The read buffer of a connection in bytes. It is the smallest that hyper accepts.
const READ_BUFFER: usize = 8192;
/// The pause between attempts to listen.
const BIND_RETRY: Duration = Duration::from_secs(1);
/// The pause between attempts to accept if the process has no file descriptor left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves these routes until `shutdown`.
pub async fn serve(
    address: SocketAddr,
    routes: Router,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let Some(listener) = bind(address, "--http-address", &shutdown).await? else {
        return Ok(());
    };
    info!(address = %listener.local_addr()?, "serving metrics, health and readiness");
    serve_routes(listener, routes, CONNECTION_TIMEOUT, shutdown).await;
    Ok(())
}

/// Serves only `/metrics` until `shutdown`.
pub async fn serve_metrics(address: SocketAddr, shutdown: CancellationToken) -> anyhow::Result<()> {
    let Some(listener) = bind(address, "--metrics-address", &shutdown).await? else {
        return Ok(());
    };
    info!(address = %listener.local_addr()?, "serving metrics");
    serve_routes(listener, metrics_route(), CONNECTION_TIMEOUT, shutdown).await;
    Ok(())
}

/// Listens on the address; `None` after `shutdown`. An address that another process has, or that this machine does not have yet,
/// is tried again: no user of the machine can end this process by taking its port.
async fn bind(
    address: SocketAddr,
    flag: &str,
    shutdown: &CancellationToken,
) -> anyhow::Result<Option<TcpListener>> {
    let mut is_reported = false;
    loop {
        match TcpListener::bind(address).await {
            Err(e) if matches!(e.kind(), ErrorKind::AddrInUse | ErrorKind::AddrNotAvailable) => {
                if !mem::replace(&mut is_reported, true) {
                    warn!(
                        "{flag} {address}: cannot listen: {e}; it is tried again every {BIND_RETRY:?}. Until then probes and \
                         metrics have no answer, or that of another process: end that one unless this agent replaces it, or choose another address"
                    );
                }
            }
            outcome => {
                let named = || format!("{flag} {address}: cannot listen");
                return outcome.map(Some).with_context(named);
            }
        }
        if shutdown
            .run_until_cancelled(sleep(BIND_RETRY))
            .await
            .is_none()
        {
            return Ok(None);
        }
    }
}

fn metrics_route() -> Router {
    Router::new().route("/metrics", get(exposition))
}

/// Returns the routes of all three paths.
pub fn routes(health: Health) -> Router {
    let probes = Router::new()
        .route("/healthz", get(liveness))
        .route("/readyz", get(readiness))
        .with_state(health);
    metrics_route().merge(probes)
}

/// Serves routes until `shutdown`. The open connections then get a short time to end. `longest` is the time limit of a
/// connection, which has one request and its answer.
pub async fn serve_routes(
    listener: TcpListener,
    routes: Router,
    longest: Duration,
    shutdown: CancellationToken,
) {
    let mut connections: JoinMap<u64, ()> = JoinMap::new();
    for number in 0.. {
        let accepted = loop {
            tokio::select! {
                biased;
                () = shutdown.cancelled() => break None,
                Some(_) = connections.join_next() => {}
                accepted = listener.accept() => break Some(accepted),
            }
        };
        let stream = match accepted {
            Some(Ok((stream, _))) => stream,
            Some(Err(error)) => {
                debug!(%error, "cannot accept a connection");
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
            None => break,
        };
        while connections.len() >= CONNECTIONS_MAX {
            if let Some(oldest) = connections.keys().min().copied() {
                connections.abort(&oldest);
            }
            connections.join_next().await;
        }
        connections.spawn(number, answer(stream, routes.clone(), longest));
    }
    let ended = async { while connections.join_next().await.is_some() {} };
    // Connections that are still open are aborted.
    timeout(LAST_REQUESTS, ended).await.ok();
}

/// Answers the one request of a connection.
async fn answer(stream: TcpStream, routes: Router, longest: Duration) {
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        routes.clone().oneshot(request.map(Body::new))
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .keep_alive(false)
        .max_buf_size(READ_BUFFER)
        .serve_connection(TokioIo::new(stream), service);
    match timeout(longest, connection).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => debug!(%error, "a connection ended early"),
        Err(_) => debug!("a connection was aborted after {longest:?}"),
    }
}

async fn exposition(headers: HeaderMap) -> Response {
    let accept = headers.get(header::ACCEPT);
    let accept = accept.and_then(|accept| accept.to_str().ok());
    match metrics().text() {
        Ok(text) if plain::wants_open_metrics(accept) => {
            ([(header::CONTENT_TYPE, CONTENT_TYPE)], text).into_response()
        }
        Ok(text) => ([(header::CONTENT_TYPE, plain::CONTENT_TYPE)], plain(&text)).into_response(),
        Err(e) => (StatusCode::INTERNAL_SERVER_ERROR, e.to_string()).into_response(),
    }
}

async fn liveness(State(health): State<Health>) -> (StatusCode, String) {
    match health.stuck() {
        None => (StatusCode::OK, "ok\n".to_owned()),
        Some(what) => (StatusCode::SERVICE_UNAVAILABLE, format!("{what}\n")),
    }
}

async fn readiness(State(health): State<Health>) -> (StatusCode, String) {
    let missing = health.missing();
    if missing.is_empty() {
        (StatusCode::OK, "ok\n".to_owned())
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, listed(&missing))
    }
}

/// Returns one line per missing thing, and the number of those that are not listed.
fn listed(missing: &[String]) -> String {
    let named = missing
        .iter()
        .take(NAMED_MAX)
        .map(|line| format!("{line}\n"));
    let mut text: String = named.collect();
    if let Some(more @ 1..) = missing.len().checked_sub(NAMED_MAX) {
        text.push_str(&format!("and {more} more\n"));
    }
    text
}

#[cfg(test)]
mod tests;
