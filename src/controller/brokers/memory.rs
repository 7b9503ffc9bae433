//! What is remembered of brokers from one look at the world to the next: failures, for their back-off, and what was
//! done and does not show yet. Pure. A controller that starts knows nothing, and is right all the same.
pub(crate) use super::outcome::{Notice, Outcome};
use super::{
    moves::Moves,
    plan::{Action, Broker},
    specs::Specs,
};
use crate::{
    api::names,
    controller::world::{BrokerPod, World},
    model::names::ObjectKey,
};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use std::collections::{BTreeMap, BTreeSet};

const FIRST_WAIT: SignedDuration = SignedDuration::from_secs(1);
const LAST_WAIT: SignedDuration = SignedDuration::from_mins(5);
/// A broker that ran for so long and fails then starts over with the shortest wait.
const RAN_WELL: SignedDuration = SignedDuration::from_mins(10);
/// A created object is in the watch long before this time. If it is not, it was deleted in between.
const SHOWS_WITHIN: SignedDuration = SignedDuration::from_secs(30);
/// A broker of a device that moves again and again is replaced at most so often: anybody on a LAN can make one move.
const MOVES_APART: SignedDuration = SignedDuration::from_mins(1);
/// A name that is taken is mostly a watch that is behind; after so many tries somebody else has it.
const TRIES_BEFORE_TAKEN: u32 = 3;

#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Memory {
    failures: BTreeMap<ObjectKey, Failures>,
    /// Created and not seen yet.
    created: BTreeMap<ObjectKey, Created>,
    /// The uids of what was deleted and still shows.
    deleted: BTreeSet<String>,
    pub(crate) specs: Specs,
    pub(crate) moves: Moves,
    /// When Pods were replaced because their devices had moved.
    moved: BTreeMap<ObjectKey, Timestamp>,
}

#[derive(Debug, Clone, PartialEq)]
struct Failures {
    instance: ObjectKey,
    /// The digest of its Configuration. With another digest the failures are no reason to wait.
    digest: String,
    count: u32,
    last: Timestamp,
    /// The uid of the Pod that was counted last.
    pod: String,
    /// The last answer of the API server that refused it.
    refusal: String,
}

#[derive(Debug, Clone, PartialEq)]
struct Created {
    uid: String,
    /// The uid of the Instance.
    owner: String,
    /// The node of a Pod.
    node: Option<String>,
    since: Timestamp,
}

