//! Decides which nodes are lost, since when, and what the slots that they hold wait for. Pure.
//!
//! | the node | leaves Instances | its slots are free |
//! |---|---|---|
//! | is not ready | after [`LOST_AFTER`] | after `spec.slotReleaseSeconds`, if its agent did not join again |
//! | is not ready and is marked as shut down | at once | at once |
//! | is deleted, and Pods of it are there | at once | after `spec.slotReleaseSeconds` |
//! | is deleted, and its Pods too | at once | at once |
//!
//! While more than half of the nodes are not ready, time frees nothing and takes no node out of an Instance: an outage
//! of the control plane or of the network looks like that. The count begins anew when the outage ends.
//!
//! Times of objects are by other machines' clocks, and this machine's clock may be set. So they are read once, when a
//! node is first seen as lost, and only by a process that did not see the node before. From then on a clock counts that
//! does not step.
use super::absent_node::{
    AbsentNode, LOST_AFTER, Now, Pods, PodsLook, REJOIN_TIME, Wait, Why, object_of,
};
use crate::{
    api::instance::{Instance, InstanceStatus, is_seen},
    controller::{
        clock::elapsed,
        index::part_of,
        reported::Reported,
        world::{NodeState, World},
    },
    model::{
        instance_name::InstanceKey,
        slot::SlotOwner,
        typed_names::{ConfigurationKey, NodeName},
    },
};
use k8s_openapi::jiff::Timestamp;
use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    time::Duration,
};
use tokio::time::Instant;

/// The state of the nodes, from one look at the world to the next.
#[derive(Debug, Default)]
pub(crate) struct NodeMemory {
    /// The nodes that were ready at the last look.
    ready: BTreeSet<NodeName>,
    /// The nodes that are not ready, and the deleted ones that hold slots.
    pub(crate) absent: BTreeMap<NodeName, AbsentNode>,
    pub(crate) outage: Option<Outage>,
    /// The time at which any node last saw the device of each Instance, by the Instance's uid. `None` if it was seen at the
    /// last look at its part: it has been seen ever since.
    seen: BTreeMap<String, Option<Instant>>,
    /// The time of the last look at any part.
    looked: Option<Instant>,
    /// The nodes without a Node object that hold slots, by part.
    holders: BTreeMap<String, BTreeSet<NodeName>>,
}

/// An outage: more than half of the nodes are not ready.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Outage {
    pub(crate) absent: usize,
    pub(crate) of: usize,
    since: Instant,
    /// The Configurations that it was reported on.
    reported: BTreeSet<ConfigurationKey>,
}

/// The time at which the slots of a lost node are released.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outlook {
    Free,
    FreeIn(Duration),
    /// The Configuration gives nothing away by time.
    Never,
    /// The outage of many nodes must end first.
    Outage,
}

/// A node's place in an Instance.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PlaceInInstance<'a> {
    pub(crate) instance: &'a InstanceKey,
    /// The Instance names the node.
    pub(crate) is_named: bool,
}

impl NodeMemory {
    /// Follows which nodes are lost. Nothing outside of this world has changed since the last time.
    pub(crate) fn notice(&mut self, reported: &Reported<'_>, now: Now) {
        let world = reported.world;
        self.notice_seen(reported, now.instant);
        self.notice_holders(world);
        let was_outage = self.outage.is_some();
        self.outage = outage(world).map(|(absent, of)| {
            let known = self.outage.take();
            let (since, reported) = known.map_or((now.instant, BTreeSet::new()), |known| {
                (known.since, known.reported)
            });
            Outage {
                absent,
                of,
                since,
                reported,
            }
        });
        let mut known = mem::take(&mut self.absent);
        for (name, why) in lost(world, self.holders.values().flatten()) {
            let object_uid = object_of(&name, world);
            let mut absent = match known.remove(&name) {
                Some(absent) if why.continues(absent.why) => {
                    absent.gone_on(why, &name, world.whole(), now)
                }
                // It was seen until now, so its time is not needed.
                Some(_) => AbsentNode::new(why, Duration::ZERO, object_uid, now),
                None if self.ready.contains(&name) => {
                    AbsentNode::new(why, Duration::ZERO, object_uid, now)
                }
                None => AbsentNode::new(why, why.age(now.clock), object_uid, now),
            };
            if was_outage || self.outage.is_some() {
                (absent.noticed, absent.before) = (now.instant, Duration::ZERO);
            }
            let is_there = |key: &InstanceKey| world.whole().instances.contains_key(key);
            absent.left.retain(|key, _| is_there(key));
            absent.reported.retain(|(key, _)| is_there(key));
            self.absent.insert(name, absent);
        }
        self.ready = (world.nodes.iter())
            .filter(|(_, node)| node.is_ready)
            .map(|(name, _)| name.clone())
            .collect();
    }

