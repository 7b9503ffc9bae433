//! Which Pods there should be, and which stay. Pure.
use super::{Action, Of, Place, Planner, seats::Serving};
use crate::{
    api::{
        broker::{self, SpecError},
        names,
    },
    controller::world::BrokerPod,
    model::{names::ObjectKey, slot::SlotOwner},
};
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The state of the Pod of a slot.
#[derive(Clone, Copy, PartialEq)]
enum Standing {
    /// It has the device until it is gone.
    Leaves,
    Serves {
        is_running: bool,
    },
    /// It was made by another spec.
    Outdated,
    /// It was told another way to the device, and serves until it is replaced.
    Moved {
        is_running: bool,
    },
    /// Another takes its place from then on.
    Ended {
        retry_at: Option<Timestamp>,
    },
}

/// The Pods of an Instance.
struct Pods<'p, 'a> {
    serving: Vec<Serving<'p, 'a>>,
    /// Pods that ended, and when each may have a successor.
    ended: Vec<(&'p Place<'a>, &'a BrokerPod, Option<Timestamp>)>,
    /// How many slots those have that are on the way out.
    leaving: usize,
}

impl<'a> Planner<'a> {
    /// One Pod for each node that sees the device, at most as many as the device has slots.
    pub(super) fn pods(&mut self, of: Of<'a>, spec: &Value) {
        let digest = self.asked(of.configuration).digest.clone();
        let places = self.places(of, Some(spec));
        let mut found = self.found(of, (spec, &digest), &places);
        let capacity = usize::try_from(of.subject.instance.spec.capacity).unwrap_or(0);
        // Those that run stay before those that wait; what leaves gives way to them.
        found.serving.sort_by_key(|(is_running, ..)| !is_running);
        let serving = found.serving;
        let mut seats = capacity.saturating_sub(found.leaving);
        seats = seats.min(capacity.saturating_sub(serving.len()));
        let lost = self.lost_seats(of, &serving);
        seats = seats.saturating_sub(lost);
        for (_, place, pod) in serving.iter().skip(capacity) {
            if let Some(pod) = pod {
                self.delete_pod((&place.key, pod), "the device has fewer slots");
            }
        }
        let needs_place = seats > 0
            || !found.ended.is_empty()
            || serving
                .iter()
                .any(|(_, _, pod)| pod.is_some_and(|pod| pod.unscheduled.is_some()));
        let mut free = match needs_place {
            true => self.candidates((of, &digest), (&places, &serving)),
            false => vec![],
        };
        for (place, pod, retry_at) in found.ended {
            self.ended((place, pod, retry_at), !free.is_empty(), &mut seats);
        }
        if seats > 0 && !free.is_empty() && self.has_choice(of, places.len()) {
            for place in free.drain(..seats.min(free.len())) {
                self.takes(place.node);
                match pod_of(of, place, spec, &digest) {
                    Ok(pod) => self.plan.actions.push(Action::CreatePod {
                        broker: of.broker(place.key.clone(), &digest),
                        owner: of.uid.to_owned(),
                        node: place.node.to_owned(),
                        pod,
                    }),
                    Err(e) => self.broken(of, (&digest, e)),
                }
            }
        }
        let serving = &serving[..serving.len().min(capacity)];
        self.move_stuck((of, &digest), serving, &free);
        self.report_pods((of, &digest), (&places, serving), lost);
    }

