//! Checks whether the definitions on the cluster have our fields: Helm leaves those that exist as they are, and an older one
//! drops what it does not know without a word.
use super::shared::Shared;
use crate::{
    api::{crds, reason::Reason},
    backoff::Backoff,
    cluster::{events::about, is_not_found, parts::CustomResourceDefinitionPart},
    yaml,
};
use kube::Api;
use std::{sync::Arc, time::Duration};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

const FIRST_RETRY: Duration = Duration::from_secs(1);
const LAST_RETRY: Duration = Duration::from_secs(60);

/// Looks once, as the leader, and says what to do. Then it waits for the end.
pub(super) async fn run(shared: Arc<Shared>, shutdown: CancellationToken) -> anyhow::Result<()> {
    let mut is_leader = shared.is_leader.clone();
    let look = async {
        is_leader.wait_for(|leads| *leads).await?;
        let mut backoff = Backoff::new(FIRST_RETRY, LAST_RETRY);
        while let Err(e) = look(&shared).await {
            debug!("the definitions cannot be read: {e:#}");
            sleep(backoff.next_wait()).await;
        }
        std::future::pending().await
    };
    shutdown.run_until_cancelled(look).await.unwrap_or(Ok(()))
}

async fn look(shared: &Shared) -> anyhow::Result<()> {
    let api: Api<CustomResourceDefinitionPart> = Api::all(shared.client.clone());
    for (name, ours) in crds::ALL {
        let there = match api.get(name).await {
            Err(e) if is_not_found(&e) => {
                let how = crds::how_to_mend(name);
                warn!(definition = name, "it is not there: {how}");
                continue;
            }
            there => there?,
        };
        let missing = crds::missing(&yaml::from_str(ours)?, &there.rest);
        if !missing.is_empty() {
            let how = crds::how_to_mend(name);
            let note = format!("it lacks {}. {how}", missing.join(", "));
            warn!(definition = name, "{note}");
            shared
                .events
                .warning(about(&there), Reason::OlderDefinition.as_str(), note);
        }
    }
    Ok(())
}