    fn notice_seen(&mut self, reported: &Reported<'_>, now: Instant) {
        let world = reported.world;
        let says_so = |key: &InstanceKey, instance: &Instance| {
            let reports = reported.by_device().of(key, instance);
            reports.values().any(|report| report.is_healthy())
        };
        let well = InstanceStatus::default();
        let mut known = BTreeSet::new();
        for (key, instance) in &world.instances {
            let uid = instance.metadata.uid.as_deref().unwrap_or_default();
            let status = instance.status.as_ref().unwrap_or(&well);
            let mut nodes = instance.spec.nodes.iter();
            if nodes.any(|node| is_seen(status, node)) || says_so(key, instance) {
                self.seen.insert(uid.to_owned(), None);
            } else if let Some(seen) = self.seen.get_mut(uid) {
                *seen = seen.or(self.looked);
            }
            known.insert(uid);
        }
        if world.scope.is_none() {
            self.seen.retain(|uid, _| known.contains(uid.as_str()));
        }
        self.looked = Some(now);
    }

    /// Returns when any node last saw the device of an Instance.
    pub(crate) fn last_seen(&self, instance: &Instance) -> Option<Instant> {
        let uid = instance.metadata.uid.as_deref().unwrap_or_default();
        self.seen.get(uid)?.or(self.looked)
    }

    /// Follows which nodes hold slots and have no Node object. A Node that comes or goes changes the whole world.
    fn notice_holders(&mut self, world: &World) {
        match &world.scope {
            None => self.holders.clear(),
            Some(scope) => drop(self.holders.remove(&scope.name)),
        }
        for instance in world.instances.values() {
            for usage in instance.spec.device_usage.values() {
                let owner = SlotOwner::from_usage(usage).ok().flatten();
                if let Some(owner) = owner.filter(|owner| !world.nodes.contains_key(owner.node())) {
                    let part = part_of(&instance.spec.configuration_name).into_owned();
                    let holders = self.holders.entry(part).or_default();
                    holders.insert(owner.node().clone());
                }
            }
        }
    }

    /// `nodes` were taken out of an Instance.
    pub(crate) fn left<'n>(
        &mut self,
        key: &InstanceKey,
        nodes: impl IntoIterator<Item = &'n NodeName>,
        now: Instant,
    ) {
        for node in nodes {
            if let Some(absent) = self.absent.get_mut(node) {
                absent.left.insert(key.clone(), now);
            }
        }
    }

    /// Records the Pods that a look for those of a deleted node has found. Returns whether that is another answer than the
    /// last one.
    pub(crate) fn looked(&mut self, node: &NodeName, pods: Pods, now: Instant) -> bool {
        let Some(absent) = self.absent.get_mut(node) else {
            return false;
        };
        let before = absent.pods();
        absent.look = Some(PodsLook { at: now, pods });
        before != pods
    }

    /// Returns whether a node whose Node object exists is to leave its Instances.
    pub(crate) fn must_leave(&self, node: &NodeName, now: Instant) -> bool {
        let absent = self.absent.get(node);
        absent.is_some_and(|absent| match absent.why {
            Why::NotReady { is_off, .. } => {
                is_off || self.outage.is_none() && absent.age(now) >= LOST_AFTER
            }
            Why::Deleted => false,
        })
    }

    /// Returns whether a node whose Node object exists leaves its Instances. It does not if its agent lives: it has created its
    /// NodeDevices again.
    pub(crate) fn is_silent(&self, node: &NodeName, now: Instant) -> bool {
        self.must_leave(node, now) && !self.has_answered(node, now)
    }

    /// Returns whether a node is lost, and its agent lives.
    pub(crate) fn has_answered(&self, node: &NodeName, now: Instant) -> bool {
        let absent = self.absent.get(node);
        absent.is_some_and(|absent| absent.has_answered(now))
    }

    /// Returns whether the agent of a node that is lost is to say whether it lives.
    pub(crate) fn is_asked(&self, node: &NodeName, now: Instant) -> bool {
        let absent = self.absent.get(node);
        let believed = absent.and_then(|absent| absent.is_believed_for(now));
        self.must_leave(node, now) && believed.is_none_or(|left| left.is_zero())
    }

    /// Returns the outlook of the slots of `node` in an Instance that it is to leave or has left. `release` is the time that
    /// the Configuration sets. `None` for a node that is not lost.
    pub(crate) fn outlook(
        &self,
        node: &NodeName,
        place: PlaceInInstance<'_>,
        release: Option<Duration>,
        now: Instant,
    ) -> Option<Outlook> {
        let absent = self.absent.get(node)?;
        match absent.why {
            Why::NotReady { is_off: true, .. } => return Some(Outlook::Free),
            Why::Deleted if absent.pods() == Pods::Deleted => return Some(Outlook::Free),
            Why::NotReady { is_off: false, .. } | Why::Deleted => {}
        }
        if self.outage.is_some() {
            return Some(Outlook::Outage);
        }
        let Some(release) = release else {
            return Some(Outlook::Never);
        };
        let by_age = release.saturating_sub(absent.age(now));
        let rejoins = if place.is_named {
            REJOIN_TIME
        } else {
            absent.rejoins_in(place.instance, now)
        };
        let left = by_age.max(rejoins);
        Some(if left.is_zero() {
            Outlook::Free
        } else {
            Outlook::FreeIn(left)
        })
    }

    /// The deleted nodes whose Pods are to be looked for now.
    pub(crate) fn looks(&self, now: Instant) -> Vec<NodeName> {
        let due = |absent: &AbsentNode| absent.look_in(now).is_some_and(|wait| wait.is_zero());
        let due = self.absent.iter().filter(|(_, absent)| due(absent));
        due.map(|(name, _)| name.clone()).collect()
    }

    /// Returns when the Pods of a deleted node are looked for next.
    pub(crate) fn look_in(&self, now: Instant) -> Option<Duration> {
        let absent = self.absent.values();
        absent.filter_map(|absent| absent.look_in(now)).min()
    }

    /// Returns when a node is given up, or an outage is reported.
    pub(crate) fn wake_in(&self, now: Instant) -> Option<Duration> {
        let leave = self.absent.values().map(|absent| match self.outage {
            None => LOST_AFTER.saturating_sub(absent.age(now)),
            Some(_) => Duration::ZERO,
        });
        let believed = self.absent.values();
        let believed = believed.filter_map(|absent| absent.is_believed_for(now));
        let outage = self.outage.iter().map(|outage| outage.lasts_in(now));
        // What they wait for is done when their time has come.
        let all = leave.chain(believed).chain(outage);
        all.filter(|wait| !wait.is_zero()).min()
    }

    /// Records a report on an Instance.
    pub(crate) fn tell(&mut self, node: &NodeName, key: &InstanceKey, wait: Wait) {
        if let Some(absent) = self.absent.get_mut(node) {
            absent.reported.insert((key.clone(), wait));
        }
    }

    /// Records a report on a Configuration.
    pub(crate) fn tell_outage(&mut self, configuration: &ConfigurationKey) {
        if let Some(outage) = &mut self.outage {
            outage.reported.insert(configuration.clone());
        }
    }
}

