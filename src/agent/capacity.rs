//! Keeps what this node's status says of our resources true: published as soon as the kubelet has them, up to 10 s
//! before the kubelet does so itself, and tidied when no plugin backs them any more.
mod plan;

use super::{
    pod_resources,
    settings::{Clock, Settings},
    values::{KubeletFolder, KubeletSocket, Listed},
};
use crate::{
    backoff::Backoff,
    cluster::{
        self, WrittenBytes,
        node::{Nodes, OwnNode},
        watch::{Set, named},
    },
    model::{
        node_resources::{EntryChange, NodeResources},
        resource_name::ResourceName,
    },
    telemetry::{metrics, metrics::CapacityPatch},
};
use plan::{CapacityFacts, CapacityMemory, Offer, plan};
use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    sync::Arc,
    time::Duration,
};
use tokio::{
    sync::watch,
    time::{Instant, sleep},
};
use tracing::{debug, info, warn};

/// The least time between two rounds, which is as long as the last one took where that is longer: plugins that
/// register in one go are published in few patches, and the kubelet answers 100 questions a second at most.
const BETWEEN_ROUNDS: Duration = Duration::from_millis(20);
/// The least time between two patches of the Node: every kubelet and scheduler receives each of them.
const BETWEEN_PATCHES: Duration = Duration::from_millis(100);
/// The bytes of a resource in a Node, which has it twice.
const RESOURCE_BYTES: usize = 130;
/// The time that the kubelet has before it is asked again: it has what a plugin lists within milliseconds.
const FIRST_ASKED_AGAIN: Duration = Duration::from_millis(20);
const LAST_ASKED_AGAIN: Duration = Duration::from_secs(1);
const FIRST_RETRY: Duration = Duration::from_millis(20);
const LAST_RETRY: Duration = Duration::from_secs(5);

/// The inputs of the publisher.
#[derive(Clone)]
pub(super) struct Inputs {
    pub(super) settings: Arc<Settings>,
    pub(super) clock: Clock,
    pub(super) listed: watch::Receiver<Listed>,
    /// Our resources that are registered with the kubelet.
    pub(super) registered: watch::Receiver<BTreeSet<ResourceName>>,
    pub(super) kubelet: watch::Receiver<Option<KubeletSocket>>,
    pub(super) kubelet_folder: watch::Receiver<KubeletFolder>,
}

/// Patches the status of the Node through `nodes` after each change of the inputs. `own` is the Node as it
/// was seen last.
pub(super) async fn run(
    inputs: Inputs,
    nodes: Nodes,
    mut own: watch::Receiver<Set<OwnNode>>,
) -> anyhow::Result<Infallible> {
    let Inputs {
        mut listed,
        mut registered,
        mut kubelet,
        ..
    } = inputs.clone();
    let mut publisher = CapacityPublisher {
        nodes,
        newest: None,
        memory: CapacityMemory::default(),
        asking: Backoff::new(FIRST_ASKED_AGAIN, LAST_ASKED_AGAIN),
        failing: Backoff::new(FIRST_RETRY, LAST_RETRY),
        has_patched: false,
        inputs,
    };
    let (started, mut written) = (Instant::now(), WrittenBytes::default());
    // An agent that stood by has seen the Node before.
    own.mark_changed();
    loop {
        // What is marked as seen is read after that, so that nothing that changes meanwhile is missed.
        listed.mark_unchanged();
        registered.mark_unchanged();
        kubelet.mark_unchanged();
        if own.has_changed()? {
            let own = named(
                &own.borrow_and_update(),
                &publisher.inputs.settings.node_name,
            );
            publisher.newest = own.map(|own| Arc::new(own.resources.clone()));
        }
        let began = Instant::now();
        let wait = publisher.round().await;
        let pause = if std::mem::take(&mut publisher.has_patched) {
            let wait = written.written(publisher.bytes(), began - started);
            wait.max(BETWEEN_PATCHES)
        } else {
            BETWEEN_ROUNDS
        };
        sleep(began.elapsed().max(pause)).await;
        tokio::select! {
            changed = listed.changed() => { changed?; publisher.asking.reset(); }
            changed = registered.changed() => { changed?; publisher.asking.reset(); }
            changed = own.changed() => { changed?; own.mark_changed(); }
            changed = kubelet.changed() => changed?,
            () = sleep(wait) => {}
        }
    }
}

