//! Asks whether Helm is removing its release. The uninstall hook is a plain Job for everything else that applies the
//! chart's objects (`kubectl apply`, Kustomize, GitOps controllers), and it must not delete anything then.
mod plan;

pub use plan::{REVISIONS, Release};

use super::Failure;
use k8s_openapi::{
    NamespaceResourceScope,
    api::core::v1::{ConfigMap, Secret},
};
use kube::{Api, Client, Resource, api::PartialObjectMeta};
use plan::{Record, why_it_stays};
use serde::de::DeserializeOwned;
use std::{fmt::Debug, time::Duration};
use tokio::time::{Instant, sleep};
use tracing::warn;

const BETWEEN_TRIES: Duration = Duration::from_millis(500);
/// Rights that were created with the hook are known to every API server by then.
const RIGHTS_SPREAD: Duration = Duration::from_secs(5);

/// Returns why the release is not being removed, or `None` where it is. An API server that is away is waited for until
/// `timeout`; records that may not be read prove nothing.
pub async fn why_not_removed(
    release: &Release,
    client: &Client,
    timeout: Duration,
) -> anyhow::Result<Option<String>> {
    let began = Instant::now();
    loop {
        let failure = match records(release, client).await {
            Ok(records) => return Ok(why_it_stays(release, &records)),
            Err(failure) => failure,
        };
        let patience = match failure.may_pass {
            true => timeout,
            false => RIGHTS_SPREAD,
        };
        if began.elapsed() + BETWEEN_TRIES > patience {
            return match failure.may_pass {
                true => Err(failure.error),
                false => Ok(Some(format!("{:#}", failure.error))),
            };
        }
        if failure.may_pass {
            warn!("{:#}; it is tried again", failure.error);
        }
        sleep(BETWEEN_TRIES).await;
    }
}

/// The records there are, wherever Helm keeps them (`HELM_DRIVER`): in Secrets or in ConfigMaps.
async fn records(release: &Release, client: &Client) -> Result<Vec<Record>, Failure> {
    let mut records = vec![];
    for revision in release.revisions() {
        let status = match status::<Secret>(release, revision, client, "secrets").await? {
            Some(status) => Some(status),
            None => status::<ConfigMap>(release, revision, client, "configmaps").await?,
        };
        records.extend(status.map(|status| Record { revision, status }));
    }
    Ok(records)
}

/// The status of a revision. What else is in its record, the values among it, is not asked for.
async fn status<K>(
    release: &Release,
    revision: u64,
    client: &Client,
    resource: &str,
) -> Result<Option<String>, Failure>
where
    K: Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>
        + k8s_openapi::Resource<Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned,
{
    let api: Api<K> = Api::namespaced(client.clone(), &release.namespace);
    let found: Option<PartialObjectMeta<K>> =
        (api.get_metadata_opt(&release.record_name(revision)).await)
            .map_err(|e| Failure::new(e, "get", resource))?;
    let labels = found.map(|record| record.metadata.labels.unwrap_or_default());
    let labels = labels.filter(|labels| labels.get("owner").is_some_and(|owner| owner == "helm"));
    Ok(labels.and_then(|mut labels| labels.remove("status")))
}
