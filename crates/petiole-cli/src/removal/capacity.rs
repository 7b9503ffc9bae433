//! Removes stale entries from the capacity of nodes, and stale labels, for `petiole tidy`.
use super::{
    failure::Failure,
    objects::{configurations, instances, without_instances},
    plan::{self, Entry, Stale},
};
use crate::{
    cluster::{self, node::Nodes},
    model::{
        resource_name::{ResourceName, ResourcePrefixes},
        typed_names::NodeName,
    },
};
use anyhow::anyhow;
use kube::{Client, Resource as _};
use std::{collections::BTreeSet, time::Duration};
use tokio::time::{Instant, sleep};
use tracing::{debug, warn};

/// The time without a stale entry after which the kubelets put none back. It is longer than two syncs of a kubelet.
const STABLE_TIME: Duration = Duration::from_secs(25);
const ROUND_INTERVAL: Duration = Duration::from_secs(5);
/// The number of attempts for an entry that changes while it is being removed.
const TRIES: usize = 5;

/// The settings of a cleanup.
#[derive(Debug, Clone)]
pub struct Settings {
    pub prefixes: ResourcePrefixes,
    /// The namespaces of the Instances; all namespaces if empty.
    pub namespaces: Vec<String>,
    /// The only node to clean up, if there is one.
    pub node: Option<String>,
    pub is_dry_run: bool,
    /// The cleanup continues until the kubelets put no entry back.
    pub waits: bool,
}

/// The outcome for an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    WouldBeRemoved,
    Removed,
}

/// A message for the user during the cleanup.
#[derive(Debug)]
pub enum Progress<'a> {
    Entries(&'a [(Entry, Action)]),
    /// No entry is stale now, and the kubelets may still put entries back.
    Waits,
}

/// Removes the stale entries of all nodes, and reports its progress.
pub async fn tidy(
    settings: &Settings,
    client: &Client,
    mut report: impl FnMut(Progress<'_>) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut tidying = Tidying {
        nodes: Nodes::new(client.clone(), &settings.prefixes),
        client,
        settings,
        removed: BTreeSet::new(),
    };
    let mut tries = 0;
    let mut last_stale = Instant::now();
    let mut has_waited = false;
    loop {
        let round = match tidying.round().await {
            Ok(round) => round,
            Err(failure) if settings.waits && has_waited && failure.is_temporary => {
                warn!("{:#}; retrying", failure.error);
                // Entries that were put back during the failure were not seen.
                last_stale = Instant::now();
                sleep(ROUND_INTERVAL).await;
                continue;
            }
            Err(failure) => return Err(failure.error),
        };
        report(Progress::Entries(&round.entries))?;
        tries += 1;
        if round.has_changed && tries < TRIES {
            continue;
        }
        if !settings.waits {
            return if round.has_changed {
                Err(anyhow!(
                    "entries changed during each of {TRIES} attempts to remove them; run the command again"
                ))
            } else {
                Ok(())
            };
        }
        if round.has_changed || !round.is_clean {
            last_stale = Instant::now();
        }
        if last_stale.elapsed() >= STABLE_TIME {
            return Ok(());
        }
        if !has_waited {
            report(Progress::Waits)?;
            has_waited = true;
        }
        tries = 0;
        sleep(ROUND_INTERVAL).await;
    }
}

struct Tidying<'a> {
    client: &'a Client,
    nodes: Nodes,
    settings: &'a Settings,
    /// The node and resource of each entry that was removed.
    removed: BTreeSet<(NodeName, ResourceName)>,
}

struct Round {
    /// The entries to report.
    entries: Vec<(Entry, Action)>,
    /// No entry was stale.
    is_clean: bool,
    /// An entry changed while it was being removed.
    has_changed: bool,
}

impl Tidying<'_> {
    async fn round(&mut self) -> Result<Round, Failure> {
        let nodes = (self.nodes.list().await).map_err(|e| Failure::new(e, "list", "nodes"))?;
        // Instances are listed after the Nodes, because a plugin has its Instance before the node has the entry.
        let namespaces = &self.settings.namespaces;
        let configurations = configurations(self.client, namespaces).await?;
        let mut instances = instances(self.client, namespaces, &configurations).await?;
        instances.extend(without_instances(&configurations));
        let configured = (configurations.iter())
            .map(|c| cluster::configuration_key(c.meta()).name)
            .collect();
        let only = self.settings.node.as_ref();
        if let Some(node) = only.filter(|node| !nodes.contains_key(node.as_str())) {
            return Err(Failure::permanent(anyhow!("node {node} does not exist")));
        }
        let mut round = Round {
            entries: vec![],
            is_clean: true,
            has_changed: false,
        };
        let chosen = (nodes.iter()).filter(|(name, _)| only.is_none_or(|only| only == *name));
        for (name, node) in chosen {
            let stale = plan::stale(name, &node.resources, &instances);
            let stale = stale.with_labels(name, &node.labels, &configured);
            if stale.entries.is_empty() {
                continue;
            }
            round.is_clean = false;
            if self.settings.is_dry_run {
                let entries = stale.entries.into_iter();
                round
                    .entries
                    .extend(entries.map(|entry| (entry, Action::WouldBeRemoved)));
                continue;
            }
            match self.remove(name, &stale).await {
                Ok(()) => {
                    for entry in stale.entries {
                        let key = (entry.node.clone(), entry.resource.clone());
                        if self.removed.insert(key) {
                            round.entries.push((entry, Action::Removed))
                        } else {
                            // This happens every 10 s for 5 min.
                            debug!(node = %entry.node, resource = %entry.resource, "removed again, because the kubelet had put it back")
                        }
                    }
                }
                Err(e) if cluster::is_unprocessable(&e) => round.has_changed = true,
                Err(e) if cluster::is_not_found(&e) => {} // the node has gone
                Err(e) => return Err(Failure::new(e, "patch", "nodes/status")),
            }
        }
        Ok(round)
    }

    async fn remove(&self, node: &NodeName, stale: &Stale) -> kube::Result<()> {
        if !stale.changes.is_empty() {
            self.nodes.patch(node, &stale.changes).await?;
        }
        if !stale.labels.is_empty() {
            self.nodes.label(node, &stale.labels).await?;
        }
        Ok(())
    }
}
