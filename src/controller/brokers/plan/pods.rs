//! Which Pods there should be, and which stay. Pure.
use super::{Action, Of, Place, Planner};
use crate::{
    api::{
        broker::{self, SpecError},
        names,
    },
    controller::world::BrokerPod,
    model::names::ObjectKey,
};
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

/// What a Pod that is in its place is good for.
#[derive(Clone, Copy, PartialEq)]
enum Standing {
    /// It has the device until it is gone.
    Leaves,
    Serves {
        is_running: bool,
    },
    Outdated(&'static str),
    /// Another takes its place from then on.
    Ended {
        retry_at: Option<Timestamp>,
    },
}

impl<'a> Planner<'a> {
    /// One Pod for each node that sees the device, at most as many as the device has slots.
    pub(super) fn pods(&mut self, of: Of<'a>, spec: &Value) {
        let digest = self.asked(of.configuration).digest.clone();
        let places = self.places(of);
        let mut pods = self.pods.remove(&of.owner()).unwrap_or_default();
        let capacity = usize::try_from(of.subject.instance.spec.capacity).unwrap_or(0);
        let mut seats = capacity;
        let mut serving = vec![];
        let mut ended = vec![];
        for place in &places {
            match pods.remove(&place.key) {
                None if self.input.memory.is_created(&place.key, of.uid) => {
                    serving.push((false, place, None));
                }
                None => {}
                Some(pod) => match self.standing(pod, place, &digest) {
                    // A successor in the same place is to find a slot.
                    Standing::Leaves if place.is_fit => seats = seats.saturating_sub(1),
                    Standing::Leaves => seats = seats.saturating_sub(self.seat_of(pod)),
                    Standing::Serves { is_running } => {
                        serving.push((is_running, place, Some(pod)));
                    }
                    Standing::Outdated(why) => {
                        self.delete_pod((&place.key, pod), why);
                        seats = seats.saturating_sub(1);
                    }
                    Standing::Ended { retry_at } => ended.push((place, pod, retry_at)),
                },
            }
        }
        for (key, pod) in pods {
            self.delete_pod((key, pod), "its node sees the device no more");
            seats = seats.saturating_sub(self.seat_of(pod));
        }
        // Those that run stay before those that wait; what leaves gives way to them.
        serving.sort_by_key(|(is_running, ..)| !is_running);
        seats = seats.min(capacity.saturating_sub(serving.len()));
        for (_, place, pod) in serving.iter().skip(capacity) {
            if let Some(pod) = pod {
                self.delete_pod((&place.key, pod), "the device has fewer slots");
            }
        }
        for (place, pod, retry_at) in ended {
            self.ended((place, pod), retry_at, &mut seats);
        }
        for place in &places {
            if seats > 0 && self.is_free(place, of.uid) && self.may_start(&place.key, &digest) {
                match create_pod(of, place, (spec, &digest)) {
                    Ok(action) => self.plan.actions.push(action),
                    Err(e) => self.broken(of, (&digest, e)),
                }
                seats -= 1;
            }
        }
    }

    fn standing(&self, pod: &BrokerPod, place: &Place<'_>, digest: &str) -> Standing {
        if pod.meta.is_deleting || self.input.memory.is_deleted(&pod.meta.uid) {
            return Standing::Leaves;
        }
        if pod.has_ended() {
            let retry_at = self.input.memory.not_before(&place.key, digest);
            return Standing::Ended { retry_at };
        }
        // What is not known differs from nothing: Akri's Pods carry neither. Where nothing new can start, what runs
        // is better than none.
        let differs = |annotation: &str, now: Option<&str>| {
            let then = pod.meta.annotations.get(annotation);
            place.is_fit && then.zip(now).is_some_and(|(then, now)| then != now)
        };
        if differs(names::BROKER_DIGEST, Some(digest)) {
            return Standing::Outdated("its Configuration asks for another");
        }
        if differs(names::TOLD_CONNECTION, place.connection) {
            return Standing::Outdated("the device is reached differently");
        }
        Standing::Serves {
            is_running: pod.phase == "Running",
        }
    }

    /// How many slots a Pod that leaves still has: none where its node does not answer, and it may never be gone.
    fn seat_of(&self, pod: &BrokerPod) -> usize {
        let node = pod.node.as_ref();
        let is_lost =
            |node| !matches!(self.input.world.nodes.get(node), Some(node) if node.is_ready);
        usize::from(!pod.has_ended() && !node.is_some_and(is_lost))
    }

    /// Its successor waits, so that a broker that fails at once does not fill the cluster with Pods.
    fn ended(
        &mut self,
        (place, pod): (&Place<'_>, &BrokerPod),
        retry_at: Option<Timestamp>,
        seats: &mut usize,
    ) {
        if !place.is_fit {
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

    fn is_free(&self, place: &Place<'_>, uid: &str) -> bool {
        let world = self.input.world;
        let is_taken = world.pods.contains_key(&place.key);
        place.is_fit && !is_taken && !self.input.memory.is_created(&place.key, uid)
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

fn create_pod(
    of: Of<'_>,
    place: &Place<'_>,
    (spec, digest): (&Value, &str),
) -> Result<Action, SpecError> {
    let mut pod = broker::pod(of.subject, place.node, spec)?;
    let annotations = &mut pod["metadata"]["annotations"];
    *annotations = json!({ (names::BROKER_DIGEST): digest });
    if let Some(connection) = place.connection {
        annotations[names::TOLD_CONNECTION] = json!(connection);
    }
    Ok(Action::CreatePod {
        broker: of.broker(place.key.clone(), digest),
        owner: of.uid.to_owned(),
        pod,
    })
}
