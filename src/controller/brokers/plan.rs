//! Decides which brokers to create, replace and delete. Pure.
mod jobs;
mod pods;
mod seats;

use super::{
    memory::Memory,
    placement,
    report::{Found, Report, Reports},
};
use crate::{
    api::{
        broker::{self, SpecError, Subject, Wanted},
        configuration::Configuration,
        instance::Instance,
        names,
        reason::Reason,
    },
    controller::{
        nodes::Sights,
        world::{BrokerJob, BrokerPod, World},
    },
    model::names::ObjectKey,
    store::plan::is_seen,
};
use k8s_openapi::jiff::Timestamp;
use serde_json::Value;
use std::collections::BTreeMap;

pub(crate) struct Input<'a> {
    pub(crate) world: &'a World,
    pub(crate) memory: &'a Memory,
    /// Such as `akri.sh`.
    pub(crate) resource_prefix: &'a str,
    pub(crate) now: Timestamp,
}

/// A Pod or a Job, and why it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Broker {
    pub(crate) key: ObjectKey,
    pub(crate) instance: ObjectKey,
    pub(crate) configuration: ObjectKey,
    /// The digest of the broker's Configuration now.
    pub(crate) digest: String,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Action {
    CreatePod {
        broker: Broker,
        /// The uid of the Instance.
        owner: String,
        node: String,
        pod: Value,
    },
    DeletePod {
        key: ObjectKey,
        uid: String,
        why: &'static str,
    },
    /// Deletes a Pod that was given another way to the device. The next one is created once it has gone.
    ReplacePod { key: ObjectKey, uid: String },
    /// Deletes a Pod that the scheduler does not put on its node, unless it did meanwhile. The next one is created for
    /// another node.
    MovePod {
        broker: Broker,
        uid: String,
        version: String,
        node: String,
        why: String,
    },
    /// Asks the API server whether it would create a Pod of a new broker spec, before Pods of the old one are replaced.
    TryPod { broker: Broker, pod: Value },
    /// Creates the Job, then remembers its generation in the status of the Instance.
    CreateJob {
        broker: Broker,
        owner: String,
        job: Value,
        generation: i64,
    },
    DeleteJob {
        key: ObjectKey,
        uid: String,
        why: &'static str,
    },
    /// Remembers in the status of the Instance that there is a Job.
    Remember {
        instance: ObjectKey,
        owner: String,
        generation: i64,
    },
}

#[derive(Debug, Default, PartialEq)]
pub(crate) struct Plan {
    pub(crate) actions: Vec<Action>,
    /// Configurations that no broker can be made of, with their digest. What runs of them goes on.
    pub(crate) broken: BTreeMap<ObjectKey, (String, SpecError)>,
    pub(crate) reports: Reports,
    /// When to look again if nothing changes before.
    pub(crate) wake: Option<Timestamp>,
}

pub(crate) fn plan(input: &Input<'_>) -> Plan {
    let mut planner = Planner {
        input,
        pods: owned(&input.world.pods, |pod| pod.meta.owner.as_deref()),
        jobs: owned(&input.world.jobs, |job| job.meta.owner.as_deref()),
        sights: Sights::new(input.world),
        loads: seats::loads(input),
        asked: BTreeMap::new(),
        moves: 0,
        plan: Plan::default(),
    };
    planner.plan.wake = input.memory.wake();
    for (key, instance) in &input.world.instances {
        planner.instance(key, instance);
    }
    planner.report_refusals();
    planner.plan
}

type Owned<'a, T> = BTreeMap<(&'a str, &'a str), BTreeMap<&'a ObjectKey, &'a T>>;

/// By the namespace and the uid of the owner, which is in the same namespace: others may write any uid. What is of no Instance that is known is left to garbage collection: the Instance may be
/// newer than our list of them.
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
    sights: Sights<'a>,
    /// How many brokers each node has, by the value of its label.
    loads: BTreeMap<String, usize>,
    asked: BTreeMap<&'a ObjectKey, Asked>,
    /// The number of Pods that this plan moves.
    moves: usize,
    plan: Plan,
}

