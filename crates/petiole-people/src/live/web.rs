//! Serves the devices as a web page that changes by itself.
//!
//! The page is read-only, and so is the server: it knows `GET` alone. It has the rights of whoever started it, so it listens
//! on this machine alone unless a flag says otherwise.
use super::{
    details::{Read, details},
    host::Names,
    page,
    source::{self, Look, Source},
    state::State,
};
use crate::inspect::read;
use axum::{
    Router,
    extract::{Path, Request, State as Shared},
    http::{HeaderMap, HeaderName, StatusCode, header},
    middleware::{Next, from_fn_with_state},
    response::{
        IntoResponse, Response,
        sse::{Event, KeepAlive, Sse},
    },
    routing::get,
};
use futures::{Stream, StreamExt as _};
use jiff::Timestamp;
use kube::Client;
use petiole_model::model::instance_name::InstanceKey;
use petiole_telemetry::http;
use std::{convert::Infallible, sync::Arc, time::Duration};
use tokio::{
    net::TcpListener,
    sync::{Semaphore, watch},
    time::timeout,
};
use tokio_stream::wrappers::WatchStream;
use tokio_util::sync::CancellationToken;

/// The time limit of a connection. A browser connects again by itself.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(3600);

/// The interval at which a browser is told that the server is there: it notices by itself no connection that was cut.
/// `page/live.js` waits for three of them.
const ALIVE_INTERVAL: Duration = Duration::from_secs(10);

/// The number of questions about single devices that are answered at once. A further one waits.
const QUESTIONS_AT_ONCE: usize = 2;
/// The time for what one of them reads. After it the answer is without it.
const QUESTION_TIMEOUT: Duration = Duration::from_secs(10);

/// The headers of every answer: the page loads nothing of another site, and no other site may show it.
const HEADERS: [(HeaderName, &str); 4] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-store"),
];

/// The latest state as JSON, for all browsers.
type Latest = watch::Receiver<Arc<str>>;

/// The objects behind the state, and the cluster, of which more is asked when a browser wants to know all of a device.
#[derive(Clone)]
struct Behind {
    looks: watch::Receiver<Option<Look>>,
    client: Option<Client>,
    turns: Arc<Semaphore>,
}

/// Serves the page on `listener` until `shutdown`, to browsers that use one of `names`, an address or `localhost`.
pub async fn run(
    source: Source,
    listener: TcpListener,
    names: Vec<String>,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let address = listener.local_addr()?;
    let names = Arc::new(Names { address, names });
    let state = State::new(source.name(), source.hint());
    let (sender, looks) = watch::channel(None);
    let (states, latest) = watch::channel(text(&state)?);
    let behind = Behind {
        looks: looks.clone(),
        client: source.client(),
        turns: Arc::new(Semaphore::new(QUESTIONS_AT_ONCE)),
    };
    let routes = routes(latest, behind, names);
    let stop = shutdown.child_token();
    tokio::select! {
        ended = source::run(source, sender, stop.clone()) => ended,
        ended = publish(state, looks, states) => ended,
        () = http::serve_routes(listener, routes, CONNECTION_TIMEOUT, stop.clone()) => Ok(()),
    }
}

/// Publishes the state after each look.
async fn publish(
    mut state: State,
    mut looks: watch::Receiver<Option<Look>>,
    states: watch::Sender<Arc<str>>,
) -> anyhow::Result<()> {
    while looks.changed().await.is_ok() {
        if let Some(look) = looks.borrow_and_update().as_deref() {
            state.take(look.as_ref(), Timestamp::now());
        }
        let text = text(&state)?;
        states.send_if_modified(|shown| {
            let is_new = *shown != text;
            *shown = text;
            is_new
        });
    }
    Ok(())
}

fn text(state: &State) -> anyhow::Result<Arc<str>> {
    Ok(serde_json::to_string(&state.shown())?.into())
}

fn routes(latest: Latest, behind: Behind, names: Arc<Names>) -> Router {
    let pages = page::FILES.iter().fold(Router::new(), |routes, file| {
        let answer = || async { ([(header::CONTENT_TYPE, file.content_type)], file.text) };
        routes.route(file.path, get(answer))
    });
    pages
        .route("/devices", get(devices))
        .route("/events", get(events))
        .with_state(latest)
        .route("/devices/{namespace}/{instance}", get(device))
        .with_state(behind)
        .layer(from_fn_with_state(names, guarded))
}

/// Refuses names that are not this server's, and adds the headers of every answer.
async fn guarded(
    Shared(names): Shared<Arc<Names>>,
    headers: HeaderMap,
    request: Request,
    next: Next,
) -> Response {
    let host = headers.get(header::HOST);
    let host = host.and_then(|host| host.to_str().ok());
    if names.allow(host) {
        (HEADERS, next.run(request).await).into_response()
    } else {
        (
        StatusCode::MISDIRECTED_REQUEST,
        "this server does not answer to this name: use its address, or start it with --host NAME\n",
    )
        .into_response()
    }
}

/// Returns the present state, for scripts.
async fn devices(Shared(latest): Shared<Latest>) -> impl IntoResponse {
    let text = latest.borrow().to_string();
    ([(header::CONTENT_TYPE, "application/json")], text)
}

/// Returns all that is known of one device.
async fn device(
    Shared(behind): Shared<Behind>,
    Path((namespace, instance)): Path<(String, String)>,
) -> Response {
    let unknown = |text: &'static str| (StatusCode::NOT_FOUND, text).into_response();
    let Ok(_turn) = behind.turns.acquire().await else {
        return unknown("the server stops\n");
    };
    let look = behind.looks.borrow().clone();
    let snapshot = look.as_deref().and_then(|look| look.as_ref().ok());
    let Some(mut snapshot) = snapshot.cloned() else {
        return unknown("the devices are not known\n");
    };
    let key = InstanceKey::new(&namespace, instance);
    let mut read = Read {
        is_of_cluster: behind.client.is_some(),
        ..Read::default()
    };
    if let Some(client) = behind
        .client
        .filter(|_| snapshot.instances.contains_key(&key))
    {
        let reading = async {
            Box::pin(read::surroundings(&client, &namespace, &mut snapshot)).await;
            read::events_of(&client, &key).await
        };
        let events = timeout(QUESTION_TIMEOUT, reading).await;
        // Without an answer in time, what is missing in the snapshot would be called missing in the cluster.
        read.is_explained = events.is_ok();
        let late = || Err("the API server did not answer in time".to_owned());
        match events.unwrap_or_else(|_| late()) {
            Ok(events) => read.events = events,
            Err(unread) => read.unread.push(unread),
        }
        read.unread.append(&mut snapshot.unread);
    }
    match details(&snapshot, &key, read, Timestamp::now()) {
        Some(details) => axum::Json(details).into_response(),
        None => unknown("there is no such device\n"),
    }
}

/// Returns the present state and each later one, and between them that the server is there.
async fn events(
    Shared(latest): Shared<Latest>,
) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let states = WatchStream::new(latest);
    let alive = Event::default().event("alive").data("yes");
    let alive = KeepAlive::new().interval(ALIVE_INTERVAL).event(alive);
    Sse::new(states.map(|text| Ok(Event::default().data(&*text)))).keep_alive(alive)
}

#[cfg(test)]
mod tests;
