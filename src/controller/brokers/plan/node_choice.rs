//! Decides which node a new Pod is for, which Pods are moved, and what is reported about them. Pure.
use super::{
    super::report::{Found, Report},
    Action, Input, Place, Planner, Target, WantedPods,
};
use crate::{
    api::{names, reason::Reason},
    controller::{pod_state::one_line, world::BrokerPod},
    model::{
        slot::{SlotOwner, used_slots},
        typed_names::NodeName,
    },
};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use std::collections::{BTreeMap, BTreeSet};

/// The scheduler tries again within seconds when something changes. A Pod that it refuses for so long is moved. The time
/// doubles each time when all places have been tried.
const MOVES_AFTER: SignedDuration = SignedDuration::from_secs(3);
const MOVES_AFTER_MAX: SignedDuration = SignedDuration::from_mins(5);
/// The most Pods that are moved in one pass.
const MOVES_MAX: usize = 16;
/// A Pod that the scheduler refuses counts as starting for so long: a new node or resource may need a moment.
const REFUSED_FOR: SignedDuration = SignedDuration::from_secs(5);
/// The same for a Pod that waits for a slot: the slot of a Pod that has ended is released 3 to 15 s later.
const SLOT_WAIT: SignedDuration = SignedDuration::from_secs(30);
/// A container that crashed and was started again counts as crashing for so long.
const RUNS_AGAIN: SignedDuration = SignedDuration::from_secs(10);
/// After this number of failures in one place another place is better.
const TRIES_IN_ONE_PLACE: u32 = 3;

/// A place that has a Pod.
pub(super) struct Serving<'p, 'a> {
    pub(super) is_running: bool,
    pub(super) place: &'p Place<'a>,
    /// The Pod; `None` if it was created and is not in the watch yet.
    pub(super) pod: Option<&'a BrokerPod>,
}

impl<'p, 'a> Serving<'p, 'a> {
    pub(super) fn new(place: &'p Place<'a>, pod: &'a BrokerPod) -> Self {
        Self {
            is_running: pod.phase == "Running",
            place,
            pod: Some(pod),
        }
    }
}

/// Counts the brokers of each node in the whole world that have not ended, by the value of the node's label.
fn loads(input: &Input<'_>) -> BTreeMap<String, usize> {
    let mut loads = BTreeMap::new();
    let pods = input.world.whole().pods.values();
    let live = pods.filter(|pod| !pod.meta.is_deleting && !pod.has_ended());
    for pod in live {
        let target = pod.meta.labels.get(names::TARGET_NODE_LABEL).cloned();
        let node = target.or_else(|| pod.node.as_deref().map(names::node_in_label));
        *loads.entry(node.unwrap_or_default()).or_default() += 1;
    }
    for node in input.memory.created_on() {
        *loads.entry(names::node_in_label(node)).or_default() += 1;
    }
    loads
}

