//! Takes away what Configurations have made, before the agents go: they stop their plugins and remove the sockets.
use super::{
    Failure, configurations, instances, left_after,
    plan::{Before, Look, left},
};
use crate::{
    api::configuration::Configuration,
    cluster::{self, node::Nodes},
};
use kube::{
    Api, Client, Resource as _,
    api::{DeleteParams, Preconditions},
    core::ObjectMeta,
};
use std::time::Duration;
use tokio::time::{Instant, sleep};
use tracing::{info, warn};

const BETWEEN_LOOKS: Duration = Duration::from_millis(500);
/// A kubelet reports within this time; an entry that is still above 0, and that no Instance backed from the
/// beginning, has nobody to bring it to 0.
const GHOSTS_ARE_WAITED_FOR: Duration = Duration::from_secs(12);

/// What to uninstall.
#[derive(Debug, Clone)]
pub struct Uninstall {
    pub prefixes: Vec<String>,
    /// Where Configurations are; everywhere where none is named.
    pub namespaces: Vec<String>,
    pub timeout: Duration,
}

/// Deletes all Configurations, and waits until no Instance is left and nothing of ours is allocatable.
pub async fn uninstall(settings: &Uninstall, client: &Client) -> anyhow::Result<()> {
    let began = Instant::now();
    let nodes = Nodes::new(client.clone(), &settings.prefixes);
    let mut before = None;
    let mut remains = vec!["everything: the API server has not answered".to_owned()];
    loop {
        match look(settings, client, &nodes).await {
            Ok((look, configurations)) => {
                let before = before.get_or_insert_with(|| Before::new(&look));
                let waits_for_ghosts = began.elapsed() < GHOSTS_ARE_WAITED_FOR;
                remains = left(&look, before, waits_for_ghosts);
                if remains.is_empty() {
                    return Ok(());
                }
                for metadata in configurations {
                    match delete(client, metadata).await {
                        Err(failure) if !failure.may_pass => return Err(failure.error),
                        Err(failure) => warn!("{:#}; it is tried again", failure.error),
                        Ok(()) => {}
                    }
                }
            }
            Err(failure) if !failure.may_pass => return Err(failure.error),
            Err(failure) => warn!("{:#}; it is tried again", failure.error),
        }
        if began.elapsed() + BETWEEN_LOOKS > settings.timeout {
            return left_after(&remains, settings.timeout);
        }
        sleep(BETWEEN_LOOKS).await;
    }
}

/// What there is, and the Configurations that nobody has deleted yet.
async fn look(
    settings: &Uninstall,
    client: &Client,
    nodes: &Nodes,
) -> Result<(Look, Vec<ObjectMeta>), Failure> {
    let namespaces = &settings.namespaces;
    let nodes = (nodes.list().await).map_err(|e| Failure::new(e, "list", "nodes"))?;
    let found = configurations(client, namespaces).await?;
    let instances = instances(client, namespaces, &found).await?;
    let configurations: Vec<ObjectMeta> = found.iter().map(|c| c.meta().clone()).collect();
    let look = Look {
        configurations: (configurations.iter())
            .map(|metadata| cluster::key_of(metadata).to_string())
            .collect(),
        instances,
        nodes: nodes
            .into_iter()
            .filter(|(_, node)| node.is_ready)
            .map(|(name, node)| (name, node.resources))
            .collect(),
    };
    let is_undeleted = |metadata: &ObjectMeta| metadata.deletion_timestamp.is_none();
    Ok((
        look,
        configurations.into_iter().filter(is_undeleted).collect(),
    ))
}

async fn delete(client: &Client, metadata: ObjectMeta) -> Result<(), Failure> {
    let key = cluster::key_of(&metadata);
    let api: Api<Configuration> = Api::namespaced(client.clone(), &key.namespace);
    let params = DeleteParams {
        preconditions: Some(Preconditions {
            uid: metadata.uid,
            resource_version: None,
        }),
        ..DeleteParams::background()
    };
    match api.delete(&key.name, &params).await {
        Err(e) if cluster::is_not_found(&e) || cluster::is_conflict(&e) => Ok(()),
        Err(e) => Err(Failure::new(e, "delete", "configurations.akri.sh")),
        Ok(_) => {
            info!(configuration = %key, "deleted");
            Ok(())
        }
    }
}
