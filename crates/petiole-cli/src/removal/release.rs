//! Checks whether Helm is removing its release. The uninstall hook is an ordinary Job to everything else that applies
//! the chart's objects (`kubectl apply`, Kustomize, GitOps controllers), and it must delete nothing then.
mod plan;

pub use plan::{REVISIONS, Release};

use super::failure::Failure;
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

const RETRY_INTERVAL: Duration = Duration::from_millis(500);
/// The time after which every API server knows the rights that were created with the hook.
const RIGHTS_PROPAGATION: Duration = Duration::from_secs(5);

/// Returns the reason that the release is not being removed, or `None` if it is. It waits until `timeout` for an API
/// server that does not answer. Records that may not be read prove nothing.
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
        let limit = if failure.is_temporary {
            timeout
        } else {
            RIGHTS_PROPAGATION
        };
        if began.elapsed() + RETRY_INTERVAL > limit {
            return if failure.is_temporary {
                Err(failure.error)
            } else {
                Ok(Some(format!("{:#}", failure.error)))
            };
        }
        if failure.is_temporary {
            warn!("{:#}; retrying", failure.error);
        }
        sleep(RETRY_INTERVAL).await;
    }
}

/// Returns the records of the release. Helm keeps them in Secrets or in ConfigMaps, depending on `HELM_DRIVER`.
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

/// Returns the status of a revision. The rest of its record, such as the values, is not requested.
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
