//! Keeps the history of brokers from one look at the world to the next: failures, for their back-off, refused specs, and
//! Pods that were replaced. Pure. A controller that starts knows nothing, and is right all the same.
use super::{
    action::{Action, Broker, Cause},
    avoided::Avoided,
    failures::{Failure, Failures},
    specs::Specs,
};
use crate::{
    api::{instance::Instance, names, reason::Reason},
    controller::{
        clock::elapsed,
        nodes::absent_node::Now,
        outcome::Outcome,
        pod_state::one_line,
        world::{BrokerPod, World},
    },
    model::{instance_name::InstanceKey, names::ObjectKey},
};
use k8s_openapi::jiff::SignedDuration;
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};
use tokio::time::Instant;

/// A broker that ran for so long and fails then starts over with the shortest wait.
const RAN_WELL: Duration = Duration::from_mins(10);
/// A broker whose device moves again and again, or is seen by other nodes, is replaced at most so often: anybody on a LAN can
/// make one move.
const MOVES_APART: Duration = Duration::from_mins(1);
/// The name of a Job that is taken is mostly a watch that is behind; after so many tries somebody else has it.
const TRIES_BEFORE_TAKEN: u32 = 3;
/// The time for which a name that somebody else's Pod has is left out.
const TAKEN_FOR: Duration = Duration::from_mins(10);
/// A broker whose node is not decided yet waits so long for the other nodes to report a new device.
const OTHERS_REPORT: Duration = Duration::from_millis(500);

/// An Event on the Instance of a broker.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Notice {
    pub(crate) instance: InstanceKey,
    pub(crate) reason: Reason,
    pub(crate) text: String,
    pub(crate) is_warning: bool,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct BrokerMemory {
    pub(super) failures: Failures,
    pub(super) specs: Specs,
    pub(super) avoided: Avoided,
    /// The times at which Pods were replaced, for each cause.
    replaced: BTreeMap<(ObjectKey, Cause), Instant>,
    /// The times at which somebody else's Pods were found to have the names of brokers.
    taken: BTreeMap<ObjectKey, Instant>,
    /// The time at which each Instance was seen first, by its uid.
    first_seen: BTreeMap<String, Instant>,
}

impl BrokerMemory {
    /// Records what the world shows, or the parts of it that have changed. Returns the notices for users.
    pub(crate) fn observe(&mut self, world: &World, now: Now) -> Vec<Notice> {
        let whole = world.whole();
        self.failures.observe(whole);
        self.avoided.observe(whole);
        self.specs.observe(whole);
        (self.replaced).retain(|_, at| now.instant < *at + MOVES_APART);
        (self.taken).retain(|_, at| now.instant < *at + TAKEN_FOR);
        for uid in uids(world) {
            if !self.first_seen.contains_key(uid) {
                self.first_seen.insert(uid.clone(), now.instant);
            }
        }
        let owners: BTreeMap<_, _> = (world.instances.iter())
            .filter_map(|(key, instance)| {
                Some((instance.metadata.uid.as_deref()?, (key, &**instance)))
            })
            .collect();
        let mut notices = vec![];
        for (key, pod) in &world.pods {
            let owner = pod.meta.owner.as_deref();
            let found = owner.and_then(|uid| owners.get(uid));
            // An owner is in the same namespace, or it is none.
            let found = found.filter(|(instance, _)| instance.namespace == key.namespace);
            let Some((name, instance)) = found else {
                continue;
            };
            let digest = pod.meta.annotations.get(names::BROKER_DIGEST);
            let broker = Broker {
                key: key.clone(),
                instance: (*name).clone(),
                configuration: instance.spec.configuration_key(&key.namespace),
                digest: digest.cloned().unwrap_or_default(),
            };
            let has_run = |started| elapsed(started, now.clock) >= RAN_WELL;
            if pod.phase == "Running" && pod.started.is_some_and(has_run) {
                self.forgive(&broker, pod);
            }
            notices.extend(self.observe_pod(broker, pod, instance, now.instant));
        }
        notices
    }

    /// Forgets which specs are refused: another replica may have made brokers of them since.
    pub(crate) fn forget_specs(&mut self) {
        self.specs = Specs::default();
    }

    /// Forgets the Instances that the whole world does not have any more.
    pub(crate) fn forget_gone(&mut self, whole: &World) {
        let uids: BTreeSet<&String> = uids(whole).collect();
        self.first_seen.retain(|uid, _| uids.contains(uid));
    }

    /// Forgets what was against a broker that runs well, and against its node.
    fn forgive(&mut self, broker: &Broker, pod: &BrokerPod) {
        if self.failures.is_of(broker) {
            self.failures.forget(&broker.key);
        }
        if let Some(node) = &pod.node {
            self.avoided.forget(&broker.instance, node);
        }
    }

    fn observe_pod(
        &mut self,
        broker: Broker,
        pod: &BrokerPod,
        instance: &Instance,
        now: Instant,
    ) -> Option<Notice> {
        let key = &broker.key;
        let is_counted = self.failures.carry_over(&broker, &pod.meta.uid);
        // Whatever has put it there may do the same with the next one.
        let stray = pod.node.as_ref().filter(|node| {
            let is_ours = !broker.digest.is_empty();
            is_ours && pod.is_astray && !instance.spec.names_node(node)
        });
        if pod.meta.is_deleting || is_counted || !pod.has_ended() && stray.is_none() {
            return None;
        }
        let ran = pod.finished.zip(pod.started);
        if ran.is_some_and(|(finished, started)| elapsed(started, finished) >= RAN_WELL) {
            self.failures.forget(key);
        }
        let retry_in = self
            .failures
            .add(&broker, Failure::Ended(&pod.meta.uid), now);
        // A Pod that has succeeded says nothing against its node, and an unknown end is none.
        if pod.phase == "Failed" {
            self.avoided.add(&broker, pod, now);
        }
        let cause = [&pod.reason, &pod.message].into_iter();
        let cause: Vec<_> = cause.filter(|text| !text.is_empty()).cloned().collect();
        let why = match (stray, cause.is_empty()) {
            (Some(node), _) => {
                format!("it was put on {node}, which does not see the device, against its affinity")
            }
            (None, true) => pod.phase.clone(),
            (None, false) => cause.join(": "),
        };
        let name = &key.name;
        Some(Notice {
            text: format!("{name} ended: {why}. Another follows in {retry_in:#}"),
            instance: broker.instance,
            reason: Reason::BrokerFailed,
            is_warning: true,
        })
    }

