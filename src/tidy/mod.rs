//! Capacity entries and whole installations taken away by hand: what agents do by themselves, for a cluster whose
//! agents are gone or are about to go.
mod plan;
mod release;
mod uninstall;

pub use plan::Entry;
pub use release::{REVISIONS, Release, why_not_removed};
pub use uninstall::{Uninstall, uninstall};

use crate::{
    api::{configuration::Configuration, instance::Instance},
    cluster::{
        self,
        node::Nodes,
        watch::{self, Read},
    },
    model::names::ObjectKey,
};
use anyhow::{anyhow, bail};
use kube::{Client, Resource, core::NamespaceResourceScope};
use plan::InstanceUse;
use serde::de::DeserializeOwned;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Debug,
    time::Duration,
};
use tokio::time::{Instant, sleep};
use tracing::{info, warn};

/// Two syncs of a kubelet, and some: what it puts back it has put back by then.
const STAYS_AWAY: Duration = Duration::from_secs(25);
const BETWEEN_ROUNDS: Duration = Duration::from_secs(5);
/// An entry that changes while it is removed is looked at again.
const TRIES: usize = 5;

/// What to tidy.
#[derive(Debug, Clone)]
pub struct Settings {
    pub prefixes: Vec<String>,
    /// Where Instances are; everywhere where none is named.
    pub namespaces: Vec<String>,
    /// Only this node.
    pub node: Option<String>,
    pub is_dry_run: bool,
    /// Goes on until the kubelets put nothing back.
    pub waits: bool,
}

/// What happened to an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    WouldBeRemoved,
    Removed,
}

/// What there is to say meanwhile.
#[derive(Debug)]
pub enum Progress<'a> {
    Entries(&'a [(Entry, Action)]),
    /// Nothing is stale now; the kubelets may still put entries back.
    Waits,
}

/// Removes the stale entries of all nodes.
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
            Err(failure) if settings.waits && has_waited && failure.may_pass => {
                warn!("{:#}; it is tried again", failure.error);
                // What was put back meanwhile was not seen.
                last_stale = Instant::now();
                sleep(BETWEEN_ROUNDS).await;
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
            return match round.has_changed {
                true => Err(anyhow!(
                    "entries changed each time they were to be removed; try again"
                )),
                false => Ok(()),
            };
        }
        if round.has_changed || !round.is_clean {
            last_stale = Instant::now();
        }
        if last_stale.elapsed() >= STAYS_AWAY {
            return Ok(());
        }
        if !has_waited {
            report(Progress::Waits)?;
            has_waited = true;
        }
        tries = 0;
        sleep(BETWEEN_ROUNDS).await;
    }
}

struct Tidying<'a> {
    client: &'a Client,
    nodes: Nodes,
    settings: &'a Settings,
    /// Node and resource of what was removed.
    removed: BTreeSet<(String, String)>,
}

struct Round {
    /// Those to be told of.
    entries: Vec<(Entry, Action)>,
    /// Nothing was stale.
    is_clean: bool,
    /// An entry changed while it was to be removed.
    has_changed: bool,
}