/// The validated broker spec of a Configuration.
struct Asked {
    digest: String,
    is_broken: bool,
    /// The API server has created a Pod of this spec, or would.
    is_accepted: bool,
    /// This plan asks the API server about the spec.
    is_tried: bool,
}

/// An Instance that brokers are planned for.
#[derive(Clone, Copy)]
struct Of<'a> {
    subject: Subject<'a>,
    uid: &'a str,
    configuration: (&'a ObjectKey, &'a Configuration),
    /// Nothing can be made of what it asks for.
    is_broken: bool,
}

impl<'a> Of<'a> {
    /// The namespace and the uid of the Instance.
    fn owner(&self) -> (&'a str, &'a str) {
        (&self.subject.key.namespace, self.uid)
    }
}

/// A node that sees the device, and the Pod there.
struct Place<'a> {
    node: &'a str,
    key: ObjectKey,
    /// Whether something new can start here: there is something to start, the device is there, and so is the node.
    is_fit: bool,
    /// What keeps a new Pod from the node: its taints, or that it is cordoned.
    obstacle: Option<String>,
    /// How the device is reached from here.
    connection: Option<&'a str>,
}

impl Place<'_> {
    /// Whether a new Pod can start here, as far as this is known.
    fn is_open(&self) -> bool {
        self.is_fit && self.obstacle.is_none()
    }
}

impl<'a> Planner<'a> {
    fn instance(&mut self, key: &'a ObjectKey, instance: &'a Instance) {
        let configuration = instance.spec.configuration_key(&key.namespace);
        // One that is gone takes its Instances along; of one that cannot be read, what runs goes on.
        let known = (self.input.world.configurations).get_key_value(&configuration);
        let Some(((configuration_key, configuration), uid)) =
            known.zip(instance.metadata.uid.as_deref())
        else {
            return;
        };
        if goes(instance, configuration) {
            return;
        }
        let of = Of {
            subject: Subject {
                key,
                instance,
                resource_prefix: self.input.resource_prefix,
            },
            uid,
            configuration: (configuration_key, configuration),
            is_broken: self.asked((configuration_key, configuration)).is_broken,
        };
        let wanted = broker::wanted(configuration.spec.broker_spec.as_ref());
        if !matches!(wanted, Some(Wanted::Pod(_))) {
            for (key, pod) in self.pods.remove(&of.owner()).unwrap_or_default() {
                self.delete_pod((key, pod), "its Configuration asks for no Pod");
            }
        }
        if !matches!(wanted, Some(Wanted::Job(_))) {
            for (key, job) in self.jobs.remove(&of.owner()).unwrap_or_default() {
                self.delete_job((key, job), "its Configuration asks for no Job");
            }
        }
        match wanted {
            None => {}
            Some(Wanted::Pod(spec)) => self.pods(of, spec),
            Some(Wanted::Job(spec)) => self.job(of, spec),
        }
    }

    /// The nodes that see the device. `spec` is the spec of the Pods that are bound to nodes, if they are.
    fn places(&self, of: Of<'a>, spec: Option<&Value>) -> Vec<Place<'a>> {
        let instance = of.subject.instance;
        let seen = instance.status.iter().flat_map(|status| &status.nodes);
        let seen: BTreeMap<_, _> = seen.map(|node| (&node.name, node)).collect();
        let views = match instance.spec.shared {
            true => self.sights.of(of.subject.key),
            false => BTreeMap::new(),
        };
        let annotations = instance.metadata.annotations.as_ref();
        let noted = annotations.and_then(|all| all.get(names::CONNECTION));
        let is_healthy = |node: &String| match views.get(node.as_str()) {
            Some(view) => view.is_healthy(),
            None => (instance.status.as_ref()).is_none_or(|status| is_seen(status, node)),
        };
        // What the node says now, else what it wrote beside its own device, else what an earlier agent wrote.
        let connection = |node: &String| {
            let said = views.get(node.as_str()).map(|view| &view.connection);
            let written = || seen.get(node).map(|seen| &seen.connection);
            let own = noted.filter(|_| !instance.spec.shared);
            own.or_else(|| said.or_else(written)?.as_ref())
        };
        let place = |node: &'a String| {
            let name = broker::pod_name(of.subject, node);
            let state = self.input.world.nodes.get(node);
            let is_ready = state.is_some_and(|node| node.is_ready);
            let obstacle = state.zip(spec);
            Place {
                node,
                key: ObjectKey::new(&of.subject.key.namespace, name),
                is_fit: !of.is_broken && is_ready && is_healthy(node),
                obstacle: obstacle.and_then(|(node, spec)| placement::obstacle(node, spec)),
                connection: connection(node).map(String::as_str),
            }
        };
        instance.spec.nodes.iter().map(place).collect()
    }