    /// Sorts the Pods of an Instance, and deletes those that are to be replaced or have no place any more.
    fn found<'p>(
        &mut self,
        of: Of<'a>,
        (spec, digest): (&Value, &str),
        places: &'p [Place<'a>],
    ) -> Pods<'p, 'a> {
        let mut pods = self.pods.remove(&of.owner()).unwrap_or_default();
        let mut leaving = 0;
        let mut serving = vec![];
        let mut ended = vec![];
        let has_spare = places.iter().any(|place| self.is_free(place, of.uid));
        for place in places {
            // Where no other can follow, what runs is better than none.
            let may_follow = place.is_fit && (place.is_open() || has_spare);
            match pods.remove(&place.key) {
                None if self.input.memory.is_created(&place.key, of.uid) => {
                    serving.push((false, place, None));
                }
                None => {}
                Some(pod) => match self.standing(pod, (place, may_follow), digest) {
                    // A successor in the same place is to find a slot.
                    Standing::Leaves if place.is_open() => leaving += 1,
                    Standing::Leaves => leaving += self.seat_of(pod),
                    Standing::Serves { is_running } => {
                        serving.push((is_running, place, Some(pod)));
                    }
                    Standing::Outdated if !self.is_accepted(of, place, (spec, digest)) => {
                        serving.push((pod.phase == "Running", place, Some(pod)));
                    }
                    Standing::Outdated => {
                        self.delete_pod((&place.key, pod), "its Configuration asks for another");
                        leaving += 1;
                    }
                    Standing::Moved { .. } if self.replaced((&place.key, pod)) => leaving += 1,
                    Standing::Moved { is_running } => serving.push((is_running, place, Some(pod))),
                    Standing::Ended { retry_at } => ended.push((place, pod, retry_at)),
                },
            }
        }
        for (key, pod) in pods {
            self.delete_pod((key, pod), "its node sees the device no more");
            leaving += self.seat_of(pod);
        }
        Pods {
            serving,
            ended,
            leaving,
        }
    }

    /// Whether the API server takes Pods of this spec. It is asked once, with a Pod that is not created: a spec that it
    /// refuses must not end the brokers that run.
    fn is_accepted(
        &mut self,
        of: Of<'a>,
        place: &Place<'a>,
        (spec, digest): (&Value, &str),
    ) -> bool {
        let asked = self.asked(of.configuration);
        if asked.is_accepted || asked.is_tried {
            return asked.is_accepted;
        }
        if self.may_start(&place.key, digest) {
            match pod_of(of, place, spec, digest) {
                Ok(pod) => self.plan.actions.push(Action::TryPod {
                    broker: of.broker(place.key.clone(), digest),
                    pod,
                }),
                Err(e) => self.broken(of, (digest, e)),
            }
        }
        self.asked(of.configuration).is_tried = true;
        false
    }

    fn standing(
        &self,
        pod: &BrokerPod,
        (place, may_follow): (&Place<'_>, bool),
        digest: &str,
    ) -> Standing {
        if pod.meta.is_deleting || self.input.memory.is_deleted(&pod.meta.uid) {
            return Standing::Leaves;
        }
        if pod.has_ended() {
            let retry_at = self.input.memory.not_before(&place.key, digest);
            return Standing::Ended { retry_at };
        }
        // What is not known differs from nothing: Akri's Pods carry neither.
        let differs = |annotation: &str, now: Option<&str>| {
            let then = pod.meta.annotations.get(annotation);
            may_follow && then.zip(now).is_some_and(|(then, now)| then != now)
        };
        if differs(names::BROKER_DIGEST, Some(digest)) {
            return Standing::Outdated;
        }
        let is_running = pod.phase == "Running";
        match differs(names::TOLD_CONNECTION, place.connection) {
            true => Standing::Moved { is_running },
            false => Standing::Serves { is_running },
        }
    }

    /// Whether the Pod of a device that has moved is replaced now: the first time at once.
    fn replaced(&mut self, (key, pod): (&ObjectKey, &BrokerPod)) -> bool {
        let at = self.input.memory.may_move_at(key);
        if let Some(at) = at.filter(|at| *at > self.input.now) {
            self.wake_at(at);
            return false;
        }
        self.plan.actions.push(Action::ReplacePod {
            key: key.clone(),
            uid: pod.meta.uid.clone(),
        });
        true
    }

    /// The slots that lost nodes hold, but for those of Pods that are counted as `serving`: nobody is given them before
    /// they are released, and a Pod for them would only wait.
    fn lost_seats(&self, of: Of<'a>, serving: &[Serving<'_, '_>]) -> usize {
        let mut held: BTreeMap<String, usize> = BTreeMap::new();
        for usage in of.subject.instance.spec.device_usage.values() {
            let owner = SlotOwner::from_usage(usage).ok().flatten();
            if let Some(owner) = owner.filter(|owner| self.is_lost(owner.node())) {
                *held.entry(owner.node().to_owned()).or_default() += 1;
            }
        }
        for (_, place, _) in serving {
            if let Some(held) = held.get_mut(place.node) {
                *held = held.saturating_sub(1);
            }
        }
        held.values().sum()
    }

    fn is_lost(&self, node: &str) -> bool {
        let node = self.input.world.nodes.get(node);
        !node.is_some_and(|node| node.is_ready)
    }

    /// How many slots a Pod that leaves still has. Where its node does not answer it may never be gone, and the slots
    /// that the node holds are counted.
    fn seat_of(&self, pod: &BrokerPod) -> usize {
        let is_on_lost_node = pod.node.as_ref().is_some_and(|node| self.is_lost(node));
        usize::from(!pod.has_ended() && !is_on_lost_node)
    }

    /// Its successor waits, so that a broker that fails at once does not fill the cluster with Pods.
    /// Elsewhere another may be created at once.
    fn ended(
        &mut self,
        (place, pod, retry_at): (&Place<'_>, &BrokerPod, Option<Timestamp>),
        has_other: bool,
        seats: &mut usize,
    ) {
        if !place.is_open() {
            return;
        }
        if has_other && self.fails_here(place, pod) {
            self.delete_pod((&place.key, pod), "it ended too often on its node");
            return;
        }
        if *seats == 0 {
            self.delete_pod((&place.key, pod), "it ended, and others have its slots");
            return;
        }
        *seats -= 1;
        match retry_at.filter(|at| *at > self.input.now) {
            Some(at) => self.wake_at(at),
            None => self.delete_pod((&place.key, pod), "it ended, and another takes its place"),
        }
    }

    pub(super) fn is_free(&self, place: &Place<'_>, uid: &str) -> bool {
        let world = self.input.world;
        let is_taken = world.pods.contains_key(&place.key);
        place.is_open() && !is_taken && !self.input.memory.is_created(&place.key, uid)
    }

    pub(super) fn delete_pod(&mut self, (key, pod): (&ObjectKey, &BrokerPod), why: &'static str) {
        if !pod.meta.is_deleting && !self.input.memory.is_deleted(&pod.meta.uid) {
            self.plan.actions.push(Action::DeletePod {
                key: key.clone(),
                uid: pod.meta.uid.clone(),
                why,
            });
        }
    }
}

fn pod_of(of: Of<'_>, place: &Place<'_>, spec: &Value, digest: &str) -> Result<Value, SpecError> {
    let mut pod = broker::pod(of.subject, place.node, spec)?;
    let annotations = &mut pod["metadata"]["annotations"];
    *annotations = json!({ (names::BROKER_DIGEST): digest });
    if let Some(connection) = place.connection {
        annotations[names::TOLD_CONNECTION] = json!(connection);
    }
    Ok(pod)
}
