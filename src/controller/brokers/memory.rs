//! Keeps the history of brokers from one look at the world to the next: failures, for their back-off, refused specs and
//! moves. Pure. A controller that starts knows nothing, and is right all the same.
pub(crate) use super::outcome::{Notice, Outcome};
use super::{
    action::{Action, Broker},
    failures::{Failure, Failures},
    moves::Moves,
    specs::Specs,
};
use crate::{
    api::names,
    controller::world::{BrokerPod, World},
    model::names::ObjectKey,
};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use std::collections::BTreeMap;

/// A broker that ran for so long and fails then starts over with the shortest wait.
const RAN_WELL: SignedDuration = SignedDuration::from_mins(10);
/// A broker of a device that moves again and again is replaced at most so often: anybody on a LAN can make one move.
const MOVES_APART: SignedDuration = SignedDuration::from_mins(1);
/// A name that is taken is mostly a watch that is behind; after so many tries somebody else has it.
const TRIES_BEFORE_TAKEN: u32 = 3;

#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Memory {
    failures: Failures,
    pub(crate) specs: Specs,
    pub(crate) moves: Moves,
    /// The times at which Pods were replaced because their devices had moved.
    moved: BTreeMap<ObjectKey, Timestamp>,
}

impl Memory {
    /// Records what the world shows, or the parts of it that have changed. Returns the notices for users.
    pub(crate) fn observe(&mut self, world: &World, now: Timestamp) -> Vec<Notice> {
        let whole = world.whole();
        self.failures.observe(whole);
        self.moves.observe(world, now);
        self.specs.observe(whole);
        (self.moved).retain(|_, at| now < *at + MOVES_APART);
        let owners: BTreeMap<_, _> = (world.instances.iter())
            .filter_map(|(key, instance)| {
                let configuration = instance.spec.configuration_key(&key.namespace);
                Some((instance.metadata.uid.as_deref()?, (key, configuration)))
            })
            .collect();
        let mut notices = vec![];
        for (key, pod) in &world.pods {
            let owner = pod.meta.owner.as_deref();
            let found = owner.and_then(|uid| owners.get(uid));
            // An owner is in the same namespace, or it is none.
            let found = found.filter(|(instance, _)| instance.namespace == key.namespace);
            let Some((instance, configuration)) = found else {
                continue;
            };
            let digest = pod.meta.annotations.get(names::BROKER_DIGEST);
            let broker = Broker {
                key: key.clone(),
                instance: (*instance).clone(),
                configuration: configuration.clone(),
                digest: digest.cloned().unwrap_or_default(),
            };
            notices.extend(self.observe_pod(broker, pod, now));
        }
        notices
    }

    /// Forgets the Instances that the whole world does not have any more.
    pub(crate) fn forget_gone(&mut self, whole: &World) {
        self.moves.forget_gone(whole);
    }

    fn observe_pod(&mut self, broker: Broker, pod: &BrokerPod, now: Timestamp) -> Option<Notice> {
        let key = &broker.key;
        if pod.phase == "Running" {
            self.moves.runs(key);
        }
        let runs_well = pod.started.is_some_and(|started| now >= started + RAN_WELL);
        if pod.phase == "Running" && runs_well && self.failures.is_of(&broker) {
            self.failures.forget(key);
        }
        let is_counted = self.failures.carry_over(&broker, &pod.meta.uid);
        if pod.meta.is_deleting || !pod.has_ended() || is_counted {
            return None;
        }
        let ran = pod.finished.zip(pod.started);
        if ran.is_some_and(|(finished, started)| finished.duration_since(started) >= RAN_WELL) {
            self.failures.forget(key);
        }
        let retry_in = self
            .failures
            .add(&broker, Failure::Ended(&pod.meta.uid), now);
        let cause = [&pod.reason, &pod.message].into_iter();
        let cause: Vec<_> = cause.filter(|text| !text.is_empty()).cloned().collect();
        Some(Notice::Ended {
            broker,
            why: match cause.is_empty() {
                true => pod.phase.clone(),
                false => cause.join(": "),
            },
            retry_in,
        })
    }

