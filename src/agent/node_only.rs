//! Keeps what this node offers of Configurations without Instances (`instances: false`).
//!
//! These devices have no object, and no claim is written: the kubelet alone gives out their slots, and remembers who has them. A slot has the id
//! that it would have with an Instance, so that it names its device whatever else the agent knows.
pub(crate) mod plan;

use super::{
    settings::{Clock, Settings},
    values::ValidatedConfigurations,
};
use crate::{discovery::session::Discoveries, model::slot_table::Use, publish};
use plan::{NodeOnly, World, follow, next_end};
use std::{convert::Infallible, sync::Arc, time::Duration};
use tokio::{sync::watch, time::sleep};

/// The inputs of the plan.
pub(super) struct Inputs {
    pub(super) settings: Arc<Settings>,
    pub(super) clock: Clock,
    pub(super) validated: watch::Receiver<Arc<ValidatedConfigurations>>,
    pub(super) discoveries: watch::Receiver<Arc<Discoveries>>,
    /// What containers have; `None` while nobody can say it.
    pub(super) uses: watch::Receiver<Option<Arc<[Use]>>>,
}

/// Publishes what is offered to `offers`, at each change of the inputs.
pub(super) async fn run(
    inputs: Inputs,
    offers: watch::Sender<Arc<NodeOnly>>,
) -> anyhow::Result<Infallible> {
    let Inputs {
        settings,
        clock,
        mut validated,
        mut discoveries,
        mut uses,
    } = inputs;
    loop {
        let (configurations, found) = (
            validated.borrow_and_update().clone(),
            discoveries.borrow_and_update().clone(),
        );
        let used = uses.borrow_and_update().clone();
        let uptime = clock.uptime();
        let world = World {
            validated: &configurations,
            discoveries: &found,
            node: &settings.node_name,
            max_devices: settings.max_instances,
            uses: used.as_deref(),
            uptime,
        };
        let before = offers.borrow().clone();
        let now = follow(world, &before);
        let end = next_end(&now, uptime).map(|end| end.saturating_sub(uptime));
        publish::if_changed(&offers, Arc::new(now));
        tokio::select! {
            changed = validated.changed() => changed?,
            changed = discoveries.changed() => changed?,
            changed = uses.changed() => changed?,
            () = sleep(end.unwrap_or(Duration::MAX)) => {}
        }
    }
}
