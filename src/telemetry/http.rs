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
    metrics::{CONTENT_TYPE, metrics},
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
use std::{net::SocketAddr, time::Duration};
use tokio::{
    net::{TcpListener, TcpStream},
    time::{sleep, timeout},
};
use tokio_util::{sync::CancellationToken, task::JoinMap};
use tower::ServiceExt as _;
use tracing::{debug, info};

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
/// The pause between attempts to accept if the process has no file descriptor left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves all three paths until `shutdown`.
pub async fn serve(
    address: SocketAddr,
    health: Health,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let listener = bind(address, "--http-address").await?;
    info!(address = %listener.local_addr()?, "serving metrics, health and readiness");
    serve_routes(listener, routes(health), CONNECTION_TIMEOUT, shutdown).await;
    Ok(())
}

/// Serves only `/metrics` until `shutdown`.
pub async fn serve_metrics(address: SocketAddr, shutdown: CancellationToken) -> anyhow::Result<()> {
    let listener = bind(address, "--metrics-address").await?;
    info!(address = %listener.local_addr()?, "serving metrics");
    serve_routes(listener, metrics_route(), CONNECTION_TIMEOUT, shutdown).await;
    Ok(())
}

async fn bind(address: SocketAddr, flag: &str) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| {
        format!("{flag} {address}: cannot listen; another process may use the address, or it does not belong to this host")
    })
}

fn metrics_route() -> Router {
    Router::new().route("/metrics", get(exposition))
}