impl<'a> Planner<'a> {
    /// Returns the places that new Pods can have now, the best first: nodes that hold a slot of the device and have no
    /// Pod for it, because other nodes can have that slot only seconds later; then the nodes with the fewest brokers.
    pub(super) fn candidates<'p>(
        &mut self,
        wanted: WantedPods<'a, '_>,
        places: &'p [Place<'a>],
        serving: &[Serving<'_, '_>],
    ) -> Vec<&'p Place<'a>> {
        let WantedPods { target, digest, .. } = wanted;
        let free = places
            .iter()
            .filter(|place| self.is_free(place, target.uid));
        let free: Vec<_> = free.collect();
        let mut open = vec![];
        for place in free {
            if self.check_start(&place.key, digest) {
                open.push(place);
            }
        }
        if let [] | [_] = open[..] {
            return open;
        }
        let (memory, now) = (self.input.memory, self.input.now);
        let loads = self.loads();
        let load = |node: &str| loads.get(&names::node_in_label(node)).copied();
        let mut holders = holders(target);
        for Serving { place, .. } in serving {
            holders.remove(place.node);
        }
        let rank = |place: &&Place<'_>| {
            let rests = memory.moves.rests_until(&place.key, digest);
            let failures = memory.failures(&place.key, digest);
            (
                rests.filter(|until| *until > now),
                memory.moves.count(&place.key, digest),
                failures >= TRIES_IN_ONE_PLACE,
                !holders.contains(place.node),
                load(place.node),
                failures,
            )
        };
        open.sort_by_cached_key(rank);
        open
    }

    /// Returns whether so many Pods failed here that another place is better.
    pub(super) fn fails_here(&self, place: &Place<'_>, pod: &BrokerPod) -> bool {
        let digest = pod.meta.annotations.get(names::BROKER_DIGEST);
        let digest = digest.map(String::as_str).unwrap_or_default();
        self.input.memory.failures(&place.key, digest) >= TRIES_IN_ONE_PLACE
    }

    fn loads(&mut self) -> &mut BTreeMap<String, usize> {
        self.loads.get_or_insert_with(|| loads(self.input))
    }

    pub(super) fn takes(&mut self, node: &str) {
        let load = self.loads().entry(names::node_in_label(node));
        *load.or_default() += 1;
    }

    /// Returns whether the choice of nodes for a new Pod is as good as it will be. A new device is reported by one node
    /// first; without a short wait all brokers would be on that node.
    pub(super) fn check_choice(&mut self, target: Target<'a>, places: usize) -> bool {
        let instance = target.subject.instance;
        let (key, configuration) = (target.configuration_key, target.configuration);
        let until = self.input.memory.moves.others_report_until(target.uid);
        let Some(until) = until.filter(|until| *until > self.input.now) else {
            return true;
        };
        let most = configuration.spec.max_nodes.map(usize::try_from);
        let most = most.and_then(Result::ok).unwrap_or(usize::MAX);
        let capacity = usize::try_from(instance.spec.capacity).unwrap_or(0);
        if !instance.spec.shared || places >= most {
            return true;
        }
        let world = self.input.world;
        let nodes = world.node_devices.keys();
        let reports = self.device_reports.of(target.subject.key, instance);
        // A node that reports the device is not in the Instance before the Instance is written again.
        let coming = nodes.filter(|name| {
            let node = world.nodes.get(*name);
            let looks = node.is_some_and(|node| node.is_ready) && world.selects(key, name);
            let sees = reports.get(name).map(|report| report.is_healthy());
            looks
                && !instance.spec.names_node(name)
                && sees.unwrap_or_else(|| {
                    !self.device_reports.has_complete_report(instance, key, name)
                })
        });
        let coming = coming.count();
        let waits = coming > 0 && capacity < places + coming;
        if waits {
            self.wake_at(until);
        }
        !waits
    }

    /// Moves the Pods that cannot be scheduled to places that are free, one Pod for each.
    pub(super) fn move_stuck(
        &mut self,
        wanted: WantedPods<'a, '_>,
        serving: &[Serving<'_, 'a>],
        free: &[&Place<'_>],
    ) {
        let WantedPods { target, digest, .. } = wanted;
        let now = self.input.now;
        let rests = |place: &Place<'_>| {
            let until = self.input.memory.moves.rests_until(&place.key, digest);
            until.filter(|until| *until > now)
        };
        let mut left = free.iter().filter(|place| rests(place).is_none()).count();
        let moved = |place: &Place<'_>| self.input.memory.moves.count(&place.key, digest);
        let rounds = free.iter().map(|place| moved(place)).min().unwrap_or(0);
        let again = free.iter().filter_map(|place| rests(place)).min();
        for Serving { place, pod, .. } in serving {
            let Some((pod, at)) =
                pod.and_then(|pod| Some((pod, stuck_at(target, place, pod, rounds)?)))
            else {
                continue;
            };
            match (left, at > now) {
                (0, _) => again.into_iter().for_each(|at| self.wake_at(at)),
                (_, true) => self.wake_at(at),
                (_, false) if self.moves >= MOVES_MAX => self.wake_at(now + MOVES_AFTER),
                (_, false) => {
                    left -= 1;
                    self.moves += 1;
                    self.plan.actions.push(Action::MovePod {
                        broker: target.broker(place.key.clone(), digest),
                        uid: pod.meta.uid.clone(),
                        version: pod.version.clone(),
                        node: place.node.clone(),
                        why: refused(pod),
                    });
                }
            }
        }
    }

    /// Adds the brokers of an Instance to the report of its Configuration.
    pub(super) fn report_pods(
        &mut self,
        wanted: WantedPods<'a, '_>,
        places: &[Place<'a>],
        serving: &[Serving<'_, 'a>],
        lost: usize,
    ) {
        let target = wanted.target;
        let capacity = usize::try_from(target.subject.instance.spec.capacity).unwrap_or(0);
        let serving = &serving[..serving.len().min(capacity)];
        let fit = places.iter().filter(|place| place.is_fit).count();
        let open = places.iter().filter(|place| place.is_open()).count();
        let count = capacity.min(open.max(fit.min(1)).max(serving.len()));
        let mut report = Report {
            wanted: count,
            ..Report::default()
        };
        for Serving { place, pod, .. } in serving {
            match pod
                .and_then(|pod| self.trouble(target, pod))
                .or_else(|| starting(*pod))
            {
                None => report.running += 1,
                Some((reason, message)) => report.add(Found {
                    reason,
                    of: place.key.name.clone(),
                    message,
                }),
            }
        }
        if serving.len() < count {
            report.add(self.missing(wanted, places, lost));
        }
        self.report(target, report);
    }

    /// Returns why a Pod does not run. What is usual while it starts is none for some seconds.
    pub(super) fn trouble(
        &mut self,
        target: Target<'a>,
        pod: &BrokerPod,
    ) -> Option<(Reason, String)> {
        if let Some((since, crash)) = &pod.restarted {
            let over = *since + RUNS_AGAIN;
            if over > self.input.now {
                self.wake_at(over);
                return Some((crash.reason, crash.message.clone()));
            }
        }
        if pod.is_available {
            return None;
        }
        if let Some(trouble) = &pod.trouble {
            return Some((trouble.reason, trouble.message.clone()));
        }
        let refusal = pod.unscheduled.as_ref()?;
        let patience = match waits_for_slot(target, pod) {
            true => SLOT_WAIT,
            false => REFUSED_FOR,
        };
        let over = refusal.since.map(|since| since + patience);
        if let Some(over) = over.filter(|over| *over > self.input.now) {
            self.wake_at(over);
            return None;
        }
        Some((Reason::BrokerUnschedulable, refused(pod)))
    }

    /// Returns why a broker that is wanted has no Pod.
    fn missing(&self, wanted: WantedPods<'a, '_>, places: &[Place<'a>], lost: usize) -> Found {
        let WantedPods { target, digest, .. } = wanted;
        let of_instance = |reason, message| Found {
            reason,
            of: target.subject.key.name.to_string(),
            message,
        };
        let memory = self.input.memory;
        let places = places.iter().filter(|place| place.is_fit);
        let places: Vec<_> = places.collect();
        if places.iter().all(|place| place.obstacle.is_some()) {
            let obstacle = |place: &&Place<'_>| {
                let obstacle = place.obstacle.as_ref()?;
                Some(format!("{} {obstacle}", place.node))
            };
            let all: Vec<_> = places.iter().filter_map(obstacle).take(3).collect();
            let more = match places.len().saturating_sub(all.len()) {
                0 => String::new(),
                more => format!(", and {more} more"),
            };
            let message = format!(
                "no node that sees the device takes a broker: {}{more}",
                all.join(", ")
            );
            return of_instance(Reason::NoNodeForBroker, message);
        }
        let refusal = |place: &&Place<'_>| {
            Some(Found {
                reason: Reason::BrokerRefused,
                of: place.key.name.clone(),
                message: one_line(memory.refusal(&place.key, digest)?),
            })
        };
        if let Some(refusal) = places.iter().find_map(refusal) {
            return refusal;
        }
        let fails = |place: &&&Place<'_>| memory.failures(&place.key, digest) > 0;
        if let Some(place) = places.iter().find(fails) {
            let message = format!("it ended on {}, and another follows", place.node);
            return Found {
                reason: Reason::BrokerFailed,
                of: place.key.name.clone(),
                message,
            };
        }
        if lost > 0 {
            let message = "a lost node holds the slots of the device".to_owned();
            return of_instance(Reason::SlotsHeldByLostNode, message);
        }
        let message = "a broker is being created".to_owned();
        of_instance(Reason::BrokersStarting, message)
    }
}