struct CapacityPublisher {
    inputs: Inputs,
    nodes: Nodes,
    /// This node as the watch, or the answer to a patch, had it last; `None` where it is not registered.
    newest: Option<Arc<NodeResources>>,
    memory: CapacityMemory,
    asking: Backoff,
    failing: Backoff,
    /// True if this round has patched the Node.
    has_patched: bool,
}

impl CapacityPublisher {
    /// Returns the bytes of the resources in the Node.
    fn bytes(&self) -> usize {
        let node = self.newest.as_ref();
        node.map_or(0, |node| node.capacity.len() * RESOURCE_BYTES)
    }

    /// Returns how long to wait for the next one if nothing changes.
    async fn round(&mut self) -> Duration {
        let Some(newest) = self.newest.clone() else {
            return Duration::MAX;
        };
        let offers = self.offers();
        let mut known = CapacityFacts {
            offers: &offers,
            node: &newest,
            kubelet: None,
            kubelet_age: self.inputs.kubelet_folder.borrow().kubelet_age(),
            now: self.inputs.clock.uptime(),
        };
        let mut plan_now = plan(known, &self.memory);
        let ids;
        // What sinks waits for no answer of the kubelet: the next round asks.
        if plan_now.asks_kubelet && plan_now.changes.is_empty() {
            ids = match pod_resources::healthy(&self.inputs.settings).await {
                Ok(ids) => ids,
                Err(e) => {
                    debug!(
                        "node capacity waits, the kubelet's pod resources cannot be read: {e:#}"
                    );
                    self.memory = plan_now.memory;
                    return self.failing.next_wait();
                }
            };
            known.kubelet = Some(&ids);
            plan_now = plan(known, &self.memory);
        }
        self.memory = plan_now.memory;
        if !plan_now.changes.is_empty() && !self.patch(&plan_now.changes).await {
            return self.failing.next_wait();
        }
        self.failing.reset();
        let asked_again = plan_now.asks_kubelet.then(|| self.asking.next_wait());
        if asked_again.is_none() {
            self.asking.reset();
        }
        let waits = asked_again.into_iter().chain(plan_now.wake_in);
        waits.min().unwrap_or(Duration::MAX)
    }

    /// Returns the lists of the plugins.
    fn offers(&self) -> BTreeMap<ResourceName, Offer> {
        let registered = self.inputs.registered.borrow();
        let listed = self.inputs.listed.borrow();
        let offer = |(name, slots): (&ResourceName, &Arc<[_]>)| {
            let offer = Offer {
                slots: slots.clone(),
                is_registered: registered.contains(name),
            };
            (name.clone(), offer)
        };
        listed.iter().map(offer).collect()
    }

    /// Returns whether it was carried out. Where an entry is another one by now, the newest ones are there afterwards.
    async fn patch(&mut self, changes: &[EntryChange]) -> bool {
        let name = &self.inputs.settings.node_name;
        self.has_patched = true;
        match self.nodes.patch(name, changes).await {
            Ok(now) => {
                log(changes);
                metrics().capacity_patches(CapacityPatch::Applied).inc();
                self.newest = Some(Arc::new(now));
                true
            }
            Err(e) if cluster::is_unprocessable(&e) => {
                metrics().capacity_patches(CapacityPatch::Superseded).inc();
                debug!(
                    "node capacity: an entry changed meanwhile, it is read anew: {}",
                    cluster::reason(&e)
                );
                match self.nodes.read(name).await {
                    Ok(now) => self.newest = Some(Arc::new(now)),
                    Err(e) => {
                        warn!(node = %name, "the node cannot be read: {}", cluster::reason(&e))
                    }
                }
                false
            }
            Err(e) => {
                metrics().capacity_patches(CapacityPatch::Failed).inc();
                warn!(node = %name, entries = changes.len(), "node capacity is not written, it is tried again: {}", cluster::reason(&e));
                false
            }
        }
    }
}

fn log(changes: &[EntryChange]) {
    let (written, removed): (Vec<_>, Vec<_>) = changes.iter().partition(|c| c.to.is_some());
    if !written.is_empty() {
        info!(entries = written.len(), "node capacity published");
    }
    let removed: BTreeSet<_> = removed.iter().map(|change| &change.resource).collect();
    for resource in removed {
        info!(%resource, "stale node capacity removed");
    }
}

#[cfg(test)]
mod tests;
