//! Serves the devices as a web page that changes by itself.
//!
//! The page is read-only, and so is the server: it knows `GET` alone. It has the rights of whoever started it, so it listens
//! on this machine alone unless a flag says otherwise.
use super::{
    host::Names,
    page,
    source::{self, Look, Source},
    state::State,
};
use axum::{
    Router,
    extract::{Request, State as Shared},
    http::{HeaderMap, HeaderName, StatusCode, header},
    middleware::{Next, from_fn_with_state},
    response::{
        IntoResponse, Response,
        sse::{Event, Sse},
    },
    routing::get,
};
use futures::{Stream, StreamExt as _};
use jiff::Timestamp;
use petiole_telemetry::http;
use std::{convert::Infallible, sync::Arc, time::Duration};
use tokio::{net::TcpListener, sync::watch};
use tokio_stream::wrappers::WatchStream;
use tokio_util::sync::CancellationToken;

/// The time limit of a connection. A browser connects again by itself.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(3600);

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
    let stop = shutdown.child_token();
    tokio::select! {
        ended = source::run(source, sender, stop.clone()) => ended,
        ended = publish(state, looks, states) => ended,
        () = http::serve_routes(listener, routes(latest, names), CONNECTION_TIMEOUT, stop.clone()) => Ok(()),
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

fn routes(latest: Latest, names: Arc<Names>) -> Router {
    let pages = page::FILES.iter().fold(Router::new(), |routes, file| {
        let answer = || async { ([(header::CONTENT_TYPE, file.content_type)], file.text) };
        routes.route(file.path, get(answer))
    });
    pages
        .route("/devices", get(devices))
        .route("/events", get(events))
        .with_state(latest)
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
    match names.allow(host) {
        true => (HEADERS, next.run(request).await).into_response(),
        false => (
            StatusCode::MISDIRECTED_REQUEST,
            "this server does not answer to this name: use its address, or start it with --host NAME\n",
        )
            .into_response(),
    }
}

/// Returns the present state, for scripts.
async fn devices(Shared(latest): Shared<Latest>) -> impl IntoResponse {
    let text = latest.borrow().to_string();
    ([(header::CONTENT_TYPE, "application/json")], text)
}

/// Returns the present state and each later one.
async fn events(
    Shared(latest): Shared<Latest>,
) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let states = WatchStream::new(latest);
    Sse::new(states.map(|text| Ok(Event::default().data(&*text))))
}

#[cfg(test)]
mod tests;