    /// Records the outcome of an action. Returns the notice for users.
    pub(crate) fn settle(
        &mut self,
        action: &Action,
        outcome: &Outcome,
        now: Timestamp,
    ) -> Option<Notice> {
        let is_gone = matches!(outcome, Outcome::Done | Outcome::Gone);
        match action {
            Action::CreatePod { broker, .. } | Action::CreateJob { broker, .. } => {
                self.settle_creation(broker, outcome, now)
            }
            Action::TryPod { broker, .. } => self.settle_trial(broker, outcome, now),
            Action::MovePod {
                broker, node, why, ..
            } if is_gone => {
                self.moves.rest(broker, now);
                Some(Notice::Moved {
                    broker: broker.clone(),
                    node: node.clone(),
                    why: why.clone(),
                })
            }
            Action::ReplacePod { key, .. } if is_gone || *outcome == Outcome::Conflict => {
                self.moved.insert(key.clone(), now);
                None
            }
            Action::MovePod { .. }
            | Action::ReplacePod { .. }
            | Action::DeletePod { .. }
            | Action::DeleteJob { .. }
            | Action::Remember { .. } => None,
        }
    }

    fn settle_creation(
        &mut self,
        broker: &Broker,
        outcome: &Outcome,
        now: Timestamp,
    ) -> Option<Notice> {
        match outcome {
            Outcome::Done => {
                self.specs.accept(&broker.configuration, &broker.digest);
                Some(Notice::Created(broker.clone()))
            }
            Outcome::Conflict => {
                let retry_in = self.failures.add(broker, Failure::NotCreated, now);
                if self.failures(&broker.key, &broker.digest) < TRIES_BEFORE_TAKEN {
                    return None;
                }
                let refused = Notice::Refused {
                    broker: broker.clone(),
                    message:
                        "there is another object of this name, which is not of this Instance: \
                              delete or rename it"
                            .to_owned(),
                    retry_in,
                };
                Some(refused)
            }
            Outcome::Gone | Outcome::Refused { .. } | Outcome::Failed(_) => {
                self.settle_failure(broker, outcome, now)
            }
        }
    }

    fn settle_trial(
        &mut self,
        broker: &Broker,
        outcome: &Outcome,
        now: Timestamp,
    ) -> Option<Notice> {
        match outcome {
            // The name is taken by the Pod that is to be replaced: what comes before that was accepted.
            Outcome::Done | Outcome::Conflict => {
                self.specs.accept(&broker.configuration, &broker.digest);
                None
            }
            Outcome::Gone | Outcome::Refused { .. } | Outcome::Failed(_) => {
                self.settle_failure(broker, outcome, now)
            }
        }
    }

    /// Records the outcome of a creation, or of its trial, that found no object of the name and made none.
    fn settle_failure(
        &mut self,
        broker: &Broker,
        outcome: &Outcome,
        now: Timestamp,
    ) -> Option<Notice> {
        match outcome {
            Outcome::Done | Outcome::Conflict | Outcome::Failed(_) => None,
            // The Instance or its namespace is being deleted.
            Outcome::Gone => {
                self.failures.add(broker, Failure::NotCreated, now);
                None
            }
            Outcome::Refused { code, message } => self.settle_refusal(broker, *code, message, now),
        }
    }

    fn settle_refusal(
        &mut self,
        broker: &Broker,
        code: u16,
        message: &str,
        now: Timestamp,
    ) -> Option<Notice> {
        let retry_in = self.failures.add(broker, Failure::Refused(message), now);
        let refused = Notice::Refused {
            broker: broker.clone(),
            message: message.to_owned(),
            retry_in,
        };
        match code {
            // It cannot be read, or is not valid.
            400 | 422 => (self.specs).refuse(&broker.configuration, &broker.digest, message, now),
            _ => Some(refused),
        }
    }

    /// Returns when a broker may be created again.
    pub(crate) fn not_before(&self, key: &ObjectKey, digest: &str) -> Option<Timestamp> {
        self.failures.not_before(key, digest)
    }

    /// Returns the last answer of the API server that refused to create a broker, if it did.
    pub(crate) fn refusal(&self, key: &ObjectKey, digest: &str) -> Option<&str> {
        self.failures.refusal(key, digest)
    }

    /// Returns how often the broker in this place failed.
    pub(crate) fn failures(&self, key: &ObjectKey, digest: &str) -> u32 {
        self.failures.count(key, digest)
    }

    /// Returns when the broker of a device that has moved may be replaced.
    pub(crate) fn may_move_at(&self, key: &ObjectKey) -> Option<Timestamp> {
        self.moved.get(key).map(|at| *at + MOVES_APART)
    }
}
