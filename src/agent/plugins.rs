//! The device plugins of this node: one for each resource, started and stopped as Instances come and go.
mod allocate;
mod answer;
mod decisions;
mod denied;
mod former_name;
mod forward;
mod gone;
mod inputs;
mod leftovers;
mod list_turns;
mod pace;
pub(crate) mod plan;
mod predecessor;
mod preference;
mod registrar;
mod resource_claim;
mod runner;
mod running;
mod server;
mod service;
mod told;

use super::{
    device_state::observed_slots,
    node_only::plan::slot_limits,
    slots::Requests,
    tally,
    values::{KubeletFolder, Offered, Slot, ValidatedConfigurations},
};
use crate::{
    api::instance::Instance,
    model::{
        instance_name::{InstanceKey, InstanceName},
        limits::SlotLimits,
        plugin_name::PluginName,
        resource_name::ResourceName,
        typed_names::ConfigurationKey,
    },
    store::Instances,
    telemetry::metrics,
};
pub(super) use allocate::Allocator;
pub(super) use decisions::Decisions;
use inputs::Watched;
pub(super) use inputs::{Inputs, Published};
pub(super) use leftovers::LeftOver;
use pace::Pace;
use plan::Action;
pub(super) use plan::desired;
pub(super) use resource_claim::{DeviceRequest, ForClaim};
pub(super) use runner::Runs;
#[cfg(test)]
pub(super) use runner::Start;
use running::{Running, make_way, withdraw};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};
use tokio_util::{sync::CancellationToken, task::JoinMap};
use tracing::warn;

/// Starts and stops the plugins and updates their lists, at each change of the inputs, until `shutdown`. Sends the claims of
/// containers to `requests`.
pub(super) async fn run(
    inputs: Inputs,
    requests: Requests,
    published: Published,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let allocator = Arc::new(Allocator::new(inputs.clone(), requests));
    let (server, accepted) = server::channel();
    let (turns, lists) = list_turns::turns(&inputs, &published);
    let runs = runner::runs(&inputs, &published, server, turns);
    let plugins = keep(inputs, published, runs, shutdown.clone());
    tokio::try_join!(
        server::run(allocator, accepted),
        // A connection that the kubelet still has could ask for turns.
        async { Ok(shutdown.run_until_cancelled(lists).await) },
        plugins
    )?;
    Ok(())
}

/// Starts and stops the plugins and updates their lists. `runs` runs a plugin.
pub(super) async fn keep(
    inputs: Inputs,
    published: Published,
    runs: Runs,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let plugins = Plugins {
        runs,
        tasks: JoinMap::new(),
        running: BTreeMap::new(),
        observed: Arc::default(),
        slot_limits: SlotLimits::default(),
        validated: Arc::default(),
        gone: BTreeSet::new(),
        is_gone_stale: true,
        is_node_only_stale: true,
        is_plan_due: true,
        shutdown,
        inputs,
        published,
    };
    plugins.run().await
}

struct Plugins {
    inputs: Inputs,
    published: Published,
    runs: Runs,
    tasks: JoinMap<PluginName, ()>,
    running: BTreeMap<PluginName, Running>,
    /// The Instances as the slot table knows them, and the Configurations and the most slots of each by which it does.
    observed: Arc<Instances>,
    validated: Arc<ValidatedConfigurations>,
    slot_limits: SlotLimits,
    /// The Instances whose device was gone when slots were published last.
    gone: BTreeSet<InstanceName>,
    /// True if `gone` may be out of date.
    is_gone_stale: bool,
    /// True if other slots may be offered of devices without Instances.
    is_node_only_stale: bool,
    /// True if other plugins may be wanted than those that run.
    is_plan_due: bool,
    shutdown: CancellationToken,
}

