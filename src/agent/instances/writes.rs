//! Limits how often Instances are written, and decides which failures are logged.
//!
//! | what | how often |
//! |---|---|
//! | created, joined, left, deleted | at once |
//! | the first word on a device's health | at once |
//! | another health, another description | the first at once, then one a second for each Instance: the last is written |
//! | these and all that was refused before, together | [`BURST`] at once, then [`A_SECOND`] a second; bad news first |
//! | what was refused | again after 0.2 s, then later and later, 60 s at most; each Instance for itself |
//!
//! The failure of a switch with a thousand devices is written at once, and so is their return, while an agent in a network
//! that changes all the time causes a bounded load on the API server. The kubelet waits for none of these writes: the
//! plugins send it their lists.
use super::plan::Failing;
use crate::{
    model::{instance_name::InstanceKey, token_bucket::TokenBucket},
    pace::Pace,
    store::{InstanceChange, Instances, StoreError},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};
use tokio::time::Instant;

const BETWEEN_WRITES: Duration = Duration::from_secs(1);
const BURST: usize = 2000;
const A_SECOND: u32 = 20;
const FIRST_RETRY: Duration = Duration::from_millis(200);
const LAST_RETRY: Duration = Duration::from_secs(60);

/// A kind of change of one Instance.
type Step = (&'static str, InstanceKey);

pub(super) struct Writes {
    node: String,
    began: Instant,
    /// The waits of writes that failed.
    refused: Pace<Step>,
    /// The error that was logged last for each step.
    reasons: BTreeMap<Step, StoreError>,
    /// The time of the last write of the health or the description of each Instance.
    written: BTreeMap<Step, Instant>,
    bucket: TokenBucket,
}

/// The changes that may be written now.
#[derive(Debug)]
pub(super) struct Due {
    pub(super) changes: Vec<InstanceChange>,
    /// The time until more changes may be written.
    pub(super) wake_in: Option<Duration>,
}

/// The result of a write.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Done,
    /// The next plan sees what is there now.
    Overtaken,
    /// The write failed again with an error that was logged. It is repeated.
    FailsStill,
    Fails(StoreError),
}

impl Writes {
    pub(super) fn new(node: &str, now: Instant) -> Self {
        Self {
            node: node.to_owned(),
            began: now,
            refused: Pace::new(FIRST_RETRY, LAST_RETRY),
            reasons: BTreeMap::new(),
            written: BTreeMap::new(),
            bucket: TokenBucket::new(BURST, A_SECOND, Duration::ZERO),
        }
    }

    /// Returns the planned changes that may be written now, in their order, and forgets changes that are no longer
    /// planned.
    pub(super) fn due(
        &mut self,
        planned: Vec<InstanceChange>,
        instances: &Instances,
        now: Instant,
    ) -> Due {
        self.forget(&planned, now);
        let mut wake_in: Option<Duration> = None;
        let mut waits = |left: Duration| wake_in = Some(wake_in.map_or(left, |w| w.min(left)));
        let (mut due, mut limited) = (vec![], vec![]);
        for (n, change) in planned.into_iter().enumerate() {
            match (
                self.wait(&step(&change), now),
                self.rank(&change, instances),
            ) {
                (Some(left), _) => waits(left),
                (None, None) => due.push((n, change)),
                (None, Some(rank)) => limited.push((rank, n, change)),
            }
        }
        limited.sort_by_key(|(rank, n, _)| (*rank, *n));
        let uptime = now - self.began;
        let count = self.bucket.available(uptime).min(limited.len());
        self.bucket.take(count, uptime);
        if count < limited.len() {
            waits(self.bucket.next_in(uptime));
        }
        due.extend(
            limited
                .into_iter()
                .take(count)
                .map(|(_, n, change)| (n, change)),
        );
        due.sort_by_key(|(n, _)| *n);
        Due {
            changes: due.into_iter().map(|(_, change)| change).collect(),
            wake_in,
        }
    }