    /// Records the outcome of an action. Returns the notice for users.
    pub(crate) fn settle(
        &mut self,
        action: &Action,
        outcome: &Outcome,
        now: Instant,
    ) -> Option<Notice> {
        let is_gone = matches!(outcome, Outcome::Done | Outcome::Gone);
        match action {
            Action::CreatePod { broker, .. } | Action::CreateJob { broker, .. } => {
                self.settle_creation(broker, outcome, now)
            }
            Action::TryPod { broker, .. } => self.settle_trial(broker, outcome, now),
            Action::ReplacePod {
                key,
                version,
                cause,
                ..
            } if is_gone || version.is_none() && *outcome == Outcome::Conflict => {
                self.replaced.insert((key.clone(), *cause), now);
                None
            }
            Action::ReplacePod { .. }
            | Action::DeletePod { .. }
            | Action::DeleteJob { .. }
            | Action::Remember { .. } => None,
        }
    }

    fn settle_creation(
        &mut self,
        broker: &Broker,
        outcome: &Outcome,
        now: Instant,
    ) -> Option<Notice> {
        match outcome {
            Outcome::Done => {
                self.specs.accept(&broker.configuration, &broker.digest);
                Some(Notice {
                    instance: broker.instance.clone(),
                    reason: Reason::BrokerCreated,
                    text: format!("created {}", broker.key.name),
                    is_warning: false,
                })
            }
            Outcome::Taken => {
                self.taken.insert(broker.key.clone(), now);
                None
            }
            Outcome::Conflict => {
                let tries = self.failures.count(&broker.key, &broker.digest) + 1;
                if tries < TRIES_BEFORE_TAKEN {
                    self.failures.add(broker, Failure::NotCreated, now);
                    return None;
                }
                let message = "there is another object of this name, which is not of this Instance: delete or rename it";
                let retry_in = self.failures.add(broker, Failure::Refused(message), now);
                Some(refused(broker, message, retry_in))
            }
            Outcome::Partly | Outcome::Gone | Outcome::Refused { .. } | Outcome::Failed(_) => {
                self.settle_failure(broker, outcome, now)
            }
        }
    }

    fn settle_trial(&mut self, broker: &Broker, outcome: &Outcome, now: Instant) -> Option<Notice> {
        match outcome {
            // The name is taken by the Pod that is to be replaced: what comes before that was accepted.
            Outcome::Done | Outcome::Conflict | Outcome::Taken => {
                self.specs.accept(&broker.configuration, &broker.digest);
                None
            }
            // Whatever the reason: what runs is of the old spec, and the status says why.
            Outcome::Refused { message, .. } => {
                self.failures.add(broker, Failure::Refused(message), now);
                (self.specs).refuse(&broker.configuration, &broker.digest, message);
                None
            }
            Outcome::Partly | Outcome::Gone | Outcome::Failed(_) => {
                self.settle_failure(broker, outcome, now)
            }
        }
    }

    /// Records the outcome of a creation, or of its trial, that found no object of the name and made none.
    fn settle_failure(
        &mut self,
        broker: &Broker,
        outcome: &Outcome,
        now: Instant,
    ) -> Option<Notice> {
        let Outcome::Refused { code, message } = outcome else {
            // The Instance or its namespace is being deleted.
            if *outcome == Outcome::Gone {
                self.failures.add(broker, Failure::NotCreated, now);
            }
            return None;
        };
        let retry_in = self.failures.add(broker, Failure::Refused(message), now);
        // It cannot be read, or is not valid: the status says so, and its Event.
        if matches!(code, 400 | 422) {
            (self.specs).refuse(&broker.configuration, &broker.digest, message);
            return None;
        }
        Some(refused(broker, message, retry_in))
    }

    /// Returns when a broker may be replaced again for this cause.
    pub(crate) fn may_replace_at(&self, key: &ObjectKey, cause: Cause) -> Option<Instant> {
        let before = self.replaced.get(&(key.clone(), cause));
        before.map(|at| *at + MOVES_APART)
    }

    /// Returns whether somebody else has the name of a broker.
    pub(crate) fn is_taken(&self, key: &ObjectKey) -> bool {
        self.taken.contains_key(key)
    }

    /// Returns until when the reports of other nodes about an Instance are waited for.
    pub(crate) fn others_report_until(&self, uid: &str) -> Option<Instant> {
        self.first_seen.get(uid).map(|seen| *seen + OTHERS_REPORT)
    }
}

fn refused(broker: &Broker, message: &str, retry_in: SignedDuration) -> Notice {
    let (name, message) = (&broker.key.name, one_line(message));
    Notice {
        instance: broker.instance.clone(),
        reason: Reason::BrokerRefused,
        text: format!("cannot create {name}: {message}. Next try in {retry_in:#}"),
        is_warning: true,
    }
}

fn uids(world: &World) -> impl Iterator<Item = &String> {
    let instances = world.instances.values();
    instances.filter_map(|instance| instance.metadata.uid.as_ref())
}
