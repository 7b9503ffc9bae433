//! Removes everything that came from Configurations before the agents are removed: the agents stop their plugins and
//! delete the sockets.
use super::{
    claims,
    failure::Failure,
    objects::{configurations, instances},
    plan::{State, left, unbacked_entries},
};
use crate::{
    api::configuration::Configuration,
    cluster::{self, node::Nodes},
    model::{
        node_labels::{LabelChanges, labelled},
        resource_name::ResourcePrefixes,
    },
};
use anyhow::bail;
use kube::{Api, Client, Resource as _, api::PropagationPolicy, core::ObjectMeta};
use petiole_base::collect::CollectMap as _;
use std::{collections::BTreeSet, time::Duration};
use tokio::time::{Instant, sleep};
use tracing::{info, warn};

const CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// The time that a kubelet gets to report. An entry that is still above 0 then, and that belonged to no Instance from
/// the beginning, has no agent that sets it to 0.
const UNBACKED_GRACE: Duration = Duration::from_secs(12);

/// The settings of an uninstallation.
#[derive(Debug, Clone)]
pub struct Uninstall {
    pub prefixes: ResourcePrefixes,
    /// The namespaces of the Configurations; all namespaces if empty.
    pub namespaces: Vec<String>,
    pub timeout: Duration,
}

/// Deletes all Configurations, and waits until no Instance is left and no resource of ours is allocatable.
pub async fn uninstall(settings: &Uninstall, client: &Client) -> anyhow::Result<()> {
    let began = Instant::now();
    let nodes = Nodes::new(client.clone(), &settings.prefixes);
    let mut initial = None;
    let mut remains = vec!["everything: the API server has not answered".to_owned()];
    loop {
        match read_state(settings, client, &nodes).await {
            Ok((state, configurations)) => {
                let initial = initial.get_or_insert_with(|| unbacked_entries(&state));
                remains = if began.elapsed() < UNBACKED_GRACE {
                    left(&state, &BTreeSet::new())
                } else {
                    left(&state, initial)
                };
                if remains.is_empty() {
                    remove_labels(&nodes).await;
                    return Ok(());
                }
                for metadata in configurations {
                    match delete(client, metadata).await {
                        Err(failure) if !failure.is_temporary => return Err(failure.error),
                        Err(failure) => warn!("{:#}; retrying", failure.error),
                        Ok(()) => {}
                    }
                }
            }
            Err(failure) if !failure.is_temporary => return Err(failure.error),
            Err(failure) => warn!("{:#}; retrying", failure.error),
        }
        if began.elapsed() + CHECK_INTERVAL > settings.timeout {
            bail!(
                "not finished within {:?}; what is left: {}",
                settings.timeout,
                remains.join("; ")
            );
        }
        sleep(CHECK_INTERVAL).await;
    }
}

/// Reads the state, and the Configurations that are not being deleted yet.
async fn read_state(
    settings: &Uninstall,
    client: &Client,
    nodes: &Nodes,
) -> Result<(State, Vec<ObjectMeta>), Failure> {
    let namespaces = &settings.namespaces;
    let nodes = (nodes.list().await).map_err(|e| Failure::new(e, "list", "nodes"))?;
    let found = configurations(client, namespaces).await?;
    let instances = instances(client, namespaces, &found).await?;
    let configurations: Vec<ObjectMeta> = found.iter().map(|c| c.meta().clone()).collect();
    let state = State {
        configurations: (configurations.iter())
            .map(|metadata| cluster::key_of(metadata).to_string())
            .collect(),
        instances,
        claiming: (claims::pods(client).await?.iter())
            .map(|(namespace, name)| format!("{namespace}/{name}"))
            .collect(),
        nodes: nodes
            .into_iter()
            .filter(|(_, node)| node.is_ready)
            .map(|(name, node)| (name, node.resources))
            .collect_map(),
    };
    let is_undeleted = |metadata: &ObjectMeta| metadata.deletion_timestamp.is_none();
    Ok((
        state,
        configurations.into_iter().filter(is_undeleted).collect(),
    ))
}

/// Removes our labels from all nodes: the agents would do it later. What cannot be removed is left to `petiole tidy`.
async fn remove_labels(nodes: &Nodes) {
    let listed = match nodes.list().await {
        Ok(listed) => listed,
        Err(e) => return warn!("labels of Nodes are left: {}", cluster::reason(&e)),
    };
    for (name, node) in listed {
        let changes = LabelChanges {
            removed: labelled(&node.labels),
            ..LabelChanges::default()
        };
        if !changes.is_empty()
            && let Err(e) = nodes.label(&name, &changes).await
        {
            warn!(node = %name, "its labels are left, `petiole tidy` removes them: {}", cluster::reason(&e));
        }
    }
}

async fn delete(client: &Client, metadata: ObjectMeta) -> Result<(), Failure> {
    let key = cluster::key_of(&metadata);
    let api: Api<Configuration> = Api::namespaced(client.clone(), &key.namespace);
    let mut this = cluster::deletion_of(metadata.uid, None);
    this.propagation_policy = Some(PropagationPolicy::Background);
    match api.delete(&key.name, &this).await {
        Err(e) if cluster::is_not_found(&e) || cluster::is_conflict(&e) => Ok(()),
        Err(e) => Err(Failure::new(e, "delete", "configurations.akri.sh")),
        Ok(_) => {
            info!(configuration = %key, "deleted");
            Ok(())
        }
    }
}
