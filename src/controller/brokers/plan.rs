//! Decides which brokers to create, replace and delete. On which node a broker runs is the scheduler's decision. Pure.
mod jobs;
mod pods;
mod reach;
mod reported;
mod specs;

pub(crate) use super::action::{Action, Broker, Cause};
use super::{
    memory::Memory,
    report::{Report, Reports},
};
use crate::{
    api::{
        broker::{self, SpecError, Subject, Wanted},
        configuration::{Allocation, Configuration},
        instance::{Instance, is_seen},
        names,
    },
    controller::{
        queue::Waits,
        world::{BrokerJob, BrokerPod, World},
    },
    merge::DeviceReports,
    model::{
        instance_name::InstanceKey,
        names::ObjectKey,
        resource_name::ResourcePrefix,
        typed_names::{ConfigurationKey, NodeName},
    },
};
use k8s_openapi::jiff::Timestamp;
use serde_json::Value;
use std::{collections::BTreeMap, time::Duration};

pub(crate) struct Input<'a> {
    pub(crate) world: &'a World,
    pub(crate) device_reports: &'a DeviceReports<'a>,
    pub(crate) memory: &'a Memory,
    /// The prefix of the resources, such as `akri.sh`.
    pub(crate) resource_prefix: &'a ResourcePrefix,
    pub(crate) now: Timestamp,
}

#[derive(Debug, Default, PartialEq)]
pub(crate) struct Plan {
    pub(crate) actions: Vec<Action>,
    /// Configurations that no broker can be made of, with their digest. What runs of them goes on.
    pub(crate) broken: BTreeMap<ConfigurationKey, (String, SpecError)>,
    pub(crate) reports: Reports,
    pub(crate) waits: Waits,
}

pub(crate) fn plan(input: &Input<'_>) -> Plan {
    let mut planner = Planner {
        input,
        pods: owned(&input.world.pods, |pod| pod.meta.owner.as_deref()),
        jobs: owned(&input.world.jobs, |job| job.meta.owner.as_deref()),
        specs: BTreeMap::new(),
        plan: Plan::default(),
    };
    for (key, instance) in &input.world.instances {
        planner.instance(key, instance);
    }
    planner.report_refusals();
    planner.plan
}

type Owned<'a, T> = BTreeMap<(&'a str, &'a str), BTreeMap<&'a ObjectKey, &'a T>>;

/// Returns the objects by the namespace and the uid of their owner. The owner must be in the same namespace, because
/// users may write any uid. Objects whose owner we do not know are left to the garbage collector: their Instance may be
/// newer than our list.
fn owned<T>(
    objects: &BTreeMap<ObjectKey, std::sync::Arc<T>>,
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

struct Planner<'a> {
    input: &'a Input<'a>,
    pods: Owned<'a, BrokerPod>,
    jobs: Owned<'a, BrokerJob>,
    specs: BTreeMap<&'a ConfigurationKey, specs::CheckedSpec>,
    plan: Plan,
}

/// An Instance that brokers are planned for, and its Configuration.
#[derive(Clone, Copy)]
struct Target<'a> {
    subject: Subject<'a>,
    uid: &'a str,
    configuration_key: &'a ConfigurationKey,
    configuration: &'a Configuration,
    /// True if no broker can be made of the broker spec.
    is_broken: bool,
}

impl<'a> Target<'a> {
    /// Returns the namespace and the uid of the Instance.
    fn owner(&self) -> (&'a str, &'a str) {
        (&self.subject.key.namespace, self.uid)
    }
}

/// The Pods that a Configuration asks for, for one Instance.
#[derive(Clone, Copy)]
struct WantedPods<'a, 's> {
    target: Target<'a>,
    spec: &'s Value,
    digest: &'s str,
}

/// A Pod that has not ended, and is not on its way out.
#[derive(Clone, Copy)]
struct Serving<'a> {
    key: &'a ObjectKey,
    pod: &'a BrokerPod,
}

