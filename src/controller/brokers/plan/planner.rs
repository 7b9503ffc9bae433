//! The state of a plan of brokers, and the values that its parts share. Pure.
use crate::controller::brokers::{
    action::{Action, Broker},
    memory::BrokerMemory,
    report::{Report, Reports},
};
use crate::{
    api::{
        broker::{self, SpecError, Subject},
        configuration::{Allocation, Configuration},
        instance::is_seen,
        names,
    },
    controller::{
        clock::elapsed,
        nodes::absent_node::Now,
        queue::Waits,
        world::{BrokerJob, BrokerPod, World},
    },
    merge::DeviceReports,
    model::{
        names::ObjectKey,
        resource_name::ResourcePrefix,
        typed_names::{ConfigurationKey, NodeName},
    },
};
use k8s_openapi::jiff::Timestamp;
use petiole_base::collect::CollectMap as _;
use serde_json::Value;
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio::time::Instant;

pub(crate) struct Input<'a> {
    pub(crate) world: &'a World,
    pub(crate) device_reports: &'a DeviceReports<'a>,
    pub(crate) memory: &'a BrokerMemory,
    /// The prefix of the resources, such as `akri.sh`.
    pub(crate) resource_prefix: &'a ResourcePrefix,
    pub(crate) now: Now,
}

#[derive(Debug, Default, PartialEq)]
pub(crate) struct Plan {
    pub(crate) actions: Vec<Action>,
    /// Configurations that no broker can be made of, with their digest. What runs of them goes on.
    pub(crate) broken: BTreeMap<ConfigurationKey, (String, SpecError)>,
    pub(crate) reports: Reports,
    pub(crate) waits: Waits,
}

pub(super) type Owned<'a, T> = BTreeMap<(&'a str, &'a str), BTreeMap<&'a ObjectKey, &'a T>>;

/// Returns the objects by the namespace and the uid of their owner. The owner must be in the same namespace, because
/// users may write any uid. Objects whose owner we do not know are left to the garbage collector: their Instance may be
/// newer than our list.
pub(super) fn owned<T>(
    objects: &BTreeMap<ObjectKey, Arc<T>>,
    owner: impl Fn(&T) -> Option<&str>,
) -> Owned<'_, T> {
    let mut owned = Owned::new();
    for (key, object) in objects {
        if let Some(uid) = owner(object) {
            owned
                .entry((&*key.namespace, uid))
                .or_default()
                .insert(key, &**object);
        }
    }
    owned
}

pub(super) struct Planner<'a> {
    pub(super) input: &'a Input<'a>,
    pub(super) pods: Owned<'a, BrokerPod>,
    pub(super) jobs: Owned<'a, BrokerJob>,
    pub(super) specs: BTreeMap<&'a ConfigurationKey, CheckedSpec>,
    pub(super) plan: Plan,
}

/// An Instance that brokers are planned for, and its Configuration.
#[derive(Clone, Copy)]
pub(super) struct Target<'a> {
    pub(super) subject: Subject<'a>,
    pub(super) uid: &'a str,
    pub(super) configuration_key: &'a ConfigurationKey,
    pub(super) configuration: &'a Configuration,
    /// True if no broker can be made of the broker spec.
    pub(super) is_broken: bool,
}

impl<'a> Target<'a> {
    /// Returns the namespace and the uid of the Instance.
    pub(super) fn owner(&self) -> (&'a str, &'a str) {
        (&self.subject.key.namespace, self.uid)
    }
}

/// The Pods that a Configuration asks for, for one Instance.
#[derive(Clone, Copy)]
pub(super) struct WantedPods<'a, 's> {
    pub(super) target: Target<'a>,
    pub(super) spec: &'s Value,
    pub(super) digest: &'s str,
}

/// A Pod that has not ended, and is not on its way out.
#[derive(Clone, Copy)]
pub(super) struct Serving<'a> {
    pub(super) key: &'a ObjectKey,
    pub(super) pod: &'a BrokerPod,
}

