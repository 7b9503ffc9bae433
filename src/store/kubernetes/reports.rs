//! What this node says of each Configuration: its entry in the status, written when it changes.
use super::{
    Inner,
    plan::{self, applied, new_problems},
};
use crate::{
    api::configuration::{Configuration, NodeReport},
    backoff::Backoff,
    cluster::{events::about, is_conflict, is_not_found},
    model::names::ObjectKey,
};
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::json;
use std::{collections::BTreeMap, time::Duration};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::warn;

/// Every node is told of every other node's entry: a count that grows by the device makes few writes.
const BETWEEN_WRITES: Duration = Duration::from_secs(1);
const LAST_RETRY: Duration = Duration::from_secs(30);

/// What was written of a Configuration, and its version then: a watch may be behind.
struct Said {
    entry: NodeReport,
    version: u64,
}

/// Brings the entries to what was reported last, at each change of the reports or of what stands there.
pub(super) async fn run(inner: &Inner, shutdown: &CancellationToken) -> anyhow::Result<()> {
    let (mut reports, mut watched) = (inner.reports.subscribe(), inner.watched.subscribe());
    let mut said = BTreeMap::new();
    let mut backoff = Backoff::new(BETWEEN_WRITES, LAST_RETRY);
    let write = async {
        reports.changed().await?;
        loop {
            reports.mark_unchanged();
            watched.mark_unchanged();
            if !write_all(inner, &mut said).await {
                sleep(backoff.next_wait()).await;
                continue;
            }
            backoff.reset();
            sleep(BETWEEN_WRITES).await;
            tokio::select! {
                changed = reports.changed() => changed?,
                changed = watched.changed() => changed?,
            }
        }
    };
    shutdown.run_until_cancelled(write).await.unwrap_or(Ok(()))
}

/// Whether everything stands as it was reported.
async fn write_all(inner: &Inner, said: &mut BTreeMap<ObjectKey, Said>) -> bool {
    let node = &inner.settings.node_name;
    let Some(set) = inner.watched.borrow().clone() else {
        return true; // the set's first change wakes this again
    };
    let reports = inner.reports.borrow().clone();
    said.retain(|key, _| set.objects.contains_key(key));
    let mut is_done = true;
    for (key, report) in &reports {
        let Some(configuration) = set.objects.get(key) else {
            continue;
        };
        let entry = plan::entry(report, node);
        let stands = (configuration.status.iter().flat_map(|status| &status.nodes))
            .find(|there| there.name == *node);
        let newer = (said.get(key)).filter(|said| said.version > version(configuration));
        let before = newer.map_or(stands, |said| Some(&said.entry));
        if before == Some(&entry) {
            continue;
        }
        for problem in new_problems(before, &entry) {
            let note = format!("node {node}: {}", problem.message);
            inner
                .events
                .warning(about(&**configuration), &problem.reason, note);
        }
        match write(inner, configuration, &entry).await {
            Some(version) => drop(said.insert(key.clone(), Said { entry, version })),
            None => is_done = false,
        }
    }
    is_done
}

/// The version it was written as.
async fn write(inner: &Inner, configuration: &Configuration, entry: &NodeReport) -> Option<u64> {
    let namespace = configuration
        .metadata
        .namespace
        .as_deref()
        .unwrap_or_default();
    let name = configuration.metadata.name.as_deref().unwrap_or_default();
    let api: Api<Configuration> = Api::namespaced(inner.client.clone(), namespace);
    let manager = plan::field_manager(&inner.settings.node_name);
    let params = PatchParams::apply(&manager).force();
    let status = applied(configuration, json!({ "nodes": [entry] }));
    match api
        .patch_status(name, &params, &Patch::Apply(&status))
        .await
    {
        Ok(written) => Some(version(&written)),
        // Deleted, or deleted and created again: the watch will say so.
        Err(e) if is_not_found(&e) || is_conflict(&e) => Some(version(configuration)),
        Err(e) => {
            warn!(configuration = name, "its status is not written: {e}");
            None
        }
    }
}

fn version(configuration: &Configuration) -> u64 {
    let version = configuration.metadata.resource_version.as_ref();
    version
        .and_then(|version| version.parse().ok())
        .unwrap_or(0)
}
