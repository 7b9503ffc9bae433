//! Reads the devices of a cluster again after each change.
use super::{read, snapshot::Snapshot};
use anyhow::Context as _;
use kube::{Client, runtime::watcher};
use petiole_cluster::watch;
use petiole_model::api::instance::Instance;
use std::{sync::Arc, time::Duration};
use tokio::{
    sync,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::warn;

/// The shortest time between two looks while changes do not end.
const PAUSE: Duration = Duration::from_secs(1);
/// The longest time between two looks. Configurations, Pods, and an API server that goes away are noticed by then: Instances
/// alone are watched, and they only if the caller may.
pub const PAUSE_MAX: Duration = Duration::from_secs(10);
/// The time limit of a look. A connection that was cut does not end by itself.
const LOOK_TIMEOUT: Duration = Duration::from_secs(60);

/// The devices that are asked about.
#[derive(Debug, Clone, Default)]
pub struct Scope {
    /// `None` means all namespaces.
    pub namespace: Option<String>,
    /// The labels of Instances.
    pub selector: Option<String>,
}

/// The result of one look: a snapshot, or the error that prevented it.
pub type Look = Arc<anyhow::Result<Snapshot>>;

/// Publishes a snapshot at once, after each change of an Instance, and from time to time, until `stop`.
pub async fn run(
    client: Client,
    scope: Scope,
    looks: sync::watch::Sender<Option<Look>>,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let namespaces: Vec<String> = scope.namespace.iter().cloned().collect();
    let mut config = watcher::Config::default();
    if let Some(selector) = &scope.selector {
        config = config.labels(selector);
    }
    let (sender, mut changes) = sync::watch::channel::<watch::Set<()>>(None);
    let apis = watch::apis::<Instance>(&client, &namespaces);
    // Only the changes are needed, so `drop` keeps nothing of the objects.
    let watching = watch::run(
        apis,
        watch::Selection::new("Instances", config).optional(),
        drop,
        sender,
        stop.clone(),
    );
    let looking = async {
        let mut is_told = false;
        loop {
            looks.send_replace(Some(Arc::new(look(&client, &scope).await)));
            sleep(PAUSE).await;
            if let Ok(change) = timeout(PAUSE_MAX, changes.changed()).await {
                change?;
            } else if changes.borrow().is_none() && !is_told {
                is_told = true;
                let every = PAUSE_MAX.as_secs();
                warn!("Instances cannot be watched: they are read every {every} s");
            }
        }
    };
    tokio::select! {
        outcome = watching => outcome,
        outcome = stop.run_until_cancelled(looking) => outcome.unwrap_or(Ok(())),
    }
}

/// Reads the devices once.
pub async fn look(client: &Client, scope: &Scope) -> anyhow::Result<Snapshot> {
    let (namespace, selector) = (scope.namespace.as_deref(), scope.selector.as_deref());
    let read = Box::pin(read::devices_with(client, namespace, selector));
    let read = timeout(LOOK_TIMEOUT, read).await;
    read.with_context(|| {
        format!(
            "the API server did not answer in {} s",
            LOOK_TIMEOUT.as_secs()
        )
    })?
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::{
        Json, Router,
        body::Body,
        extract::Request,
        http::StatusCode,
        response::{IntoResponse as _, Response},
    };
    use futures::{StreamExt as _, stream};
    use petiole_model::api::names;
    use serde_json::json;
    use std::{
        convert::Infallible,
        sync::atomic::{AtomicBool, Ordering},
    };

    /// Answers as an API server without objects: a watch says that its first list is complete, and then nothing. Lists fail
    /// while it is away.
    fn server(request: &Request, is_away: bool) -> Response {
        if request
            .uri()
            .query()
            .is_some_and(|query| query.contains("watch=true"))
        {
            let complete = json!({"type": "BOOKMARK", "object": {
                "kind": "Instance", "apiVersion": names::API_VERSION,
                "metadata": {"resourceVersion": "1", "annotations": {"k8s.io/initial-events-end": "true"}},
            }});
            let line = stream::iter([Ok::<_, Infallible>(format!("{complete}\n"))]);
            return Body::from_stream(line.chain(stream::pending())).into_response();
        }
        if is_away {
            StatusCode::SERVICE_UNAVAILABLE.into_response()
        } else {
            Json(json!({"metadata": {"resourceVersion": "1"}, "items": []})).into_response()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_api_server_that_goes_away_is_noticed_while_no_instance_changes() {
        let is_away = Arc::new(AtomicBool::new(false));
        let answers = is_away.clone();
        let answer = move |request: Request| {
            let answer = server(&request, answers.load(Ordering::Relaxed));
            async { answer }
        };
        let client = Client::new(Router::new().fallback(answer), "default");
        let (sender, mut looks) = sync::watch::channel(None);
        let stop = CancellationToken::new();
        let noticing = async {
            for expected in [false, true, false] {
                is_away.store(expected, Ordering::Relaxed);
                let failed =
                    |look: &Option<Look>| look.as_deref().is_some_and(|l| l.is_err() == expected);
                let noticed = timeout(PAUSE_MAX * 2, looks.wait_for(failed)).await;
                assert!(noticed.is_ok(), "is_away: {expected}");
            }
            stop.cancel();
        };
        let running = run(client, Scope::default(), sender, stop.clone());
        let (ran, ()) = tokio::join!(running, noticing);
        ran.unwrap();
    }
}