impl Tidying<'_> {
    async fn round(&mut self) -> Result<Round, Failure> {
        let nodes = (self.nodes.list().await).map_err(|e| Failure::new(e, "list", "nodes"))?;
        // After the Nodes: a plugin has an Instance before the node has an entry.
        let namespaces = &self.settings.namespaces;
        let configurations = configurations(self.client, namespaces).await?;
        let instances = instances(self.client, namespaces, &configurations).await?;
        let only = self.settings.node.as_ref();
        if let Some(node) = only.filter(|node| !nodes.contains_key(*node)) {
            return Err(Failure::lasting(anyhow!("there is no node {node}")));
        }
        let mut round = Round {
            entries: vec![],
            is_clean: true,
            has_changed: false,
        };
        let chosen = (nodes.iter()).filter(|(name, _)| only.is_none_or(|only| only == *name));
        for (name, node) in chosen {
            let stale = plan::stale(name, &node.resources, &instances);
            if stale.changes.is_empty() {
                continue;
            }
            if self.settings.is_dry_run {
                let entries = stale.entries.into_iter();
                round
                    .entries
                    .extend(entries.map(|entry| (entry, Action::WouldBeRemoved)));
                continue;
            }
            match self.nodes.patch(name, &stale.changes).await {
                Ok(_) => {
                    for entry in stale.entries {
                        let key = (entry.node.clone(), entry.resource.clone());
                        round.is_clean = false;
                        match self.removed.insert(key) {
                            true => round.entries.push((entry, Action::Removed)),
                            // Every 10 s for 5 min: nothing to print.
                            false => {
                                info!(node = %entry.node, resource = %entry.resource, "the kubelet had put it back, removed again")
                            }
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
}

/// Why a request was in vain.
struct Failure {
    error: anyhow::Error,
    /// Whether the same may succeed a little later.
    may_pass: bool,
}

impl Failure {
    fn new(error: kube::Error, verb: &str, resource: &str) -> Self {
        let code = cluster::code(&error);
        let hint = match code {
            Some(401 | 403) => format!("; this needs the right to `{verb}` `{resource}`"),
            Some(_) | None => String::new(),
        };
        Self {
            may_pass: code.is_none_or(|code| code == 429 || code >= 500),
            error: anyhow!(
                "cannot {verb} {resource}: {}{hint}",
                cluster::reason(&error)
            ),
        }
    }

    fn lasting(error: anyhow::Error) -> Self {
        Self {
            error,
            may_pass: false,
        }
    }
}

/// All objects of a kind; none where the cluster does not know the kind.
async fn all<K>(
    client: &Client,
    namespaces: &[String],
    resource: &str,
) -> Result<Vec<Read<K>>, Failure>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned
        + Send
        + 'static,
{
    let mut objects = vec![];
    for api in watch::apis::<K>(client, namespaces) {
        match cluster::list_all(&api).await {
            Ok(of_namespace) => objects.extend(of_namespace),
            Err(e) if cluster::is_not_found(&e) => {}
            Err(e) => return Err(Failure::new(e, "list", resource)),
        }
    }
    Ok(objects)
}

async fn configurations(
    client: &Client,
    namespaces: &[String],
) -> Result<Vec<Read<Configuration>>, Failure> {
    all(client, namespaces, "configurations.akri.sh").await
}

async fn instances(
    client: &Client,
    namespaces: &[String],
    configurations: &[Read<Configuration>],
) -> Result<Vec<InstanceUse>, Failure> {
    let named = configurations.iter().filter_map(|configuration| {
        let name = configuration.0.as_ref().ok()?.spec.resource_name.clone()?;
        Some((cluster::key_of(configuration.meta()), name))
    });
    let named = named.collect();
    let all = all::<Instance>(client, namespaces, "instances.akri.sh").await?;
    Ok(all.into_iter().map(|i| instance_use(i, &named)).collect())
}

fn instance_use(
    instance: Read<Instance>,
    resource_names: &BTreeMap<ObjectKey, String>,
) -> InstanceUse {
    let key = cluster::key_of(instance.meta());
    let (configuration, nodes) = match instance.0 {
        Ok(instance) => {
            let nodes = instance.spec.nodes.into_iter().collect();
            (instance.spec.configuration_name, Some(nodes))
        }
        // Its name says as much.
        Err(_) => {
            let configuration = key.name.rsplit_once('-').map_or("", |(name, _)| name);
            (configuration.to_owned(), None)
        }
    };
    let its_configuration = ObjectKey::new(&key.namespace, &configuration);
    InstanceUse {
        key: key.to_string(),
        name: key.name,
        resource_name: resource_names.get(&its_configuration).cloned(),
        configuration,
        nodes,
    }
}

/// Turns what is left after the time into an error.
fn left_after(left: &[String], timeout: Duration) -> anyhow::Result<()> {
    if left.is_empty() {
        return Ok(());
    }
    bail!(
        "not done within {timeout:?}; still there: {}",
        left.join("; ")
    )
}
