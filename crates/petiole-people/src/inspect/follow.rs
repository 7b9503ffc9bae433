//! Reads the devices of a cluster again after each change.
use super::{read, snapshot::Snapshot};
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
/// The time between two looks while Instances cannot be watched.
pub const UNWATCHED_PAUSE: Duration = Duration::from_secs(10);

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

/// Publishes a snapshot at once and after each change of an Instance, until `stop`. Without the right to watch Instances it
/// looks from time to time.
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
            let is_watched = changes.borrow().is_some();
            let change = changes.changed();
            if is_watched {
                change.await?;
            } else if let Ok(change) = timeout(UNWATCHED_PAUSE, change).await {
                change?;
            } else if !is_told {
                is_told = true;
                let every = UNWATCHED_PAUSE.as_secs();
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
    Box::pin(read::devices_with(client, namespace, selector)).await
}
