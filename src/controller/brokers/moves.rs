//! Remembers what the choice of nodes needs: where brokers could not be scheduled, and how new an Instance is. Pure.
use super::action::Broker;
use crate::{
    controller::world::World,
    model::{instance_name::InstanceKey, names::ObjectKey},
};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use std::collections::{BTreeMap, BTreeSet};

/// The time for which a node gets no broker after the scheduler refused one there. It doubles with each refusal.
const FIRST_REST: SignedDuration = SignedDuration::from_secs(30);
const LAST_REST: SignedDuration = SignedDuration::from_mins(5);
/// A broker that may find a better node waits so long for the other nodes to report a new device.
const OTHERS_REPORT: SignedDuration = SignedDuration::from_millis(500);

#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Moves {
    /// The Pods that were moved away. Their names stand for a node.
    left: BTreeMap<ObjectKey, Left>,
    /// The time at which each Instance was seen first, by its uid.
    first_seen: BTreeMap<String, Timestamp>,
}

#[derive(Debug, Clone, PartialEq)]
struct Left {
    instance: InstanceKey,
    /// The digest of the broker's spec. A Pod with another digest may fit.
    digest: String,
    count: u32,
    last: Timestamp,
}

impl Moves {
    pub(super) fn observe(&mut self, world: &World, now: Timestamp) {
        let whole = world.whole();
        (self.left).retain(|_, left| whole.instances.contains_key(&left.instance));
        for uid in uids(world) {
            if !self.first_seen.contains_key(uid) {
                self.first_seen.insert(uid.clone(), now);
            }
        }
    }

    /// Forgets the Instances that the whole world does not have any more.
    pub(super) fn forget_gone(&mut self, whole: &World) {
        let uids: BTreeSet<&String> = uids(whole).collect();
        self.first_seen.retain(|uid, _| uids.contains(uid));
    }

    /// Forgets the moves of a Pod that runs.
    pub(super) fn runs(&mut self, pod: &ObjectKey) {
        self.left.remove(pod);
    }

    pub(super) fn rest(&mut self, broker: &Broker, now: Timestamp) {
        let before = self.left.get(&broker.key);
        let same = before.filter(|left| left.digest == broker.digest);
        let left = Left {
            instance: broker.instance.clone(),
            digest: broker.digest.clone(),
            count: same.map_or(0, |left| left.count) + 1,
            last: now,
        };
        self.left.insert(broker.key.clone(), left);
    }

    /// Returns until when a broker that was moved is not created in this place again.
    pub(crate) fn rests_until(&self, key: &ObjectKey, digest: &str) -> Option<Timestamp> {
        let left = self.left.get(key).filter(|left| left.digest == digest)?;
        let doublings = left.count.saturating_sub(1).min(8);
        let rest = (FIRST_REST * 2_i32.pow(doublings)).min(LAST_REST);
        Some(left.last + rest)
    }

    /// Returns how often a broker of this digest was moved away from this place.
    pub(crate) fn count(&self, key: &ObjectKey, digest: &str) -> u32 {
        let left = self.left.get(key).filter(|left| left.digest == digest);
        left.map_or(0, |left| left.count)
    }

    /// Returns until when the reports of other nodes about an Instance are waited for.
    pub(crate) fn others_report_until(&self, uid: &str) -> Option<Timestamp> {
        self.first_seen.get(uid).map(|seen| *seen + OTHERS_REPORT)
    }
}

fn uids(world: &World) -> impl Iterator<Item = &String> {
    let instances = world.instances.values();
    instances.filter_map(|instance| instance.metadata.uid.as_ref())
}
