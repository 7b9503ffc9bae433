//! Decides which Pods are created, and which stay. Pure.
use super::{Action, Place, Planner, Target, WantedPods, node_choice::Serving};
use crate::{
    api::{
        broker::{self, SpecError},
        names,
    },
    controller::world::BrokerPod,
    model::{names::ObjectKey, slot::SlotOwner, typed_names::NodeName},
};
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The state of the Pod of a slot.
#[derive(Clone, Copy, PartialEq)]
enum PodState {
    /// The Pod is being deleted, and has the device until then.
    Leaves,
    Serves,
    /// The Pod was created from another spec.
    Outdated,
    /// The Pod was given another connection to the device, and serves until it is replaced.
    Moved,
    /// The Pod has ended. Its successor is created after `retry_at`.
    Ended {
        retry_at: Option<Timestamp>,
    },
}

/// The Pods of an Instance.
struct Pods<'p, 'a> {
    serving: Vec<Serving<'p, 'a>>,
    ended: Vec<Ended<'p, 'a>>,
    /// The number of slots of the Pods that are being deleted.
    leaving: usize,
}

/// A Pod that has ended.
struct Ended<'p, 'a> {
    place: &'p Place<'a>,
    pod: &'a BrokerPod,
    /// The time before which it gets no successor.
    retry_at: Option<Timestamp>,
}

impl<'a> Planner<'a> {
    /// Plans one Pod for each node that sees the device, at most as many as the device has slots.
    pub(super) fn pods(&mut self, target: Target<'a>, spec: &Value) {
        let checked = self.checked(target.configuration_key, target.configuration);
        let digest = checked.digest.clone();
        let is_accepted = checked.is_accepted;
        let wanted = WantedPods {
            target,
            spec,
            digest: &digest,
        };
        let places = self.places(target, Some(spec));
        // The API server may refuse the Pods: an earlier Job stays until then.
        let is_fit = places.iter().any(|place| place.is_fit);
        if is_accepted || !(is_fit || target.is_broken) {
            self.delete_jobs_of(target);
        } else {
            self.delete_earlier_jobs_of(target);
        }
        let mut found = self.found(wanted, &places);
        let capacity = usize::try_from(target.subject.instance.spec.capacity).unwrap_or(0);
        // Running Pods keep their slots before waiting ones.
        found.serving.sort_by_key(|serving| !serving.is_running);
        let serving = found.serving;
        let mut free_slots = capacity.saturating_sub(found.leaving + serving.len());
        let lost = self.slots_of_lost_nodes(target, &serving);
        free_slots = free_slots.saturating_sub(lost);
        for Serving { place, pod, .. } in serving.iter().skip(capacity) {
            self.delete_pod(&place.key, pod, "the device has fewer slots");
        }
        let needs_place = free_slots > 0
            || !found.ended.is_empty()
            || serving
                .iter()
                .any(|serving| serving.pod.unscheduled.is_some());
        let mut free = match needs_place {
            true => self.candidates(wanted, &places, &serving),
            false => vec![],
        };
        for ended in found.ended {
            self.replace_ended(&ended, &free, &mut free_slots);
        }
        if free_slots > 0 && !free.is_empty() && self.check_choice(target, places.len()) {
            for place in free.drain(..free_slots.min(free.len())) {
                self.takes(place.node);
                match wanted.pod(place) {
                    Ok(pod) => self.plan.actions.push(Action::CreatePod {
                        broker: target.broker(place.key.clone(), &digest),
                        owner: target.uid.to_owned(),
                        node: place.node.clone(),
                        pod,
                    }),
                    Err(e) => self.add_broken(target, &digest, e),
                }
            }
        }
        let serving = &serving[..serving.len().min(capacity)];
        self.move_stuck(wanted, serving, &free);
        self.report_pods(wanted, &places, serving, lost);
    }

