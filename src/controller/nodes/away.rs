//! One lost node: since when, and what was seen and reported of it. Pure.
use crate::{
    controller::{pace::elapsed, world::World},
    model::names::ObjectKey,
};
use k8s_openapi::jiff::Timestamp;
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};
use tokio::time::Instant;

/// A node that restarts is back by then.
pub(crate) const AWAY_AFTER: Duration = Duration::from_secs(60);
/// The agent of a node that was taken out joins again by then, if it runs.
const REJOIN_TIME: Duration = Duration::from_secs(60);
/// The shortest and the longest time until the Pods of a deleted node are looked for again.
const LOOKS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// The time of a look.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Now {
    /// The time by the machine's clock.
    pub(crate) clock: Timestamp,
    /// The time by a clock that does not step.
    pub(crate) instant: Instant,
}

#[derive(Debug)]
pub(crate) struct Away {
    pub(crate) why: Why,
    pub(crate) noticed: Instant,
    /// How long it had been away when it was noticed.
    pub(crate) before: Duration,
    /// The Instances it was taken out of since. One that names it again has an agent there.
    pub(crate) left: BTreeMap<ObjectKey, Instant>,
    /// The uid of its NodeDevices, where there is one, and as it was when the node became lost. The controller deletes that
    /// one; another one was made since, by an agent that lives.
    pub(crate) object: Option<String>,
    asked: Option<String>,
    /// The last look for its Pods, where it is deleted.
    pub(crate) look: Option<Look>,
    /// The reported warnings about its slots.
    pub(crate) told: BTreeSet<(ObjectKey, Wait)>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Why {
    NotReady {
        since: Timestamp,
        /// It has the taint `node.kubernetes.io/out-of-service`.
        is_off: bool,
    },
    Deleted,
}

#[derive(Debug)]
pub(crate) struct Look {
    pub(crate) at: Instant,
    pub(crate) pods: Pods,
}

/// Whether a deleted node has Pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pods {
    Unknown,
    Remain,
    Deleted,
}

/// Why slots are not free yet: each is reported once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Wait {
    Time,
    Operator,
    Pods,
}

impl Away {
    pub(crate) fn new(why: Why, before: Duration, (object, now): (Option<String>, Now)) -> Self {
        Self {
            asked: object.clone(),
            object,
            why,
            noticed: now.instant,
            before,
            left: BTreeMap::new(),
            look: None,
            told: BTreeSet::new(),
        }
    }

    /// Takes in that it is still lost. What says that its agent lives counts until something newer says otherwise.
    pub(crate) fn gone_on(self, why: Why, (name, world): (&str, &World), now: Now) -> Self {
        let is_off = |why| matches!(why, Why::NotReady { is_off: true, .. });
        let object = object_of(name, world);
        let is_made_anew = object.is_some() && object != self.object;
        let mut away = Self {
            why,
            object,
            ..self
        };
        if is_off(why) && !is_off(self.why) {
            away.left.clear();
            away.asked.clone_from(&away.object);
        }
        let has_joined = |key: &ObjectKey| {
            let instance = world.instances.get(key);
            instance.is_some_and(|instance| instance.spec.names_node(name))
        };
        // A node without a Node object has no place in an Instance, but its slots while its agent writes.
        if why == Why::Deleted && (is_made_anew || away.left.keys().any(has_joined)) {
            away.left.retain(|key, _| !has_joined(key));
            (away.noticed, away.before, away.look) = (now.instant, Duration::ZERO, None);
        }
        away
    }

    /// Whether its agent lives: it has made its object anew.
    pub(crate) fn has_answered(&self) -> bool {
        self.object.is_some() && self.object != self.asked
    }

    pub(crate) fn age(&self, now: Instant) -> Duration {
        self.before.saturating_add(now - self.noticed)
    }

    /// Whether it was reported on an Instance.
    pub(crate) fn is_told(&self, key: &ObjectKey, wait: Wait) -> bool {
        self.told.contains(&(key.clone(), wait))
    }

    pub(crate) fn pods(&self) -> Pods {
        (self.look.as_ref()).map_or(Pods::Unknown, |look| look.pods)
    }

    /// How long its agent may yet take to join an Instance again.
    pub(crate) fn rejoins_in(&self, (key, is_named): (&ObjectKey, bool), now: Instant) -> Duration {
        let out = match self.left.get(key) {
            _ if is_named => Duration::ZERO,
            Some(left) => now - *left,
            // It was taken out before this process looked, or did not see the device.
            None => (now - self.noticed).min(self.age(now).saturating_sub(AWAY_AFTER)),
        };
        REJOIN_TIME.saturating_sub(out)
    }

    /// Returns the wait before the next look for its Pods. The waits grow with the time since it was deleted.
    pub(crate) fn look_in(&self, now: Instant) -> Option<Duration> {
        if self.why != Why::Deleted || self.pods() == Pods::Deleted {
            return None;
        }
        let Some(look) = &self.look else {
            return Some(Duration::ZERO);
        };
        let pause = ((now - self.noticed) / 8).clamp(LOOKS.0, LOOKS.1);
        Some(pause.saturating_sub(now - look.at))
    }
}

/// The uid of a node's NodeDevices.
pub(crate) fn object_of(name: &str, world: &World) -> Option<String> {
    world.node_devices.get(name)?.metadata.uid.clone()
}

impl Why {
    /// Whether a node that was lost for the reason `before` has not been back since.
    pub(crate) fn continues(self, before: Self) -> bool {
        match (before, self) {
            (Self::NotReady { since: a, .. }, Self::NotReady { since: b, .. }) => a == b,
            (_, Self::Deleted) => true,
            (Self::Deleted, Self::NotReady { .. }) => false,
        }
    }

    pub(crate) fn age(self, clock: Timestamp) -> Duration {
        match self {
            Self::NotReady { since, .. } => elapsed(since, clock),
            Self::Deleted => Duration::ZERO,
        }
    }
}