impl Memory {
    /// Takes in what the world shows. Returns what is new of it.
    pub(crate) fn observe(&mut self, world: &World, now: Timestamp) -> Vec<Notice> {
        let shows = |key: &ObjectKey, uid: &str| {
            let pod = world.pods.get(key).map(|pod| &pod.meta);
            let job = world.jobs.get(key).map(|job| &job.meta);
            pod.or(job).is_some_and(|meta| meta.uid == uid)
        };
        (self.created)
            .retain(|key, made| !shows(key, &made.uid) && now < made.since + SHOWS_WITHIN);
        let pods = world.pods.values().map(|pod| &pod.meta.uid);
        let uids: BTreeSet<_> = pods
            .chain(world.jobs.values().map(|job| &job.meta.uid))
            .collect();
        self.deleted.retain(|uid| uids.contains(uid));
        (self.failures).retain(|_, failures| world.instances.contains_key(&failures.instance));
        self.moves.observe(world, now);
        self.specs.observe(world);
        (self.moved).retain(|_, at| now < *at + MOVES_APART);
        let owners: BTreeMap<_, _> = (world.instances.iter())
            .filter_map(|(key, instance)| {
                let configuration = &instance.spec.configuration_name;
                let configuration = ObjectKey::new(&key.namespace, configuration);
                Some((instance.metadata.uid.as_deref()?, (key, configuration)))
            })
            .collect();
        let mut notices = vec![];
        for (key, pod) in &world.pods {
            let owner = pod.meta.owner.as_deref();
            let Some((instance, configuration)) = owner.and_then(|uid| owners.get(uid)) else {
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

    fn observe_pod(&mut self, broker: Broker, pod: &BrokerPod, now: Timestamp) -> Option<Notice> {
        let key = &broker.key;
        if pod.phase == "Running" {
            self.moves.runs(key);
        }
        // The failures of a newer spec, which waits for its turn, are not this Pod's.
        let failures = self.failures.get(key);
        let is_of = failures.is_some_and(|failures| failures.digest == broker.digest);
        let runs_well = pod.started.is_some_and(|started| now >= started + RAN_WELL);
        if pod.phase == "Running" && runs_well && is_of {
            self.failures.remove(key);
        }
        let known = self.failures.get(key);
        let is_counted = known.is_some_and(|failures| failures.pod == pod.meta.uid);
        if pod.meta.is_deleting || !pod.has_ended() || is_counted {
            return None;
        }
        let ran = pod.finished.zip(pod.started);
        if ran.is_some_and(|(finished, started)| finished.duration_since(started) >= RAN_WELL) {
            self.failures.remove(key);
        }
        let retry_in = self.count(&broker, (&pod.meta.uid, ""), now);
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

    /// Takes in what became of an action: whether it is settled, until the world changes or its wait is over.
    pub(crate) fn settle(
        &mut self,
        action: &Action,
        outcome: &Outcome,
        now: Timestamp,
    ) -> (bool, Option<Notice>) {
        match action {
            Action::CreatePod {
                broker,
                owner,
                node,
                ..
            } => {
                let settled = self.settle_creation((broker, owner), outcome, now);
                if let Some(created) = self.created.get_mut(&broker.key) {
                    created.node = Some(node.clone());
                }
                settled
            }
            Action::TryPod { broker, .. } => self.settle_trial(broker, outcome, now),
            Action::CreateJob { broker, owner, .. } => {
                self.settle_creation((broker, owner), outcome, now)
            }
            Action::MovePod {
                broker,
                uid,
                node,
                why,
                ..
            } => {
                // It was scheduled meanwhile, or is another: the world will show it.
                if *outcome == Outcome::Conflict {
                    return (true, None);
                }
                let is_gone = self.settle_deletion(uid, outcome);
                if is_gone {
                    self.moves.rest(broker, now);
                }
                let (broker, node, why) = (broker.clone(), node.clone(), why.clone());
                (
                    is_gone,
                    is_gone.then_some(Notice::Moved { broker, node, why }),
                )
            }
            Action::ReplacePod { key, uid } => {
                let is_gone = self.settle_deletion(uid, outcome);
                if is_gone {
                    self.moved.insert(key.clone(), now);
                }
                (is_gone, None)
            }
            Action::DeletePod { uid, .. } | Action::DeleteJob { uid, .. } => {
                (self.settle_deletion(uid, outcome), None)
            }
            Action::Remember { .. } => match outcome {
                Outcome::Done(_) | Outcome::Conflict | Outcome::Gone => (true, None),
                Outcome::Refused { .. } | Outcome::Failed(_) => (false, None),
            },
        }
    }

    fn settle_deletion(&mut self, uid: &str, outcome: &Outcome) -> bool {
        match outcome {
            Outcome::Done(_) | Outcome::Conflict | Outcome::Gone => {
                self.deleted.insert(uid.to_owned());
                true
            }
            Outcome::Refused { .. } | Outcome::Failed(_) => false,
        }
    }

    fn settle_creation(
        &mut self,
        (broker, owner): (&Broker, &str),
        outcome: &Outcome,
        now: Timestamp,
    ) -> (bool, Option<Notice>) {
        match outcome {
            Outcome::Done(uid) => {
                let created = Created {
                    uid: uid.clone().unwrap_or_default(),
                    owner: owner.to_owned(),
                    node: None,
                    since: now,
                };
                self.specs.accept(&broker.configuration, &broker.digest);
                self.created.insert(broker.key.clone(), created);
                (true, Some(Notice::Created(broker.clone())))
            }
            Outcome::Conflict => {
                let retry_in = self.count(broker, ("", ""), now);
                let is_taken = self.failures[&broker.key].count >= TRIES_BEFORE_TAKEN;
                let refused = Notice::Refused {
                    broker: broker.clone(),
                    message:
                        "there is another object of this name, which is not of this Instance: \
                              delete or rename it"
                            .to_owned(),
                    retry_in,
                };
                (true, is_taken.then_some(refused))
            }
            // The Instance or its namespace goes.
            Outcome::Gone => {
                self.count(broker, ("", ""), now);
                (true, None)
            }
            Outcome::Refused { code, message } => {
                (true, self.settle_refusal(broker, (*code, message), now))
            }
            Outcome::Failed(_) => (false, None),
        }
    }

    fn settle_refusal(
        &mut self,
        broker: &Broker,
        (code, message): (u16, &str),
        now: Timestamp,
    ) -> Option<Notice> {
        let retry_in = self.count(broker, ("", message), now);
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

    fn settle_trial(
        &mut self,
        broker: &Broker,
        outcome: &Outcome,
        now: Timestamp,
    ) -> (bool, Option<Notice>) {
        match outcome {
            // The name is taken by the Pod that is to be replaced: what comes before that was accepted.
            Outcome::Done(_) | Outcome::Conflict => {
                self.specs.accept(&broker.configuration, &broker.digest);
                (true, None)
            }
            Outcome::Gone => {
                self.count(broker, ("", ""), now);
                (true, None)
            }
            Outcome::Refused { code, message } => {
                (true, self.settle_refusal(broker, (*code, message), now))
            }
            Outcome::Failed(_) => (false, None),
        }
    }

    /// When a broker may be created again.
    pub(crate) fn not_before(&self, key: &ObjectKey, digest: &str) -> Option<Timestamp> {
        let failures = self.failures.get(key)?;
        // A Pod of Akri's carries no digest.
        let is_of = failures.digest == digest || failures.digest.is_empty();
        is_of.then(|| failures.last + wait(failures.count))
    }

    /// Returns the last answer of the API server that refused to create a broker, if it did.
    pub(crate) fn refusal(&self, key: &ObjectKey, digest: &str) -> Option<&str> {
        let failures = self.failures.get(key)?;
        let is_refused = failures.digest == digest && !failures.refusal.is_empty();
        is_refused.then_some(&failures.refusal)
    }

    /// Returns how often the broker in this place failed.
    pub(crate) fn failures(&self, key: &ObjectKey, digest: &str) -> u32 {
        let failures = self.failures.get(key);
        let same = failures.filter(|failures| failures.digest == digest);
        same.map_or(0, |failures| failures.count)
    }

    /// Returns the nodes of the Pods that were created and do not show yet.
    pub(crate) fn created_on(&self) -> impl Iterator<Item = &String> {
        self.created
            .values()
            .filter_map(|created| created.node.as_ref())
    }

    /// When the broker of a device that has moved may be replaced.
    pub(crate) fn may_move_at(&self, key: &ObjectKey) -> Option<Timestamp> {
        self.moved.get(key).map(|at| *at + MOVES_APART)
    }

    pub(crate) fn is_created(&self, key: &ObjectKey, owner: &str) -> bool {
        (self.created.get(key)).is_some_and(|created| created.owner == owner)
    }

    pub(crate) fn is_deleted(&self, uid: &str) -> bool {
        self.deleted.contains(uid)
    }

    /// When something that was created should have shown.
    pub(crate) fn wake(&self) -> Option<Timestamp> {
        (self.created.values())
            .map(|created| created.since + SHOWS_WITHIN)
            .min()
    }

    /// Counts one more failure. Returns how long to wait after it.
    fn count(
        &mut self,
        broker: &Broker,
        (pod, refusal): (&str, &str),
        now: Timestamp,
    ) -> SignedDuration {
        let before = self.failures.get(&broker.key);
        let same = before.filter(|failures| failures.digest == broker.digest);
        let count = same.map_or(0, |failures| failures.count) + 1;
        let failures = Failures {
            instance: broker.instance.clone(),
            digest: broker.digest.clone(),
            count,
            last: now,
            pod: pod.to_owned(),
            refusal: refusal.to_owned(),
        };
        self.failures.insert(broker.key.clone(), failures);
        wait(count)
    }
}

fn wait(count: u32) -> SignedDuration {
    let doublings = count.saturating_sub(1).min(16);
    (FIRST_WAIT * 2_i32.pow(doublings)).min(LAST_WAIT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_doubles_from_a_second_to_five_minutes() {
        let seconds: Vec<_> = (1..=11).map(|count| wait(count).as_secs()).collect();
        assert_eq!(seconds, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]);
        assert_eq!(wait(u32::MAX).as_secs(), 300);
    }
}