    /// Sorts the Pods of an Instance, and deletes those that must be replaced or whose node no longer sees the device.
    fn found<'p>(&mut self, wanted: WantedPods<'a, '_>, places: &'p [Place<'a>]) -> Pods<'p, 'a> {
        let WantedPods { target, digest, .. } = wanted;
        let mut pods = self.pods.remove(&target.owner()).unwrap_or_default();
        let mut leaving = 0;
        let mut serving = vec![];
        let mut ended = vec![];
        let has_spare = places.iter().any(|place| self.is_free(place));
        for place in places {
            // If no other Pod can follow, the running one is better than none.
            let may_follow = place.is_fit && (place.is_open() || has_spare);
            match pods.remove(&place.key) {
                None => {}
                Some(pod) => match self.state_of(pod, place, digest) {
                    // Its successor in the same place needs the slot.
                    PodState::Leaves if place.is_open() => leaving += 1,
                    PodState::Leaves => leaving += self.slots_of(pod),
                    PodState::Serves => serving.push(Serving::new(place, pod)),
                    PodState::Outdated | PodState::Moved if !may_follow => {
                        serving.push(Serving::new(place, pod));
                    }
                    PodState::Outdated if !self.check_spec(wanted, place) => {
                        serving.push(Serving::new(place, pod));
                    }
                    PodState::Outdated => {
                        self.delete_pod(&place.key, pod, "its Configuration asks for another");
                        leaving += 1;
                    }
                    PodState::Moved if self.replaced(&place.key, pod) => leaving += 1,
                    PodState::Moved => serving.push(Serving::new(place, pod)),
                    PodState::Ended { retry_at } => ended.push(Ended {
                        place,
                        pod,
                        retry_at,
                    }),
                },
            }
        }
        for (key, pod) in pods {
            self.delete_pod(key, pod, "its node sees the device no more");
            leaving += self.slots_of(pod);
        }
        Pods {
            serving,
            ended,
            leaving,
        }
    }

    /// Returns whether the API server accepts Pods of this spec. It is asked once for each spec, by a dry run: a spec that
    /// it refuses must not end the running brokers.
    fn check_spec(&mut self, wanted: WantedPods<'a, '_>, place: &Place<'a>) -> bool {
        let WantedPods { target, digest, .. } = wanted;
        let checked = self.checked(target.configuration_key, target.configuration);
        if checked.is_accepted || checked.is_tried {
            return checked.is_accepted;
        }
        if self.check_start(&place.key, digest) {
            match wanted.pod(place) {
                Ok(pod) => self.plan.actions.push(Action::TryPod {
                    broker: target.broker(place.key.clone(), digest),
                    pod,
                }),
                Err(e) => self.add_broken(target, digest, e),
            }
        }
        let checked = self.checked(target.configuration_key, target.configuration);
        checked.is_tried = true;
        false
    }

    fn state_of(&self, pod: &BrokerPod, place: &Place<'_>, digest: &str) -> PodState {
        if pod.meta.is_deleting {
            return PodState::Leaves;
        }
        if pod.has_ended() {
            let retry_at = self.input.memory.not_before(&place.key, digest);
            return PodState::Ended { retry_at };
        }
        // A missing annotation is no difference: Akri's Pods have neither.
        let differs = |annotation: &str, now: Option<&str>| {
            let then = pod.meta.annotations.get(annotation);
            then.zip(now).is_some_and(|(then, now)| then != now)
        };
        if differs(names::BROKER_DIGEST, Some(digest)) {
            return PodState::Outdated;
        }
        match differs(names::BROKER_CONNECTION, place.connection) {
            true => PodState::Moved,
            false => PodState::Serves,
        }
    }

