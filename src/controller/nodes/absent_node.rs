//! Records one node that is not ready or was deleted: since when, and what was seen and reported of it. It counts as lost
//! after [`LOST_AFTER`]. Pure.
use crate::{
    controller::{clock::elapsed, world::World},
    model::instance_name::InstanceKey,
};
use k8s_openapi::jiff::Timestamp;
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};
use tokio::time::Instant;

/// The time after which a node that is not ready counts as lost. A node that restarts is back by then.
pub(crate) const LOST_AFTER: Duration = Duration::from_secs(60);
/// The agent of a node that was taken out joins again by then, if it runs.
pub(crate) const REJOIN_TIME: Duration = Duration::from_secs(60);
/// The time after which an agent that has answered is asked again: it writes nothing while nothing changes, as if it had ended.
const ASKED_AGAIN_AFTER: Duration = Duration::from_mins(5);
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

/// A node that is not ready, or was deleted and holds slots.
#[derive(Debug)]
pub(crate) struct AbsentNode {
    pub(crate) why: Why,
    pub(crate) noticed: Instant,
    /// The time for which it had been absent when it was noticed.
    pub(crate) before: Duration,
    /// The Instances that it was taken out of since.
    pub(crate) left: BTreeMap<InstanceKey, Instant>,
    /// The uid of its NodeDevices now.
    pub(crate) object_uid: Option<String>,
    agent: Agent,
    /// The last look for its Pods, where it is deleted.
    pub(crate) look: Option<PodsLook>,
    /// The reported warnings about its slots.
    pub(crate) reported: BTreeSet<(InstanceKey, Wait)>,
}

/// The agent of a node that is lost, as far as it is known. It is asked by the deletion of its NodeDevices, and answers by new ones.
#[derive(Debug, Clone, Copy)]
enum Agent {
    Unknown,
    Answered { at: Instant },
    AskedAgain { at: Instant },
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Why {
    NotReady {
        since: Timestamp,
        /// True if the Node has the taint `node.kubernetes.io/out-of-service`.
        is_off: bool,
    },
    Deleted,
}

#[derive(Debug)]
pub(crate) struct PodsLook {
    pub(crate) at: Instant,
    pub(crate) pods: Pods,
}

/// The answer to the question whether a deleted node has Pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pods {
    Unknown,
    Remain,
    Deleted,
}

/// The reason why slots are not free yet: each one is reported once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Wait {
    Time,
    Operator,
    Pods,
}

impl AbsentNode {
    pub(crate) fn new(why: Why, before: Duration, object_uid: Option<String>, now: Now) -> Self {
        Self {
            agent: Agent::Unknown,
            object_uid,
            why,
            noticed: now.instant,
            before,
            left: BTreeMap::new(),
            look: None,
            reported: BTreeSet::new(),
        }
    }

    /// Takes in that it is still lost. What says that its agent lives counts until something newer says otherwise.
    pub(crate) fn gone_on(self, why: Why, name: &str, world: &World, now: Now) -> Self {
        let is_off = |why| matches!(why, Why::NotReady { is_off: true, .. });
        let object_uid = object_of(name, world);
        let is_made_anew = object_uid.is_some() && object_uid != self.object_uid;
        let is_marked = is_off(why) && !is_off(self.why);
        let (had_answered, at) = (matches!(self.agent, Agent::Answered { .. }), now.instant);
        let agent = if is_marked {
            Agent::Unknown
        } else if is_made_anew {
            Agent::Answered { at }
        } else if had_answered && object_uid.is_none() {
            Agent::AskedAgain { at }
        } else {
            self.agent
        };
        let mut absent = Self {
            why,
            object_uid,
            agent,
            ..self
        };
        if is_marked {
            absent.left.clear();
        }
        // A deleted node is not named in Instances, but keeps its slots as long as its agent writes.
        if why == Why::Deleted && is_made_anew {
            absent.left.clear();
            (absent.noticed, absent.before, absent.look) = (now.instant, Duration::ZERO, None);
        }
        absent
    }

    /// Returns whether its agent lives, or has the time to answer again.
    pub(crate) fn has_answered(&self, now: Instant) -> bool {
        match self.agent {
            Agent::Unknown => false,
            Agent::Answered { .. } => true,
            Agent::AskedAgain { at } => now - at < REJOIN_TIME,
        }
    }

    /// Returns how long its agent is believed yet, and then asked again or given up.
    pub(crate) fn is_believed_for(&self, now: Instant) -> Option<Duration> {
        let (since, time) = match self.agent {
            Agent::Unknown => return None,
            Agent::Answered { at } => (at, ASKED_AGAIN_AFTER),
            Agent::AskedAgain { at } => (at, REJOIN_TIME),
        };
        Some(time.saturating_sub(now - since))
    }

    pub(crate) fn age(&self, now: Instant) -> Duration {
        self.before.saturating_add(now - self.noticed)
    }

    /// Returns whether the wait was reported on an Instance.
    pub(crate) fn is_reported(&self, key: &InstanceKey, wait: Wait) -> bool {
        self.reported.contains(&(key.clone(), wait))
    }

    pub(crate) fn pods(&self) -> Pods {
        (self.look.as_ref()).map_or(Pods::Unknown, |look| look.pods)
    }

    /// Returns how long its agent may yet take to join an Instance again that it was taken out of.
    pub(crate) fn rejoins_in(&self, key: &InstanceKey, now: Instant) -> Duration {
        let out = match self.left.get(key) {
            Some(left) => now - *left,
            // It was taken out before this process looked, or did not see the device.
            None => (now - self.noticed).min(self.age(now).saturating_sub(LOST_AFTER)),
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
    /// Returns whether a node that was lost for the reason `before` has not been back since.
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
