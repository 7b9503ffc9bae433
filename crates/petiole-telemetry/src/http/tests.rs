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
    let health = Health::new(move || {
        if seen.load(Ordering::Relaxed) {
            vec![]
        } else {
            vec!["no kubelet".to_owned(), "no Configurations".to_owned()]
        }
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

#[tokio::test(start_paused = true)]
async fn a_port_that_is_taken_is_waited_for() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let shutdown = CancellationToken::new();
    let freed = async {
        sleep(BIND_RETRY * 100).await;
        drop(listener);
    };
    let (bound, ()) = tokio::join!(bind(address, "--http-address", &shutdown), freed);
    let bound = bound.unwrap().unwrap();
    assert_eq!(bound.local_addr().unwrap(), address);

    let ended = async {
        sleep(BIND_RETRY * 100).await;
        shutdown.cancel();
    };
    let served = serve(address, routes(Health::new(Vec::new)), shutdown.clone());
    let (served, ()) = tokio::join!(served, ended);
    served.unwrap();
}

#[tokio::test]
async fn an_address_that_can_never_be_used_is_named_with_its_flag() {
    // A link-local address says nothing without an interface.
    let address = "[fe80::1]:9170".parse().unwrap();
    let served = serve(
        address,
        routes(Health::new(Vec::new)),
        CancellationToken::new(),
    )
    .await;
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