    /// Replaces the Pod of a device whose connection has changed: the first time at once, later after a wait. Returns
    /// whether it is replaced now.
    fn replaced(&mut self, key: &ObjectKey, pod: &BrokerPod) -> bool {
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

    /// Returns the number of slots that lost nodes hold, without those of the Pods in `serving`. Nobody can have them
    /// before they are released, and a Pod for them would only wait.
    fn slots_of_lost_nodes(&self, target: Target<'a>, serving: &[Serving<'_, '_>]) -> usize {
        let mut held: BTreeMap<NodeName, usize> = BTreeMap::new();
        for usage in target.subject.instance.spec.device_usage.values() {
            let owner = SlotOwner::from_usage(usage).ok().flatten();
            if let Some(owner) = owner.filter(|owner| self.is_lost(owner.node())) {
                *held.entry(owner.node().clone()).or_default() += 1;
            }
        }
        for Serving { place, .. } in serving {
            if let Some(held) = held.get_mut(place.node.as_str()) {
                *held = held.saturating_sub(1);
            }
        }
        held.values().sum()
    }

    fn is_lost(&self, node: &NodeName) -> bool {
        let node = self.input.world.nodes.get(node);
        !node.is_some_and(|node| node.is_ready)
    }

    /// Returns the number of slots that a Pod still has while it is being deleted. A Pod on a lost node may stay for ever;
    /// [`Self::slots_of_lost_nodes`] counts its slots.
    fn slots_of(&self, pod: &BrokerPod) -> usize {
        let is_on_lost_node = pod
            .node
            .as_ref()
            .is_some_and(|node| self.is_lost(&node.as_str().into()));
        usize::from(!pod.has_ended() && !is_on_lost_node)
    }

    /// Deletes a Pod that has ended, so that another can be created. In the same place the successor waits until
    /// `retry_at`, so that a broker that fails at once does not fill the cluster with Pods. `free` are the places that
    /// another Pod can have.
    fn replace_ended(
        &mut self,
        ended: &Ended<'_, '_>,
        free: &[&Place<'_>],
        free_slots: &mut usize,
    ) {
        let Ended {
            place,
            pod,
            retry_at,
        } = ended;
        if !place.is_open() {
            return;
        }
        if !free.is_empty() && self.fails_here(place, pod) {
            self.delete_pod(&place.key, pod, "it ended too often on its node");
            return;
        }
        if *free_slots == 0 {
            self.delete_pod(&place.key, pod, "it ended, and others have its slots");
            return;
        }
        *free_slots -= 1;
        match retry_at.filter(|at| *at > self.input.now) {
            Some(at) => self.wake_at(at),
            None => self.delete_pod(&place.key, pod, "it ended, and another takes its place"),
        }
    }

    pub(super) fn is_free(&self, place: &Place<'_>) -> bool {
        let world = self.input.world.whole();
        let is_taken = world.pods.contains_key(&place.key);
        place.is_open() && !is_taken
    }

    /// Deletes the Pods of an Instance whose Configuration asks for none.
    pub(super) fn delete_pods_of(&mut self, target: Target<'a>) {
        for (key, pod) in self.pods.remove(&target.owner()).unwrap_or_default() {
            self.delete_pod(key, pod, "its Configuration asks for no Pod");
        }
    }

    fn delete_pod(&mut self, key: &ObjectKey, pod: &BrokerPod, why: &'static str) {
        if !pod.meta.is_deleting {
            self.plan.actions.push(Action::DeletePod {
                key: key.clone(),
                uid: pod.meta.uid.clone(),
                why,
            });
        }
    }
}

impl WantedPods<'_, '_> {
    /// Returns the manifest of the Pod for a node.
    fn pod(&self, place: &Place<'_>) -> Result<Value, SpecError> {
        let mut pod = broker::pod(self.target.subject, place.node, self.spec)?;
        let annotations = &mut pod["metadata"]["annotations"];
        *annotations = json!({ (names::BROKER_DIGEST): self.digest });
        if let Some(connection) = place.connection {
            annotations[names::BROKER_CONNECTION] = json!(connection);
        }
        Ok(pod)
    }
}