/// A node that sees the device.
pub(super) struct SeeingNode<'a> {
    pub(super) node: &'a NodeName,
    /// True if a new Pod could use the device here: the broker spec is valid, `spec.nodeSelector` selects the node, and the
    /// node sees the device and is ready.
    pub(super) is_fit: bool,
    /// The digest of the values that connect a container on this node to the device.
    pub(super) connection: Option<&'a str>,
}

/// The validated broker spec of a Configuration.
pub(super) struct CheckedSpec {
    pub(super) digest: String,
    pub(super) is_broken: bool,
    /// True if the API server has created a Pod of this spec, or accepted it in a dry run.
    pub(super) is_accepted: bool,
    /// True if this plan asks the API server about the spec.
    pub(super) is_tried: bool,
}

impl<'a> Planner<'a> {
    /// Returns the nodes that see the device.
    pub(super) fn places(&self, target: Target<'a>) -> Vec<SeeingNode<'a>> {
        let instance = target.subject.instance;
        let seen = instance.status.iter().flat_map(|status| &status.nodes);
        let seen: BTreeMap<_, _> = seen.map(|node| (&node.name, node)).collect_map();
        let reports = if instance.spec.shared {
            self.input.device_reports.of(target.subject.key, instance)
        } else {
            BTreeMap::new()
        };
        let annotations = instance.metadata.annotations.as_ref();
        let noted = annotations.and_then(|all| all.get(names::CONNECTION));
        let is_healthy = |node: &NodeName| match reports.get(node) {
            Some(report) => report.is_healthy(),
            None => (instance.status.as_ref()).is_none_or(|status| is_seen(status, node)),
        };
        // The node's present report counts first, then the annotation of its own device, then an earlier agent's entry.
        let connection = |node: &NodeName| {
            let said = reports.get(node).map(|report| &report.connection);
            let written = || seen.get(node).map(|seen| &seen.connection);
            let own = noted.filter(|_| !instance.spec.shared);
            own.or_else(|| said.or_else(written)?.as_ref())
        };
        let is_selected =
            |node: &NodeName| (self.input.world).selects(target.configuration_key, node);
        let place = |node: &'a NodeName| {
            let state = self.input.world.nodes.get(node);
            let is_ready = state.is_some_and(|node| node.is_ready);
            SeeingNode {
                node,
                is_fit: !target.is_broken && is_ready && is_selected(node) && is_healthy(node),
                connection: connection(node).map(String::as_str),
            }
        };
        instance.spec.nodes.iter().map(place).collect()
    }

    pub(super) fn check_start(&mut self, key: &ObjectKey, digest: &str) -> bool {
        let at = self.input.memory.failures.not_before(key, digest);
        match at.filter(|at| *at > self.input.now.instant) {
            Some(at) => self.wake_at(at),
            None => return true,
        }
        false
    }

    /// Adds the brokers of an Instance to the report of its Configuration.
    pub(super) fn report(&mut self, target: Target<'_>, of: Report) {
        let key = target.configuration_key.clone();
        let report = self.plan.reports.entry(key).or_default();
        report.generation = target.configuration.metadata.generation;
        report.add_instance(target.subject.key, of);
    }

    pub(super) fn wake_at(&mut self, at: Instant) {
        self.plan.waits.add(at - self.input.now.instant);
    }

    /// Returns whether so much time has passed since a time of an object. If not, looks again then.
    pub(super) fn has_passed(&mut self, time: Duration, since: Timestamp) -> bool {
        let left = time.saturating_sub(elapsed(since, self.input.now.clock));
        if !left.is_zero() {
            self.plan.waits.add(left);
        }
        left.is_zero()
    }
}

impl Target<'_> {
    pub(super) fn is_by_claims(&self) -> bool {
        self.configuration.spec.allocation == Allocation::Dra
    }

    /// Returns the template of the claims of its brokers, where the scheduler gives out the device.
    pub(super) fn claim(&self) -> Option<Value> {
        (self.is_by_claims()).then(|| broker::claim_template(self.subject))
    }

    pub(super) fn broker(&self, key: ObjectKey, digest: &str) -> Broker {
        Broker {
            key,
            instance: self.subject.key.clone(),
            configuration: self.configuration_key.clone(),
            digest: digest.to_owned(),
        }
    }
}