fn starting(pod: Option<&BrokerPod>) -> Option<(Reason, String)> {
    let is_available = pod.is_some_and(|pod| pod.is_available);
    let starting = || (Reason::BrokersStarting, "it starts".to_owned());
    (!is_available).then(starting)
}

/// Returns the scheduler's message without the part about preemption.
fn refused(pod: &BrokerPod) -> String {
    let message = pod.unscheduled.as_ref().map(|no| no.message.as_str());
    let message = message.unwrap_or_default();
    let ends = [" no new claims to deallocate", " preemption:"];
    let end = ends.into_iter().filter_map(|end| message.find(end)).min();
    one_line(&message[..end.unwrap_or(message.len())])
}

/// Returns the time from which a Pod is moved if another place is free. A Pod that has a node is never moved, and one
/// that waits for a slot would wait elsewhere, too.
fn stuck_at(
    target: Target<'_>,
    place: &Place<'_>,
    pod: &BrokerPod,
    rounds: u32,
) -> Option<Timestamp> {
    let refused = pod.unscheduled.as_ref().filter(|_| pod.node.is_none())?;
    if waits_for_slot(target, pod) {
        return None;
    }
    let since = refused.since.or(pod.meta.created)?;
    let wait = (MOVES_AFTER * 2_i32.pow(rounds.min(8))).min(MOVES_AFTER_MAX);
    match place.obstacle {
        Some(_) => Some(since),
        None => Some(since + wait),
    }
}

/// Returns whether the scheduler finds no slot for a Pod because all of them are used.
fn waits_for_slot(target: Target<'_>, pod: &BrokerPod) -> bool {
    let needed = format!("Insufficient {}", target.subject.resource());
    let refused = pod.unscheduled.as_ref();
    let spec = &target.subject.instance.spec;
    let capacity = usize::try_from(spec.capacity).unwrap_or(0);
    refused.is_some_and(|refused| refused.message.contains(&needed))
        && used_slots(&spec.device_usage, spec.capacity) >= capacity
}

fn owners(target: Target<'_>) -> impl Iterator<Item = SlotOwner> {
    let usage = target.subject.instance.spec.device_usage.values();
    usage.filter_map(|usage| SlotOwner::from_usage(usage).ok().flatten())
}

/// Returns the nodes that hold a slot by the Instance's resource.
fn holders(target: Target<'_>) -> BTreeSet<NodeName> {
    let by_instance = |owner: SlotOwner| match owner {
        SlotOwner::Node(node) => Some(node),
        SlotOwner::Configuration { .. } => None,
    };
    owners(target).filter_map(by_instance).collect()
}