/// A node that sees the device.
struct Place<'a> {
    node: &'a NodeName,
    /// True if a new Pod could use the device here: the broker spec is valid, `spec.nodeSelector` selects the node, and the
    /// node sees the device and is ready.
    is_fit: bool,
    /// The digest of the values that connect a container on this node to the device.
    connection: Option<&'a str>,
}

impl<'a> Planner<'a> {
    fn instance(&mut self, key: &'a InstanceKey, instance: &'a Instance) {
        let configuration = instance.spec.configuration_key(&key.namespace);
        // If the Configuration is gone its Instances will be deleted. If it cannot be read, its brokers stay.
        let known = (self.input.world.configurations).get_key_value(&configuration);
        let Some(((configuration_key, configuration), uid)) =
            known.zip(instance.metadata.uid.as_deref())
        else {
            return;
        };
        if is_being_deleted(instance, configuration) {
            return;
        }
        let target = Target {
            subject: Subject {
                key,
                instance,
                resource_prefix: self.input.resource_prefix,
            },
            uid,
            configuration_key,
            configuration,
            is_broken: self.checked(configuration_key, configuration).is_broken,
        };
        let wanted = broker::wanted(configuration.spec.broker_spec.as_ref());
        match wanted {
            None => {
                self.delete_pods_of(target);
                self.delete_jobs_of(target);
            }
            Some(Wanted::Pod(spec)) => self.pods(target, spec),
            Some(Wanted::Job(spec)) => self.job(target, spec),
        }
    }

    /// Returns the nodes that see the device.
    fn places(&self, target: Target<'a>) -> Vec<Place<'a>> {
        let instance = target.subject.instance;
        let seen = instance.status.iter().flat_map(|status| &status.nodes);
        let seen: BTreeMap<_, _> = seen.map(|node| (&node.name, node)).collect();
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
            Place {
                node,
                is_fit: !target.is_broken && is_ready && is_selected(node) && is_healthy(node),
                connection: connection(node).map(String::as_str),
            }
        };
        instance.spec.nodes.iter().map(place).collect()
    }

    fn check_start(&mut self, key: &ObjectKey, digest: &str) -> bool {
        let at = self.input.memory.not_before(key, digest);
        match at.filter(|at| *at > self.input.now) {
            Some(at) => self.wake_at(at),
            None => return true,
        }
        false
    }

    /// Adds the brokers of an Instance to the report of its Configuration.
    fn report(&mut self, target: Target<'_>, of: Report) {
        let key = target.configuration_key.clone();
        let report = self.plan.reports.entry(key).or_default();
        report.generation = target.configuration.metadata.generation;
        report.add_instance(target.subject.key, of);
    }

    fn wake_at(&mut self, at: Timestamp) {
        let wait = Duration::try_from(at.duration_since(self.input.now));
        self.plan.waits.add(wait.unwrap_or_default());
    }
}

impl Target<'_> {
    fn is_by_claims(&self) -> bool {
        self.configuration.spec.allocation == Allocation::Dra
    }

    /// Returns the template of the claims of its brokers, where the scheduler gives out the device.
    fn claim(&self) -> Option<Value> {
        (self.is_by_claims()).then(|| broker::claim_template(self.subject))
    }

    fn broker(&self, key: ObjectKey, digest: &str) -> Broker {
        Broker {
            key,
            instance: self.subject.key.clone(),
            configuration: self.configuration_key.clone(),
            digest: digest.to_owned(),
        }
    }
}

/// Returns whether the Instance or its Configuration is being deleted. The garbage collector deletes their brokers.
fn is_being_deleted(instance: &Instance, configuration: &Configuration) -> bool {
    let owners = instance.metadata.owner_references.iter().flatten();
    let owner = owners
        .into_iter()
        .find(|owner| owner.controller == Some(true));
    let is_anothers =
        owner.is_some_and(|owner| Some(&owner.uid) != configuration.metadata.uid.as_ref());
    let is_deleting = [&instance.metadata, &configuration.metadata]
        .iter()
        .any(|metadata| metadata.deletion_timestamp.is_some());
    is_deleting || is_anothers
}

#[cfg(test)]
mod tests;
