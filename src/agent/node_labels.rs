//! Labels this Node with the Configurations of which it has devices, so that a Pod can select it. The agent does it and not the
//! controller, because it may patch the status of its own Node already, with which the API server takes labels.
mod plan;

use super::{
    node_only::plan::NodeOnly,
    settings::{Clock, Settings},
};
use crate::{
    cluster::{
        self,
        node::{Nodes, OwnNode},
        watch::{Set, named},
    },
    model::{limits::NODE_LABELS_MAX, node_labels::LabelChanges, typed_names::ConfigurationName},
    store::Store,
};
use plan::{LabelFacts, LabelMemory, plan};
use std::{collections::BTreeSet, convert::Infallible, sync::Arc, time::Duration};
use tokio::{sync::watch, time::sleep};
use tracing::{info, warn};

/// The least time between two patches of the Node: every kubelet and scheduler receives each of them.
const BETWEEN_PATCHES: Duration = Duration::from_secs(1);
const RETRY: Duration = Duration::from_secs(10);

/// The inputs of the plan. Instances come from the store.
pub(super) struct Inputs {
    pub(super) settings: Arc<Settings>,
    pub(super) clock: Clock,
    pub(super) store: Arc<dyn Store>,
    pub(super) node_only: watch::Receiver<Arc<NodeOnly>>,
    /// The Node as it was seen last.
    pub(super) own: watch::Receiver<Set<OwnNode>>,
}

/// Patches the labels of the Node through `nodes` after each change of the inputs. Without the setting it only
/// removes labels.
pub(super) async fn run(mut inputs: Inputs, nodes: Nodes) -> anyhow::Result<Infallible> {
    let mut news = inputs.store.news();
    let (mut memory, mut left_out) = (LabelMemory::default(), 0);
    loop {
        news.mark_unchanged();
        let present = inputs.present();
        let name = &inputs.settings.node_name;
        let own = named(&inputs.own.borrow_and_update(), name);
        let mut wait = None;
        if let Some(own) = own {
            let known = LabelFacts {
                labels: &own.labels,
                present: &present,
                now: inputs.clock.uptime(),
            };
            let planned = plan(known, &memory);
            (memory, wait) = (planned.memory, planned.wake_in);
            if planned.left_out > left_out {
                let left_out = planned.left_out;
                warn!(node = %name, left_out, "some Configurations with devices get no label: a Node has at most {NODE_LABELS_MAX}");
            }
            left_out = planned.left_out;
            if !write(&nodes, name, &planned.changes).await {
                wait = Some(RETRY);
            }
        }
        // The watch shows by then what was written.
        sleep(BETWEEN_PATCHES).await;
        tokio::select! {
            changed = news.changed() => changed?,
            changed = inputs.node_only.changed() => changed?,
            changed = inputs.own.changed() => changed?,
            () = sleep(wait.unwrap_or(Duration::MAX)) => {}
        }
    }
}

impl Inputs {
    /// Returns the Configurations with a device here.
    fn present(&mut self) -> BTreeSet<ConfigurationName> {
        if !self.settings.node_labels {
            return BTreeSet::new();
        }
        let instances = self.store.instances();
        let instances = instances.borrow();
        let specs = instances.values().map(|instance| &instance.spec);
        let here = specs.filter(|spec| spec.names_node(&self.settings.node_name));
        let offers = self.node_only.borrow_and_update();
        let without = offers.iter().filter(|(_, offer)| !offer.is_empty());
        let without = without.map(|(name, _)| name.clone());
        here.map(|spec| spec.configuration_name.clone())
            .chain(without)
            .collect()
    }
}

/// Returns whether the changes were written.
async fn write(nodes: &Nodes, name: &str, changes: &LabelChanges) -> bool {
    if changes.is_empty() {
        return true;
    }
    match nodes.label(name, changes).await {
        Ok(()) => {
            let LabelChanges { added, removed } = changes;
            info!(
                node = name,
                ?added,
                ?removed,
                "the Node's labels name the Configurations with devices here"
            );
            true
        }
        Err(e) => {
            warn!(
                node = name,
                "the Node's labels are not written, it is tried again: {}",
                cluster::reason(&e)
            );
            false
        }
    }
}