impl Plugins {
    /// Starts, stops and updates the plugins until the shutdown.
    async fn run(mut self) -> anyhow::Result<()> {
        let (shutdown, decisions) = (self.shutdown.clone(), self.inputs.decisions.clone());
        let mut watched = self.inputs.watched();
        let Inputs {
            kubelet_folder: mut folder,
            resend: mut resent,
            ..
        } = self.inputs.clone();
        let mut pace = Pace::new(Instant::now());
        loop {
            let due = pace.due();
            tokio::select! {
                biased;
                () = shutdown.cancelled() => break,
                // The plugins that run stay as they are, with their last lists.
                () = decisions.over() => { shutdown.cancelled().await; break }
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                    let began = Instant::now();
                    self.take_over(&mut watched);
                    if self.is_plan_due {
                        self.reconcile().await;
                    }
                    self.publish_slots().await;
                    pace.end_round(began, Instant::now());
                }
                changed = watched.changed(), if due.is_none() => {
                    changed?;
                    pace.change(Instant::now());
                }
                // These two wait for no round: a claim waits for the checkpoint, and the folder changes with every socket.
                changed = resent.changed() => {
                    changed?;
                    self.resend(resent.borrow_and_update().as_ref());
                }
                changed = folder.changed() => {
                    changed?;
                    self.follow_folder(&mut folder);
                }
                Some((name, ended)) = self.tasks.join_next() => {
                    // Only a panic ends a plugin unasked: the next round starts it anew.
                    if let Err(e) = ended {
                        warn!(resource = %name, "the device plugin ended: {e}");
                    }
                    self.forget(&name);
                    pace.change(Instant::now());
                }
            }
        }
        while self.tasks.join_next().await.is_some() {}
        Ok(())
    }

    /// Takes over what has changed. It is read after it is marked as seen, so that nothing is missed.
    fn take_over(&mut self, watched: &mut Watched) {
        let is_unobserved = self.inputs.table.borrow().has_unobserved();
        let is_validated = watched.validated.borrow_and_update().has_changed();
        let is_news = watched.news.borrow_and_update().has_changed();
        let is_found = watched.discoveries.borrow_and_update().has_changed();
        let is_changed = watched.instances.borrow_and_update().has_changed();
        let is_other = watched.node_only.borrow_and_update().has_changed();
        self.is_plan_due |= is_validated || is_other;
        self.is_node_only_stale |= is_other;
        self.is_gone_stale |= is_unobserved || is_validated || is_news || is_found;
        if is_unobserved || is_validated || is_changed || is_other {
            self.observe();
        }
        watched.slots.mark_unchanged();
    }

    /// Updates the slot table with what has changed or turned, read under the table's lock: no claim is settled in between.
    fn observe(&mut self) {
        let validated = self.inputs.validated.borrow().clone();
        let turned = validated.turned_since(&self.validated);
        self.inputs.table.observe(|slots| {
            let now = self.inputs.store.instances().borrow().clone();
            let before = std::mem::replace(&mut self.observed, now.clone());
            let unobserved = slots.take_unobserved();
            // An object alone is not believed: each slot is kept, listed and sent to the kubelet.
            let limits = slot_limits(&now, &self.inputs.node_only.borrow());
            let is_cut_as_before = limits == self.slot_limits;
            self.is_node_only_stale |= !is_cut_as_before;
            self.slot_limits = limits;
            let plan::Compared { mut pairs, gone } = plan::compare(&before, &now);
            pairs.retain(|pair| {
                !is_cut_as_before
                    || pair.is_changed()
                    || unobserved.contains(pair.key)
                    || !turned.is_empty() && turned.contains(&configuration_of(pair.key, pair.now))
            });
            let (node, by_claims) = (&self.inputs.settings.node_name, &validated.by_claims);
            let has_others = |pair: &plan::Pair| {
                let is_by_claims = by_claims.contains(&configuration_of(pair.key, pair.now));
                let resources = |of| plan::resources_of(of, node, is_by_claims);
                !(pair.before).is_some_and(|before| resources(before).eq(resources(pair.now)))
            };
            self.is_plan_due |= !gone.is_empty() || pairs.iter().any(has_others);
            self.is_gone_stale |= pairs.iter().any(|pair| pair.before.is_none());
            slots.observe_changes(
                pairs.into_iter().map(|plan::Pair { key, now, .. }| {
                    let mut observed = observed_slots(key, now, node);
                    let configuration = configuration_of(key, now);
                    observed.precedence.is_stray = !validated.accepted.contains_key(&configuration);
                    observed.is_by_claims = by_claims.contains(&configuration);
                    observed.capacity = observed.capacity.min(self.slot_limits.of(&key.namespace));
                    observed.is_own &= self.inputs.store.is_remote();
                    observed
                }),
                gone,
            );
        });
        self.validated = validated;
    }

    /// Makes a plugin send its list once more, as it is: the kubelet writes its checkpoint then.
    fn resend(&self, resource: Option<&ResourceName>) {
        let mut running = self.running.values();
        if let Some(running) = running.find(|r| Some(&r.offered.full_name) == resource) {
            running.slots.send_modify(|_| ());
        }
    }

    /// Stops and starts plugins. Those that ended are forgotten, and wanted again.
    async fn reconcile(&mut self) {
        self.is_plan_due = false;
        let instances = self.inputs.store.instances().borrow().clone();
        let validated = self.inputs.validated.borrow().clone();
        let (node, node_only) = (
            &self.inputs.settings.node_name,
            self.inputs.node_only.borrow().clone(),
        );
        let desired = plan::desired(&instances, &node_only, node, &validated);
        let running = self
            .running
            .iter()
            .map(|(name, r)| (name.clone(), r.offered.clone()))
            .collect();
        let gone = self.gone();
        let mut namespaces =
            list_turns::namespaces(&instances, &node_only, node, &validated.by_claims);
        let actions = plan::plan(&desired, &running);
        withdraw(&self.running, &actions);
        for (n, action) in actions.into_iter().enumerate() {
            make_way(n).await;
            match action {
                Action::Stop(name) => self.ended(&name).await,
                Action::Start(offered) => {
                    let namespace = namespaces.remove(&offered.resource.plugin());
                    self.start(offered, namespace.unwrap_or_default(), &gone);
                }
            }
        }
        metrics().set_plugins(desired.len());
    }

    /// Waits until a plugin that was withdrawn has ended.
    async fn ended(&mut self, name: &PluginName) {
        while self.tasks.contains_key(name) {
            if let Some((ended, _)) = self.tasks.join_next().await {
                self.forget(&ended);
            }
        }
        self.forget(name);
    }

    fn forget(&mut self, name: &PluginName) {
        let Some(Running { offered, .. }) = self.running.remove(name) else {
            return;
        };
        self.is_plan_due = true;
        self.published.set_registered(&offered.full_name, false);
        self.published
            .listed
            .send_if_modified(|listed| listed.remove(&offered.full_name).is_some());
    }

    fn start(&mut self, offered: Offered, namespace: String, gone: &BTreeSet<InstanceName>) {
        let name = offered.resource.plugin();
        let list = self.slots_of(&offered, gone);
        self.published.listed.send_modify(|listed| {
            listed.insert(offered.full_name.clone(), list.clone());
        });
        let (running, start) = Running::begin(offered, namespace, list);
        let stop = self.shutdown.clone();
        self.tasks.spawn(name.clone(), (self.runs)(start, stop));
        self.running.insert(name, running);
    }

    /// Sends each plugin its slots, if they have changed.
    async fn publish_slots(&mut self) {
        let gone = if std::mem::take(&mut self.is_gone_stale) {
            self.gone()
        } else {
            self.gone.clone()
        };
        let mut stale = self.inputs.table.take_touched();
        let came_or_went = gone.symmetric_difference(&self.gone);
        stale.add(came_or_went, &self.inputs.table.borrow());
        let mut relisted = vec![];
        for (n, running) in self.running.values().enumerate() {
            make_way(n).await;
            let resource = &running.offered.resource;
            let is_stale = stale.contains(resource)
                || self.is_node_only_stale && self.inputs.offer(resource).is_some();
            if is_stale {
                let now = self.slots_of(&running.offered, &gone);
                if *running.slots.borrow() != now {
                    running.slots.send_replace(now.clone());
                    relisted.push((running.offered.full_name.clone(), now));
                }
            }
        }
        if !relisted.is_empty() {
            (self.published.listed).send_modify(|listed| listed.extend(relisted));
        }
        self.is_node_only_stale = false;
        let without = (self.running.values()).filter_map(|r| r.without_instances(&self.inputs));
        metrics().set_slots(&tally::slots(&self.inputs.table.borrow(), &gone, without));
        self.gone = gone;
    }

    fn gone(&self) -> BTreeSet<InstanceName> {
        let slots = self.inputs.table.borrow();
        plan::gone(
            &self.inputs.store.instances().borrow(),
            &self.inputs.discoveries.borrow(),
            |key| slots.has_slots(key),
        )
    }

    fn slots_of(&self, offered: &Offered, gone: &BTreeSet<InstanceName>) -> Arc<[Slot]> {
        let Offered {
            resource,
            full_name,
            ..
        } = offered;
        match self.inputs.offer(resource) {
            Some(offer) => offer.listed(self.slot_limits.of(offer.namespace())).into(),
            None => plan::listed(resource, full_name, &self.inputs.table.borrow(), gone).into(),
        }
    }

    /// A new kubelet has removed every socket; and a socket that somebody else removed is of no use either.
    fn follow_folder(&self, folder: &mut watch::Receiver<KubeletFolder>) {
        let now = folder.borrow_and_update();
        for running in self.running.values() {
            running.follow_folder(&now, &self.inputs.settings.plugin_folder);
        }
    }
}

fn configuration_of(key: &InstanceKey, instance: &Instance) -> ConfigurationKey {
    instance.spec.configuration_key(&key.namespace)
}
