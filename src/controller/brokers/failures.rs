//! Remembers the failures of brokers, for their back-off. Pure.
use super::action::Broker;
use crate::{
    backoff,
    controller::world::World,
    model::{instance_name::InstanceKey, names::ObjectKey},
};
use k8s_openapi::jiff::SignedDuration;
use std::{collections::BTreeMap, time::Duration};
use tokio::time::Instant;

const FIRST_WAIT: Duration = Duration::from_secs(1);
const LAST_WAIT: Duration = Duration::from_mins(5);

/// The failures of each broker.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Failures {
    brokers: BTreeMap<ObjectKey, History>,
}

#[derive(Debug, Clone, PartialEq)]
struct History {
    instance: InstanceKey,
    /// The digest of its Configuration. With another digest the failures are no reason to wait.
    digest: String,
    count: u32,
    last: Instant,
    /// The uid of the Pod that was counted last.
    pod: String,
    /// The last answer of the API server that refused it.
    refusal: String,
}

/// One failure of a broker.
#[derive(Clone, Copy)]
pub(super) enum Failure<'a> {
    /// The Pod with this uid ended.
    Ended(&'a str),
    /// The API server refused to create the broker, with this message.
    Refused(&'a str),
    /// The broker could not be created because of other objects.
    NotCreated,
}

impl Failures {
    pub(super) fn observe(&mut self, world: &World) {
        (self.brokers).retain(|_, failures| world.instances.contains_key(&failures.instance));
    }

    /// Forgets the failures of a broker that ran well.
    pub(super) fn forget(&mut self, key: &ObjectKey) {
        self.brokers.remove(key);
    }

    /// Returns whether the failures of a broker are of this spec, not of a newer one that waits for its turn.
    pub(super) fn is_of(&self, broker: &Broker) -> bool {
        let failures = self.brokers.get(&broker.key);
        failures.is_some_and(|failures| failures.digest == broker.digest)
    }

    /// Gives the count of this Pod's end to the Instance that owns the Pod now, which may be another than the one that owned
    /// it then. Returns whether the end was counted.
    pub(super) fn carry_over(&mut self, broker: &Broker, uid: &str) -> bool {
        let failures = self.brokers.get_mut(&broker.key);
        let counted = failures.filter(|failures| failures.pod == uid);
        counted
            .map(|failures| failures.instance.clone_from(&broker.instance))
            .is_some()
    }

    /// Counts one more failure. Returns how long to wait after it.
    pub(super) fn add(
        &mut self,
        broker: &Broker,
        failure: Failure<'_>,
        now: Instant,
    ) -> SignedDuration {
        let (pod, refusal) = match failure {
            Failure::Ended(uid) => (uid, ""),
            Failure::Refused(message) => ("", message),
            Failure::NotCreated => ("", ""),
        };
        let before = self.brokers.get(&broker.key);
        let same = before.filter(|failures| failures.digest == broker.digest);
        let count = same.map_or(0, |failures| failures.count) + 1;
        let failures = History {
            instance: broker.instance.clone(),
            digest: broker.digest.clone(),
            count,
            last: now,
            pod: pod.to_owned(),
            refusal: refusal.to_owned(),
        };
        self.brokers.insert(broker.key.clone(), failures);
        SignedDuration::try_from(wait(count)).expect("LAST_WAIT fits")
    }

    /// Returns when a broker may be created again.
    pub(super) fn not_before(&self, key: &ObjectKey, digest: &str) -> Option<Instant> {
        let failures = self.brokers.get(key)?;
        // A Pod of Akri's carries no digest.
        let is_of = failures.digest == digest || failures.digest.is_empty();
        is_of.then(|| failures.last + wait(failures.count))
    }

    /// Returns the last answer of the API server that refused to create a broker, if it did.
    pub(super) fn refusal(&self, key: &ObjectKey, digest: &str) -> Option<&str> {
        let failures = self.brokers.get(key)?;
        let is_refused = failures.digest == digest && !failures.refusal.is_empty();
        is_refused.then_some(&failures.refusal)
    }

    /// Returns how often the broker in this place failed.
    pub(super) fn count(&self, key: &ObjectKey, digest: &str) -> u32 {
        let failures = self.brokers.get(key);
        let same = failures.filter(|failures| failures.digest == digest);
        same.map_or(0, |failures| failures.count)
    }
}

fn wait(count: u32) -> Duration {
    backoff::after(count.saturating_sub(1), FIRST_WAIT, LAST_WAIT)
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
