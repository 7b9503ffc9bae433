//! `/metrics`, `/healthz` and `/readyz` of a process.
//!
//! `/healthz` is 200 whenever it answers: the tasks of a process run on the one thread that answers here, and a process
//! one of whose tasks has ended exits. A thread that is stuck does not answer, and that is what a liveness probe sees.
//! `/readyz` is 503 while something is missing, and its body says what, a line each.
use super::metrics::{CONTENT_TYPE, metrics};
use anyhow::Context as _;
use axum::{
    Router,
    extract::State,
    http::{StatusCode, header::CONTENT_TYPE as CONTENT_TYPE_HEADER},
    response::{IntoResponse, Response},
    routing::get,
};
use std::{net::SocketAddr, sync::Arc, time::Duration};
use tokio::{net::TcpListener, time::sleep};
use tokio_util::sync::CancellationToken;
use tracing::info;

/// How long requests that are under way get when the process stops.
const LAST_REQUESTS: Duration = Duration::from_millis(500);
/// So many missing things are named.
const NAMED_MAX: usize = 20;

/// What a process must have before it is ready. Asked at each request, so that it tells of now.
#[derive(Clone)]
pub struct Health {
    missing: Arc<dyn Fn() -> Vec<String> + Send + Sync>,
}

impl Health {
    /// `missing` names what is not there yet; it reads values that are at hand and never waits.
    pub fn new(missing: impl Fn() -> Vec<String> + Send + Sync + 'static) -> Self {
        Self {
            missing: Arc::new(missing),
        }
    }
}

/// Serves until `shutdown`.
pub async fn serve(
    address: SocketAddr,
    health: Health,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let listener = TcpListener::bind(address).await.with_context(|| {
        format!("--http-address {address}: cannot listen there; another process may, or the address is none of this host's")
    })?;
    serve_on(listener, health, shutdown).await
}

async fn serve_on(
    listener: TcpListener,
    health: Health,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    info!(address = %listener.local_addr()?, "metrics, health and readiness are served");
    let routes = Router::new()
        .route("/metrics", get(exposition))
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(readiness))
        .with_state(health);
    let served =
        axum::serve(listener, routes).with_graceful_shutdown(shutdown.clone().cancelled_owned());
    tokio::select! {
        served = served => Ok(served?),
        () = async { shutdown.cancelled().await; sleep(LAST_REQUESTS).await } => Ok(()),
    }
}

async fn exposition() -> Response {
    match metrics().text() {
        Ok(text) => ([(CONTENT_TYPE_HEADER, CONTENT_TYPE)], text).into_response(),
        Err(e) => (StatusCode::INTERNAL_SERVER_ERROR, e.to_string()).into_response(),
    }
}

async fn readiness(State(health): State<Health>) -> (StatusCode, String) {
    let missing = (health.missing)();
    match missing.is_empty() {
        true => (StatusCode::OK, "ok\n".to_owned()),
        false => (StatusCode::SERVICE_UNAVAILABLE, listed(&missing)),
    }
}

/// A line each, and how many more there are.
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
    use std::sync::atomic::{AtomicBool, Ordering};
    use tokio::{net::TcpStream, task::JoinSet};

    /// The status, the content type and the body of an answer.
    async fn get(address: SocketAddr, path: &str) -> (u16, String, String) {
        let stream = TokioIo::new(TcpStream::connect(address).await.unwrap());
        let (mut client, connection) = http1::handshake(stream).await.unwrap();
        let mut connections = JoinSet::new();
        connections.spawn(connection);
        let request = Request::get(path).header("host", "localhost");
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
        tasks.spawn(serve_on(listener, health, shutdown.clone()));

        let text = "text/plain; charset=utf-8".to_owned();
        let answer = |status, body: &str| (status, text.clone(), body.to_owned());
        assert_eq!(get(address, "/healthz").await, answer(200, "ok\n"));
        let missing = "no kubelet\nno Configurations\n";
        assert_eq!(get(address, "/readyz").await, answer(503, missing));
        is_ready.store(true, Ordering::Relaxed);
        assert_eq!(get(address, "/readyz").await, answer(200, "ok\n"));
        let (status, kind, body) = get(address, "/metrics").await;
        assert_eq!((status, kind.as_str()), (200, CONTENT_TYPE));
        assert!(body.contains("petiole_build_info{version="), "{body}");
        assert!(body.ends_with("# EOF\n"), "{body}");

        shutdown.cancel();
        tasks.join_next().await.unwrap().unwrap().unwrap();
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
