//! Counts the objects of the cluster for the controller's metrics.
use super::{Shared, world::World};
use crate::{api::names, telemetry::metrics};
use std::{collections::BTreeMap, sync::Arc};
use tokio_util::sync::CancellationToken;

/// Counts at each change of the world, while this replica is the leader.
pub(super) async fn run(shared: Arc<Shared>, shutdown: CancellationToken) -> anyhow::Result<()> {
    let (mut world, mut is_leader) = (shared.world.clone(), shared.is_leader.clone());
    loop {
        let now = world.borrow_and_update().clone();
        let leads = *is_leader.borrow_and_update();
        let counts = now.filter(|_| leads).map(|world| broker_pods(&world));
        metrics().set_broker_pods(&counts.unwrap_or_default());
        tokio::select! {
            () = shutdown.cancelled() => return Ok(()),
            changed = world.changed() => changed?,
            changed = is_leader.changed() => changed?,
        }
    }
}

/// The broker Pods that have not ended, by Configuration and node.
fn broker_pods(world: &World) -> BTreeMap<(String, String), i64> {
    let mut counts = BTreeMap::new();
    for pod in world.pods.values().filter(|pod| !pod.has_ended()) {
        let configuration = pod.meta.labels.get(names::CONFIGURATION_LABEL);
        let target = pod.meta.labels.get(names::TARGET_NODE_LABEL);
        if let Some((configuration, node)) = configuration.zip(pod.node.as_ref().or(target)) {
            *counts
                .entry((configuration.clone(), node.clone()))
                .or_default() += 1;
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{controller::world::BrokerPod, model::names::ObjectKey};

    #[test]
    fn pods_are_counted_until_they_end() {
        let mut world = World::default();
        for (name, phase) in [("a", "Running"), ("b", "Pending"), ("c", "Failed")] {
            let mut pod = BrokerPod {
                phase: phase.to_owned(),
                node: Some("n".to_owned()),
                ..BrokerPod::default()
            };
            let label = (names::CONFIGURATION_LABEL.to_owned(), "cam".to_owned());
            pod.meta.labels.extend([label]);
            world
                .pods
                .insert(ObjectKey::new("default", name), Arc::new(pod));
        }
        let counted = ("cam".to_owned(), "n".to_owned());
        assert_eq!(broker_pods(&world), BTreeMap::from([(counted, 2)]));
    }
}