    fn may_start(&mut self, key: &ObjectKey, digest: &str) -> bool {
        let at = self.input.memory.not_before(key, digest);
        match at.filter(|at| *at > self.input.now) {
            Some(at) => self.wake_at(at),
            None => return true,
        }
        false
    }

    fn asked(&mut self, (key, configuration): (&'a ObjectKey, &Configuration)) -> &mut Asked {
        let broken = &mut self.plan.broken;
        self.asked.entry(key).or_insert_with(|| {
            let digest = broker::digest(configuration);
            let error = broker::check(configuration).err();
            let is_broken = error.is_some();
            broken.extend(error.map(|error| (key.clone(), (digest.clone(), error))));
            let is_accepted = self.input.memory.specs.is_accepted(key, &digest)
                || has_pod_of(self.input.world, key, &digest);
            Asked {
                digest,
                is_broken,
                is_accepted,
                is_tried: false,
            }
        })
    }

    fn broken(&mut self, of: Of<'_>, (digest, error): (&str, SpecError)) {
        let key = of.configuration.0.clone();
        self.plan.broken.insert(key, (digest.to_owned(), error));
    }

    fn report(&mut self, of: Of<'_>) -> &mut Report {
        let (key, configuration) = of.configuration;
        let report = self.plan.reports.entry(key.clone()).or_default();
        report.generation = configuration.metadata.generation;
        report
    }

    /// Adds what was refused of whole broker specs, here or by the API server.
    fn report_refusals(&mut self) {
        let asked = self.asked.iter();
        let refused = asked.filter_map(|(key, asked)| {
            let broken = self
                .plan
                .broken
                .get(*key)
                .map(|(_, error)| error.to_string());
            let generation = self.input.world.configurations.get(*key);
            let generation = generation.and_then(|of| of.metadata.generation);
            // A Job is of a generation, a Pod of a digest.
            let of_job = generation.unwrap_or_default().to_string();
            let specs = &self.input.memory.specs;
            let refused = specs.refusal(key, &asked.digest);
            let refused = refused.or_else(|| specs.refusal(key, &of_job));
            let message = broken.or(refused.map(str::to_owned))?;
            Some(((*key).clone(), generation, message))
        });
        for (key, generation, message) in refused.collect::<Vec<_>>() {
            let report = self.plan.reports.entry(key).or_default();
            report.generation = generation;
            report.add(Found {
                reason: Reason::BrokerSpecInvalid,
                of: String::new(),
                message,
            });
        }
    }

    fn wake_at(&mut self, at: Timestamp) {
        let wake = self.plan.wake.get_or_insert(at);
        *wake = at.min(*wake);
    }
}

impl Of<'_> {
    fn broker(&self, key: ObjectKey, digest: &str) -> Broker {
        Broker {
            key,
            instance: self.subject.key.clone(),
            configuration: self.configuration.0.clone(),
            digest: digest.to_owned(),
        }
    }
}

/// Whether a Pod of a Configuration was created by this spec.
fn has_pod_of(world: &World, configuration: &ObjectKey, digest: &str) -> bool {
    world.pods.iter().any(|(key, pod)| {
        let of = pod.meta.labels.get(names::CONFIGURATION_LABEL);
        key.namespace == configuration.namespace
            && of == Some(&configuration.name)
            && pod
                .meta
                .annotations
                .get(names::BROKER_DIGEST)
                .map(String::as_str)
                == Some(digest)
    })
}

/// Whether the Instance or its Configuration is on the way out: garbage collection has the rest.
fn goes(instance: &Instance, configuration: &Configuration) -> bool {
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