impl Outage {
    /// Returns when it has lasted for so long that it is worth a report.
    fn lasts_in(&self, now: Instant) -> Duration {
        LOST_AFTER.saturating_sub(now - self.since)
    }

    /// Returns whether the outage is to be reported on a Configuration.
    pub(crate) fn is_news(&self, configuration: &ConfigurationKey, now: Instant) -> bool {
        self.lasts_in(now).is_zero() && !self.reported.contains(configuration)
    }
}

fn lost<'a>(world: &World, holders: impl Iterator<Item = &'a NodeName>) -> BTreeMap<NodeName, Why> {
    let mut lost = BTreeMap::new();
    // A deleted node whose NodeDevices still exist.
    let seeing = world.node_devices.keys();
    for name in seeing.filter(|name| !world.nodes.contains_key(*name)) {
        lost.insert(name.clone(), Why::Deleted);
    }
    // A part that is planned later still says so of a node that is back.
    let holders = holders.filter(|name| !world.nodes.contains_key(*name));
    lost.extend(holders.map(|name| (name.clone(), Why::Deleted)));
    for (name, node) in world.nodes.iter() {
        if let Some(since) = node.since.filter(|_| !node.is_ready) {
            let is_off = node.is_out_of_service;
            lost.insert(name.clone(), Why::NotReady { since, is_off });
        }
    }
    lost
}

/// Returns how many of how many nodes are not ready, if more than half are. The operator knows of those that are marked
/// as shut down, and a node that has never said anything is not lost.
fn outage(world: &World) -> Option<(usize, usize)> {
    let is_counted =
        |node: &&NodeState| node.since.is_some() && (node.is_ready || !node.is_out_of_service);
    let counted = || world.nodes.values().map(AsRef::as_ref).filter(is_counted);
    let (absent, of) = (
        counted().filter(|node| !node.is_ready).count(),
        counted().count(),
    );
    (absent * 2 > of).then_some((absent, of))
}

/// Returns whether the node's agent is to be reckoned with: one that is not ready just now may be back soon.
pub(crate) fn is_working(node: &NodeState, now: Timestamp) -> bool {
    node.is_ready || settles_in(node, now).is_none_or(|left| !left.is_zero())
}

/// Returns how long a node that is not ready is taken for one that works.
pub(crate) fn settles_in(node: &NodeState, now: Timestamp) -> Option<Duration> {
    let since = node.since.filter(|_| !node.is_ready)?;
    Some(LOST_AFTER.saturating_sub(elapsed(since, now)))
}
