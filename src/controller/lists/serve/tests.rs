//! The server, with an API server that knows two accounts.
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
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::advance,
};
use tokio_util::sync::CancellationToken;

const DEVICES: &str = "/v1/namespaces/default/configurations/cam/devices";
const HTTP_SD: &str = "/v1/namespaces/default/configurations/cam/http_sd";

/// A server of lists, which runs as long as this is kept.
struct Served {
    address: SocketAddr,
    world: watch::Sender<World>,
    listed: watch::Sender<bool>,
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

/// Returns a client of an API server that counts the reviews.
fn api_server(reviews: &Arc<AtomicUsize>) -> Client {
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
    Client::new(api_server, "default")
}

async fn served(world: World) -> Served {
    let (listed, is_listed) = watch::channel(true);
    let (routes, mut asked) = routes(api_server(&Arc::default()), is_listed);
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
        _tasks: tasks,
    }
}

/// Returns the status and the body of an answer. Header and body are read to the end of the connection.
async fn get_from(address: SocketAddr, path: &str, token: Option<&str>) -> (u16, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let token = token.map(|token| format!("authorization: bearer {token}\r\n"));
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
        json!({ "AKRI_ZEROCONF_DEVICE_ADDR": "10.0.0.7", "AKRI_ZEROCONF_DEVICE_PORT": "9" });
    let device = instance(
        "cam-1",
        json!({ "spec": { "brokerProperties": properties } }),
    );
    World::default()
        .with_configuration(configuration("cam", json!({})))
        .with_instance(device)
}

#[tokio::test]
async fn a_list_is_given_to_those_whom_the_api_server_allows_and_to_nobody_else() {
    let served = served(world()).await;
    let get = |path, token| get_from(served.address, path, token);
    let (status, body) = get(DEVICES, Some("reader")).await;
    assert_eq!(status, 200, "{body}");
    let list: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(list["devices"][0]["address"], "10.0.0.7:9");
    let (status, body) = get(HTTP_SD, Some("reader")).await;
    let targets: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(
        (status, &targets[0]["targets"]),
        (200, &json!(["10.0.0.7:9"]))
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
    let gone = get(HTTP_SD, Some("reader")).await;
    assert_eq!(gone, (200, "[]".to_owned()));
    // At an error Prometheus keeps the targets that it had.
    let of = ConfigurationKey::new("default", "cam");
    served.world.send_replace(World {
        unreadable: [(of, "spec".to_owned())].into(),
        ..World::default()
    });
    assert_eq!(get(HTTP_SD, Some("reader")).await.0, 503);
    served.world.send_replace(world());
    assert_eq!(get(HTTP_SD, Some("reader")).await.0, 200);
    served.listed.send_replace(false);
    assert_eq!(get(DEVICES, Some("reader")).await.0, 503);
}

#[tokio::test(start_paused = true)]
async fn strangers_cost_a_bounded_number_of_reviews() {
    let reviews: Arc<AtomicUsize> = Arc::default();
    let access = Access::new(api_server(&reviews));
    let of = ConfigurationKey::new("default", "cam");
    for _ in 0..10 {
        assert_eq!(access.check("reader", &of).await, Ok(()));
        assert_eq!(access.check("stranger", &of).await, Err(Refusal::Forbidden));
    }
    assert_eq!(reviews.load(Ordering::Relaxed), 4);
    for n in 0..100 {
        let expected = if n < 30 {
            Refusal::Unknown
        } else {
            Refusal::Unavailable
        };
        let verdict = access.check(&format!("forged-{n}"), &of).await;
        assert_eq!(verdict, Err(expected), "{n}");
    }
    assert_eq!(reviews.load(Ordering::Relaxed), 34);
    // Whoever was allowed lately is asked about again, however many strangers there are.
    advance(Duration::from_secs(60)).await;
    for n in 0..100 {
        access.check(&format!("more-{n}"), &of).await.unwrap_err();
    }
    assert_eq!(access.check("reader", &of).await, Ok(()));
    assert_eq!(reviews.load(Ordering::Relaxed), 34 + 32 + 2);
}