    /// Notes what has become of a write.
    pub(super) fn done(
        &mut self,
        change: &InstanceChange,
        outcome: Result<(), StoreError>,
        now: Instant,
    ) -> Outcome {
        let step = step(change);
        let error = match (change, outcome) {
            (_, Ok(())) => {
                if is_repeated(change) {
                    self.written.insert(step.clone(), now);
                }
                self.succeeds(&step);
                return Outcome::Done;
            }
            // It was there when it was to be created, and gone when it was to be joined: no event will say that it may
            // be created now.
            (InstanceChange::Create(_), Err(error @ StoreError::Gone(_))) => error,
            (_, Err(StoreError::Gone(_) | StoreError::Exists(_) | StoreError::InUse { .. })) => {
                self.succeeds(&step);
                return Outcome::Overtaken;
            }
            (_, Err(error)) => error,
        };
        self.refused.done(step.clone(), now);
        match self.reasons.insert(step, error.clone()) {
            Some(before) if before == error => Outcome::FailsStill,
            Some(_) | None => Outcome::Fails(error),
        }
    }

    /// The Instances that could not be created.
    pub(super) fn failing(&self) -> Failing {
        let creations = self.reasons.iter().filter(|((kind, _), _)| *kind == CREATE);
        let reason = |error: &StoreError| {
            let is_refusal = matches!(error, StoreError::Refused(_));
            is_refusal.then(|| error.to_string())
        };
        creations
            .map(|((_, key), error)| (key.clone(), reason(error)))
            .collect()
    }

    fn succeeds(&mut self, step: &Step) {
        self.refused.reset(step);
        self.reasons.remove(step);
    }

    fn forget(&mut self, planned: &[InstanceChange], now: Instant) {
        if !self.reasons.is_empty() {
            let planned: BTreeSet<Step> = planned.iter().map(step).collect();
            self.reasons.retain(|step, _| planned.contains(step));
        }
        self.refused.forget(now);
        (self.written).retain(|_, written| *written + BETWEEN_WRITES > now);
    }

    fn wait(&self, step: &Step, now: Instant) -> Option<Duration> {
        let written = self
            .written
            .get(step)
            .map(|written| *written + BETWEEN_WRITES);
        let calm = written.map(|at| at.saturating_duration_since(now));
        let calm = calm.filter(|left| !left.is_zero());
        self.refused.wait(step, now).max(calm)
    }

    /// Returns the rank of a change whose number is limited; the first rank is written first.
    fn rank(&self, change: &InstanceChange, instances: &Instances) -> Option<u8> {
        if self.refused.knows(&step(change)) {
            return Some(3);
        }
        match change {
            InstanceChange::Health { key, .. } if !self.has_said(key, instances) => None,
            InstanceChange::Health { health, .. } => Some(u8::from(health.is_healthy)),
            InstanceChange::Describe { .. } => Some(2),
            InstanceChange::Create(_)
            | InstanceChange::Join(_)
            | InstanceChange::Leave(_)
            | InstanceChange::Delete { .. } => None,
        }
    }

    /// Returns whether this node has said anything of the device.
    fn has_said(&self, key: &InstanceKey, instances: &Instances) -> bool {
        let status = instances
            .get(key)
            .and_then(|instance| instance.status.as_ref());
        status.is_some_and(|status| status.nodes.iter().any(|entry| entry.name == self.node))
    }
}

const CREATE: &str = "create";

fn step(change: &InstanceChange) -> Step {
    let kind = match change {
        InstanceChange::Create(_) => CREATE,
        InstanceChange::Join(_) => "join",
        InstanceChange::Leave(_) => "leave",
        InstanceChange::Describe { .. } => "describe",
        InstanceChange::Health { .. } => "health",
        InstanceChange::Delete { .. } => "delete",
    };
    (kind, change.key())
}

/// Returns whether a change comes as often as the device changes.
fn is_repeated(change: &InstanceChange) -> bool {
    matches!(
        change,
        InstanceChange::Health { .. } | InstanceChange::Describe { .. }
    )
}

#[cfg(test)]
mod tests;
