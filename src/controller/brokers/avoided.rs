//! Remembers on which nodes brokers fail, so that the scheduler can put the next one elsewhere. Pure.
use super::action::Broker;
use crate::{
    backoff,
    controller::world::{BrokerPod, World},
    model::{instance_name::InstanceKey, typed_names::NodeName},
};
use std::{collections::BTreeMap, time::Duration};
use tokio::time::Instant;

/// A node is avoided after so many failures of containers. A kubelet that refuses a Pod counts for as many.
const TRIES_ON_ONE_NODE: u32 = 3;
/// The time for which it is avoided. It doubles as often as the node fails again.
const FIRST_REST: Duration = Duration::from_secs(10);
const LAST_REST: Duration = Duration::from_mins(5);

#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Avoided {
    nodes: BTreeMap<InstanceKey, BTreeMap<NodeName, Failed>>,
}

#[derive(Debug, Clone, PartialEq)]
struct Failed {
    /// The digest of the broker's spec. A Pod with another digest may run.
    digest: String,
    count: u32,
    last: Instant,
}

impl Avoided {
    pub(super) fn observe(&mut self, world: &World) {
        (self.nodes).retain(|instance, _| world.instances.contains_key(instance));
    }

    /// Forgets the failures on a node where a broker ran well.
    pub(super) fn forget(&mut self, instance: &InstanceKey, node: &NodeName) {
        if let Some(nodes) = self.nodes.get_mut(instance) {
            nodes.remove(node);
        }
    }

    /// Counts a Pod that has failed.
    pub(super) fn add(&mut self, broker: &Broker, pod: &BrokerPod, now: Instant) {
        let Some(node) = &pod.node else {
            return;
        };
        let nodes = self.nodes.entry(broker.instance.clone()).or_default();
        let before = nodes.get(node).filter(|of| of.digest == broker.digest);
        let weight = if pod.is_refused { TRIES_ON_ONE_NODE } else { 1 };
        let failed = Failed {
            digest: broker.digest.clone(),
            count: before
                .map_or(0, |before| before.count)
                .saturating_add(weight),
            last: now,
        };
        nodes.insert(node.clone(), failed);
    }

    /// Returns until when a node is avoided, if it is.
    pub(super) fn until(
        &self,
        instance: &InstanceKey,
        node: &NodeName,
        digest: &str,
    ) -> Option<Instant> {
        let failed = self.nodes.get(instance)?.get(node)?;
        let doublings = (failed.count / TRIES_ON_ONE_NODE).checked_sub(1)?;
        let rest = backoff::after(doublings, FIRST_REST, LAST_REST);
        (failed.digest == digest).then_some(failed.last + rest)
    }
}
