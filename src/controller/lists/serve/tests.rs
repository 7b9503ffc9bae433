//! The server, with an API server that knows two accounts, and a Prometheus server that reads from it.
use super::*;
use crate::{
    controller::fixtures::{configuration, instance},
    telemetry::http::serve_routes,
};
use axum::http::{Request, Response as Answer};
use http_body_util::BodyExt as _;
use kube::client::Body;
use serde_json::{Value, json};
use std::{
    convert::Infallible,
    net::SocketAddr,
    process::Stdio,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    process::{Child, Command},
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

const DEVICES: &str = "/v1/namespaces/default/configurations/cam/devices";
const HTTP_SD: &str = "/v1/namespaces/default/configurations/cam/http_sd";

/// A server of lists, which runs as long as this is kept.
struct Served {
    address: SocketAddr,
    world: watch::Sender<World>,
    listed: watch::Sender<bool>,
    /// The number of reviews that the API server was asked for.
    reviews: Arc<AtomicUsize>,
    _tasks: JoinSet<()>,
}

/// Answers a review as the API server does: two accounts have tokens for us, and one of them may read one list.
fn reviewed(review: &Value) -> Value {
    let spec = &review["spec"];
    let status = match (review["kind"].as_str(), spec["token"].as_str()) {
        (Some("TokenReview"), Some(user @ ("reader" | "stranger"))) => json!({
            "authenticated": true, "audiences": spec["audiences"], "user": { "username": user, "groups": ["all"] },
        }),
        // A token for the API server, by an authenticator that knows no audiences.
        (Some("TokenReview"), Some("admin")) => {
            json!({ "authenticated": true, "user": { "username": "reader" } })
        }
        (Some("TokenReview"), _) => json!({ "authenticated": false }),
        _ => {
            let list = json!({
                "group": "akri.sh", "resource": "configurations", "subresource": "devices", "namespace": "default",
                "name": "cam", "verb": "get",
            });
            let is_reader = spec["user"] == "reader" && spec["groups"] == json!(["all"]);
            json!({ "allowed": is_reader && spec["resourceAttributes"] == list })
        }
    };
    let mut answer = review.clone();
    answer["status"] = status;
    answer
}

async fn served(world: World) -> Served {
    let reviews: Arc<AtomicUsize> = Arc::default();
    let count = reviews.clone();
    let api_server = tower::service_fn(move |request: Request<Body>| {
        count.fetch_add(1, Ordering::Relaxed);
        async {
            let review = request.into_body().collect().await.unwrap().to_bytes();
            let answer = reviewed(&serde_json::from_slice(&review).unwrap());
            let answer = Body::from(answer.to_string().into_bytes());
            Ok::<_, Infallible>(Answer::new(answer))
        }
    });
    let (listed, is_listed) = watch::channel(true);
    let (routes, mut asked) = routes(Client::new(api_server, "default"), is_listed);
    let (world, known) = watch::channel(world);
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        while let Some(question) = asked.recv().await {
            question.answer(&known.borrow());
        }
    });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (longest, stop) = (Duration::from_secs(15), CancellationToken::new());
    tasks.spawn(serve_routes(listener, routes, longest, stop));
    Served {
        address,
        world,
        listed,
        reviews,
        _tasks: tasks,
    }
}

