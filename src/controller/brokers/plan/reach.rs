//! Says which nodes a new Pod may run on. The affinity of a Pod cannot be changed: one that no longer fits is replaced. Pure.
use super::{
    super::action::{Action, Cause},
    planner::{Planner, SeeingNode, Serving, Target, WantedPods},
};
use crate::{
    api::{
        broker::{self, NODES_MAX, SpecError},
        names,
    },
    controller::world::BrokerPod,
    model::{names::ObjectKey, typed_names::NodeName},
};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// The most names of somebody else's Pods that the brokers of an Instance leave out. Beyond it: they are not created
/// (`BrokerRefused`).
const TAKEN_NAMES_MAX: usize = 16;

impl<'a> Planner<'a> {
    /// Replaces the Pods without a node that are limited to nodes which cannot take them, where others might: the affinity of a
    /// Pod cannot be changed.
    pub(super) fn replace_waiting(&mut self, serving: &[Serving<'_>], reach: &[&SeeingNode<'_>]) {
        let is_outdated = |pod: &BrokerPod| {
            let mut names = reach
                .iter()
                .map(|place| pod.may_run_on.contains(place.node));
            let has_none = !names.clone().any(|named| named);
            let lacks_one = reach.len() <= NODES_MAX && !names.all(|named| named);
            has_none || lacks_one && pod.unscheduled.is_some()
        };
        for one in serving.iter().filter(|one| one.pod.node.is_none()) {
            // A Pod that names no node was not made here, or somebody has changed it.
            if !reach.is_empty() && !one.pod.may_run_on.is_empty() && is_outdated(one.pod) {
                self.replaced(*one, Cause::OtherNodes);
            }
        }
    }

    /// Returns the nodes that new Pods may run on: those that can use the device, without those where brokers have failed if
    /// there are others.
    pub(super) fn reach<'p>(
        &mut self,
        wanted: WantedPods<'a, '_>,
        places: &'p [SeeingNode<'a>],
        free: &[&SeeingNode<'a>],
    ) -> Vec<&'p SeeingNode<'a>> {
        let (memory, now) = (self.input.memory, self.input.now.instant);
        let instance = wanted.target.subject.key;
        let until = |place: &SeeingNode<'_>| {
            let until = memory.avoided.until(instance, place.node, wanted.digest);
            until.filter(|until| *until > now)
        };
        let fit = places.iter().filter(|place| place.is_fit);
        if free.iter().all(|place| until(place).is_some()) {
            return fit.collect();
        }
        let (reach, avoided): (Vec<_>, Vec<_>) = fit.partition(|place| until(place).is_none());
        let again = avoided.into_iter().filter_map(until).min();
        again.into_iter().for_each(|at| self.wake_at(at));
        reach
    }

    /// Creates Pods under the first names that nobody has. Returns the names, also of those that wait because they failed.
    pub(super) fn create(
        &mut self,
        wanted: WantedPods<'a, '_>,
        reach: &[&SeeingNode<'_>],
        missing: usize,
    ) -> Vec<ObjectKey> {
        let WantedPods { target, digest, .. } = wanted;
        let (memory, world) = (self.input.memory, self.input.world.whole());
        let named = |number| {
            let name = broker::pod_name(target.subject, number);
            (number, ObjectKey::new(&target.subject.key.namespace, name))
        };
        let is_free =
            |(_, key): &(usize, ObjectKey)| !world.pods.contains_key(key) && !memory.is_taken(key);
        let capacity = usize::try_from(target.subject.instance.spec.capacity).unwrap_or(0);
        // Its own Pods that leave have names, too.
        let names = (0..2 * capacity + TAKEN_NAMES_MAX).map(named);
        let names = names.filter(is_free);
        let mut absent = vec![];
        for (number, key) in names.take(missing) {
            if self.check_start(&key, digest) {
                // Of more nodes than a Pod can name each Pod names others, so that there is a node for each.
                let first = number % reach.len().max(1);
                let first = if reach.len() > NODES_MAX { first } else { 0 };
                let some = reach.iter().cycle().skip(first);
                let some: Vec<_> = some.take(reach.len().min(NODES_MAX)).copied().collect();
                match wanted.pod(&key.name, &some) {
                    Ok(pod) => self.plan.actions.push(Action::CreatePod {
                        broker: target.broker(key.clone(), digest),
                        owner: target.uid.to_owned(),
                        claim: target.claim(),
                        pod,
                    }),
                    Err(e) => self.add_broken(target, digest, e),
                }
            }
            absent.push(key);
        }
        absent
    }

    /// Returns whether the nodes that see a new device are known. One node reports it first, and without a short wait all
    /// brokers would be on that node.
    pub(super) fn check_reports(&mut self, target: Target<'a>, places: usize) -> bool {
        let instance = target.subject.instance;
        let (key, configuration) = (target.configuration_key, target.configuration);
        let until = self.input.memory.others_report_until(target.uid);
        let Some(until) = until.filter(|until| *until > self.input.now.instant) else {
            return true;
        };
        let most = configuration.spec.most_nodes().unwrap_or(usize::MAX);
        let capacity = usize::try_from(instance.spec.capacity).unwrap_or(0);
        if !instance.spec.shared || places >= most {
            return true;
        }
        let (world, device_reports) = (self.input.world, self.input.device_reports);
        let nodes = world.node_devices.keys();
        let reports = device_reports.of(target.subject.key, instance);
        // A node that reports the device is not in the Instance before the Instance is written again.
        let coming = nodes.filter(|name| {
            let node = world.nodes.get(*name);
            let looks = node.is_some_and(|node| node.is_ready) && world.selects(key, name);
            let sees = reports.get(name).map(|report| report.is_healthy());
            looks
                && !instance.spec.names_node(name)
                && sees.unwrap_or_else(|| !device_reports.has_complete_report(instance, key, name))
        });
        let coming = coming.count();
        let waits = coming > 0 && capacity < places + coming;
        if waits {
            self.wake_at(until);
        }
        !waits
    }
}

impl WantedPods<'_, '_> {
    /// Returns the manifest of a Pod for one of these nodes.
    pub(super) fn pod(&self, name: &str, places: &[&SeeingNode<'_>]) -> Result<Value, SpecError> {
        let nodes: Vec<&NodeName> = places.iter().map(|place| place.node).collect();
        let mut pod = broker::pod(self.target.subject, name, &nodes, self.spec)?;
        if self.target.is_by_claims() {
            broker::by_claim(self.target.subject, &mut pod["spec"]);
        }
        let annotations = &mut pod["metadata"]["annotations"];
        *annotations = json!({ (names::BROKER_DIGEST): self.digest });
        if let Some(connections) = noted(places) {
            annotations[names::BROKER_CONNECTION] = json!(connections);
        }
        Ok(pod)
    }
}

/// Returns how the device is reached from these nodes, for the annotation of a Pod whose node is not decided: one digest where
/// it is the same from all, `node=digest,…` otherwise.
fn noted(places: &[&SeeingNode<'_>]) -> Option<String> {
    let connections: BTreeSet<_> = places.iter().map(|place| place.connection).collect();
    if let [same] = Vec::from_iter(connections)[..] {
        return same.map(str::to_owned);
    }
    let on = |place: &&SeeingNode<'_>| Some(format!("{}={}", place.node, place.connection?));
    Some(places.iter().filter_map(on).collect::<Vec<_>>().join(","))
}