fn routes(health: Health) -> Router {
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
    match missing.is_empty() {
        true => (StatusCode::OK, "ok\n".to_owned()),
        false => (StatusCode::SERVICE_UNAVAILABLE, listed(&missing)),
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
mod tests {
    use super::*;
    use http_body_util::{BodyExt as _, Empty};
    use hyper::{Request, body::Bytes, client::conn::http1};
    use hyper_util::rt::TokioIo;
    use std::sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    };
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        task::JoinSet,
        time::Instant,
    };

    /// Starts a listener with all routes. It runs as long as the set is kept.
    async fn served() -> (SocketAddr, JoinSet<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut tasks = JoinSet::new();
        let routes = routes(Health::new(Vec::new));
        tasks.spawn(serve_routes(
            listener,
            routes,
            CONNECTION_TIMEOUT,
            CancellationToken::new(),
        ));
        (address, tasks)
    }

    async fn silent(address: SocketAddr) -> TcpStream {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"G").await.unwrap();
        stream
    }

    /// Returns the number of connections that the server has not closed.
    fn open(streams: &[TcpStream]) -> usize {
        let is_open = |stream: &&TcpStream| {
            let read = stream.try_read(&mut [0; 1]);
            read.is_err_and(|e| e.kind() == std::io::ErrorKind::WouldBlock)
        };
        streams.iter().filter(is_open).count()
    }

    /// Returns the status, the content type and the body of an answer.
    async fn get(address: SocketAddr, path: &str) -> (u16, String, String) {
        get_with(address, path, &[]).await
    }

    async fn get_with(
        address: SocketAddr,
        path: &str,
        headers: &[(&str, &str)],
    ) -> (u16, String, String) {
        let stream = TokioIo::new(TcpStream::connect(address).await.unwrap());
        let (mut client, connection) = http1::handshake(stream).await.unwrap();
        let mut connections = JoinSet::new();
        connections.spawn(connection);
        let mut request = Request::get(path).header("host", "localhost");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Empty::<Bytes>::new()).unwrap();
        let response = client.send_request(request).await.unwrap();
        let status = response.status().as_u16();
        let kind = response.headers()["content-type"]
            .to_str()
            .unwrap()
            .to_owned();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, kind, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn a_process_tells_of_its_metrics_its_health_and_what_is_missing() {
        let is_ready = Arc::new(AtomicBool::new(false));
        let seen = is_ready.clone();
        let health = Health::new(move || match seen.load(Ordering::Relaxed) {
            true => vec![],
            false => vec!["no kubelet".to_owned(), "no Configurations".to_owned()],
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shutdown = CancellationToken::new();
        let mut tasks = JoinSet::new();
        tasks.spawn(serve_routes(
            listener,
            routes(health),
            CONNECTION_TIMEOUT,
            shutdown.clone(),
        ));

        let text = "text/plain; charset=utf-8".to_owned();
        let answer = |status, body: &str| (status, text.clone(), body.to_owned());
        assert_eq!(get(address, "/healthz").await, answer(200, "ok\n"));
        let missing = "no kubelet\nno Configurations\n";
        assert_eq!(get(address, "/readyz").await, answer(503, missing));
        is_ready.store(true, Ordering::Relaxed);
        assert_eq!(get(address, "/readyz").await, answer(200, "ok\n"));
        let (status, kind, body) = get(address, "/metrics").await;
        assert_eq!((status, kind.as_str()), (200, plain::CONTENT_TYPE));
        assert!(body.contains("petiole_build_info{version="), "{body}");
        let open = [("accept", "application/openmetrics-text;version=1.0.0")];
        let (status, kind, body) = get_with(address, "/metrics", &open).await;
        assert_eq!((status, kind.as_str()), (200, CONTENT_TYPE));
        assert!(body.ends_with("# EOF\n"), "{body}");

        shutdown.cancel();
        tasks.join_next().await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn connections_that_say_nothing_are_few_and_a_probe_is_answered_beside_them() {
        let (address, _served) = served().await;
        let mut streams = vec![];
        for n in 0..1000 {
            streams.push(silent(address).await);
            if n % 100 == 99 {
                let asked = Instant::now();
                assert_eq!(get(address, "/healthz").await.0, 200);
                // It does not wait until the others are closed.
                assert!(asked.elapsed() < HEADER_TIMEOUT - Duration::from_secs(1));
            }
        }
        // The last close may not have arrived yet.
        let few = async {
            while open(&streams) > CONNECTIONS_MAX {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(Duration::from_secs(5), few).await.unwrap();
        assert!(open(&streams) > 0, "the youngest are not cut off");
    }

    #[tokio::test]
    async fn a_head_that_does_not_come_and_an_answer_that_is_not_read_end_the_connection() {
        let (address, _served) = served().await;
        let mut stream = silent(address).await;
        let begun = Instant::now();
        let mut rest = vec![];
        let closed = timeout(Duration::from_secs(10), stream.read_to_end(&mut rest)).await;
        assert!(closed.is_ok(), "it is still open");
        let took = begun.elapsed();
        assert!(
            HEADER_TIMEOUT <= took + Duration::from_millis(100),
            "{took:?}"
        );
    }

    #[tokio::test]
    async fn a_connection_has_one_request() {
        let (address, _served) = served().await;
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = b"GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n";
        stream.write_all(&request.repeat(2)).await.unwrap();
        let mut answers = vec![];
        // The connection may be reset, because the server does not read all that was sent.
        stream.read_to_end(&mut answers).await.ok();
        let answers = String::from_utf8(answers).unwrap();
        assert_eq!(answers.matches("HTTP/1.1 200").count(), 1, "{answers}");
    }

    #[tokio::test]
    async fn the_other_address_has_metrics_and_nothing_else() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut tasks = JoinSet::new();
        tasks.spawn(serve_routes(
            listener,
            metrics_route(),
            CONNECTION_TIMEOUT,
            CancellationToken::new(),
        ));
        let status = async |path: &str| {
            let mut stream = TcpStream::connect(address).await.unwrap();
            let request = format!("GET {path} HTTP/1.0\r\n\r\n");
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut answer = vec![];
            stream.read_to_end(&mut answer).await.unwrap();
            String::from_utf8(answer).unwrap()[9..12].to_owned()
        };
        assert_eq!(status("/metrics").await, "200");
        assert_eq!(status("/readyz").await, "404");
        assert_eq!(status("/healthz").await, "404");
    }

    #[tokio::test]
    async fn an_address_that_is_taken_is_named_with_its_flag() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let served = serve(address, Health::new(Vec::new), CancellationToken::new()).await;
        let error = format!("{:#}", served.unwrap_err());
        assert!(
            error.starts_with(&format!("--http-address {address}: ")),
            "{error}"
        );
    }

    #[test]
    fn not_more_than_twenty_missing_things_are_named() {
        let missing = |count: usize| (0..count).map(|n| n.to_string()).collect::<Vec<_>>();
        assert_eq!(listed(&missing(20)).lines().last(), Some("19"));
        let text = listed(&missing(22));
        assert_eq!(text.lines().count(), 21);
        assert_eq!(text.lines().last(), Some("and 2 more"));
    }
}