/// Returns the status and the body of an answer. Header and body are read to the end of the connection.
async fn get_from(address: SocketAddr, path: &str, token: Option<&str>) -> (u16, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let token = token.map(|token| format!("authorization: Bearer {token}\r\n"));
    let token = token.unwrap_or_default();
    let request =
        format!("GET {path} HTTP/1.0\r\nhost: localhost\r\n{token}connection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, body.to_owned())
}

/// Returns a world with a Configuration and one device in the network.
fn world() -> World {
    let properties =
        json!({ "AKRI_ZEROCONF_DEVICE_ADDR": "127.0.0.1", "AKRI_ZEROCONF_DEVICE_PORT": "9" });
    let device = instance(
        "cam-1",
        json!({ "spec": { "brokerProperties": properties } }),
    );
    empty().with_instance(device)
}

fn empty() -> World {
    World::default().with_configuration(configuration("cam", json!({})))
}

#[tokio::test]
async fn a_list_is_given_to_those_whom_the_api_server_allows_and_to_nobody_else() {
    let served = served(world()).await;
    let get = |path, token| get_from(served.address, path, token);
    let (status, body) = get(DEVICES, Some("reader")).await;
    assert_eq!(status, 200, "{body}");
    let list: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(list["devices"][0]["address"], "127.0.0.1:9");
    let (status, body) = get(HTTP_SD, Some("reader")).await;
    let targets: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(
        (status, &targets[0]["targets"]),
        (200, &json!(["127.0.0.1:9"]))
    );
    for (path, token, expected, why) in [
        (DEVICES, None, 401, "Authorization: Bearer TOKEN"),
        (DEVICES, Some(""), 401, "Authorization: Bearer TOKEN"),
        (DEVICES, Some("nobody"), 401, "audience petiole"),
        (DEVICES, Some("admin"), 401, "audience petiole"),
        (
            DEVICES,
            Some("stranger"),
            403,
            "may not get configurations/devices",
        ),
        (
            "/v1/namespaces/other/configurations/cam/devices",
            Some("reader"),
            403,
            "in the namespace other",
        ),
        (
            "/v1/namespaces/default/configurations/tv/http_sd",
            Some("reader"),
            403,
            "of the name tv",
        ),
    ] {
        let (status, body) = get(path, token).await;
        assert_eq!(status, expected, "{path} {token:?} {body}");
        assert!(body.contains(why), "{body}");
    }
    // Who may read is told what there is not.
    served.world.send_replace(World::default());
    assert_eq!(get(DEVICES, Some("reader")).await.0, 404);
    served.listed.send_replace(false);
    assert_eq!(get(DEVICES, Some("reader")).await.0, 503);
}

#[tokio::test]
async fn strangers_cost_a_bounded_number_of_reviews() {
    let served = served(world()).await;
    for _ in 0..10 {
        assert_eq!(
            get_from(served.address, DEVICES, Some("reader")).await.0,
            200
        );
    }
    assert_eq!(served.reviews.load(Ordering::Relaxed), 2);
    let mut unavailable = 0;
    for n in 0..100 {
        let (status, _) = get_from(served.address, DEVICES, Some(&format!("forged-{n}"))).await;
        unavailable += usize::from(status == 503);
    }
    // The bucket refills while this runs.
    assert!(unavailable > 20, "{unavailable}");
    assert!(served.reviews.load(Ordering::Relaxed) < 82);
    // Whoever is known is still served.
    assert_eq!(
        get_from(served.address, DEVICES, Some("reader")).await.0,
        200
    );
}

/// Starts a Prometheus server that asks this one every second; `None` on a machine without one.
async fn prometheus(folder: &std::path::Path, served: SocketAddr) -> Option<(Child, SocketAddr)> {
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let configuration = format!(
        "scrape_configs:\n  - job_name: cameras\n    scrape_interval: 1s\n    http_sd_configs:\n      - url: http://{served}{HTTP_SD}\n        \
         refresh_interval: 1s\n        authorization: {{type: Bearer, credentials: reader}}\n    relabel_configs:\n      \
         - {{source_labels: [__meta_petiole_instance], target_label: device}}\n"
    );
    let file = folder.join("prometheus.yaml");
    std::fs::write(&file, configuration).unwrap();
    let child = Command::new("prometheus")
        .arg(format!("--config.file={}", file.display()))
        .arg(format!("--storage.tsdb.path={}", folder.display()))
        .arg(format!("--web.listen-address={address}"))
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn();
    Some((child.ok()?, address))
}

/// Waits until Prometheus has these targets, each by the label that it was given.
async fn has_targets(prometheus: SocketAddr, expected: &[&str]) {
    let waits = async {
        loop {
            if TcpStream::connect(prometheus).await.is_ok() {
                let (_, body) = get_from(prometheus, "/api/v1/targets?state=active", None).await;
                let found: Value = serde_json::from_str(&body).unwrap_or_default();
                let targets = found["data"]["activeTargets"].as_array();
                let named = targets.map(|all| -> Vec<_> {
                    all.iter()
                        .filter_map(|t| t["labels"]["device"].as_str())
                        .collect()
                });
                if named.as_deref() == Some(expected) {
                    return;
                }
            }
            sleep(Duration::from_millis(100)).await;
        }
    };
    let named = format!("Prometheus has no targets {expected:?}");
    timeout(Duration::from_secs(30), waits).await.expect(&named);
}

#[tokio::test]
async fn a_device_is_a_target_of_prometheus_as_long_as_it_is_there() {
    let served = served(empty()).await;
    let folder = tempfile::tempdir().unwrap();
    let Some((child, address)) = prometheus(folder.path(), served.address).await else {
        return;
    };
    has_targets(address, &[]).await;
    served.world.send_replace(world());
    has_targets(address, &["cam-1"]).await;
    served.world.send_replace(empty());
    has_targets(address, &[]).await;
    drop(child);
}
