//! Decides which Pods are created, and which stay. Pure.
use super::{
    super::action::{Action, Cause},
    planner::{Planner, SeeingNode, Serving, Target, WantedPods},
    reported::Gaps,
};
use crate::{
    api::{broker::NODES_MAX, names},
    controller::world::BrokerPod,
    model::{names::ObjectKey, slot::SlotOwner, typed_names::NodeName},
};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use tokio::time::Instant;

/// The state of a Pod whose node sees the device, or that has no node yet.
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
        retry_at: Option<Instant>,
    },
}

/// The Pods of an Instance.
struct Pods<'a> {
    serving: Vec<Serving<'a>>,
    /// The Pods that have ended, each with the time before which it gets no successor.
    ended: Vec<(Serving<'a>, Option<Instant>)>,
    /// The number of slots of the Pods that are being deleted.
    leaving: usize,
    /// The number of ended Pods that are being deleted. Each has its successor once it is gone: with another name before, the
    /// successor would have none of its back-off, and a Pod that a finalizer keeps would have ever more of them.
    ended_leaving: usize,
}

/// The number of Pods that can be added.
struct Room {
    slots: usize,
    nodes: usize,
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
        let places = self.places(target);
        // The API server may refuse the Pods: an earlier Job stays until then.
        let is_fit = places.iter().any(|place| place.is_fit);
        if is_accepted || !(is_fit || target.is_broken) {
            self.delete_jobs_of(target);
        } else {
            self.delete_earlier_jobs_of(target);
        }
        let occupied = self.occupied(target);
        let mut found = self.found(wanted, &places, &occupied);
        let capacity = usize::try_from(target.subject.instance.spec.capacity).unwrap_or(0);
        // Running Pods keep their slots before waiting ones.
        let order =
            |Serving { pod, .. }: &Serving<'_>| (pod.phase != "Running", pod.node.is_none());
        found.serving.sort_by_key(order);
        let lost = self.slots_of_lost_nodes(target, &found.serving);
        let used = found.leaving + found.ended_leaving + found.serving.len() + lost;
        let serving = self.without_surplus(found.serving, capacity, places.len());
        let is_free = |place: &&SeeingNode<'_>| place.is_fit && !occupied.contains(place.node);
        let free: Vec<&SeeingNode<'_>> = places.iter().filter(is_free).collect();
        let waiting = serving.iter().filter(|one| one.pod.node.is_none()).count();
        let mut room = Room {
            slots: capacity.saturating_sub(used),
            nodes: free.len().saturating_sub(waiting + found.ended_leaving),
        };
        for (ended, retry_at) in found.ended.iter().filter(|_| is_fit) {
            self.replace_ended(*ended, *retry_at, &mut room);
        }
        let mut gaps = Gaps {
            has_ended: !found.ended.is_empty() || found.ended_leaving > 0,
            lost,
            ..Gaps::default()
        };
        let missing = room.slots.min(room.nodes);
        if missing > 0 || waiting > 0 {
            let reach = self.reach(wanted, &places, &free);
            self.replace_waiting(&serving, &reach);
            if missing > 0 && self.check_reports(target, places.len()) {
                gaps.absent = self.create(wanted, &reach, missing);
                gaps.is_nameless = gaps.absent.len() < missing;
            }
        }
        self.report_pods(wanted, &places, &serving, &gaps);
    }

    /// Returns the nodes that have a Pod of the Instance: no other can be there before it is gone.
    fn occupied(&self, target: Target<'a>) -> BTreeSet<&'a NodeName> {
        let pods = self.pods.get(&target.owner()).into_iter().flatten();
        let live = pods.filter(|(_, pod)| !pod.has_ended());
        live.filter_map(|(_, pod)| pod.node.as_ref()).collect()
    }

    /// Sorts the Pods of an Instance, and deletes those that must be replaced or whose node no longer sees the device.
    fn found(
        &mut self,
        wanted: WantedPods<'a, '_>,
        places: &[SeeingNode<'a>],
        occupied: &BTreeSet<&NodeName>,
    ) -> Pods<'a> {
        let target = wanted.target;
        let mut found = Pods {
            serving: vec![],
            ended: vec![],
            leaving: 0,
            ended_leaving: 0,
        };
        for (key, pod) in self.pods.remove(&target.owner()).unwrap_or_default() {
            let sees = |node| places.iter().any(|place| place.node == node);
            if pod.node.as_ref().is_some_and(|node| !sees(node)) {
                self.delete_pod(key, pod, "its node sees the device no more");
                found.leaving += usize::from(!pod.has_ended() && !self.is_on_lost_node(pod));
                continue;
            }
            // If no other Pod can follow, the running one is better than none.
            let may_follow = places.iter().any(|other| {
                let is_its = pod.node.as_ref().is_none_or(|node| node == other.node);
                other.is_fit && (is_its || !occupied.contains(other.node))
            });
            let one = Serving { key, pod };
            match self.state_of(one, places, wanted.digest) {
                // A Pod on a lost node may stay for ever; `slots_of_lost_nodes` counts its slots.
                PodState::Leaves if self.is_on_lost_node(pod) => {}
                PodState::Leaves if pod.has_ended() => found.ended_leaving += 1,
                PodState::Leaves => found.leaving += 1,
                PodState::Serves => found.serving.push(one),
                PodState::Outdated | PodState::Moved if !may_follow => found.serving.push(one),
                PodState::Outdated if !self.check_spec(wanted, key, places) => {
                    found.serving.push(one);
                }
                PodState::Outdated => {
                    self.delete_pod(key, pod, "its Configuration asks for another");
                    found.leaving += 1;
                }
                PodState::Moved if self.replaced(one, Cause::Moved) => found.leaving += 1,
                PodState::Moved => found.serving.push(one),
                PodState::Ended { retry_at } => found.ended.push((one, retry_at)),
            }
        }
        found
    }

    /// Deletes the Pods beyond the slots of the device, and those without a node beyond the nodes where there is none of the
    /// others. Returns the rest.
    fn without_surplus(
        &mut self,
        serving: Vec<Serving<'a>>,
        capacity: usize,
        places: usize,
    ) -> Vec<Serving<'a>> {
        let with_slot = serving.iter().take(capacity);
        let nodes: BTreeSet<_> = with_slot.filter_map(|one| one.pod.node.as_ref()).collect();
        let mut left = places.saturating_sub(nodes.len());
        let mut kept = vec![];
        for (n, one) in serving.into_iter().enumerate() {
            let is_waiting = one.pod.node.is_none();
            if n < capacity && !(is_waiting && left == 0) {
                left -= usize::from(is_waiting);
                kept.push(one);
                continue;
            }
            self.plan.actions.push(Action::DeletePod {
                key: one.key.clone(),
                uid: one.pod.meta.uid.clone(),
                version: is_waiting.then(|| one.pod.meta.version.to_string()),
                is_forced: false,
                why: "the device has fewer slots, or fewer nodes see it",
            });
        }
        kept
    }

    /// Returns whether the API server accepts Pods of this spec. It is asked once for each spec, by a dry run: a spec that
    /// it refuses must not end the running brokers.
    fn check_spec(
        &mut self,
        wanted: WantedPods<'a, '_>,
        key: &ObjectKey,
        places: &[SeeingNode<'a>],
    ) -> bool {
        let WantedPods { target, digest, .. } = wanted;
        let checked = self.checked(target.configuration_key, target.configuration);
        if checked.is_accepted || checked.is_tried {
            return checked.is_accepted;
        }
        if self.check_start(key, digest) {
            let fit: Vec<&SeeingNode<'_>> = places.iter().filter(|place| place.is_fit).collect();
            match wanted.pod(&key.name, &fit[..fit.len().min(NODES_MAX)]) {
                Ok(pod) => self.plan.actions.push(Action::TryPod {
                    broker: target.broker(key.clone(), digest),
                    pod,
                }),
                Err(e) => self.add_broken(target, digest, e),
            }
        }
        let checked = self.checked(target.configuration_key, target.configuration);
        checked.is_tried = true;
        false
    }

    fn state_of(&self, one: Serving<'a>, places: &[SeeingNode<'_>], digest: &str) -> PodState {
        let Serving { key, pod } = one;
        if pod.meta.is_deleting {
            return PodState::Leaves;
        }
        if pod.has_ended() {
            let retry_at = self.input.memory.failures.not_before(key, digest);
            return PodState::Ended { retry_at };
        }
        // A missing annotation is no difference: Akri's Pods have neither.
        let noted = |annotation: &str| pod.meta.annotations.get(annotation);
        if noted(names::BROKER_DIGEST).is_some_and(|then| then != digest) {
            return PodState::Outdated;
        }
        let is_moved = |place: &SeeingNode<'_>| {
            let then = noted(names::BROKER_CONNECTION);
            let then = then.and_then(|noted| noted_on(noted, place.node));
            then.zip(place.connection)
                .is_some_and(|(then, now)| then != now)
        };
        // A Pod that waits starts with the connection of that time, and must not be replaced then for the one of before.
        let mut its_places = places.iter().filter(|place| match &pod.node {
            Some(node) => node == place.node,
            None => place.is_fit && pod.may_run_on.contains(place.node),
        });
        if its_places.any(is_moved) {
            return PodState::Moved;
        }
        PodState::Serves
    }

    /// Replaces the Pod of a device whose connection has changed, or that other nodes see now: the first time at once, later
    /// after a wait. Returns whether it is replaced now.
    pub(super) fn replaced(&mut self, Serving { key, pod }: Serving<'_>, cause: Cause) -> bool {
        let at = self.input.memory.may_replace_at(key, cause);
        if let Some(at) = at.filter(|at| *at > self.input.now.instant) {
            self.wake_at(at);
            return false;
        }
        let is_waiting = pod.node.is_none();
        self.plan.actions.push(Action::ReplacePod {
            key: key.clone(),
            uid: pod.meta.uid.clone(),
            version: is_waiting.then(|| pod.meta.version.to_string()),
            cause,
        });
        true
    }

    /// Returns the number of slots that lost nodes hold, without those of the Pods in `serving`. Nobody can have them
    /// before they are released, and a Pod for them would only wait.
    fn slots_of_lost_nodes(&self, target: Target<'a>, serving: &[Serving<'_>]) -> usize {
        let mut held: BTreeMap<NodeName, usize> = BTreeMap::new();
        for usage in target.subject.instance.spec.device_usage.values() {
            let owner = SlotOwner::from_usage(usage).ok().flatten();
            if let Some(owner) = owner.filter(|owner| self.is_lost(owner.node())) {
                *held.entry(owner.node().clone()).or_default() += 1;
            }
        }
        for node in serving.iter().filter_map(|one| one.pod.node.as_ref()) {
            if let Some(held) = held.get_mut(node) {
                *held = held.saturating_sub(1);
            }
        }
        held.values().sum()
    }

    fn is_lost(&self, node: &NodeName) -> bool {
        let node = self.input.world.nodes.get(node);
        !node.is_some_and(|node| node.is_ready)
    }

    fn is_on_lost_node(&self, pod: &BrokerPod) -> bool {
        pod.node.as_ref().is_some_and(|node| self.is_lost(node))
    }

    /// Deletes a Pod that has ended, so that another can be created. The successor waits until `retry_at`, so that a broker
    /// that fails at once does not fill the cluster with Pods.
    fn replace_ended(
        &mut self,
        Serving { key, pod }: Serving<'_>,
        retry_at: Option<Instant>,
        room: &mut Room,
    ) {
        if room.slots == 0 || room.nodes == 0 {
            self.delete_pod(key, pod, "it ended, and others have its slots");
            return;
        }
        room.slots -= 1;
        room.nodes -= 1;
        match retry_at.filter(|at| *at > self.input.now.instant) {
            Some(at) => self.wake_at(at),
            None => self.delete_pod(key, pod, "it ended, and another takes its place"),
        }
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
                version: pod.waits_to_begin.then(|| pod.meta.version.to_string()),
                is_forced: pod.waits_to_begin,
                why,
            });
        }
    }
}

/// Returns how the device was reached from a node when the Pod was created.
pub(super) fn noted_on<'n>(noted: &'n str, node: &str) -> Option<&'n str> {
    if !noted.contains('=') {
        return Some(noted);
    }
    let mut all = noted.split(',').filter_map(|one| one.split_once('='));
    all.find(|(of, _)| *of == node)
        .map(|(_, connection)| connection)
}
